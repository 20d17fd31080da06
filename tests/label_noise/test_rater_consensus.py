"""Raters of numbers, against loops in plain Python that share nothing with the package, and planted raters."""

import numpy as np
import pytest

from keras_het.label_noise import rater_consensus

pytestmark = pytest.mark.once


def planted(examples, raters, each, seed=0):
    """True values, and the biases, spreads and ratings of raters of whom each example has some."""
    rng = np.random.default_rng(seed)
    true, bias, spread = rng.normal(size=examples), rng.normal(0.0, 0.3, raters), rng.uniform(0.1, 1.0, raters)
    given = rng.random((examples, raters)).argsort(axis=1) < each
    ratings = true[:, None] + bias + spread * rng.normal(size=given.shape)
    return true, bias, spread, np.where(given, ratings, np.nan)


def slow(ratings, smoothing, equal_spread, iterations):
    """The same steps one rating at a time."""
    given = [(n, m, x) for n, row in enumerate(ratings.tolist()) for m, x in enumerate(row) if x == x]
    examples, raters, size = range(ratings.shape[0]), range(ratings.shape[1]), len(given)
    center = sum(x for *_, x in given) / size
    variance, bias = [sum((x - center) ** 2 for *_, x in given) / size] * len(raters), [0.0] * len(raters)
    for _ in range(iterations):
        target, square = [], []
        for n in examples:
            own = [(1.0 / variance[m], x - bias[m]) for k, m, x in given if k == n]
            total = sum(weight for weight, _ in own)
            target.append(sum(weight * x for weight, x in own) / total)
            square.append(1.0 / total)
        counts = [sum(k == m for _, k, _ in given) for m in raters]
        bias = [sum(x - target[n] for n, k, x in given if k == m) / (counts[m] + smoothing) for m in raters]
        shift = sum(bias[m] for _, m, _ in given) / size
        bias = [b - shift for b in bias]
        sums = [sum((x - target[n] - bias[m]) ** 2 + square[n] for n, k, x in given if k == m) for m in raters]
        mean = sum(sums) / size
        variance = [
            mean if equal_spread else (s + smoothing * mean) / (c + smoothing)
            for s, c in zip(sums, counts, strict=True)
        ]
    return target, np.sqrt(square), bias, np.sqrt(variance)


@pytest.mark.parametrize("equal_spread", [False, True])
@pytest.mark.parametrize("smoothing", [0.5, 5.0])
def test_against_the_slow_way(smoothing, equal_spread):
    ratings = planted(20, 6, 3)[-1]
    ratings[:, 5] = np.where(np.arange(20) == 2, 4.0, np.nan)  # somebody with one rating
    found = rater_consensus(ratings, smoothing, equal_spread)
    expected = slow(ratings, smoothing, equal_spread, found.iterations)
    for ours, theirs in zip(vars(found).values(), expected, strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    moved = slow(ratings, smoothing, equal_spread, found.iterations + 100)
    np.testing.assert_allclose(found.target, moved[0], atol=1e-3)  # at rest


@pytest.mark.statistical
def test_planted_raters_are_recovered(base_seed):
    """The error is at most a tenth above the least possible one, with the true spreads; 90% intervals hold 90%.

    None of seeds 0 to 99 fails.
    """
    true, bias, spread, ratings = planted(2000, 30, 4, base_seed)
    found, count = rater_consensus(ratings), (~np.isnan(ratings)).sum(axis=0)
    shift = bias @ count / count.sum()  # what all add in common
    error = found.target - true - shift
    least = np.sqrt(np.mean(1.0 / np.where(np.isnan(ratings), 0.0, 1.0 / spread**2).sum(axis=1)))
    assert np.sqrt(np.mean(error**2)) < 1.1 * least < 0.95 * np.std(np.nanmean(ratings, axis=1) - true)
    assert 0.87 < np.mean(np.abs(error) < 1.645 * found.error) < 0.96
    np.testing.assert_allclose(found.bias, bias - shift, atol=0.3)
    assert np.mean(np.abs(found.spread - spread)) < 0.06
    assert np.corrcoef(found.spread, spread)[0, 1] > 0.95


def test_who_has_few_ratings_has_the_spread_and_bias_of_all():
    ratings = planted(300, 8, 3)[-1]
    ratings[:, 0] = np.where(np.arange(300) == 5, np.nanmean(ratings[5]), np.nan)  # one rating, and it is the mean
    ratings[:, 1] = np.nan
    found = rater_consensus(ratings)
    assert found.spread[0] > 0.8 * np.median(found.spread[2:])
    assert found.spread[1] == pytest.approx(
        np.sqrt(np.average(found.spread**2, weights=(ratings == ratings).sum(0))), 0.01
    )
    assert abs(found.bias[1]) < 0.1


def test_what_nobody_rated_and_who_all_agree():
    ratings = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, np.nan], [np.nan] * 3])
    found = rater_consensus(ratings)
    np.testing.assert_allclose(found.target, [1.0, 2.0, np.nan])
    assert found.error[2] == np.inf
    assert np.isfinite([*found.bias, *found.spread]).all()
    assert (found.spread < 1e-5).all()
    np.testing.assert_allclose(rater_consensus(np.ones((3, 2))).target, 1.0)


def test_the_unit_of_the_ratings_and_their_zero_do_not_matter():
    ratings = planted(50, 5, 3)[-1]
    one, other = rater_consensus(ratings), rater_consensus(1000.0 * ratings - 7e3)
    np.testing.assert_allclose(other.target, 1000.0 * one.target - 7e3, atol=1e-2)
    np.testing.assert_allclose(other.spread, 1000.0 * one.spread, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: rater_consensus([1.0, 2.0]), "`ratings` must have shape (N, M). Received: shape (2,)"),
        (
            lambda: rater_consensus([[1.0, np.inf]]),
            "`ratings` must be finite, or nan where missing. Received: inf at [0, 1]",
        ),
        (
            lambda: rater_consensus([[1.0, np.nan], [np.nan, 2.0]]),
            "`ratings` must have two ratings of at least one example. Received: 2, one of each",
        ),
        (
            lambda: rater_consensus([[np.nan]]),
            "`ratings` must have two ratings of at least one example. Received: 0, one of each",
        ),
        (
            lambda: rater_consensus([[1.0, 2.0]], smoothing=0),
            "`smoothing` must be a finite float32 number greater than 0. Received: smoothing=0",
        ),
        (
            lambda: rater_consensus([[1.0, 2.0]], equal_spread=1),
            "`equal_spread` must be True or False. Received: equal_spread=1",
        ),
        (lambda: rater_consensus([["a", "b"]]), "`ratings` must be an array of numbers."),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)
