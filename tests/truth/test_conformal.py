"""Sets for the true class, against formulas that share no code, and by simulation."""

import numpy as np
import pytest

from keras_het.label_noise import corrupt_labels, estimate_by_confident_joint, pair_flip
from keras_het.truth import CountedTransition, conformal_sets
from keras_het.truth.conformal import scores
from tests.checks import z_limit
from tests.truth.test_true_performance import T, drawn, exact

pytestmark = pytest.mark.once


def uniform(size, noise):
    """T of labels that are replaced by any class, the own one too."""
    return (1.0 - noise) * np.eye(size) + noise / size


def oracle_of_uniform_noise(values, labels, noise, level):
    """The least t with (noisy cover - noise times mean size / K) / (1 - noise) >= level, by trying every score."""
    own = values[np.arange(len(labels)), labels]
    for t in np.sort(values.ravel()):
        cover, size = np.mean(own <= t), np.mean((values <= t).sum(axis=1))
        if (cover - noise * size / values.shape[1]) / (1.0 - noise) >= level:
            return t
    return np.inf


@pytest.mark.parametrize("score", ["lac", "aps", "raps"])
def test_uniform_noise_is_that_of_the_closed_formula(score):
    p, _, labels = drawn(300, 0, uniform(5, 0.3))
    expected = oracle_of_uniform_noise(scores(p, score), labels, 0.3, 0.9)
    found = conformal_sets(p, labels, uniform(5, 0.3), score=score, correction=None)
    np.testing.assert_allclose(found.thresholds, expected, atol=1e-9)


def test_scores_by_hand():
    p = np.array([[0.1, 0.6, 0.3]])
    np.testing.assert_allclose(scores(p, "lac"), [[0.9, 0.4, 0.7]])
    np.testing.assert_allclose(scores(p, "aps"), [[1.0, 0.6, 0.9]])
    many = np.array([[0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.05]])
    np.testing.assert_allclose(scores(many, "raps"), [[0.3, 0.5, 0.65, 0.77, 0.87, 0.95 + 0.01, 1.0 + 0.02]])


def test_labels_in_the_shares_of_t_give_the_thresholds_of_the_true_classes():
    p, true, labels = exact(T)
    for per_class in (False, True):
        more = {"correction": None, "level": 0.8, "per_class": per_class}
        noisy, clean = conformal_sets(p, labels, T, **more), conformal_sets(p, true, np.eye(3), **more)
        np.testing.assert_allclose(noisy.thresholds, clean.thresholds)
        np.testing.assert_allclose(noisy.coverage, clean.coverage)
    assert len(set(noisy.thresholds)) > 1


