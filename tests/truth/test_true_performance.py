"""What noisy labels say of the true classes: by hand, by exact proportions, by simulation; and what is refused."""

import functools
import tracemalloc

import keras
import numpy as np
import pytest
from scipy.stats import binom

from keras_het.explain import calibration
from keras_het.label_noise import (
    corrupt_labels,
    dawid_skene,
    estimate_by_confident_joint,
    outlier_class,
    pair_flip,
    symmetric,
)
from keras_het.layers import NoiseTransition
from keras_het.truth import CountedTransition, corrected_weights, true_performance
from tests.checks import FALSE_ALARM, z_limit

pytestmark = pytest.mark.once

T = np.array([[0.75, 0.25, 0.0], [0.0, 0.5, 0.5], [0.25, 0.0, 0.75]])


def exact(transition, repeats=16):
    """Probabilities, true classes, and labels whose shares are those of T exactly, whatever the prediction is."""
    predicted, true = np.indices((3, 3)).reshape(2, -1).repeat([9, 2, 1, 2, 8, 4, 3, 1, 6], axis=1)
    sizes = np.rint(repeats * transition).astype(int)
    labels = np.concatenate([np.repeat(np.arange(3), sizes[k]) for k in true])
    predicted, true = predicted.repeat(repeats), true.repeat(repeats)
    sure = np.linspace(0.4, 0.95, 36).repeat(repeats)
    p = np.where(np.arange(3) == predicted[:, None], sure[:, None], (1.0 - sure[:, None]) / 2)
    return p, true, labels


def drawn(count, seed, transition=None):
    """Probabilities of a fair model, true classes, and labels that are drawn by T."""
    rng = np.random.default_rng(seed)
    transition = pair_flip(5, 0.35) if transition is None else transition
    true = rng.integers(len(transition), size=count)
    logits = 2.0 * np.eye(len(transition))[true] + rng.normal(size=(count, len(transition)))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return p, true, corrupt_labels(true, transition, [seed, 1])


@functools.cache
def population():
    """The accuracy of that model."""
    p, true, _ = drawn(200_000, 999)
    return np.mean(p.argmax(axis=1) == true)


def test_two_classes_by_hand():
    """The inverse of [[.8, .2], [.3, .7]] is [[1.4, -.4], [-.6, 1.6]]."""
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.1, 0.9], [0.4, 0.6]])
    found = true_performance(p, [0, 0, 1, 1, 0], [[0.8, 0.2], [0.3, 0.7]])
    assert found.accuracy.value == pytest.approx((1.4 + 1.4 - 0.6 + 1.6 - 0.4) / 5)
    np.testing.assert_allclose(found.joint.value, np.array([[2.2, 1.4 - 0.6], [0.8, 1.6 - 0.4]]) / 5)
    weights = np.array([[1.4, -0.4], [1.4, -0.4], [-0.6, 1.6], [-0.6, 1.6], [1.4, -0.4]])
    assert found.nll.value == pytest.approx(-(weights * np.log(p)).sum() / 5)
    assert found.noisy_accuracy == 0.6


def test_labels_in_the_shares_of_t_give_the_truth_itself():
    p, true, labels = exact(T)
    found = true_performance(p, labels, T, draws=20)
    assert found.accuracy.value == pytest.approx(np.mean(p.argmax(axis=1) == true))
    joint = np.zeros((3, 3))
    np.add.at(joint, (true, p.argmax(axis=1)), 1 / len(true))
    np.testing.assert_allclose(found.joint.value, joint, atol=1e-12)
    assert found.nll.value == pytest.approx(-np.log(p[np.arange(len(p)), true]).mean())
    expected = calibration(p, true, 10)
    np.testing.assert_allclose(found.curve.value, expected.accuracy)
    np.testing.assert_allclose(found.confidence, expected.confidence)
    assert found.count.tolist() == expected.count.tolist()


