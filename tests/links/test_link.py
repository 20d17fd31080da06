"""Links: descriptions of their outputs, and the normal distribution function against integration."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import expit, log_ndtr, log_softmax, logit, logsumexp

import keras_het
from keras_het import integrators, links
from keras_het.base.serializable import resolve
from keras_het.integrators import MonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.links import NormalCDF
from keras_het.ops import nodes
from keras_het.ops.mean import LOG_NORMAL_CDF_MEAN, LogMean
from keras_het.ops.streaming import expectation
from tests import reference
from tests.common import assert_finite, low_rank_normal
from tests.gradients import value_and_gradients

NAMES = ["softmax", "sigmoid", "normal_cdf"]


def outputs_of(link, scale=3.0):
    """Outputs of five members for two examples of four classes."""
    outputs = scale * np.random.default_rng(0).normal(size=(5, 2, 4))
    return log_softmax(outputs, axis=-1) if link.activation == "softmax" else outputs


@pytest.mark.once
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, 1])
def test_average_is_that_of_the_probabilities(name, axis):
    link = resolve(links.Link, name)
    members = outputs_of(link)
    result = ops.convert_to_numpy(
        link.average(ops.convert_to_tensor(np.moveaxis(members, 0, axis).astype("float32")), axis)
    )
    expected = np.log(np.exp(members).mean(0)) if link.activation == "softmax" else logit(expit(members).mean(0))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    if link.activation == "softmax":
        np.testing.assert_allclose(np.exp(result).sum(-1), 1.0, rtol=1e-5)
        assert np.exp(members.mean(0)).sum(-1).max() < 0.9  # what keras.layers.Average would give


@pytest.mark.once
@pytest.mark.parametrize("name", NAMES)
def test_average_of_improbable_outputs_is_a_number(name):
    link = resolve(links.Link, name)
    members = ops.convert_to_tensor(outputs_of(link, 1e3).astype("float32"))
    assert np.isfinite(ops.convert_to_numpy(link.average(members))).all()
    np.testing.assert_allclose(link.average([members[0], members[1]]), link.average(members[:2]))
    np.testing.assert_allclose(link.average(members[:1]), members[0], rtol=1e-5, atol=1e-4)


def test_average_of_what_is_no_ensemble_is_refused():
    link = resolve(links.Link, "softmax")
    with pytest.raises(ValueError, match=r"`outputs` must have one shape. Received: shapes "):
        link.average([np.zeros((2, 3)), np.zeros((1, 3))])
    for axis in (2, -1):
        with pytest.raises(
            ValueError, match=r"`axis` must be before the last axis, which has the classes. Received: axis="
        ):
            link.average(np.zeros((2, 5, 3)), axis)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_that_of_the_probabilities(name):
    link = resolve(links.Link, name)
    outputs, softmax = outputs_of(link)[0].astype("float32"), link.activation == "softmax"
    labels = np.array([3, 0]) if softmax else np.array([[0, 1, 1, 0], [1, 0, 0, 0]])
    p = np.exp(outputs) if softmax else expit(outputs)
    of_labels = p[[0, 1], labels] if softmax else np.where(labels, p, 1 - p)
    np.testing.assert_allclose(float(link.loss()(labels, outputs)), -np.log(of_labels).mean(), rtol=1e-4)


LINK = NormalCDF()
MEANS, SCALES = np.linspace(-20, 8, 29), np.array([0.0, 0.3, 1.0, 2.0, 5.0])
GRID = np.array(np.meshgrid(MEANS, SCALES)).reshape(2, -1).astype("float32")


def exact(mean, scale):
    """Returns log E[Phi(u)] in float64, by the trapezoidal rule."""
    z = np.arange(-13.0, 26.0, 0.004)  # the integrand of a mean far below zero has its mode above it
    log_integrand = log_ndtr(mean[..., None] + np.float64(scale)[..., None] * z) - z**2 / 2
    return logsumexp(log_integrand, axis=-1) + np.log(0.004 / np.sqrt(2 * np.pi))


def test_closed_form_against_integration():
    mean, scale = GRID.reshape(2, 5, 29)  # 29 classes an example, of one scale each
    result = ops.convert_to_numpy(LINK.closed_form(low_rank_normal(mean, scale)))
    np.testing.assert_allclose(result, log_softmax(exact(mean, scale), axis=-1), rtol=1e-6, atol=2e-4)


def test_nodes_and_their_gradient_converge_to_the_closed_form():
    rng = np.random.default_rng(0)
    arrays = [
        x.astype("float32")
        for x in (rng.normal(size=(3, 4)), rng.uniform(0.3, 1, size=(3, 4)), rng.normal(size=(3, 4, 2)))
    ]
    points = nodes.quasi_random((0, 0), 1 << 13, 4, 2, np)

    def closed(tensors):
        return ops.sum(ops.square(LINK.closed_form(low_rank_normal(*tensors))))

    def sampled(tensors):
        return ops.sum(ops.square(LINK.from_mean(expectation(LINK.mean, low_rank_normal(*tensors), points, 1 << 11))))

    (value, slopes), (other, others) = (value_and_gradients(function, arrays) for function in (closed, sampled))
    np.testing.assert_allclose(other, value, rtol=5e-3)
    for result, expected in zip(others, slopes, strict=True):
        np.testing.assert_allclose(result, expected, atol=0.02 * np.abs(expected).max())


def slopes_at_nodes(mean):
    """Returns derivatives along random directions at these nodes, and by finite differences of the float64 oracle."""
    rng = np.random.default_rng(0)
    arguments = {
        "loc": rng.normal(size=(2, 4)),
        "scale_diag": rng.uniform(0.3, 1, size=(2, 4)),
        "factor": rng.normal(size=(2, 4, 2)),
    }
    arguments = {key: value.astype("float32") for key, value in arguments.items()}
    points, upstream = nodes.pseudo_random((0, 0), 50, 4, 2, np), rng.normal(size=(2, 4)).astype("float32")

    def streamed(tensors):
        value = expectation(mean, low_rank_normal(*tensors), points, 8)
        return ops.sum(LINK.from_mean(value) * ops.convert_to_tensor(upstream))

    def oracle(key, move):
        moved = {**arguments, key: np.float64(arguments[key]) + move}
        logits = reference.logits_at(**moved, eps_diag=points.eps_diag, eps_factor=points.eps_factor)
        return np.sum(reference.log_normalized_mean(log_ndtr, logits, 1.0) * upstream)

    gradients = value_and_gradients(streamed, list(arguments.values()))[1]
    moves = [1e-5 * rng.normal(size=gradient.shape) for gradient in gradients]
    expected = [(oracle(key, move) - oracle(key, -move)) / 2e-5 for key, move in zip(arguments, moves, strict=True)]
    return [np.sum(gradient * move) / 1e-5 for gradient, move in zip(gradients, moves, strict=True)], expected


def test_the_gradient_at_given_nodes():
    result, expected = slopes_at_nodes(LINK.mean)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.planted
def test_a_planted_slope_is_caught():
    mean = LOG_NORMAL_CDF_MEAN
    for slope in (mean.log_value, lambda u: mean.log_slope(u) + np.float32(0.01)):
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(*slopes_at_nodes(LogMean(mean.log_value, slope)), rtol=1e-4, atol=1e-4)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("integrator", [None, MonteCarlo(50, chunk_size=8), MonteCarlo(50, chunk_size=50)], ids=repr)
def test_a_class_that_is_left_out_by_minus_infinity(integrator):
    integrator = resolve(integrators.Integrator, integrator or LINK.default_integrator)
    arrays = [
        np.array([[0.3, -np.inf, -1.0]], "float32"),
        np.full((1, 3), 0.5, "float32"),
        np.ones((1, 3, 2), "float32"),
    ]

    def function(tensors):
        log_p = integrator.integrate(LINK, low_rank_normal(*tensors).standardized(LINK.center), (0, 0))
        return ops.sum(log_p[:, ::2]), log_p

    assert ops.convert_to_numpy(function([ops.convert_to_tensor(x) for x in arrays])[1])[0, 1] < -1e10
    value, slopes = value_and_gradients(lambda tensors: function(tensors)[0], arrays)
    assert_finite(value, slopes)


def test_extremes_are_finite():
    loc = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [0.0, 1.0, 2.0]], "float32")
    scale = np.array([[1.0, 1.0, 1.0], [1e3, 1.0, 1e-3], [1e3, 1e3, 1e3]], "float32")
    value, slopes = value_and_gradients(
        lambda tensors: ops.sum(LINK.closed_form(low_rank_normal(*tensors))), [loc, scale]
    )
    assert_finite(value, slopes)


@pytest.mark.once
@pytest.mark.parametrize("size", [1e5, 1e7])
def test_gradients_by_nodes_are_finite_where_their_logs_lose_their_digits(size):
    """log Phi(-1e5) is -5e9, and its rounding error 256: exp of it was infinite."""
    rng, nodes = np.random.default_rng(0), MonteCarlo(16)
    arrays = [size * rng.normal(size=(20, 3)).astype("float32"), np.ones((20, 3), "float32")]

    def total(tensors):
        return ops.sum(nodes.integrate(LINK, low_rank_normal(*tensors), (0, 0))[:, 0])

    value, slopes = value_and_gradients(total, arrays)
    assert_finite(value, slopes)


@pytest.mark.once
def test_the_closed_form_is_the_default_and_nodes_are_the_other_way():
    assert type(HeteroscedasticDense(3, link="normal_cdf").integrator).__name__ == "ClosedForm"
    assert HeteroscedasticDense(3, link=LINK, integrator=MonteCarlo(8)).link.returns == "log-probabilities"
    with pytest.raises(ValueError, match=r"`link` must be one of .*Softmax.* for the integrator Taylor. Received: "):
        HeteroscedasticDense(3, link="normal_cdf", integrator="taylor")


@pytest.mark.once
def test_a_head_with_it_becomes_no_dense_layer_of_the_same_classes():
    new = keras.Sequential([keras.Input((4,)), HeteroscedasticDense(3, link="normal_cdf")])
    with pytest.raises(ValueError, match="have a head with the link softmax or sigmoid"):
        keras_het.homoscedastic(new)
    assert keras_het.homoscedastic(new, units=5).layers[-1].units == 5
