"""Second-order expansion of E[softmax] against finite differences in float64, and its error for small noise."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import log_softmax, softmax

from keras_het.ops.softmax import second_order_log_softmax
from tests import reference
from tests.common import low_rank_normal, to_numpy
from tests.ops.expected import EVERY_KIND, UNITS, problem


def distribution(kind, size=1.0):
    """Arguments of `low_rank_normal` for one example, with the noise times a size."""
    arguments = problem(kind, batch=(1,))
    arguments.pop("temperature")
    factors = {"scale_diag": size, "factor": size}
    return {name: (value * np.float32(factors.get(name, 1.0))).astype("float32") for name, value in arguments.items()}


def covariance_of(arguments):
    given = [arguments["scale_diag"][0], arguments.get("factor"), arguments.get("row_scale")]
    factor = given[1] if given[1] is None or given[1].ndim == 2 else given[1][0]
    return reference.noise_covariance(given[0], factor, None if given[2] is None else given[2][0])


def expansion(arguments):
    """log softmax + trace(Hessian covariance) / (2 softmax), by central differences of second order, normalised."""
    loc, covariance, step = np.float64(arguments["loc"][0]), covariance_of(arguments), 1e-3
    shifts = step * np.eye(UNITS)
    value, total = softmax(loc), np.zeros(UNITS)
    for i in range(UNITS):
        for j in range(UNITS):
            corners = [a * b * softmax(loc + a * shifts[i] + b * shifts[j]) for a in (1, -1) for b in (1, -1)]
            total += covariance[i, j] * sum(corners) / (4 * step**2)
    return log_softmax(np.log(value) + 0.5 * total / value)


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_it_is_the_expansion_to_second_order(kind):
    arguments = distribution(kind, 0.5)
    result = to_numpy(second_order_log_softmax(low_rank_normal(**arguments)))[0]
    assert_allclose(result, expansion(arguments), atol=5e-6)