def test_predictions_that_are_kept_by_their_confidence():
    """With the shares of T exactly, they are right as often as by the true classes; the threshold is by the low end."""
    p, true, labels = exact(T)
    found, sure, right = true_performance(p, labels, T, draws=50), p.max(axis=1), p.argmax(axis=1) == true
    for place, edge in enumerate(found.edges[:-1]):
        assert found.keep_rate[place] == pytest.approx(np.mean(sure >= edge))
        np.testing.assert_allclose(found.kept_accuracy.value[place], right[sure >= edge].mean())
    assert found.kept_accuracy.value[0] == pytest.approx(found.accuracy.value)
    assert found.kept_accuracy.low[0] == pytest.approx(found.accuracy.low)
    wanted = found.kept_accuracy.low[6] - 1e-9
    first = np.flatnonzero((found.kept_accuracy.low >= wanted) & (found.count > 0))[0]
    assert found.threshold(wanted) == found.edges[first]
    assert found.threshold(0.999) == np.inf
    assert "confidence for 95% true classes: none is shown to be enough by these labels" in str(found)


def test_an_empty_bin_has_no_curve_and_what_is_kept_above_it_none_either():
    p = np.array([[0.72, 0.28], [0.28, 0.72]]).repeat(300, axis=0)
    found = true_performance(p, np.arange(600) // 300, np.eye(2), draws=5)
    assert np.isnan(found.curve.value[9])
    assert np.isnan(found.kept_accuracy.value[8:]).all()
    assert found.keep_rate.tolist() == [1.0] * 8 + [0.0] * 2
    assert found.threshold() == 0.7  # nothing is known of predictions below
    text = "confidence for 95% true classes: 0.7 or more keeps 100% of the predictions, right in at least 99.4%"
    assert text in str(found)


def test_few_predictions_and_impossible_estimates_show_no_threshold():
    """With 73 right ones n / (n + 1.96^2) = .95; an example alone, or labels that follow the example, show nothing."""
    for count, expected in ((72, np.inf), (73, 0.9)):
        p = np.array([[0.5, 0.5]] * 400 + [[0.95, 0.05]] * count)
        found = true_performance(p, [0, 1] * 200 + [0] * count, np.eye(2), draws=5)
        assert found.threshold(0.95) == expected
    p = np.array([[0.9, 0.1], [0.1, 0.9]]).repeat(500, axis=0)
    beyond = true_performance(p, [0] * 500 + [1] * 500, [[0.75, 0.25], [0.25, 0.75]])
    assert beyond.threshold(0.5) == np.inf


@pytest.mark.parametrize("sure", [0.6, 0.7])
def test_a_confidence_on_an_edge_is_kept_by_that_edge(sure):
    found = true_performance(np.tile([sure, 1.0 - sure], (400, 1)), [0] * 400, np.eye(2), draws=5)
    assert found.threshold(0.9) <= sure
    assert found.count[round(10 * sure)] == 400
    assert sure >= found.edges[round(10 * sure)]


def test_a_threshold_keeps_its_word_about_as_often_as_its_interval():
    """One of 40 intervals lies above the truth; the choice among ten edges may add a little, and so may chance."""
    p, true, _ = drawn(200_000, 999)
    sure, right, broken = p.max(axis=1), p.argmax(axis=1) == true, 0
    for seed in range(150):
        own, _, labels = drawn(500, seed)
        edge = true_performance(own, labels, pair_flip(5, 0.35), draws=2, seed=seed).threshold(0.8)
        broken += edge < np.inf and right[sure >= edge].mean() < 0.8
    assert broken <= binom.isf(FALSE_ALARM, 150, 0.05)


@pytest.mark.planted
def test_a_transposed_t_is_caught():
    p, true, labels = exact(pair_flip(3, 0.25))
    right = true_performance(p, labels, pair_flip(3, 0.25), draws=20).accuracy
    wrong = true_performance(p, labels, pair_flip(3, 0.25).T, draws=20).accuracy
    accuracy = np.mean(p.argmax(axis=1) == true)
    assert right.value == pytest.approx(accuracy)
    assert not wrong.low <= accuracy <= wrong.high


@pytest.mark.planted
def test_the_labels_own_accuracy_is_not_taken_for_the_truth():
    p, _, labels = drawn(4000, 0)
    noisy = true_performance(p, labels, np.eye(5), draws=20).accuracy
    assert noisy.value == pytest.approx(np.mean(p.argmax(axis=1) == labels))
    assert noisy.high < population() < true_performance(p, labels, pair_flip(5, 0.35), draws=20).accuracy.high


@pytest.mark.statistical
def test_intervals_hold_the_truth_as_often_as_they_say(base_seed):
    """The share of intervals, and the mean of the estimates, each within what chance allows."""
    accuracy, found = population(), []
    for seed in range(base_seed, base_seed + 150):
        p, _, labels = drawn(500, seed)
        found.append(true_performance(p, labels, pair_flip(5, 0.35), draws=2, seed=seed).accuracy)
    holds = sum(each.low <= accuracy <= each.high for each in found)
    assert holds >= binom.ppf(FALSE_ALARM, 150, 0.93)
    values = np.array([each.value for each in found])
    assert abs(values.mean() - accuracy) < z_limit(1) * values.std() / np.sqrt(150) + 0.002


def test_the_error_of_a_counted_t_is_in_the_interval():
    p, _, labels = drawn(500, 3)
    few, many = (CountedTransition(count * pair_flip(5, 0.35)) for count in (20, 100_000))
    known, wide, narrow = (true_performance(p, labels, t) for t in (few.transition, few, many))
    assert wide.accuracy.value < known.accuracy.value  # an inverse of few counts is too large on average
    assert wide.accuracy.high - wide.accuracy.low > 1.2 * (known.accuracy.high - known.accuracy.low)
    assert known.transition_fraction == 0.0
    assert narrow.transition_fraction < 0.2 < wide.transition_fraction < 1.0
    assert f"{wide.transition_fraction:.0%} of the variance of the accuracy" in str(wide)
    assert "counted on 100 examples of known class" in str(wide)


@pytest.mark.statistical
def test_intervals_by_counted_t_hold_the_truth(base_seed):
    accuracy, held = population(), 0
    for seed in range(base_seed, base_seed + 100):
        p, _, labels = drawn(500, seed)
        _, true, known = drawn(100, 1000 + seed)
        counted = CountedTransition.from_labels(true, known, 5)
        found = true_performance(p, labels, counted, draws=25, seed=seed).accuracy
        held += found.low <= accuracy <= found.high
    assert held >= binom.ppf(FALSE_ALARM, 100, 0.9)


def test_a_function_estimates_t_anew_on_each_sample():
    p, _, labels = drawn(500, 4)
    calls = []

    def estimate(some, own):
        calls.append((some.shape, own.shape))
        return estimate_by_confident_joint(own, some)

    found = true_performance(p, labels, estimate, draws=10)
    assert calls == [((500, 5), (500,))] * 11
    expected = true_performance(p, labels, estimate_by_confident_joint(labels, p), draws=10)
    assert found.accuracy.value == pytest.approx(expected.accuracy.value)
    assert "a bias of it is not seen" in str(found)


def test_labels_of_annotators_are_weighed_by_their_own_t():
    """The second annotator, who is never wrong, gave a few labels; where both did, both count."""
    p, true, labels = exact(T)
    transitions = np.stack([T, np.eye(3)])
    alone = true_performance(p, np.stack([labels, np.full(len(true), -1)], axis=1), transitions, draws=2)
    assert alone.accuracy.value == pytest.approx(np.mean(p.argmax(axis=1) == true))
    both = true_performance(p, np.stack([labels, true], axis=1), transitions, draws=50)
    assert both.accuracy.value == pytest.approx(np.mean(p.argmax(axis=1) == true))
    one = true_performance(p, labels, T, draws=50)
    assert both.accuracy.high - both.accuracy.low < one.accuracy.high - one.accuracy.low


def test_t_comes_from_a_layer_a_model_or_dawid_and_skene():
    p, _, labels = drawn(300, 5, pair_flip(3, 0.25))
    expected = true_performance(p, labels, pair_flip(3, 0.25), draws=5).accuracy
    layer = NoiseTransition(3, transition=pair_flip(3, 0.25), trainable=False, name="flips")
    assert true_performance(p, labels, layer, draws=5).accuracy.value == pytest.approx(expected.value, abs=1e-5)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Activation("log_softmax"), layer])
    found = true_performance(p, labels, model, draws=5)
    assert found.accuracy.value == pytest.approx(expected.value, abs=1e-5)
    assert "of the layer 'flips', taken for exact" in str(found)
    several = np.stack([labels, labels[::-1], labels], axis=1)
    fitted = dawid_skene(several, 3, 5)
    by_result = true_performance(p, several, fitted, draws=5).accuracy
    assert by_result == true_performance(p, several, fitted.transitions, draws=5).accuracy


