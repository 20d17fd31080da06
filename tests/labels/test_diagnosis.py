"""Planted label noise is told, and each test keeps its stated rate of false alarms.

Probabilities are exact posteriors of a Gaussian mixture, so no model is trained.
"""

import itertools
import time

import numpy as np
import pandas
import pytest
from scipy.special import softmax
from scipy.stats import binom

from keras_het.labels import corrupt, diagnosis, pair_flip, symmetric
from keras_het.labels.decoding import Decoded
from keras_het.labels.diagnosis import diagnose
from tests.checks import FALSE_ALARM, refusals

pytestmark = pytest.mark.once

KINDS = ("none", "class-dependent", "instance-dependent")
LEVEL = 0.05  # stated for each test
SPREADS = {0.96: 1.0, 0.80: 1.5, 0.58: 2.2}  # by accuracy of the model


def unequal_flips(size, rate):
    """Returns T whose rows are random beside the diagonal."""
    t, others = (1 - rate) * np.eye(size), ~np.eye(size, dtype=bool)
    t[others] = rate * np.random.default_rng(3).dirichlet(np.ones(size - 1), size=size).ravel()
    return t


def posteriors(accuracy, seed, size=10, count=1500):
    """Returns true classes of Gaussian clusters, and their posterior probabilities."""
    rng = np.random.default_rng([seed, 5])
    spread, centers, true = SPREADS[accuracy], rng.normal(size=(size, 16)), rng.integers(size, size=count)
    x = centers[true] + spread * rng.normal(size=(count, 16))
    return true, softmax(-np.square(x[:, None] - centers).sum(-1) / (2 * spread**2), axis=1)


def planted(noise, seed, accuracy=0.96, **sizes):
    """Returns probabilities of the labels that a model of the clusters predicts, and the labels."""
    true, q = posteriors(accuracy, seed, **sizes)
    size = q.shape[1]
    if noise == "instance-dependent":
        look = np.eye(size)[(true + np.random.default_rng([seed, 7]).integers(1, 4, size=len(true))) % size]
        return 0.65 * q + 0.35 * look, corrupt(true, rows=0.65 * np.eye(size)[true] + 0.35 * look, seed=[seed, 1])
    name, rate = noise.split()
    t = {"symmetric": symmetric, "pairs": pair_flip, "unequal": unequal_flips}[name](size, float(rate) / 100)
    return q @ t, corrupt(true, rows=t[true], seed=[seed, 1])


@pytest.fixture
def draws(base_seed, redraws):
    """A function that diagnoses this noise in each of some redraws."""
    seeds = range(base_seed, base_seed + redraws(300))
    return lambda *noise, **sizes: [diagnose(*planted(*noise, seed=seed, **sizes)) for seed in seeds]


def alarms(results, name):
    return sum(getattr(result, name) < LEVEL for result in results)


def limit(results, level=LEVEL):
    """The number of false alarms that is exceeded with probability FALSE_ALARM."""
    return binom.isf(FALSE_ALARM, len(results), level)


@pytest.mark.parametrize(("noise", "kind"), [
    ("symmetric 0", "none"),
    ("symmetric 20", "class-dependent"),
    ("symmetric 40", "class-dependent"),
    ("pairs 40", "class-dependent"),
    ("unequal 40", "class-dependent"),
    ("instance-dependent", "instance-dependent"),
])  # fmt: skip
def test_planted_noise_is_told(noise, kind):
    kinds = [diagnose(*planted(noise, seed)).kind for seed in range(10)]
    assert kinds.count(kind) >= 9, kinds


@pytest.mark.statistical
@pytest.mark.parametrize("accuracy", SPREADS)
def test_correct_labels_show_no_noise_whatever_the_accuracy_of_the_model(accuracy, draws):
    """The floor has at most 5% false alarms, and no weak model shows noise by class."""
    results = draws("symmetric 0", accuracy=accuracy)
    assert alarms(results, "noise_p_value") <= limit(results)
    assert sum(result.kind == "class-dependent" for result in results) <= limit(results, 0.01)


@pytest.mark.statistical
@pytest.mark.planted
def test_symmetric_noise_is_called_class_dependent_as_rarely_as_stated(draws):
    results = draws("symmetric 40")
    assert alarms(results, "symmetry_p_value") <= limit(results)
    assert alarms(draws("unequal 40"), "symmetry_p_value") == len(results)


@pytest.mark.statistical
@pytest.mark.planted
@pytest.mark.parametrize("accuracy", [0.96, 0.80])
def test_noise_by_class_is_said_to_follow_examples_as_rarely_as_stated(accuracy, draws):
    """Also of a model that is wrong for one of five; the check catches labels that follow examples."""
    for noise in ("symmetric 40", "pairs 20", "pairs 40"):
        results = draws(noise, accuracy=accuracy)
        assert alarms(results, "class_p_value") <= limit(results), noise
    assert alarms(draws("instance-dependent", accuracy=accuracy), "class_p_value") >= 0.9 * len(results)


