import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose

from keras_het.ops import blocking
from keras_het.ops.sigmoid import expected_sigmoid_logit, log_expected_sigmoid
from tests import reference
from tests.common import assert_finite, to_numpy
from tests.gradients import value_and_gradients
from tests.marks import grid
from tests.ops.expected import PLAIN, assert_same_gradients, sampled_expected_sigmoid_logit
from tests.ops.test_softmax import EVERY_KIND, EXTREMES, UNITS, check_slope, extreme, nodes_of, problem

MEANS = np.concatenate([np.linspace(-100, 100, 41), np.linspace(-6, 6, 25), [-1e-3, 1e-3]])
SCALES = np.concatenate([[0.0, 1e-3, 0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0], np.linspace(4, 30, 14)])
GRID = np.array(np.meshgrid(MEANS, SCALES)).reshape(2, -1).astype("float32")


@pytest.fixture(scope="module")
def integrals():
    """Computes log E[sigmoid] and its derivatives by mean and scale over the grid, at a and at -a."""
    mean, scale = np.float64(GRID)
    return [
        np.array([reference.expected_sigmoid(sign * a, s) for a, s in zip(mean, scale, strict=True)])
        for sign in (1, -1)
    ]


@pytest.mark.once
def test_closed_form_against_integration(integrals):
    mean, scale = GRID
    for computed, expected in zip(log_expected_sigmoid(mean, scale**2), integrals, strict=True):
        assert_allclose(to_numpy(computed), expected[:, 0], rtol=0, atol=1e-4)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("tail", [0, 1], ids=["p", "1 - p"])
def test_gradients_of_the_closed_form_against_integration(integrals, tail):
    _, computed = value_and_gradients(
        lambda tensors: ops.sum(log_expected_sigmoid(tensors[0], tensors[1] ** 2)[tail]), list(GRID)
    )
    expected = integrals[tail][:, 1:] * [1 - 2 * tail, 1]
    for i in range(2):
        assert_allclose(computed[i], expected[:, i], rtol=1e-3, atol=1e-6)


def test_logit_is_odd_has_a_slope_at_zero_and_survives_extremes():
    mean = np.array([0.0, 1e4, -1e4, 50.0, -50.0], "float32")
    variance = np.array([1.0, 1e6, 1e6, 0.0, 0.0], "float32")
    value, (by_mean, by_variance) = value_and_gradients(
        lambda tensors: ops.sum(expected_sigmoid_logit(*tensors)), [mean, variance]
    )
    logit = to_numpy(expected_sigmoid_logit(mean, variance))
    assert_finite(value, [by_mean, by_variance])
    assert_allclose(logit[[1, 3]], -logit[[2, 4]], rtol=1e-6)
    assert_allclose(logit[3], 50.0, rtol=1e-4)
    assert by_mean[0] > 0.5
    # logit p = logit E[sigmoid] of N(1e4, 1e6): log q = log Phi(-10) to the accuracy of the smoothing, which is 1e-3
    # standard deviations
    assert_allclose(logit[1], 53.2, rtol=1e-2)


def oracle(arguments, nodes):
    given = {name: value for name, value in arguments.items() if name != "temperature"}
    eps_diag, eps_factor = (to_numpy(x) for x in nodes)
    logits = reference.logits_at(**given, eps_diag=eps_diag, eps_factor=eps_factor)
    return reference.logit_mean_sigmoid(logits, np.float64(arguments["temperature"]))


def loss(names, nodes, upstream, options):
    upstream = ops.convert_to_tensor(upstream)

    def function(tensors):
        arguments = {"factor": None, **dict(zip(names, tensors, strict=True))}
        return ops.sum(sampled_expected_sigmoid_logit(**arguments, nodes=nodes, **options) * upstream)

    return function


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("options", [{}, {"chunk_size": 8}, PLAIN, {"chunk_size": 8, "streamed": False}], ids=str)
def test_sampled_value_at_given_nodes(kind, options):
    arguments, nodes = problem(kind), nodes_of(kind)
    computed = sampled_expected_sigmoid_logit(**{"factor": None, **arguments}, nodes=nodes, **options)
    assert_allclose(to_numpy(computed), oracle(arguments, nodes), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("kind", grid(["diagonal", "full", "parameter_efficient"], span=["full"]))
@pytest.mark.parametrize("options", [{"chunk_size": 16}, PLAIN], ids=str)
def test_extremes_are_finite_and_agree_with_float64(name, kind, options):
    arguments, nodes = extreme(name, kind), nodes_of(kind)
    logit = sampled_expected_sigmoid_logit(**{"factor": None, **arguments}, nodes=nodes, **options)
    assert_allclose(to_numpy(logit), oracle(arguments, nodes), rtol=1e-3, atol=1e-3)
    upstream = np.eye(UNITS, dtype="float32")[[2]]  # the quiet class, where there is one
    function = loss(list(arguments), nodes, upstream, options)
    for parameter, gradient in zip(arguments, value_and_gradients(function, list(arguments.values()))[1], strict=True):
        assert np.all(np.isfinite(gradient)), parameter
        check_slope(oracle, arguments, nodes, upstream, parameter, gradient)


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("loc_scale", grid([2.0, 40.0], span=[40.0]))
@pytest.mark.parametrize("rows", [2, 1000])
def test_streamed_gradient_equals_plain_autodiff(kind, loc_scale, rows, monkeypatch):
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", rows * UNITS * 8)
    arguments, nodes = problem(kind, loc_scale=loc_scale), nodes_of(kind)
    upstream = np.random.default_rng(1).normal(size=arguments["loc"].shape).astype("float32")
    streamed, plain = (
        value_and_gradients(loss(list(arguments), nodes, upstream, options), list(arguments.values()))[1]
        for options in ({"chunk_size": 8}, PLAIN)
    )
    assert_same_gradients(*(dict(zip(arguments, slopes, strict=True)) for slopes in (streamed, plain)))
