"""The rule that chooses among trials, and the guards against a model that has learned nothing."""

import numpy as np
import pytest
from scipy.stats import binom

from keras_het.labels.data import Data
from keras_het.labels.training.comparison import check_learned, difference, one_standard_error, warn_if_weak
from keras_het.labels.training.trainer import Trial, best_epoch
from tests.checks import FALSE_ALARM
from tests.labels.tasks import Named

pytestmark = pytest.mark.once


def outcomes(seed, count=400):
    """Scores of two methods that mostly agree, the first better by a twentieth of the examples."""
    rng = np.random.default_rng(seed)
    other = rng.random(count) < 0.5
    return np.where(rng.random(count) < 0.1, True, other), other


def test_the_difference_is_that_of_a_paired_comparison_and_weights_count_as_examples():
    right, other = outcomes(0)
    gap, found = 1.0 * right - other, difference(right, other)
    assert found.mean == pytest.approx(gap.mean())
    assert found.error == pytest.approx(gap.std(ddof=1) / np.sqrt(400))
    one = difference(np.eye(1, 400)[0], np.zeros(400))  # a single example
    assert one.mean == pytest.approx(one.error)
    assert not one.is_clear
    assert found.error < 0.5 * np.sqrt(right.var() / 400 + other.var() / 400)
    right, other = outcomes(1)
    weights = np.where(np.arange(400) < 100, 1.0, 0.0)
    assert difference(right, other, weights) == pytest.approx(difference(right[:100], other[:100]))


def chosen(*scores, weight=None):
    """The number of the trial that is chosen, the first the most cautious one."""
    trials = [Trial(Named(str(number)), 1, score, np.zeros((len(score), 2))) for number, score in enumerate(scores)]
    return trials.index(one_standard_error(trials, weight))


def test_the_most_cautious_method_is_chosen_unless_another_is_clearly_better():
    base = np.arange(400) % 2 == 0
    better, near = base.copy(), base.copy()
    better[1:41:2] = True  # 20 of 400 more, none fewer: over four standard errors
    near[1:41:2], near[0:36:2] = True, False  # 20 more and 18 fewer: a third of a standard error
    assert chosen(base, better) == 1
    assert chosen(base, near) == 0
    assert chosen(near, base, better) == 2
    assert chosen(base, near, base) == 0
    assert chosen(better, base) == 0
    assert chosen(base) == 0


def test_the_first_that_is_near_the_best_is_chosen_by_weights_too():
    rng = np.random.default_rng(0)
    best = rng.random(1000) < 0.8
    near = np.where(rng.random(1000) < 0.1, rng.random(1000) < 0.78, best)
    behind = np.where(rng.random(1000) < 0.3, False, best)
    assert difference(best, near).mean <= difference(best, near).error
    assert chosen(behind, near, best) == 1
    base, other = np.arange(400) % 2 == 0, np.arange(400) % 2 == 1
    assert chosen(base, other, weight=np.where(np.arange(400) % 2, 2.0, 1.0)) == 1
    assert chosen(base, other) == 0


def test_the_best_epoch_is_that_of_the_best_neighbourhood():
    scores = np.zeros((14, 1))
    scores[[2, 7, 8, 9, 10, 11], 0] = [1.0, 0.5, 0.6, 0.7, 0.6, 0.5]  # a lonely peak, and a hill
    assert best_epoch(scores) == 9
    assert best_epoch(np.ones((3, 2)), np.ones(2)) == 0


def answered(accuracy, classes=3, count=600, seed=0):
    """Labels, features of which the nearest class mean is nearly always right, and probabilities of this accuracy."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    said = np.where(rng.random(count) < accuracy, labels, (labels + 1) % classes)
    features = 4.0 * np.eye(classes)[labels] + rng.normal(size=(count, classes))
    return 0.7 * np.eye(classes)[said] + 0.3 / classes, Data(features, labels, np.arange(3)), np.arange(count) % 5


def test_a_model_behind_logistic_regression_is_warned_of_with_both_figures():
    p, data, fold_of = answered(0.8)
    with pytest.warns(UserWarning, match=r"predicts 80.\d% of the held-out labels, but logistic regression .* 99.\d%"):
        warn_if_weak(p, data, fold_of)
    good, data, fold_of = answered(1.0)
    warn_if_weak(good, data, fold_of)  # no warning, which would be an error
    answers = good.argmax(1)
    answers[:6] = (answers[:6] + 1) % 3  # a point behind, which is clear, and no weak model
    warn_if_weak(0.7 * np.eye(3)[answers] + 0.1, data, fold_of)
    warn_if_weak(p, Data(data.x[:, :, None], data.y, data.classes), fold_of)  # no features


def test_a_model_that_learned_nothing_is_an_error_and_one_of_rare_classes_is_not():
    p, data, _ = answered(1 / 3)
    with pytest.raises(ValueError, match=r"the majority class 3\d.\d%"):
        check_learned(p, data.y)
    labels = (np.arange(600) % 20 == 0).astype(int)  # 5% of the second class, which is never the most probable one
    for p in (np.where(np.random.default_rng(0).random(600) < 0.3 + 0.3 * labels, 1.0, 0.0), 0.3 * labels):
        with pytest.warns(UserWarning, match=r"not clearly better than the majority class.* class 95\.0%"):
            check_learned(np.stack([1 - p, p], axis=1), labels)
    with pytest.raises(ValueError, match=r"the majority class 95\.0%"):
        check_learned(np.tile([0.95, 0.05], (600, 1)), labels)


def test_more_labels_than_the_largest_class_by_less_than_an_error_are_refused_without_a_contradiction():
    labels = np.repeat([0, 1, 2], [7, 7, 6])
    said = np.where(np.arange(20) % 5 < 2, labels, (labels + 1) % 3)  # 8 of 20 are right, and 7 are of a class
    text = r"clearly better than .* it predicts 40\.0% of the labels, the majority class 35\.0% \(\+5\.0 \+- "
    with pytest.raises(ValueError, match=text):
        check_learned(0.7 * np.eye(3)[said] + 0.1, labels)


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore:The model is not clearly better")
def test_chance_seldom_passes_for_learning(base_seed, redraws):
    """By accuracy a sixth of the draws would, by the probability of the labels one of fifty."""
    passed, count = 0, redraws(1000)
    for seed in range(base_seed, base_seed + count):
        p, data, _ = answered(1 / 3, count=200, seed=seed)
        try:
            check_learned(p, data.y)
        except ValueError:
            continue
        passed += 1
    assert passed <= binom.isf(FALSE_ALARM, count, 1 / 6)