@pytest.mark.statistical
def test_few_flips_of_many_classes_keep_the_rate_of_false_alarms(base_seed, redraws):
    """Three flips a class of 20, where the statistic is far from a chi-square."""
    rng, found, count = np.random.default_rng(base_seed), 0, redraws(5000)
    for _ in range(count):
        counts = np.zeros((20, 20), int)
        np.add.at(
            counts, (np.repeat(np.arange(20), 3), (np.repeat(np.arange(20), 3) + rng.integers(1, 20, 60)) % 20), 1
        )
        found += diagnosis._test_symmetry(counts) < LEVEL
    assert found <= binom.isf(FALSE_ALARM, count, 0.06)  # the gamma distribution is 1% off
    assert found >= binom.ppf(FALSE_ALARM, count, 0.03)


def test_the_floor_is_the_noise_rate():
    for noise, rate in {"symmetric 20": 0.18, "symmetric 40": 0.36, "pairs 40": 0.4}.items():
        p, labels = planted(noise, 0, count=4000)
        true = posteriors(0.96, 0, count=4000)[0]
        assert abs(diagnose(p, labels).rate - np.mean(true != labels)) < 0.03, (noise, rate)


def test_counts_that_follow_the_formula_give_back_their_rate():
    ranks = (np.arange(diagnosis.BINS) + 0.5) / diagnosis.BINS
    odds, totals = 0.3 * ranks / (1 - ranks), np.full(diagnosis.BINS, 1e4)
    floor = diagnosis._fit_noise(totals * (0.2 + 0.8 * odds / (1 + odds)), totals)
    assert floor.rate == pytest.approx(0.2, abs=1e-3)
    errors = (0.8 * odds / (1 + odds))[: diagnosis.CLEAR_BINS].sum()
    assert floor.error_fraction == pytest.approx(errors / (errors + 0.2 * diagnosis.CLEAR_BINS), abs=3e-3)
    assert floor.p_value < 1e-10


def test_a_model_that_learned_nothing_shows_nothing():
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=1000)
    guesses, constant = rng.dirichlet(np.full(10, 0.5), size=1000), np.tile(np.linspace(0.05, 0.15, 10), (1000, 1))
    for p in (guesses, constant / constant.sum(axis=1, keepdims=True)):
        result = diagnose(p, labels)
        assert result.kind == "none"
        assert "of the labels, the majority class alone " in result.reason
    assert diagnose(np.eye(10)[np.zeros(1000, int)], np.where(rng.random(1000) < 0.03, labels, 0)).kind == "none"


def test_two_classes_and_noise_of_more_than_half_of_the_labels_cannot_be_class_dependent():
    assert diagnose(*planted("symmetric 0", 0, size=2)).kind == "none"
    result = diagnose(*planted("symmetric 40", 0, size=2))
    assert result.kind == "instance-dependent"
    assert "With two classes" in result.reason
    assert np.isnan(result.class_p_value)
    assert np.isnan(result.symmetry_p_value)
    result = diagnose(*planted("symmetric 70", 0))
    assert result.kind == "instance-dependent"
    assert "close to half of the labels" in result.reason


def test_the_flips_and_the_transition_are_the_planted_ones():
    p, labels = planted("pairs 40", 0, size=8)
    result = diagnose(p, labels, class_names=list("abcdefgh"))
    assert {(flip.true, flip.label) for flip in result.flips} == set(zip("abcdefgh", "bcdefgha", strict=True))
    assert all(flip.p_value < 1e-10 for flip in result.flips)
    np.testing.assert_allclose(result.transition, pair_flip(8, 0.4), atol=0.12)
    np.testing.assert_allclose(result.transition.sum(axis=1), 1.0)
    assert diagnose(*planted("symmetric 40", 0)).flips == ()
    p, labels = planted("symmetric 40", 0, size=5)
    result = diagnose(np.hstack([p, np.zeros((len(p), 1))]), labels)
    assert result.transition[5].tolist() == [0, 0, 0, 0, 0, 1]


def test_a_flip_is_printed_only_where_the_most_probable_class_agrees(monkeypatch):
    """T that says of 40% of the examples that their most probable label is a flip; or of which p says so, too."""
    rng = np.random.default_rng(0)
    labels, is_flipped = rng.integers(4, size=1000), rng.random(1000) < 0.4
    classes = np.where(is_flipped, (labels + 1) % 4, labels)
    decoded = Decoded(classes, rng.random(1000), (classes + 2) % 4, True)
    monkeypatch.setattr(diagnosis, "decode", lambda *data: decoded)
    p = 0.8 * np.eye(4)[np.where(rng.random(1000) < 0.02, (labels + 2) % 4, labels)] + 0.05
    assert diagnose(p, labels).kind != "none"
    assert diagnose(p, labels).flips == ()
    agreed = diagnose(0.4 * np.eye(4)[classes] + 0.3 * np.eye(4)[labels] + 0.075, labels).flips
    assert {(flip.true, flip.label) for flip in agreed} == {(1, 0), (2, 1), (3, 2), (0, 3)}


