from types import SimpleNamespace

import numpy as np
import pytest

from keras_het.training import compare as rule
from keras_het.training.compare import (
    Difference,
    best_epoch,
    check_learned,
    choose_one,
    class_means,
    class_means_of,
    compare,
    moving_mean,
)

pytestmark = pytest.mark.once


def outcomes(seed, count=400):
    """Two candidates that mostly agree, the first better by a tenth of the examples."""
    rng = np.random.default_rng(seed)
    other = rng.random(count) < 0.5
    return np.where(rng.random(count) < 0.1, True, other), other


def test_the_difference_is_that_of_a_paired_comparison():
    right, other = outcomes(0)
    found = compare(right, other, np.ones(len(right)))
    above = right.astype(float) - other
    assert found.mean == pytest.approx(above.mean())
    assert found.error == pytest.approx(above.std() / np.sqrt(len(above)))


def test_whole_weights_count_as_repeated_examples_in_the_mean():
    right, other = outcomes(1, 50)
    weights = np.arange(50) % 3 + 1
    found = compare(right, other, weights.astype(float))
    repeated = compare(np.repeat(right, weights), np.repeat(other, weights), np.ones(weights.sum()))
    assert found.mean == pytest.approx(repeated.mean)
    assert found.error > repeated.error  # an example that counts twice is still one example


def covers(measure):
    """The share of draws in which the mean is within two errors of the true difference, and the mean error."""
    found = [measure(*outcomes(seed), np.ones(400)) for seed in range(300)]
    inside = np.mean([abs(one.mean - 0.05) < 2 * one.error for one in found])
    return inside, np.mean([one.error for one in found])


def test_two_errors_cover_the_true_difference_as_often_as_they_should():
    inside, error = covers(compare)
    assert 0.91 < inside < 0.99  # 0.954 of 300: beyond by chance in less than one of a thousand
    assert error < 0.012


@pytest.mark.planted
def test_an_unpaired_error_would_be_caught():
    def unpaired(right, other, weights):
        error = np.sqrt((right.var() + other.var()) / len(right))
        return Difference(right.mean() - other.mean(), error)

    inside, error = covers(unpaired)
    assert inside > 0.99
    assert error > 0.03


def test_the_epoch_is_that_of_the_largest_moving_mean():
    right = np.zeros((9, 10), bool)
    right[2] = True  # a single epoch, by chance
    right[5:8, :6] = True
    assert best_epoch(right, np.ones(10)) == 4  # of epochs 2 to 6: the sum is 1 + .6 + .6
    assert best_epoch(right[3:], np.ones(10)) in (2, 3, 4)
    np.testing.assert_allclose(moving_mean(np.arange(6.0)), [0.6, 1.2, 2.0, 3.0, 3.8, 4.4])


def test_a_single_epoch_has_a_moving_mean():
    assert moving_mean(np.array([0.5])).tolist() == [0.5]
    assert best_epoch(np.ones((1, 3), bool), np.ones(3)) == 0


def chosen(candidates, safest="safe", errors=1.0):
    """The choice among candidates of given means and errors; the error of a difference is the larger of the two."""

    def difference(one, other):
        (mean, error), (of_other, error_of_other) = candidates[one], candidates[other]
        return Difference(mean - of_other, max(error, error_of_other))

    needed = errors if isinstance(errors, dict) else dict.fromkeys(candidates, errors)
    return choose_one(list(candidates), difference, safest, needed.get)


@pytest.mark.parametrize(
    ("safe", "other", "name"),
    [
        ((0.0, 0.01), (0.005, 0.01), "safe"),  # nothing is clear
        ((0.0, 0.01), (0.02, 0.01), "other"),
        ((-0.005, 0.01), (-0.1, 0.01), "safe"),  # behind the plain training, by chance perhaps
        ((-0.02, 0.01), (-0.1, 0.01), "plain"),
        ((-0.02, 0.01), (0.001, 0.01), "other"),
        ((-0.02, 0.03), (0.005, 0.03), "safe"),
    ],
)
def test_a_doubt_is_for_the_safest_candidate(safe, other, name):
    assert chosen({"plain": (0.0, 0.0), "safe": safe, "other": other}) == name


