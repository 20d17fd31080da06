"""Log-ratios against SciPy's Helmert matrix and the formula by hand, in float64."""

import numpy as np
import pytest
from keras import ops
from scipy import linalg, special

from benchmarks.baselines.log_ratios import log_ratios, logits_of
from tests.gradients import value_and_gradients

RNG = np.random.default_rng(0)


def numpy(tensor):
    return ops.convert_to_numpy(tensor)


def by_hand(p):
    """ilr_j = sqrt(j / (j + 1)) log(geometric mean of the first j / the next), for each j by itself."""
    size = range(1, p.shape[-1])
    means = (np.exp(np.log(p[..., :j]).mean(-1)) for j in size)
    return np.stack([np.sqrt(j / (j + 1)) * np.log(m / p[..., j]) for j, m in zip(size, means, strict=True)], -1)


@pytest.mark.parametrize("units", [2, 3, 10])
def test_log_ratios_are_those_of_the_helmert_matrix_and_of_the_formula(units):
    p = RNG.dirichlet(np.ones(units), size=(2, 5))
    found = numpy(log_ratios(ops.convert_to_tensor(np.log(p).astype("float32"))))
    assert found.shape == (2, 5, units - 1)
    np.testing.assert_allclose(found, np.log(p) @ linalg.helmert(units).T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found, by_hand(p), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("units", [2, 3, 10])
def test_the_logits_are_the_basis_times_the_ratios_and_give_the_probabilities_back(units):
    p = RNG.dirichlet(np.ones(units), size=7)
    ratios = (np.log(p) @ linalg.helmert(units).T).astype("float32")
    logits = numpy(logits_of(ops.convert_to_tensor(ratios)))
    np.testing.assert_allclose(logits, ratios @ linalg.helmert(units), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(special.softmax(logits, -1), p, rtol=1e-4)
    again = numpy(log_ratios(logits_of(ops.convert_to_tensor(ratios))))
    np.testing.assert_allclose(again, ratios, rtol=1e-4, atol=1e-5)


@pytest.mark.once
def test_a_constant_in_all_logits_changes_nothing_and_distances_stay():
    logits = RNG.normal(size=(6, 8)).astype("float32")
    ratios = numpy(log_ratios(ops.convert_to_tensor(logits)))
    np.testing.assert_allclose(numpy(log_ratios(ops.convert_to_tensor(logits + 5))), ratios, atol=1e-5)
    centred = logits - logits.mean(-1, keepdims=True)
    np.testing.assert_allclose(np.square(ratios).sum(-1), np.square(centred).sum(-1), rtol=1e-5)


@pytest.mark.once
def test_a_thousand_classes_keep_their_digits():
    """The sums that replace the matrix round little: a label among a thousand classes comes back."""
    p = np.full((1, 1000), 1e-6)
    p[0, 500] = 1 - 999e-6
    logits = numpy(logits_of(log_ratios(ops.convert_to_tensor(np.log(p).astype("float32")))))
    np.testing.assert_allclose(logits, np.log(p) - np.log(p).mean(), atol=2e-4)


def test_the_gradient_of_a_transform_is_the_transpose_of_its_matrix():
    weights = RNG.normal(size=(4, 3)).astype("float32")
    logits, ratios = RNG.normal(size=(4, 4)).astype("float32"), RNG.normal(size=(4, 3)).astype("float32")
    (found,) = value_and_gradients(lambda t: ops.sum(ops.convert_to_tensor(weights) * log_ratios(t[0])), [logits])[1]
    np.testing.assert_allclose(found, weights @ linalg.helmert(4), rtol=1e-5, atol=1e-6)
    (found,) = value_and_gradients(lambda t: ops.sum(ops.convert_to_tensor(logits) * logits_of(t[0])), [ratios])[1]
    np.testing.assert_allclose(found, logits @ linalg.helmert(4).T, rtol=1e-5, atol=1e-6)


@pytest.mark.once
@pytest.mark.planted
def test_a_basis_that_is_not_of_unit_norm_is_caught():
    p = RNG.dirichlet(np.ones(5), size=3)
    wrong = np.log(p) @ linalg.helmert(5).T * np.sqrt([1.5, 1, 1, 1])
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(wrong, by_hand(p), rtol=1e-4, atol=1e-5)
