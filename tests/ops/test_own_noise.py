"""Own-noise integration against the same sums in float64.

The sums take the integral over a class's own noise on a fine grid.
"""

import numpy as np
import pytest
from keras import ops
from scipy.special import log_softmax, logsumexp

from keras_het.ops import blocking, log_expected_softmax, low_rank_normal, own_noise
from keras_het.ops.nodes import quasi_random
from keras_het.ops.softmax import without_shift
from keras_het.ops.streaming import expectation
from tests import reference
from tests.gradients import value_and_gradients
from tests.ops.test_softmax import KINDS, UNITS, nodes_of, problem

OPTIONS = [{"chunk_size": 8}, {"chunk_size": None}, {"chunk_size": 8, "unroll": True}]
GRID = np.arange(-13.0, 26.0, 0.02)


def log_psi(center, scale):
    """log E[sigmoid(center + scale e)] by the trapezoidal rule on a fine grid."""
    x = center[..., None] + scale[..., None] * GRID
    return logsumexp(-np.logaddexp(0.0, -x) - GRID**2 / 2, axis=-1) + np.log(0.02 / np.sqrt(2 * np.pi))


def oracle(arguments, nodes):
    """log P, normalised, `(B, K)`."""
    given = {name: np.float64(value) for name, value in arguments.items()}
    temperature = given.pop("temperature")
    scale = given["scale_diag"] / temperature
    logits = reference.logits_at(**given, eps_diag=nodes[0], eps_factor=nodes[1]) / temperature
    centers = logits - scale * np.float64(nodes[0])[:, None, :]
    others = np.stack([logsumexp(np.delete(logits, k, axis=-1), axis=-1) for k in range(logits.shape[-1])], axis=-1)
    return log_softmax(logsumexp(log_psi(centers - others, np.broadcast_to(scale, centers.shape)), axis=0), axis=-1)


def function(tensors, names, nodes, **options):
    given = dict(zip(names, tensors, strict=True))
    temperature = given.pop("temperature")
    normal = low_rank_normal(**given).centered(without_shift).divided(temperature)
    return ops.log_softmax(
        expectation(own_noise.OwnNoiseMean(), own_noise.OwnNoiseNormal(normal), nodes, **options), axis=-1
    )


def evaluate(arguments, nodes, **options):
    return ops.convert_to_numpy(
        function([ops.convert_to_tensor(x) for x in arguments.values()], arguments, nodes, **options)
    )


def gradients(arguments, nodes, upstream, **options):
    upstream = ops.convert_to_tensor(upstream)

    def loss(tensors):
        return ops.sum(function(tensors, arguments, nodes, **options) * upstream)

    return dict(zip(arguments, value_and_gradients(loss, [*arguments.values()])[1], strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_value_at_given_nodes(kind, scale, options):
    arguments, nodes = problem(kind, scale=scale), nodes_of(kind)
    found = evaluate(arguments, nodes, **options)
    np.testing.assert_allclose(found, oracle(arguments, nodes), atol=1e-3)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1.0, rtol=1e-5)


def test_the_oracle_sees_an_own_node_that_is_left_in(monkeypatch):
    arguments, nodes = problem("diagonal"), nodes_of("diagonal")
    apart = own_noise._apart
    monkeypatch.setattr(
        own_noise, "_apart", lambda logits, *others: apart((logits[0], *logits[:1], logits[2]), *others)
    )
    assert np.abs(evaluate(arguments, nodes, chunk_size=None) - oracle(arguments, nodes)).max() > 0.02


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loc_scale", [2.0, 40.0])
def test_streamed_gradient_equals_plain_autodiff(kind, loc_scale, monkeypatch):
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", 2 * UNITS * 8)
    arguments, nodes = problem(kind, loc_scale=loc_scale), nodes_of(kind)
    upstream = np.random.default_rng(1).normal(size=arguments["loc"].shape).astype("float32")
    streamed = gradients(arguments, nodes, upstream, chunk_size=8)
    for name, gradient in gradients(arguments, nodes, upstream, chunk_size=None).items():
        largest = np.abs(gradient).max()
        np.testing.assert_allclose(streamed[name], gradient, rtol=2e-5, atol=2e-5 * largest + 1e-6, err_msg=name)


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_against_finite_differences_in_float64(kind):
    arguments, nodes = problem(kind), nodes_of(kind)
    upstream, rng = (
        np.random.default_rng(1).normal(size=arguments["loc"].shape).astype("float32"),
        np.random.default_rng(2),
    )
    for name, gradient in gradients(arguments, nodes, upstream, chunk_size=8).items():
        direction = rng.normal(size=gradient.shape)
        moved = [{**arguments, name: np.float64(arguments[name]) + step * direction} for step in (1e-5, -1e-5)]
        slope = np.sum(upstream * (oracle(moved[0], nodes) - oracle(moved[1], nodes))) / 2e-5
        np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=1e-3, atol=2e-3, err_msg=name)


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_extremes_are_numbers(kind):
    """Logits to 1e4, noise to 1e3, no noise at all, a class that is left out, and equal largest logits."""
    arguments, nodes = problem(kind), nodes_of(kind)
    arguments["loc"][:4] = [[1e4, -1e4, 0, 9e3, -5e3, 1e4], [0] * 6, [50, 50, 50, 0, 0, 0], [-np.inf, 1, 2, 3, 4, 5]]
    arguments["scale_diag"][:3] = [[1e3], [0.0], [0.0]]
    upstream = np.random.default_rng(1).normal(size=(5, UNITS)).astype("float32")
    for options in OPTIONS:
        found = evaluate(arguments, nodes, **options)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(np.exp(found).sum(-1), 1.0, rtol=1e-5)
    for name, gradient in gradients(arguments, nodes, upstream, chunk_size=8).items():
        assert np.isfinite(gradient).all(), name
    plain = gradients(arguments, nodes, upstream, chunk_size=None)
    assert all(np.isfinite(gradient).all() for gradient in plain.values())


