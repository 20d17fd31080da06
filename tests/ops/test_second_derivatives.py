"""Second derivatives of the streamed expectation, with its custom gradient, against plain operations."""

import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose

from keras_het.ops import blocking
from tests.gradients import second_derivative
from tests.ops.expected import PLAIN, log_expected_softmax, sampled_expected_sigmoid_logit
from tests.ops.test_softmax import EVERY_KIND, UNITS, nodes_of, problem

EXPECTATIONS = {"softmax": log_expected_softmax, "sigmoid": sampled_expected_sigmoid_logit}


def along_a_line(expectation, kind, **options):
    """A function of a number that moves every argument along a random line, weighted, and not linear in log p."""
    arguments, nodes, rng = problem(kind), nodes_of(kind), np.random.default_rng(1)
    directions = {name: 0.3 * rng.normal(size=x.shape).astype("float32") for name, x in arguments.items()}
    weights = rng.normal(size=arguments["loc"].shape).astype("float32")

    def function(t):
        moved = {
            name: ops.convert_to_tensor(x) + t * ops.convert_to_tensor(directions[name])
            for name, x in arguments.items()
        }
        return ops.sum(
            ops.convert_to_tensor(weights)
            * ops.square(EXPECTATIONS[expectation](**{"factor": None, **moved}, nodes=nodes, **options))
        )

    return function


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("expectation", EXPECTATIONS)
def test_the_second_derivative_is_that_of_plain_operations(expectation, kind, monkeypatch):
    """A value that is held constant in the backward pass is off by a third or more."""
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", 2 * UNITS * 8)
    expected = second_derivative(along_a_line(expectation, kind, **PLAIN), 0.1)
    assert_allclose(second_derivative(along_a_line(expectation, kind, chunk_size=8), 0.1), expected, rtol=1e-3)