def test_clean_labels_give_the_ordinary_quantile():
    p, true, _ = drawn(200, 1)
    own = np.sort(1.0 - p[np.arange(200), true])
    found = conformal_sets(p, true, np.eye(5), correction=None)
    assert found.thresholds[0] >= own[179]
    assert np.mean(own <= found.thresholds[0]) >= 0.9 > np.mean(own < found.thresholds[0] - 1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("per_class", [False, True])
def test_sets_hold_the_true_class_as_often_as_wanted(per_class, base_seed):
    """Mean cover over redraws, within what chance allows; ordinary sets hold it too often, and are larger."""
    p, true, _ = drawn(20_000, 999)
    flips, cover, sizes, ordinary = pair_flip(5, 0.35), [], [], []
    for seed in range(base_seed, base_seed + 40):
        own, _, labels = drawn(500, seed)
        found = conformal_sets(own, labels, flips, draws=30, seed=seed, per_class=per_class).sets(p)
        cover.append([found[true == k, k].mean() for k in range(5)])
        sizes.append(found.sum(axis=1).mean())
        ordinary.append(conformal_sets(own, labels, np.eye(5), correction=None).sets(p).sum(axis=1).mean())
    cover = np.array(cover) if per_class else np.mean(cover, axis=1, keepdims=True)
    error = cover.std(axis=0) / np.sqrt(40)
    assert np.all(cover.mean(axis=0) > 0.9 - z_limit(cover.shape[1]) * error)
    assert np.mean(sizes) < np.mean(ordinary)


@pytest.mark.planted
def test_a_transposed_t_misses_the_level():
    p, true, labels = exact(pair_flip(3, 0.25))
    cover = {}
    for name, t in {"right": pair_flip(3, 0.25), "transposed": pair_flip(3, 0.25).T}.items():
        found = conformal_sets(p, labels, t, level=0.8, correction=None).sets(p)
        cover[name] = found[np.arange(len(true)), true].mean()
    assert 0.8 <= cover["right"] < 0.85
    assert not 0.8 <= cover["transposed"] < 0.85


def test_the_margin_grows_with_the_error_of_t_and_shrinks_with_the_labels():
    p, _, labels = drawn(400, 2)
    flips = pair_flip(5, 0.35)
    known = conformal_sets(p, labels, flips, draws=40).margin
    assert conformal_sets(p, labels, CountedTransition(10 * flips), draws=40).margin > 1.2 * known
    more, _, of_more = drawn(6400, 2)
    assert conformal_sets(more, of_more, flips, draws=40).margin < known / 2.5
    found = conformal_sets(p, labels, lambda a, b: estimate_by_confident_joint(b, a), draws=10)
    assert found.margin > 0


def test_the_finite_margin_by_hand():
    """K = 2, T = [[.8, .2], [.2, .8]], 50 labels of each class: V = T^-1, for all shares are equal."""
    p, labels = np.tile([0.6, 0.4], (100, 1)), np.arange(100) % 2
    flips = [[0.8, 0.2], [0.2, 0.8]]
    root, others = np.sqrt(50), 0.2 / 0.6
    for per_class, terms, count in ((True, 2, 50), (False, 4, 100)):
        m = min(terms * np.sqrt(np.pi / 2), 1 / root + np.sqrt(np.log(2 * terms * 50) / 2)) / root
        expected = np.sqrt(2 * np.pi) / 4 / np.sqrt(count) + 2 * others * m
        found = conformal_sets(p, labels, flips, correction="finite", per_class=per_class)
        np.testing.assert_allclose(found.margin, expected)
    assert conformal_sets(p, labels, flips, correction="finite").thresholds.tolist() == [np.inf, np.inf]


def test_a_threshold_that_does_not_exist_is_infinite_and_said():
    p, _, labels = drawn(60, 3)
    found = conformal_sets(p, labels, pair_flip(5, 0.35), correction="finite")
    assert np.isinf(found.thresholds).all()
    assert found.sets(p).all()
    assert "5 classes are in every set, for no threshold reaches the level" in str(found)
    assert "Noise must not depend on the example given its true class" in str(found)


def test_a_class_whose_share_is_not_positive_is_in_every_set():
    """All labels are of the first class: the second has the share -1/2."""
    p = np.array([[0.9, 0.1], [0.6, 0.4]]).repeat(20, axis=0)
    found = conformal_sets(p, [0] * 40, [[0.75, 0.25], [0.25, 0.75]], per_class=True, draws=5)
    assert np.isinf(found.thresholds[1])
    assert found.thresholds[0] <= 0.4


def test_equal_scores_are_counted_together():
    """Four examples of equal scores: their labels' weights count at once, not one after the other."""
    p = np.tile([0.75, 0.25], (4, 1))
    found = conformal_sets(p, [0, 0, 0, 1], [[0.75, 0.25], [0.25, 0.75]], correction=None, level=0.9)
    assert found.thresholds.tolist() == [0.25, 0.25]  # 3/4 * 1.5 + 1/4 * -.5 = 1


REFUSED = {
    "level": ({"level": 1.0}, r"`level` must be a number in \(0, 1\). Received: level=1.0"),
    "score": ({"score": "top"}, r"`score` must be one of 'lac', 'aps', 'raps'"),
    "correction": ({"correction": "exact"}, r"`correction` must be one of 'asymptotic', 'finite', None"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_out_of_range_are_refused(case):
    more, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        conformal_sets([[0.8, 0.2]], [0], np.eye(2), **more)


def test_a_level_is_any_number_between_0_and_1():
    found = [
        conformal_sets([[0.8, 0.2]], [0], np.eye(2), level=kind(0.5)).level for kind in (float, np.float16, np.float32)
    ]
    assert found == [0.5] * 3
    assert {type(level) for level in found} == {float}


def test_other_classes_and_the_finite_margin_of_an_uncertain_t_are_refused():
    with pytest.raises(ValueError, match=r'must be "asymptotic" for a T that is uncertain'):
        conformal_sets([[0.8, 0.2]], [0], CountedTransition(np.eye(2)), correction="finite")
    with pytest.raises(ValueError, match=r"must have 2 columns, as those of the calibration. Received: 3"):
        conformal_sets([[0.8, 0.2]], [0], np.eye(2)).sets([[0.5, 0.25, 0.25]])


def test_labels_that_are_drawn_anew_move_the_threshold_within_its_error():
    p, true, _ = drawn(2000, 4)
    found = [
        conformal_sets(p, corrupt_labels(true, pair_flip(5, 0.35), seed), pair_flip(5, 0.35), draws=10).thresholds[0]
        for seed in range(5)
    ]
    assert 0 < np.std(found) < 0.1
