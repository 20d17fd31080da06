"""Whether T and its assumption hold: exact moments of permutations, false alarms, power, and planted faults."""

import itertools

import numpy as np
import pytest
from scipy.stats import binom, norm

from keras_het.analysis import check_transition
from keras_het.analysis.corrected_weights import read_noisy
from keras_het.analysis.transition_check import _by_class
from keras_het.label_noise import corrupt_labels, pair_flip, symmetric
from tests.analysis.test_true_performance import drawn
from tests.checks import FALSE_ALARM

pytestmark = pytest.mark.once

FLIPS = pair_flip(5, 0.35)


def by_example(count, seed):
    """Labels that name what the example looks like, 35% of them, and the mean T."""
    p, true, _ = drawn(count, seed)
    others = np.where(np.eye(5, dtype=bool)[true], 0.0, p).argmax(axis=1)
    return p, true, np.where(np.random.default_rng([seed, 8]).random(count) < 0.35, others, true)


def mean_transition():
    _, true, labels = by_example(50_000, 999)
    counts = np.zeros((5, 5))
    np.add.at(counts, (true, labels), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def test_the_moments_are_those_of_all_permutations():
    """Six examples of one class: mean and variance over all 720 orders of their labels."""
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=6)
    labels = np.array([0, 0, 1, 2, 1, 0])
    sums = [p[np.arange(6), labels[list(order)]].sum() for order in itertools.permutations(range(6))]
    z = (p[np.arange(6), labels].sum() - np.mean(sums)) / np.std(sums)
    found = _by_class(read_noisy(p, labels, np.eye(3)), np.zeros(6, int), 0.9)
    assert found.p_value == pytest.approx(2 * norm.sf(abs(z)))


@pytest.mark.statistical
def test_false_alarms_are_as_rare_as_they_say(base_seed):
    p_values = []
    for seed in range(base_seed, base_seed + 150):
        p, true, labels = drawn(200, seed)
        found = check_transition(p, labels, FLIPS, true, seed=seed)
        p_values.append([test.p_value for test in found.tests])
    alarms = (np.array(p_values) < 0.05).sum(axis=0)
    assert (alarms <= binom.isf(FALSE_ALARM, 150, 0.07)).all(), alarms


@pytest.mark.statistical
def test_labels_that_follow_the_example_are_found_with_the_number_that_was_promised(base_seed):
    believed = mean_transition()
    pilots = [check_transition(*_arguments(100, base_seed + n, believed)).tests[0].needed for n in range(40)]
    promised = int(np.median(pilots))
    found = [
        check_transition(*_arguments(promised, base_seed + 100 + n, believed)).tests[0].p_value < 0.05
        for n in range(60)
    ]
    assert promised < 500
    assert sum(found) >= binom.ppf(FALSE_ALARM, 60, 0.85)


def _arguments(count, seed, believed):
    p, true, labels = by_example(count, seed)
    return p, labels, believed, true


def test_the_error_that_they_make_is_found_and_said():
    found = check_transition(*_arguments(1500, 0, mean_transition()))
    by_class, counts, accuracy = found.tests
    assert not found.holds
    assert by_class.p_value < 1e-6
    assert counts.p_value > 1e-4  # T is right on average
    assert accuracy.p_value < 1e-3
    assert "T or its assumption is wrong: do not trust it" in str(found)


@pytest.mark.planted
@pytest.mark.parametrize("wrong", [FLIPS.T, symmetric(5, 0.35), np.eye(5)])
def test_a_wrong_t_is_found(wrong):
    p, true, labels = drawn(400, 2)
    assert check_transition(p, labels, FLIPS, true).holds
    found = check_transition(p, labels, wrong, true)
    assert not found.holds
    assert found.tests[1].p_value < 0.001


def test_the_number_for_the_accuracy_is_that_of_the_formula():
    """((1.96 + 1.28) sd / smallest)^2, with the sd of the differences of single examples."""
    p, true, labels = drawn(500, 2)
    predicted = p.argmax(axis=1)
    differences = np.linalg.inv(FLIPS)[labels, predicted] - (predicted == true)
    found = check_transition(p, labels, FLIPS, true, smallest=0.1).tests[2]
    assert found.needed == np.ceil(((1.959964 + 1.281552) * differences.std() / 0.1) ** 2)
    assert f"it is {differences.mean():+.3f} from that by the true classes" in found.finding


def repeated(count, seed, together):
    """Labels of three annotators, of whom a share errs together, on the same examples."""
    p, true, labels = drawn(count, seed)
    own = np.stack([corrupt_labels(true, FLIPS, [seed, m]) for m in range(3)], axis=1)
    same = np.random.default_rng([seed, 9]).random(count) < together
    return p, np.where(same[:, None], labels[:, None], own), np.stack([FLIPS] * 3)


@pytest.mark.statistical
def test_annotators_who_err_together_are_found_without_a_clean_label(base_seed):
    seeds = range(base_seed, base_seed + 100)
    alarms = sum(check_transition(*repeated(300, seed, 0.0)).tests[0].p_value < 0.05 for seed in seeds)
    assert alarms <= binom.isf(FALSE_ALARM, 100, 0.07)
    found = check_transition(*repeated(300, 0, 0.5))
    assert not found.holds
    assert found.tests[0].needed < 300
    assert "do annotators agree as often as T says: they agree on +0.2" in str(found)


def test_pairs_of_which_a_label_is_missing_do_not_count():
    p, labels, transitions = repeated(300, 1, 0.5)
    labels[:, 2] = -1
    found = check_transition(p, labels, transitions)
    both = check_transition(p, labels[:, :2], transitions[:2])
    assert found.tests[0].p_value == pytest.approx(both.tests[0].p_value)
    assert found.tests[0].finding == both.tests[0].finding


REFUSED = {
    "one annotator": ([0, 1], np.eye(2), {}, r"at least two annotators, \(N, M\), if the true classes are not given"),
    "both": ([[0, 1], [1, 1]], [np.eye(2)] * 2, {"true": [0, 1]}, r"`labels` must have shape \(N,\) beside `true`"),
    "true": ([0, 1], np.eye(2), {"true": [0, 2]}, r"`true` must be in \[0, 2\)"),
    "power": ([0, 1], np.eye(2), {"true": [0, 1], "power": 1.0}, r"`power` must be less than 1"),
    "smallest": ([0, 1], np.eye(2), {"true": [0, 1], "smallest": 2.0}, r"`smallest` must be in \[0, 1\]"),
    "no pair": ([[0, -1], [-1, 1]], [np.eye(2)] * 2, {}, r"examples with labels of two annotators. Received: none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_tested_is_refused(case):
    labels, transition, more, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        check_transition([[0.8, 0.2], [0.3, 0.7]], labels, transition, **more)
