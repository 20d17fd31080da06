"""The logits of the streamed path, which `tests/test_noise_distribution.py` does not see: equal to those of the plain one."""

import numpy as np
import pytest
from keras import ops

from keras_het.ops import LowRankNormal, Nodes, streaming
from keras_het.ops.noise import FactorNoise, make_noise
from tests.ops.test_expected_softmax import KINDS, SAMPLES, UNITS, nodes_of, problem


def check_logits(kind):
    arguments, nodes = problem(kind), Nodes(*map(ops.convert_to_tensor, nodes_of(kind)))
    normal = LowRankNormal(**{"factor": None, **{k: v for k, v in arguments.items() if k != "temperature"}}).as_tensors()
    rows, shared = streaming._parameters(normal, UNITS, nodes.eps_factor.shape[1])
    chunks = streaming.Chunks(streaming._tables(nodes, shared), SAMPLES + 1)  # all of them are its rest
    streamed = make_noise(rows, *shared).logits(chunks._rest)
    plain = ops.reshape(normal.logits(nodes), (-1, SAMPLES, UNITS))
    np.testing.assert_allclose(*(ops.convert_to_numpy(x) for x in (ops.swapaxes(streamed, 1, 2), plain)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_plain_path(kind):
    check_logits(kind)


def test_planted_nodes_in_another_order_is_caught(monkeypatch):
    logits = FactorNoise.logits

    def rolled(self, chunk):
        return logits(self, chunk._replace(eps_factor=ops.roll(chunk.eps_factor, 1, axis=1)))

    monkeypatch.setattr(FactorNoise, "logits", rolled)
    with pytest.raises(AssertionError):
        check_logits("full")