def test_an_estimate_beyond_one_stays_and_its_interval_is_cut():
    p = np.array([[0.9, 0.1], [0.1, 0.9]]).repeat(500, axis=0)
    found = true_performance(p, [0] * 500 + [1] * 500, [[0.75, 0.25], [0.25, 0.75]])
    assert found.accuracy.value == pytest.approx(1.5)
    assert (found.accuracy.low, found.accuracy.high) == (1.0, 1.0)
    assert "outside [0, 1] by more than chance: T or the assumption is wrong" in str(found)


def test_it_says_in_words_what_it_rests_on():
    found = true_performance(*(drawn(200, 6)[i] for i in (0, 2)), pair_flip(5, 0.35), draws=5)
    titles = [line.split(":")[0] for line in str(found).splitlines()]
    assert titles[0] == "accuracy, true classes"
    assert titles[-2:] == ["assumption", "T"]
    assert "Noise must not depend on the example given its true class" in str(found)
    assert "condition number 2.38" in str(found)
    assert "<th>accuracy, true classes</th>" in found._repr_html_()


def test_an_outlier_class_has_its_column():
    p = np.tile([0.6, 0.3, 0.1], (30, 1))
    labels = [0] * 20 + [1] * 5 + [2] * 5
    found = true_performance(p, labels, outlier_class(2, 0.5), draws=5)
    assert found.joint.value.shape == (3, 3)
    np.testing.assert_allclose(found.joint.value.sum(axis=1), [17.5 / 30, 2.5 / 30, 10 / 30])


