"""The integral over the largest logit against the same integral in float64, with exact laws and many points."""

import numpy as np
import pytest
from keras import ops
from scipy.special import log_softmax, logsumexp

from keras_het.covariances import Latent
from keras_het.integrators import Quadrature, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.links import Softmax
from keras_het.ops import blocking, quadrature
from keras_het.ops.low_rank import low_rank_normal
from keras_het.ops.softmax import without_shift
from keras_het.ops.streaming import expectation
from tests.gradients import second_derivative, value_and_gradients
from tests.ops.test_softmax import UNITS, problem

pytestmark = pytest.mark.once

OPTIONS = [{"chunk_size": 8}, {"loop": "plain"}, {"chunk_size": 8, "loop": "unrolled"}]
NODES = 28  # a loop over chunks, and a remainder


def exact_law(offset, scale):
    """log F and log f of u + G at `offset`, `(N,)`, for one scale, by the trapezoidal rule over the noise of u."""
    step = min(0.05, 0.25 / max(scale, 1e-9))
    grid = np.arange(-7.0, 12.0, step)  # near the scale where a class far below wins
    exponent = np.minimum(scale * grid - offset[..., None], 700.0)
    weight = step * np.exp(-(grid**2) / 2) / np.sqrt(2 * np.pi)
    upper = np.sum(weight * -np.expm1(-np.exp(exponent)), axis=-1)
    log_lower = logsumexp(-np.exp(exponent), axis=-1, b=weight)
    return np.where(upper < 0.5, np.log1p(-np.minimum(upper, 0.9)), log_lower), logsumexp(
        exponent - np.exp(exponent), axis=-1, b=weight
    )


def oracle(loc, scale):
    """log p, `(B, K)`."""
    rows = []
    for mean, sd in zip(np.float64(loc), np.float64(scale), strict=True):
        deviation = np.sqrt(sd**2 + 1.6)
        t = np.arange((mean - 7 * deviation).max(), (mean + 8 * deviation).max() + 14, 0.1)
        log_cdf, log_density = np.stack([exact_law(t - mean[k], sd[k]) for k in range(len(sd))], axis=-1)
        rows.append(log_softmax(logsumexp(log_density - log_cdf + log_cdf.sum(-1, keepdims=True), axis=0)))
    return np.array(rows)


def function(loc, scale, num_nodes=NODES, **options):
    normal = low_rank_normal(loc, scale).standardized(without_shift)
    largest = quadrature.GumbelNormal.of(normal, num_nodes)
    return ops.log_softmax(
        expectation(quadrature.LargestMean(), largest, quadrature.points(num_nodes), **options), axis=-1
    )


def evaluate(loc, scale, **options):
    return ops.convert_to_numpy(function(ops.convert_to_tensor(loc), ops.convert_to_tensor(scale), **options))


def gradients(loc, scale, upstream, **options):
    def loss(tensors):
        return ops.sum(function(*tensors, **options) * ops.convert_to_tensor(upstream))

    return value_and_gradients(loss, [loc, scale])[1]


def diagonal(scale=1.0, loc_scale=2.0):
    arguments = problem("diagonal", scale=scale, loc_scale=loc_scale)
    return arguments["loc"], arguments["scale_diag"]


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_value(scale, options):
    loc, noise = diagonal(scale)
    found = evaluate(loc, noise, **options)
    np.testing.assert_allclose(found, oracle(loc, noise), atol=1e-3)
    np.testing.assert_allclose(np.exp(found).sum(-1), 1.0, rtol=1e-5)


@pytest.mark.smoke
@pytest.mark.on_tensorflow
def test_improbable_classes():
    """To a log p of -60, without noise and with it."""
    loc = np.float32([[0.0, -4.0, -8.0, -16.0, -30.0, -60.0]] * 3)
    noise = np.float32([[0.0], [1.0], [3.0]]) * np.ones((3, 6), "float32")
    np.testing.assert_allclose(evaluate(loc, noise), oracle(loc, noise), atol=0.02, rtol=1e-3)


