"""Whether T and its assumption hold: exact moments of permutations, false alarms, power, and planted faults."""

import itertools
import tracemalloc

import numpy as np
import pytest
from scipy.stats import binom

from keras_het.label_noise import corrupt_labels, pair_flip, symmetric
from keras_het.truth import check_transition, transition_check
from keras_het.truth.corrected_weights import read_noisy
from keras_het.truth.transition_check import LEVEL, TELLS, _by_class
from tests.checks import FALSE_ALARM, z_limit
from tests.truth.test_true_performance import drawn

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


def test_the_rank_is_that_among_all_permutations():
    """Six examples of one class, and all 720 orders of their labels."""
    p = np.random.default_rng(0).dirichlet(np.ones(3), size=6)
    labels = np.array([0, 0, 1, 2, 1, 0])
    sums = [p[np.arange(6), labels[list(order)]].sum() for order in itertools.permutations(range(6))]
    distances = np.abs(np.array(sums) - np.mean(sums))
    expected = np.mean(distances >= distances[0] - 1e-9)
    found = _by_class(read_noisy(p, labels, np.eye(3)), np.zeros(6, int), 0.9, np.random.default_rng(0)).test
    assert abs(found.p_value - expected) < 1 / 2000 + z_limit(1) * np.sqrt(expected * (1 - expected) / 1999)


def answers(size, noise, count, seeds):
    """How often each question, and the verdict, says no of labels by T, and how often it says "too few to tell"."""
    t, no, few = symmetric(size, noise), np.zeros(5), np.zeros(5)
    for seed in seeds:
        p, labels, several, true = repeated(count, seed, 0.0, t)
        check = check_transition(p, labels[:, 0], t, true, seed=seed)
        tests = [*check.tests, check_transition(p, labels, several, seed=seed).tests[0]]
        no += [*(test.p_value < LEVEL for test in tests), check.holds is False]
        few += [*("too few to tell" in test.finding for test in tests), check.holds is None]
    return no, few


@pytest.mark.statistical
@pytest.mark.parametrize(("size", "noise", "count"), [(2, 0.05, 10), (5, 0.05, 20), (5, 0.35, 200)])
def test_false_alarms_are_as_rare_as_they_say(size, noise, count, base_seed, monkeypatch):
    monkeypatch.setattr(transition_check, "DRAWS", 199)
    no, _ = answers(size, noise, count, range(base_seed, base_seed + 60))
    assert (no <= binom.isf(FALSE_ALARM, 60, LEVEL)).all(), no


@pytest.mark.thorough
@pytest.mark.statistical
@pytest.mark.parametrize(("size", "noise"), [(2, 0.05), (3, 0.1), (10, 0.4)])
@pytest.mark.parametrize("count", [5, 10, 20, 50, 200])
def test_a_test_has_its_size_or_says_that_labels_are_too_few(size, noise, count, base_seed, monkeypatch):
    monkeypatch.setattr(transition_check, "DRAWS", 399)
    no, few = answers(size, noise, count, range(base_seed, base_seed + 1000))
    assert (no <= binom.isf(FALSE_ALARM, 1000, LEVEL)).all(), no
    assert (no >= np.where(few == 0, binom.ppf(FALSE_ALARM, 1000, TELLS), 0)).all(), (no, few)


def test_few_labels_say_that_they_are_too_few_and_how_many_are_needed():
    """Of five labels by T one is wrong in a fifth of the cases, so that says nothing; two are wrong in .023 of them."""
    p, true, t = np.tile([0.9, 0.1], (5, 1)), np.zeros(5, int), symmetric(2, 0.05)
    found = check_transition(p, true, t, true)
    assert found.holds is None
    assert str(found).startswith("verdict: by 5 examples, too few to tell\n")
    assert all("too few to tell" in test.finding for test in found.tests)
    assert found.tests[2].needed > 100
    two = check_transition(p, [1, 1, 0, 0, 0], t, true)
    assert two.holds is False
    assert "too few" not in two.tests[1].finding
    assert 0.01 < two.tests[1].p_value < 0.04