TWO, LABELS = np.array([[0.8, 0.2], [0.3, 0.7]]), [0, 1]
REFUSED = {
    "singular": (TWO, LABELS, symmetric(2, 0.5), r"condition number of at most 100, or .* Received: inf"),
    "nearly singular": (TWO, LABELS, symmetric(2, 0.497), r"condition number of at most 100, .* Received: 167"),
    "counted, and singular": (TWO, LABELS, CountedTransition(np.ones((2, 2))), r"condition number of at most 100, or"),
    "outlier class": (
        TWO,
        LABELS,
        outlier_class(2, 0.5),
        r"`probabilities`; with an outlier class, probabilities must have its column. Received: shape \(3, 3\)",
    ),
    "other classes": (TWO, LABELS, np.eye(4), r"of the 2 classes of `probabilities`. Received: shape \(4, 4\)"),
    "T of annotators": (
        TWO,
        LABELS,
        [np.eye(2)] * 3,
        r"T of several annotators go with their labels, \(N, M\). Received: shape \(3, 2, 2\)",
    ),
    "one T of annotators": (TWO, [[0, 1], [1, 1]], np.eye(2), r"must have shape \(2, 2, 2\) for labels of annotators"),
    "an annotator who guesses": (
        TWO,
        [[0, 1], [1, 1]],
        [np.eye(2), symmetric(2, 0.5)],
        r"Received: inf of annotator 1; leave their labels out",
    ),
    "no label": (TWO, [[0], [-1]], [np.eye(2)], r"at least one label of every example. Received: none of example 1"),
    "labels": (TWO, [0, 2], np.eye(2), r"`labels` must be in \[0, 2\). Received: 2 at \[1\]"),
    "number of labels": (TWO, [0, 1, 1], np.eye(2), r"entry for each of the 2 examples. Received: 3"),
    "number of rows": (TWO, [[0]], [np.eye(2)], r"a row for each of the 2 examples. Received: 1"),
    "probabilities": ([[0.8, 0.1], [0.3, 0.7]], LABELS, np.eye(2), r"rows of sum 1. Received: row 0 sums to 0.9"),
    "T": (TWO, LABELS, [[0.8, 0.1], [0.0, 1.0]], r"rows that sum to one. Received: row 0 sums to 0.9"),
}


