"""Regression loss against SciPy densities in float64, and its gradients against finite differences."""

import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from keras_het.losses import MultivariateNormalNLL
from tests.common import assert_finite, finite_differences, to_numpy
from tests.gradients import value_and_gradients
from tests.marks import grid

EXAMPLES, UNITS = 6, 3


def case(factors, seed=0, units=UNITS):
    rng = np.random.default_rng(seed)
    mean, y = rng.normal(size=(2, EXAMPLES, units))
    scale, factor = np.exp(rng.normal(size=(EXAMPLES, units))), rng.normal(size=(EXAMPLES, units * factors))
    return y, np.concatenate([mean, scale, factor, -np.ones((EXAMPLES, 1))], axis=1)


def parts(packed, units):
    mean, scale = packed[:, :units], packed[:, units : 2 * units]
    factor = packed[:, 2 * units : -1].reshape(len(packed), units, -1)
    return mean, np.stack([np.diag(d**2) + v @ v.T for d, v in zip(scale, factor, strict=True)])


def oracle(y, packed, form="nll", beta=0.5, fixed=None):
    """Losses in float64; what gets no gradient is of the outputs `fixed`."""
    units = y.shape[-1]
    mean, covariance = parts(packed, units)
    fixed_mean, fixed_covariance = (mean, covariance) if fixed is None else parts(fixed, units)
    centre = fixed_mean if form == "faithful" else mean
    nll = -np.array([multivariate_normal.logpdf(*each) for each in zip(y, centre, covariance, strict=True)])
    if form == "beta":
        return np.linalg.det(fixed_covariance) ** (beta / units) * nll
    return nll + (0.5 * np.square(y - mean).sum(-1) if form == "faithful" else 0.0)


def losses(y, packed, **arguments):
    tensors = (ops.convert_to_tensor(x.astype("float32")) for x in (y, packed))
    return to_numpy(MultivariateNormalNLL(reduction=None, **arguments)(*tensors))


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("factors", [0, 2])
@pytest.mark.parametrize("form", ["nll", "beta", "faithful"])
def test_the_losses_and_their_gradients_are_those_of_the_oracle(form, factors):
    y, packed = case(factors)
    assert_allclose(losses(y, packed, form=form), oracle(y, packed, form), rtol=2e-5)
    loss, target = MultivariateNormalNLL(form, reduction="sum"), ops.convert_to_tensor(y.astype("float32"))
    (result,) = value_and_gradients(lambda tensors: loss(target, tensors[0]), [packed.astype("float32")])[1]
    expected = finite_differences(lambda moved: oracle(y, moved, form, fixed=packed).sum(), packed)
    assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.once
def test_the_forms_at_their_limits():
    """beta = 0 is the likelihood; with beta = 1 and one target the mean moves as by the squared error."""
    y, packed = case(2)
    assert_array_equal(losses(y, packed, form="beta", beta=0.0), losses(y, packed))
    y, packed = (x.astype("float32") for x in case(0, units=1))
    for form in ("beta", "faithful"):
        loss = MultivariateNormalNLL(form, beta=1.0, reduction="sum")
        (result,) = value_and_gradients(lambda t, loss=loss: loss(ops.convert_to_tensor(y), t[0]), [packed])[1]
        assert_allclose(result[:, 0], (packed - y)[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("form", grid(["nll", "beta", "faithful"], span=["nll"]))
def test_extreme_outputs_have_finite_losses_and_gradients(form, scale):
    """Residuals of 1e4, at standard deviations from the least that a head has to a thousand."""
    y, packed = case(2)
    packed[:, UNITS : 2 * UNITS], y[::2] = scale, 1e4
    loss, target = MultivariateNormalNLL(form), ops.convert_to_tensor(y.astype("float32"))
    value, (result,) = value_and_gradients(lambda tensors: loss(target, tensors[0]), [packed.astype("float32")])
    assert_finite(value, [result])
    assert_allclose(losses(y, packed, form=form), oracle(y, packed, form), rtol=2e-3)


@pytest.mark.once
def test_a_nan_spoils_no_other_example_one_target_needs_no_axis_and_all_axes_in_front_count():
    y, packed = case(0, units=1)
    assert_allclose(losses(y[:, 0], packed), losses(y, packed))
    y, packed = case(2)
    expected = losses(y, packed)
    maps = losses(y.reshape(2, 3, UNITS), packed.reshape(2, 3, -1))
    assert_allclose(maps, expected.reshape(2, 3), rtol=1e-6)
    y[1, 2] = np.nan
    result = losses(y, packed)
    assert np.isnan(result[1])
    assert_array_equal(np.delete(result, 1), np.delete(expected, 1))