def test_without_noise_it_is_the_softmax():
    arguments, nodes = problem("diagonal", scale=0.0), nodes_of("diagonal")
    expected = log_softmax(np.float64(arguments["loc"]) / 1.3, axis=-1)
    np.testing.assert_allclose(evaluate(arguments, nodes, chunk_size=8), expected, atol=1e-4)


@pytest.mark.parametrize(("kind", "gain"), [("diagonal", 3.0), ("parameter_efficient", 1.0)])
def test_it_needs_fewer_nodes(kind, gain):
    """Root mean square error of 64 nodes beside that of the plain mean at the same nodes, both against 2^14."""
    factors = 0 if kind == "diagonal" else 3
    arguments = problem(kind, batch=(64,))
    arguments["row_scale" if factors else "scale_diag"] *= 0.3 if factors else 1.5

    def both(step, count):
        nodes = quasi_random((5, step), count, UNITS, factors, np)
        plain = log_expected_softmax(**{"factor": None, **arguments}, nodes=nodes, unroll=True)
        return np.stack([evaluate(arguments, nodes, chunk_size=64, unroll=True), ops.convert_to_numpy(plain)])

    exact = both(0, 1 << 14)
    np.testing.assert_allclose(exact[0], exact[1], atol=0.02)
    errors = np.sqrt(np.mean([(both(step, 64) - exact) ** 2 for step in range(1, 9)], axis=(0, 2, 3)))
    assert gain * errors[0] < errors[1]


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 3.0, 5.0, 8.0])
def test_the_sigmoid_of_one_class_and_its_derivatives(scale):
    """Beyond s = 3 the error of the mixture, 4.5e-5 of one, is more of a psi that is small."""
    center = np.linspace(-60, 30, 181)
    exact = log_psi(center, np.full_like(center, scale))
    found = own_noise.log_psi(ops.convert_to_tensor(center.astype("float32")), ops.convert_to_tensor(np.float32(scale)))
    value, of_center, of_scale = map(ops.convert_to_numpy, found)
    np.testing.assert_allclose(value, exact, atol=1e-4 if scale <= 3 else 2.5e-3, rtol=1e-6)
    moved = [log_psi(center + step, np.full_like(center, scale)) for step in (1e-4, -1e-4)]
    np.testing.assert_allclose(of_center, (moved[0] - moved[1]) / 2e-4, atol=1e-3)
    moved = [log_psi(center, np.full_like(center, scale + step)) for step in (1e-4, -1e-4)]
    np.testing.assert_allclose(of_scale, (moved[0] - moved[1]) / 2e-4, atol=1e-2, rtol=2e-3)
