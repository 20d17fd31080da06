"""Streamed expectations of softmax and sigmoid against float64, plain operations and integrals."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit, log_softmax, logsumexp, softmax

from keras_het.ops import blocking
from keras_het.ops.log_space import log_mean_exp
from keras_het.ops.nodes import pseudo_random, quasi_random
from keras_het.ops.softmax import second_order_log_softmax
from tests import reference
from tests.common import low_rank_normal, refuses, to_numpy
from tests.gradients import second_derivative
from tests.marks import grid
from tests.ops.expected import (
    EVERY_KIND,
    FACTORS,
    LINKS,
    PLAIN,
    SAMPLES,
    UNITS,
    assert_same_gradients,
    check_slopes,
    check_values,
    evaluate,
    expected,
    gradients,
    nodes_of,
    oracle,
    problem,
    upstream_of,
)

SPLITS = [(5, 2, 8), (6, 2, 8), (5, None, 3), (5, None, None)]  # batch, rows of a block, nodes of a chunk
every_kind = pytest.mark.parametrize("kind", EVERY_KIND)
every_link = pytest.mark.parametrize("link", LINKS)


@every_link
@every_kind
@pytest.mark.parametrize("loc_scale", grid([2.0, 40.0], span=[40.0]))
@pytest.mark.parametrize("split", grid(SPLITS, span=[(5, 2, 8)]), ids=str)
def test_blocks_and_chunks_change_no_value_and_no_gradient(kind, loc_scale, split, link, monkeypatch):
    """Blocks of two rows: three of them, the last one padded or full; the nodes in chunks of 8 and a remainder."""
    batch, rows, chunk_size = split
    if rows is not None:
        monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", rows * UNITS * 8)
        blocks = blocking.block_sizes(ops.zeros((batch, UNITS)), SAMPLES, UNITS, 8)
        assert blocks[1] == 8
        assert (blocks[0] == 2) == (rows == 2)
    arguments, nodes = problem(kind, (batch,), loc_scale=loc_scale), nodes_of(kind)
    check_values(arguments, nodes, link=link, chunk_size=chunk_size)
    upstream = upstream_of(arguments)
    streamed = gradients(arguments, nodes, upstream, link=link, chunk_size=chunk_size)
    assert_same_gradients(streamed, gradients(arguments, nodes, upstream, link=link, **PLAIN))


@pytest.mark.on_tensorflow
@pytest.mark.parametrize(("difference", "scale"), [(0.5, 0.3), (-2.0, 1.0), (6.0, 3.0)])
def test_two_classes_against_the_one_dimensional_integral(difference, scale):
    """p_0 = E[sigmoid(N(difference, s^2) / tau)] with s^2 = 2 scale^2 + (V_0 - V_1)^2."""
    tau, factor = 0.9, np.array([[[0.7], [-0.2]]], "float32") * scale
    deviation = np.sqrt(2 * scale**2 + float(np.diff(factor[0, :, 0])[0]) ** 2)
    integrand = lambda z: expit((difference + deviation * z) / tau) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)  # noqa: E731
    loc = np.array([[difference, 0.0]], "float32")
    arguments = {"loc": loc, "scale_diag": np.full_like(loc, scale), "factor": factor, "temperature": tau}
    values = [np.exp(evaluate(arguments, quasi_random((0, s), 4096, 2, 1, np))[0, 0]) for s in range(16)]
    error = np.std(values, ddof=1) / 4
    integral = quad(integrand, -12, 12, epsabs=1e-12)[0]
    assert abs(np.mean(values) - integral) < 7 * error  # Student's t, 15 degrees of freedom: 4e-6
    assert error < 1e-4


NOISE = ("scale_diag", "factor", "row_scale")
EXTREMES = {
    "large logits, loud noise": ([1e4, -1e4, 0.0, 9e3, -5e3, 1e4], [1e3] * 6),
    "one quiet class among loud ones": ([0.0, 5.0, -5.0, 2.0, 1.0, 0.0], [1e3, 1e3, 1e-3, 1e3, 1e3, 1e3]),
    "all equal": ([3.0] * 6, [1.0] * 6),
    "large offset": ([1e4, 1e4 - 1, 1e4 + 2, 1e4, 1e4, 1e4 + 1], [0.5] * 6),
}


@pytest.mark.on_tensorflow
@every_link
@pytest.mark.parametrize("name", grid(EXTREMES, span=["large logits, loud noise", "one quiet class among loud ones"]))
@pytest.mark.parametrize("kind", grid(["diagonal", "full", "parameter_efficient"], span=["full"]))
@pytest.mark.parametrize("options", [{"chunk_size": 16}, pytest.param(PLAIN, marks=pytest.mark.once)], ids=str)
def test_extremes_are_finite_and_agree_with_float64(name, kind, options, link):
    """The factor of each kind is as loud as the diagonal."""
    loc, scale = (np.array([x], "float32") for x in EXTREMES[name])
    factor = np.random.default_rng(0).normal(size=(1, UNITS, FACTORS)).astype("float32")
    arguments, nodes = {"loc": loc, "scale_diag": scale, "temperature": np.float32(1.5)}, nodes_of(kind)
    if kind != "diagonal":
        efficient = {"factor": factor[0], "row_scale": scale}
        arguments |= {"factor": factor * scale[..., None]} if kind == "full" else efficient
    check_values(arguments, nodes, 1e-3, link=link, **options)
    for label in range(0, UNITS, 2):  # the quiet class is one of them
        check_slopes(arguments, nodes, -np.eye(UNITS, dtype="float32")[[label]], link=link, **options)


@pytest.mark.skipif(
    keras.config.backend() != "tensorflow",
    reason="matrix products are float32: PyTorch by Keras' choice, JAX without its x64 mode",
)
def test_float64_where_the_backend_computes_in_it():
    arguments = {name: np.float64(value) for name, value in problem("full").items()}
    assert evaluate(arguments, nodes_of("full")).dtype == "float64"
    check_values(arguments, nodes_of("full"), 1e-12)


def test_nodes_of_another_size_are_refused():
    for units, factors, text in ((5, FACTORS, "6 units .* Received: 5"), (UNITS, 2, "3 factors .* Received: 2")):
        with refuses(rf"`nodes` must have the {text}"):
            evaluate(problem("full"), pseudo_random((0, 0), 8, units, factors, np))


@pytest.mark.on_tensorflow
def test_as_many_classes_as_imagenet_21k():
    rng, shape = np.random.default_rng(0), (2, 21_843)
    loc, row_scale = rng.normal(size=(2, *shape)).astype("float32")
    factor = np.ones((shape[1], 2), "float32")
    arguments = {"loc": loc, "scale_diag": np.ones(shape, "float32"), "factor": factor, "row_scale": row_scale}
    arguments["temperature"] = np.float32(0.4)
    nodes = quasi_random((0, 0), 3, shape[1], 2, np)
    check_values(arguments, nodes)
    slopes = gradients(arguments, nodes, np.ones(shape, "float32")).values()
    assert all(np.all(np.isfinite(gradient)) for gradient in slopes)


def test_plain_operations_have_second_derivatives():
    arguments, nodes = problem("full", batch=(1,)), nodes_of("full")
    loc, step, direction = arguments.pop("loc"), 1e-3, np.random.default_rng(3).normal(size=(1, UNITS))

    def loss(t):
        moved = ops.convert_to_tensor(loc) + t * ops.convert_to_tensor(direction.astype("float32"))
        return expected(moved, **arguments, nodes=nodes, **PLAIN)[0, 0]

    ends = [oracle({"loc": loc + t * direction, **arguments}, nodes)[0, 0] for t in (-step, 0.0, step)]
    assert_allclose(second_derivative(loss, 0.0), (ends[0] - 2 * ends[1] + ends[2]) / step**2, rtol=1e-3)


@pytest.mark.on_tensorflow
@every_link
@pytest.mark.parametrize("kind", grid(["diagonal", "full", "shared", "parameter_efficient"], span=["full"]))
def test_the_second_derivative_of_a_streamed_expectation_is_that_of_plain_operations(link, kind, monkeypatch):
    """Along a random line, weighted; a value that is held constant in the backward pass is off by a third or more."""
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", 2 * UNITS * 8)
    arguments, nodes, rng = problem(kind), nodes_of(kind), np.random.default_rng(1)
    moves = {name: 0.3 * rng.normal(size=x.shape).astype("float32") for name, x in arguments.items()}
    weights = ops.convert_to_tensor(rng.normal(size=arguments["loc"].shape).astype("float32"))

    def along_a_line(options):
        def function(t):
            moved = {name: ops.add(x, ops.multiply(t, moves[name])) for name, x in arguments.items()}
            return ops.sum(weights * ops.square(expected(**moved, nodes=nodes, link=link, **options)))

        return second_derivative(function, 0.1)

    assert_allclose(along_a_line({"chunk_size": 8}), along_a_line(PLAIN), rtol=1e-3)


@every_kind
def test_the_second_order_is_that_of_the_expansion_of_the_softmax(kind):
    """log softmax + trace(Hessian covariance) / (2 softmax), by central differences of second order, normalised."""
    factors, step = {"scale_diag": 0.5, "factor": 0.5}, 1e-3
    arguments = {name: x * np.float32(factors.get(name, 1.0)) for name, x in problem(kind, batch=(1,)).items()}
    noise = {name: arguments[name] for name in NOISE if name in arguments}
    of_one = {name: x if name == "factor" and kind != "full" else x[0] for name, x in noise.items()}
    covariance, normal = reference.noise_covariance(**of_one), low_rank_normal(arguments["loc"], **noise)
    loc, shifts = np.float64(arguments["loc"][0]), step * np.eye(UNITS)
    value, total = softmax(loc), np.zeros(UNITS)
    for i, j in np.ndindex(UNITS, UNITS):
        corners = [a * b * softmax(loc + a * shifts[i] + b * shifts[j]) for a in (1, -1) for b in (1, -1)]
        total += covariance[i, j] * sum(corners) / (4 * step**2)
    expansion = log_softmax(np.log(value) + 0.5 * total / value)
    assert_allclose(to_numpy(second_order_log_softmax(normal))[0], expansion, atol=5e-6)


def test_log_mean_exp_does_not_overflow():
    x = np.array([[1e4, 1e4 + 1], [-1e4, -1e4 - 3]], "float32")
    assert_allclose(to_numpy(log_mean_exp(x)), logsumexp(np.float64(x), axis=1) - np.log(2), rtol=1e-6)
    assert_allclose(to_numpy(log_mean_exp(x, axis=0)), x[0] - np.log(2), rtol=1e-6)
