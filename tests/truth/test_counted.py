"""T by counts: its draws have the mean and the variance of their Dirichlet distributions."""

import numpy as np
import pytest

from keras_het.truth import CountedTransition
from tests.checks import z_limit

pytestmark = pytest.mark.once


@pytest.mark.statistical
def test_draws_have_the_moments_of_the_posterior(base_seed):
    counts = np.array([[30.0, 10.0, 0.0], [0.0, 5.0, 5.0], [1.0, 1.0, 18.0]])
    counted, rng = CountedTransition(counts), np.random.default_rng(base_seed)
    draws = np.stack([counted.draw(rng) for _ in range(4000)])
    a = counts + 1 / 3
    mean = a / a.sum(axis=1, keepdims=True)
    variance = mean * (1 - mean) / (1 + a.sum(axis=1, keepdims=True))
    assert np.abs((draws.mean(axis=0) - mean) / np.sqrt(variance / 4000)).max() < z_limit(9)
    np.testing.assert_allclose(draws.sum(axis=2), 1.0)
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.3, atol=1e-5)


def test_labels_of_few_bits_do_not_overflow():
    labels = np.arange(20, dtype="uint8")
    np.testing.assert_array_equal(CountedTransition.from_labels(labels, labels, 20).counts, np.eye(20))


def test_a_class_without_examples_is_refused():
    with pytest.raises(ValueError, match=r"an example of every class\. Received: none of class 1"):
        CountedTransition.from_labels([0, 0], [0, 1], 2)


def test_the_inverse_is_right_on_average_where_that_of_the_counts_is_too_large():
    """Over 2,000 tables of 40 examples a class: the mean error is a third of that of the plain inverse, or less."""
    t = np.array([[0.7, 0.3, 0.0], [0.1, 0.6, 0.3], [0.2, 0.1, 0.7]])
    rng = np.random.default_rng(0)
    tables = [CountedTransition(np.stack([rng.multinomial(40, row) for row in t])) for _ in range(2000)]
    found = np.mean([each.inverse for each in tables], axis=0)
    plain = np.mean([np.linalg.inv(each.transition) for each in tables], axis=0)
    right = np.linalg.inv(t)
    assert np.abs(found - right).max() < np.abs(plain - right).max() / 3