def test_it_prints_the_answer_then_the_evidence_then_the_step_and_names_are_plain_text():
    result = diagnose(*planted("pairs 40", 0, size=8), class_names=[f"<b>{k}" for k in range(8)])
    titles = [line.split(":")[0] for line in str(result).splitlines()]
    assert titles == ["label noise", "evidence", "frequent flips", "next step"]
    assert str(result).startswith("label noise: class-dependent. Label errors depend on the true class")
    assert f"with {result.disagreement:.1%} of the labels, and with about {result.rate:.1%}" in str(result)
    assert "and 3 more" in str(result)
    assert "<b>" in str(result)
    assert "<b>" not in result._repr_html_()
    assert "&lt;b&gt;" in result._repr_html_()


def test_symmetric_noise_is_printed_as_symmetric_and_unequal_flips_as_class_dependent():
    symmetric_result, unequal_result = (diagnose(*planted(f"{name} 40", 0)) for name in ("symmetric", "unequal"))
    assert symmetric_result.kind == unequal_result.kind == "class-dependent"
    assert symmetric_result.answer.startswith("class-dependent, random flips (symmetric).")
    assert "ForwardCorrected" not in symmetric_result.next_step
    assert unequal_result.answer.startswith("class-dependent.")
    assert "ForwardCorrected" in unequal_result.next_step


def test_mean_and_variance_are_those_of_all_permutations():
    second, labels = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0])
    hits = [np.sum(second == np.array(order)) for order in itertools.permutations(labels)]
    np.testing.assert_allclose(diagnosis._moments(second, labels), (np.mean(hits), np.var(hits)), rtol=1e-12)


def test_equal_probabilities_do_not_tell_noise_from_errors_and_few_examples_are_answered():
    """Whatever the order of the examples is."""
    labels = np.arange(3).repeat(100)
    labels[:30] = 1
    assert diagnose(np.eye(3).repeat(100, axis=0), labels).kind == "none"
    assert diagnose(np.eye(3), [0, 1, 2]).kind == "none"


def test_ranks_are_within_the_class_and_equal_margins_share_theirs():
    ranks = diagnosis._ranks(np.array([0.5, 0.5, 0.5, 0.2, 0.9]), np.array([1, 1, 0, 1, 1]))
    np.testing.assert_allclose(ranks, [0.5, 0.5, 0.5, 0.875, 0.125])
    ranks = diagnosis._ranks(np.array([0.1, 0.9, 0.5, 0.2]), np.array([2, 2, 0, 2]))
    np.testing.assert_allclose(ranks, [5 / 6, 1 / 6, 1 / 2, 1 / 2])


def test_a_thousand_classes_take_seconds():
    rng, start = np.random.default_rng(0), time.process_time()
    labels = rng.integers(1000, size=3000)
    p = 0.5 * np.eye(1000)[np.where(rng.random(3000) < 0.7, labels, rng.integers(1000, size=3000))] + 0.5 / 1000
    assert diagnose(p, labels).kind in KINDS
    assert time.process_time() - start < 20


THIRDS = np.full((3, 3), 1 / 3)
test_errors_say_what_is_wrong = refusals([
    (lambda: diagnose([[0.5, 0.5]] * 3, [1, 1, 1]), "`labels` must have at least two classes. Received: 1"),
    (lambda: diagnose([0, 1], [[0.9, 0.1], [0.2, 0.8]]), "Use np.exp for log-probabilities. Received: shape (2,)"),
    (lambda: diagnose(THIRDS, ["b", "a", "b"]),
     ("`labels` must name the 3 classes of `probabilities`. Pass `class_names` if a class does not occur. "
      "Received: 'a', 'b'")),
])  # fmt: skip


def test_columns_of_a_frame_are_matched_by_name():
    names, true = np.array(["cat", "cow", "dog"]), np.arange(300) % 3
    labels = corrupt(true, symmetric(3, 0.2), seed=0)
    p = np.eye(3)[true] + np.random.default_rng(0).random((300, 3)) / 4
    frame = pandas.DataFrame(p := p / p.sum(axis=1, keepdims=True), columns=names)[["dog", "cat", "cow"]]
    expected = diagnose(p, names[labels])
    assert expected.disagreement == np.mean(labels != true)
    for given in (diagnose(frame, names[labels]), diagnose(frame, labels, names)):
        assert str(given) == str(expected)
    reordered = pandas.DataFrame(p, columns=range(3))[[2, 0, 1]]
    assert diagnose(reordered, labels, names).disagreement == expected.disagreement