@pytest.mark.parametrize(("needed", "name"), [(2.0, "other"), (3.0, "safe")])
def test_each_candidate_has_its_own_number_of_standard_errors(needed, name):
    candidates = {"plain": (0.0, 0.01), "safe": (0.0, 0.01), "other": (0.025, 0.01)}
    assert chosen(candidates, errors={"plain": 3.0, "safe": 1.0, "other": needed}) == name


def test_without_a_safest_candidate_a_doubt_is_for_the_plain_training():
    assert chosen({"plain": (0.0, 0.01), "other": (0.005, 0.01)}, safest="plain") == "plain"
    assert chosen({"plain": (0.0, 0.01), "other": (0.02, 0.01)}, safest="plain") == "other"
    assert chosen({"plain": (0.0, 0.0)}, safest="plain") == "plain"


@pytest.mark.planted
def test_a_rule_that_ignores_the_error_would_be_caught(monkeypatch):
    monkeypatch.setattr(rule.Difference, "is_above", lambda self, errors: self.mean > 0)
    assert chosen({"plain": (0.0, 0.0), "safe": (0.0, 0.01), "other": (0.005, 0.01)}) == "other"


def answered(accuracy, classes=3, count=600, seed=0):
    """Labels, features of which the nearest class mean is nearly always right, and probabilities of this accuracy."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    said = np.where(rng.random(count) < accuracy, labels, (labels + 1) % classes)
    features = 4.0 * np.eye(classes)[labels] + rng.normal(size=(count, classes))
    return 0.7 * np.eye(classes)[said] + 0.3 / classes, labels, features, np.arange(count) % 5


def test_a_model_behind_the_class_means_is_warned_of_with_both_figures():
    p, labels, x, fold_of = answered(0.8)
    with pytest.warns(UserWarning, match=r"predicts 80.\d% of the held-out labels, and the nearest class .* 99.\d%"):
        check_learned(p, labels, class_means(x, labels, fold_of))
    good, labels, x, fold_of = answered(1.0)
    check_learned(good, labels, class_means(x, labels, fold_of))  # no warning, which would be an error
    answers = good.argmax(1)
    answers[:6] = (answers[:6] + 1) % 3  # a point behind, which is clear, and no weak model
    check_learned(0.7 * np.eye(3)[answers] + 0.1, labels, answered(1.0)[1])
    assert class_means(x[:, :, None], labels, fold_of) is None  # no features
    check_learned(answered(0.8)[0], labels)


def test_a_model_that_learned_nothing_is_an_error_and_one_of_rare_classes_is_not():
    p, labels, *_ = answered(1 / 3)
    with pytest.raises(ValueError, match=r"where the largest class is 3\d.\d% of them"):
        check_learned(p, labels)
    labels = (np.arange(600) % 20 == 0).astype(int)  # 5% of the second class, which is never the most probable one
    too_sure = np.where(np.random.default_rng(0).random(600) < 0.3 + 0.3 * labels, 1.0, 0.0)
    check_learned(np.stack([1 - too_sure, too_sure], axis=1), labels)
    check_learned(np.stack([1 - 0.3 * labels - 0.02, 0.3 * labels + 0.02], axis=1), labels)
    with pytest.raises(ValueError, match=r"where the largest class is 95\.0% of them"):
        check_learned(np.tile([0.95, 0.05], (600, 1)), labels)


@pytest.mark.statistical
def test_chance_seldom_passes_for_learning(base_seed):
    """By accuracy a sixth of the draws would, by the probability of the labels one of fifty."""
    passed = 0
    for seed in range(base_seed, base_seed + 200):
        p, labels, *_ = answered(1 / 3, count=200, seed=seed)
        try:
            check_learned(p, labels)
        except ValueError:
            continue
        passed += 1
    assert passed < 60  # of 200, where 32 are expected: five standard deviations


def test_class_means_are_those_of_the_other_folds():
    rng = np.random.default_rng(0)
    x, labels, fold_of = rng.normal(size=(60, 4)), rng.integers(3, size=60), np.arange(60) % 4
    z = (x - x.mean(0)) / x.std(0)
    expected = [
        np.argmin([np.square(z[i] - z[(fold_of != fold_of[i]) & (labels == k)].mean(0)).sum() for k in range(3)])
        for i in range(60)
    ]
    assert class_means(x, labels, fold_of).tolist() == expected
    others = fold_of == 3
    train, held_out = (SimpleNamespace(x=x[rows], y=labels[rows]) for rows in (~others, others))
    assert class_means_of(train, held_out).tolist() == np.array(expected)[others].tolist()