@pytest.mark.parametrize("large", [3.0, 10.0, 30.0])
def test_noise_of_different_sizes(large):
    """A class of large noise beside one, or two, of little.

    Those are above it, below it, and so far below that they are rarely the largest.
    """
    loc = np.array([[0, large], [0, 0], [0, -large], [0, -2 * large], [0, -4 * large]], "float32")
    noise = np.array([[large, 0.1]] * 5, "float32")
    found, exact = evaluate(loc, noise, num_nodes=24), oracle(loc, noise)
    np.testing.assert_allclose(np.where(exact > np.log(0.01), found - exact, 0.0), 0.0, atol=2e-3)
    np.testing.assert_allclose(found, exact, atol=0.03)
    loc, noise = np.array([[0, 0, 0], [3, 0, -5], [0, 2, 9]], "float32"), np.array([[0.1, 1.0, large]] * 3, "float32")
    np.testing.assert_allclose(evaluate(loc, noise, num_nodes=24), oracle(loc, noise), atol=5e-3)


@pytest.mark.parametrize("loc", [[0.0, -22.5], [0.0, -30.0], [0.0, 5.0], [-3.0, 0.0]])
def test_gradients_for_noise_of_different_sizes(loc):
    loc, noise, direction = np.float32([loc]), np.float32([[10.0, 0.1]]), np.eye(2)
    for k in range(2):
        found = np.concatenate(gradients(loc, noise, np.eye(2, dtype="float32")[[k]], num_nodes=24))
        for i, j in np.ndindex(2, 2):
            moved = [
                [np.float64(x) + (step * direction[j] if i == m else 0.0) for m, x in enumerate((loc, noise))]
                for step in (1e-3, -1e-3)
            ]
            slope = (oracle(*moved[0])[0, k] - oracle(*moved[1])[0, k]) / 2e-3
            np.testing.assert_allclose(found[i, j], slope, atol=0.01, rtol=0.02)


@pytest.mark.planted
def test_the_oracle_sees_a_class_that_is_not_left_out_of_the_product(monkeypatch):
    loc, noise = diagonal()
    wrong = lambda log_cdf, log_density, axis: log_density + ops.sum(log_cdf, axis=axis, keepdims=True)  # noqa: E731
    monkeypatch.setattr(quadrature, "_log_integrand", wrong)
    assert np.abs(evaluate(loc, noise) - oracle(loc, noise)).max() > 0.02


@pytest.mark.parametrize("loc_scale", [2.0, 40.0])
def test_streamed_gradient_equals_plain_autodiff(loc_scale, monkeypatch):
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", 2 * UNITS * 8)
    loc, noise = diagonal(loc_scale=loc_scale)
    upstream = np.random.default_rng(1).normal(size=loc.shape).astype("float32")
    streamed = gradients(loc, noise, upstream, chunk_size=8)
    for found, plain in zip(streamed, gradients(loc, noise, upstream, loop="plain"), strict=True):
        np.testing.assert_allclose(found, plain, rtol=5e-5, atol=5e-5 * np.abs(plain).max())


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_gradient_against_finite_differences_in_float64(scale):
    loc, noise = diagonal(scale)
    upstream = np.random.default_rng(1).normal(size=loc.shape).astype("float32")
    rng = np.random.default_rng(2)
    for i, found in enumerate(gradients(loc, noise, upstream)):
        direction = rng.normal(size=loc.shape)
        moved = [
            [np.float64(x) + (step * direction if i == j else 0.0) for j, x in enumerate((loc, noise))]
            for step in (1e-4, -1e-4)
        ]
        slope = np.sum(upstream * (oracle(*moved[0]) - oracle(*moved[1]))) / 2e-4
        np.testing.assert_allclose(np.sum(found * direction), slope, rtol=2e-3, atol=2e-3)