def test_an_accuracy_that_nobody_can_want_is_refused():
    found = true_performance(TWO, LABELS, np.eye(2), draws=2)
    with pytest.raises(ValueError, match=r"`accuracy` must be a number in \(0, 1\). Received: accuracy=95"):
        found.threshold(95)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused(case):
    *arguments, text = REFUSED[case]
    with pytest.raises(ValueError, match=text):
        true_performance(*arguments)


def test_the_docstring_says_that_examples_must_be_held_out():
    assert "labels that trained the model cannot be told apart" in true_performance.__doc__


@pytest.mark.parametrize("counted", [False, True])
def test_counts_are_votes_of_people_who_are_alike(counted):
    """Five labels of each example by one T: as votes with that T five times, and sharper than one label."""
    p, true, _ = drawn(800, 0)
    t = pair_flip(5, 0.35)
    votes = np.stack([corrupt_labels(true, t, [0, m]) for m in range(5)], axis=1)
    counts = np.eye(5)[votes].sum(axis=1)
    given = CountedTransition(1e5 * t) if counted else t
    found = true_performance(p, counts, given, draws=20)
    own = true_performance(p, votes, np.stack([t] * 5), draws=20)
    single = true_performance(p, votes[:, 0], t, draws=20)
    assert found.accuracy.value == pytest.approx(own.accuracy.value, abs=1e-3 if counted else 1e-9)
    assert found.accuracy.high - found.accuracy.low < 0.7 * (single.accuracy.high - single.accuracy.low)
    with pytest.raises(ValueError, match="`labels` must be counts or votes"):
        true_performance(p, counts / 5 * 0.9 + 0.02, given)
    with pytest.raises(ValueError, match="`transition` must be one matrix for counts"):
        true_performance(p, counts, np.stack([t] * 5))


@pytest.mark.parametrize("kind", ["exact", "counted", "annotators"])
def test_blocks_of_rows_give_the_same_as_all_at_once(kind, monkeypatch):
    p, true, labels = drawn(600, 0)
    t = pair_flip(5, 0.35)
    given = {"exact": t, "counted": CountedTransition(100 * t), "annotators": np.stack([t, symmetric(5, 0.2)])}[kind]
    if kind == "annotators":
        labels = np.stack([labels, corrupt_labels(true, symmetric(5, 0.2), 7)], axis=1)
        labels[::3, 1] = -1
    whole = true_performance(p, labels, given, draws=20)
    monkeypatch.setattr("keras_het.base.batches.ROWS", 7)
    parts = true_performance(p, labels, given, draws=20)
    for name in ("accuracy", "calibration_error", "nll", "joint", "curve", "kept_accuracy"):
        for end in ("value", "low", "high"):
            one, other = (getattr(getattr(found, name), end) for found in (whole, parts))
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def peak_of(p, labels, transition):
    """The memory that an analysis takes at most, in parts of that of the probabilities."""
    tracemalloc.start()
    true_performance(p, labels, transition, draws=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak / p.nbytes


def of_many_classes(monkeypatch):
    """Probabilities in float32 that are large beside a block of their rows, and labels."""
    monkeypatch.setattr("keras_het.base.batches.ROWS", 256)
    p = np.random.default_rng(0).dirichlet(np.ones(200), size=20_000).astype("float32")
    p.flags.writeable = False  # as of a memory map that is read only, which NumPy copies in `argmax`
    return p, np.arange(len(p)) % 200, symmetric(200, 0.2)


def test_probabilities_in_float32_are_not_copied(monkeypatch):
    p, labels, transition = of_many_classes(monkeypatch)
    assert peak_of(p, labels, transition) < 1.0
    found, other = (true_performance(each, labels, transition, draws=2) for each in (p, p.astype("float64")))
    assert found.nll.high == pytest.approx(other.nll.high, rel=1e-6)


@pytest.mark.planted
def test_a_copy_in_float64_is_seen(monkeypatch):
    monkeypatch.setattr(corrected_weights, "check_distributions", lambda p, as_given: p.astype("float64"))
    assert peak_of(*of_many_classes(monkeypatch)) > 2.0