def test_a_t_without_errors_holds_until_there_is_one():
    p, true = np.tile([0.9, 0.1], (5, 1)), np.zeros(5, int)
    assert check_transition(p, true, np.eye(2), true).holds is True
    found = check_transition(p, [1, 0, 0, 0, 0], np.eye(2), true)
    assert found.holds is False
    assert found.tests[1].p_value == 1 / 2000


def test_memory_grows_with_the_labels_and_not_with_their_square(monkeypatch):
    """4,000 examples of one class: a table of a number for each pair is 122 MiB."""
    monkeypatch.setattr(transition_check, "DRAWS", 19)
    p, _, labels = drawn(4000, 0)
    tracemalloc.start()
    check_transition(p, labels, FLIPS, np.zeros(4000, int))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 2**20


@pytest.mark.statistical
def test_labels_that_follow_the_example_are_found_with_the_number_that_was_promised(base_seed, monkeypatch):
    monkeypatch.setattr(transition_check, "DRAWS", 199)
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
    assert by_class.p_value == 1 / 2000  # no draw is as extreme
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
    """((1.96 + 1.28) sd / smallest)^2, with the sd of the differences of single examples, by T."""
    p, true, labels = drawn(500, 2)
    predicted = p.argmax(axis=1)
    differences = np.linalg.inv(FLIPS)[labels, predicted] - (predicted == true)
    found = check_transition(p, labels, FLIPS, true, smallest=0.1).tests[2]
    inverse = np.linalg.inv(FLIPS)
    variances = [np.cov(inverse[:, k], aweights=FLIPS[i], ddof=0) for i, k in zip(true, predicted, strict=True)]
    assert found.needed == np.ceil(((1.959964 + 1.281552) / 0.1) ** 2 * np.mean(variances))
    assert f"it is {differences.mean():+.3f} from that by the true classes" in found.finding


def repeated(count, seed, together, t=FLIPS):
    """Labels of three annotators, of whom a share errs together, on the same examples."""
    p, true, labels = drawn(count, seed, t)
    own = np.stack([corrupt_labels(true, t, [seed, m]) for m in range(3)], axis=1)
    same = np.random.default_rng([seed, 9]).random(count) < together
    return p, np.where(same[:, None], labels[:, None], own), np.stack([t] * 3), true


def test_annotators_who_err_together_are_found_without_a_clean_label():
    found = check_transition(*repeated(300, 0, 0.5)[:3])
    assert not found.holds
    assert found.tests[0].needed < 300
    assert "do annotators agree as often as T says: they agree on +0.2" in str(found)


def test_pairs_of_which_a_label_is_missing_do_not_count():
    p, labels, transitions, _ = repeated(300, 1, 0.5)
    labels[:, 2] = -1
    found = check_transition(p, labels, transitions)
    both = check_transition(p, labels[:, :2], transitions[:2])
    assert found.tests[0].p_value == pytest.approx(both.tests[0].p_value)
    assert found.tests[0].finding == both.tests[0].finding


REFUSED = {
    "one annotator": ([0, 1], np.eye(2), {}, r"at least two annotators, \(N, M\), if the true classes are not given"),
    "both": ([[0, 1], [1, 1]], [np.eye(2)] * 2, {"true": [0, 1]}, r"`labels` must have shape \(N,\) beside `true`"),
    "true": ([0, 1], np.eye(2), {"true": [0, 2]}, r"`true` must be in \[0, 2\)"),
    "power": ([0, 1], np.eye(2), {"true": [0, 1], "power": 1.0}, r"`power` must be a number in \(0, 1\)"),
    "smallest": ([0, 1], np.eye(2), {"true": [0, 1], "smallest": 2.0}, r"`smallest` must be in \[0, 1\]"),
    "no pair": ([[0, -1], [-1, 1]], [np.eye(2)] * 2, {}, r"examples with labels of two annotators. Received: none"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_tested_is_refused(case):
    labels, transition, more, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        check_transition([[0.8, 0.2], [0.3, 0.7]], labels, transition, **more)
