"""Intervals of what noisy labels say: by hand, by the variance of the weights that T makes, and by simulation."""

import numpy as np
import pytest
from scipy.stats import binom

from keras_het.explain import calibration
from keras_het.label_noise import symmetric
from keras_het.truth import CountedTransition, true_performance
from tests.checks import FALSE_ALARM
from tests.truth.test_true_performance import drawn

pytestmark = pytest.mark.once


def share_held(count, sharp, transition, seeds, draws):
    """How often the intervals of accuracy and calibration error hold the truth, by labels of `count` examples."""
    p, true, _ = of_sharpness(100_000, 999, sharp, transition)
    truth, held = (np.mean(p.argmax(axis=1) == true), calibration(p, true, 10).error), np.zeros(2)
    for seed in seeds:
        p, _, labels = of_sharpness(count, seed, sharp, transition)
        found = true_performance(p, labels, transition, draws=draws, seed=seed)
        ends = (found.accuracy, found.calibration_error)
        held += [each.low <= value <= each.high for each, value in zip(ends, truth, strict=True)]
    return held / len(seeds)


def of_sharpness(count, seed, sharp, transition):
    """What is drawn, with probabilities to a power; with 2 they are those of the true classes."""
    p, true, labels = drawn(count, seed, transition)
    p = p**sharp
    return p / p.sum(axis=1, keepdims=True), true, labels


@pytest.mark.statistical
def test_intervals_of_ten_examples_hold_the_truth(base_seed):
    held = share_held(10, 1, symmetric(2, 0.1), range(base_seed, base_seed + 100), 10)
    assert (100 * held >= binom.ppf(FALSE_ALARM, 100, 0.93)).all(), held


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(("size", "noise"), [(2, 0.05), (3, 0.1), (10, 0.4)])
@pytest.mark.parametrize("count", [10, 20, 50, 200])
@pytest.mark.parametrize("sharp", [1, 2])
def test_intervals_hold_the_truth_for_any_number_of_examples(size, noise, count, sharp, base_seed):
    held = share_held(count, sharp, symmetric(size, noise), range(base_seed, base_seed + 1000), 50)
    assert (1000 * held >= binom.ppf(FALSE_ALARM, 1000, 0.93)).all(), held


def test_a_t_that_is_hardly_known_is_said_to_be():
    """Of 20 examples a class, at 40% noise, T is nearly singular too often: the intervals then hold .5 to .8."""
    p, _, labels = drawn(200, 0, symmetric(2, 0.4))
    text = "its error is in the intervals, but these are too few for the intervals to hold what they say"
    for count, said in ((20, True), (2000, False)):
        found = true_performance(p, labels, CountedTransition(count * symmetric(2, 0.4)), draws=5)
        assert (text in str(found)) == said


def test_no_interval_is_a_point_where_all_agree():
    """Ten right ones are 1 / (1 + 1.96^2 / 10) = .722 at least."""
    p = np.tile([0.9, 0.1], (10, 1))
    clean, noisy = (true_performance(p, [0] * 10, symmetric(2, noise), draws=5) for noise in (0.0, 0.2))
    assert (clean.accuracy.low, clean.accuracy.high) == (pytest.approx(0.7225, abs=1e-4), 1.0)
    assert noisy.accuracy.low == pytest.approx((0.7225 - 0.2) / 0.6, abs=1e-4)  # of that share of labels
    assert noisy.nll.low < noisy.nll.high
    for found in (clean, noisy):
        for each in (found.calibration_error, found.joint, found.curve, found.kept_accuracy):
            filled = ~np.isnan(each.high)
            assert (np.asarray(each.high - each.low)[filled] > 0).all()


def test_an_interval_has_the_values_from_which_what_was_found_is_within_chance():
    """At its ends the estimate is 1.96 deviations away, by the variance of the weights that T makes there."""
    p, labels = np.array([[0.9, 0.1]] * 40 + [[0.2, 0.8]] * 40), np.arange(80) % 4 // 3
    flips = np.array([[0.8, 0.2], [0.2, 0.8]])
    found, inverse = true_performance(p, labels, flips, draws=5).accuracy, np.linalg.inv(flips)
    for end in (found.low, found.high):
        shares = end * flips[0] + (1 - end) * flips[1]  # of labels that are the prediction, and of others
        variance = shares @ inverse[:, 0] ** 2 - end**2
        assert abs(found.value - end) == pytest.approx(1.959964 * np.sqrt(variance / 80))