def test_the_second_derivative_is_that_of_plain_operations(monkeypatch):
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", 2 * UNITS * 8)
    loc, noise = (x[:3] for x in diagonal())
    rng = np.random.default_rng(1)
    directions = [ops.convert_to_tensor(0.3 * rng.normal(size=loc.shape).astype("float32")) for _ in range(3)]

    def along_a_line(**options):
        def moved(t):
            return ops.convert_to_tensor(loc) + t * directions[0], ops.convert_to_tensor(noise) * ops.exp(
                t * directions[1]
            )

        return lambda t: ops.sum(directions[2] * ops.square(function(*moved(t), num_nodes=10, **options)))

    expected, found = (
        second_derivative(along_a_line(**options), 0.1) for options in ({"loop": "plain"}, {"chunk_size": 5})
    )
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("scale", [0.0, 0.3, 1.0, 3.0, 8.0])
def test_the_law_and_its_slopes(scale):
    offset = np.linspace(-2.0 - 3.0 * scale, 40.0, 85)
    log_cdf, log_density = exact_law(offset, scale)
    law = quadrature._Law(
        ops.convert_to_tensor(offset.astype("float32")), ops.convert_to_tensor(np.float32(scale)), with_slopes=True
    )
    np.testing.assert_allclose(ops.exp(law.log_cdf()), np.exp(log_cdf), atol=2e-4)
    seen = (log_density > -25) & (log_cdf > -10)
    np.testing.assert_allclose(ops.convert_to_numpy(law.log_density())[seen], log_density[seen], atol=0.03, rtol=2e-3)
    for i, function in ((0, law.slopes_of_log_cdf), (1, law.slopes_of_log_density)):
        moved = [exact_law(offset + step, scale)[i] for step in (1e-4, -1e-4)]
        np.testing.assert_allclose(
            ops.convert_to_numpy(function()[0])[seen], ((moved[0] - moved[1]) / 2e-4)[seen], atol=0.05, rtol=0.01
        )
        moved = [exact_law(offset, max(scale, 1e-4) + step)[i] for step in (1e-4, -1e-4)]
        np.testing.assert_allclose(
            ops.convert_to_numpy(function()[1])[seen], ((moved[0] - moved[1]) / 2e-4)[seen], atol=0.05, rtol=0.02
        )


def test_extremes_are_numbers():
    """Logits to 1e4, noise to 1e6, no noise at all, classes that are left out, and equal largest logits."""
    loc, noise = diagonal()
    loc[:4] = [[1e4, -1e4, 0, 9e3, -5e3, 1e4], [0] * 6, [50, 50, 50, 0, 0, 0], [-np.inf, 1, 2, 3, 4, 5]]
    noise[:3] = [[1e3], [0.0], [0.0]]
    noise[4] = [1e6, 0, 1e3, 1, 10, 100]
    upstream = np.random.default_rng(1).normal(size=loc.shape).astype("float32")
    for options in OPTIONS:
        found = evaluate(loc, noise, **options)
        assert np.isfinite(found).all()
        np.testing.assert_allclose(np.exp(found).sum(-1), 1.0, rtol=1e-5)
        assert all(np.isfinite(gradient).all() for gradient in gradients(loc, noise, upstream, **options))
    np.testing.assert_allclose(np.exp(found[2]), [1 / 3] * 3 + [0] * 3, atol=1e-3)


def test_16_points_are_better_than_1024_nodes():
    """300 classes, the noise of a trained head: large for few classes, small for most."""
    rng = np.random.default_rng(0)
    loc, noise = rng.normal(size=(2, 300)).astype("float32") - 8.0, 0.1 * rng.random((2, 300)).astype("float32")
    loc[:, :8], noise[:, :8] = 3.0 * rng.normal(size=(2, 8)), 1.0 + 2.0 * rng.random((2, 8))
    exact, normal = oracle(loc, noise), low_rank_normal(loc, noise).standardized(without_shift)
    errors = {}
    for rule in (Quadrature(16), QuasiMonteCarlo(1024)):
        found = ops.convert_to_numpy(rule.integrate(Softmax(), normal))
        errors[type(rule).__name__] = np.sqrt(np.mean(np.sum(np.exp(exact) * (found - exact) ** 2, axis=-1)))
    assert 5.0 * errors["Quadrature"] < errors["QuasiMonteCarlo"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"num_factors": 2},
            (
                "`integrator` must be another than Quadrature.* it is for heads of `num_factors=0`. "
                "Received: num_factors=2"
            ),
        ),
        ({"covariance": Latent()}, "`integrator` must be another than Quadrature.* Received: num_factors=1"),
        (
            {"num_factors": 0, "link": "sigmoid"},
            "`link` must be one of Softmax.*, for the integrator Quadrature. Received: link=Sigmoid",
        ),
    ],
)
def test_what_it_cannot_serve(arguments, message):
    with pytest.raises(ValueError, match=message):
        HeteroscedasticDense(3, **arguments, integrator=Quadrature()).build((None, 4))
