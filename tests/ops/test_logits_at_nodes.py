"""The logits of the streamed path equal those of the plain one; `tests/test_noise_distribution.py` does not see it."""

import pytest
from keras import ops
from numpy.testing import assert_allclose

from keras_het.ops import streaming
from keras_het.ops.low_rank import LowRankNormal, low_rank_normal
from keras_het.ops.nodes import Nodes
from tests.common import to_numpy
from tests.ops.test_softmax import EVERY_KIND, SAMPLES, UNITS, nodes_of, problem


def check_logits(kind):
    arguments, nodes = problem(kind), Nodes(*map(ops.convert_to_tensor, nodes_of(kind)))
    normal = low_rank_normal(**{k: v for k, v in arguments.items() if k != "temperature"})
    flat = normal.flat()
    chunks = streaming.Chunks(flat.tables(nodes), SAMPLES + 1)  # all of them are its rest
    streamed = flat.logits_at(chunks._rest)
    plain = ops.reshape(normal.logits(nodes), (-1, SAMPLES, UNITS))
    assert_allclose(*(to_numpy(x) for x in (ops.swapaxes(streamed, 1, 2), plain)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_logits_are_those_of_the_plain_path(kind):
    check_logits(kind)


@pytest.mark.planted
def test_planted_nodes_in_another_order_is_caught(monkeypatch):
    logits_at = LowRankNormal.logits_at

    def rolled(self, chunk):
        return logits_at(self, (chunk[0], ops.roll(chunk[1], 1, axis=1)))

    monkeypatch.setattr(LowRankNormal, "logits_at", rolled)
    with pytest.raises(AssertionError):
        check_logits("full")
