"""The kind of noise that is planted is the one that is said; where nothing can be told, that is said."""

import time

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import binom

from keras_het.analysis import diagnose_noise
from keras_het.labels import corrupt, pair_flip, symmetric
from tests.checks import FALSE_ALARM

pytestmark = pytest.mark.once


def random_flips(size, noise):
    """T whose rows are random beside the diagonal."""
    t, others = (1 - noise) * np.eye(size), ~np.eye(size, dtype=bool)
    t[others] = noise * np.random.default_rng(3).dirichlet(np.ones(size - 1), size=size).ravel()
    return t


def make(kind, seed=0, count=1500, size=8, wrong_class=0.0):
    """Labels with planted noise, and what a good model predicts of these.

    The model takes a share of the examples, `wrong_class`, for examples of another class.
    """
    rng = np.random.default_rng([seed, 9])
    true = rng.integers(size, size=count)
    looks = (true + rng.integers(1, 1 + min(3, size - 1), size=count)) % size  # the class that an example looks like
    rows = {
        "none": np.eye(size)[true],
        "uniform": symmetric(size, 0.4)[true],
        "pairs": pair_flip(size, 0.4)[true],
        "pattern": random_flips(size, 0.45)[true],
        "by example": 0.65 * np.eye(size)[true] + 0.35 * np.eye(size)[looks],
        "outliers": np.where((rng.random(count) < 0.35)[:, None], 1 / size, np.eye(size)[true]),
    }[kind]
    labels = corrupt(true, rows, [seed, 1])
    seen = np.where((rng.random(count) < wrong_class)[:, None], np.roll(rows, 1, axis=1), rows)
    p = (0.9 * seen + 0.1 / size) * rng.gamma(15.0, size=(count, size))
    return p / p.sum(axis=1, keepdims=True), labels


KINDS = ("none", "uniform", "pairs", "pattern", "by example", "outliers")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_planted_is_said(kind):
    found = [diagnose_noise(*make(kind, seed)).kind for seed in range(10)]
    assert found.count(kind) >= 9, found


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["uniform", "pattern", "pairs"])
def test_noise_of_classes_is_rarely_said_to_be_of_examples(kind, base_seed):
    """Also if the model has the class of 2% of the examples wrong."""
    seeds = range(base_seed, base_seed + 150)
    p_values = [diagnose_noise(*make(kind, seed, 600, wrong_class=0.02)).p_value for seed in seeds]
    assert np.sum(np.array(p_values) < 0.01) <= binom.isf(FALSE_ALARM, 150, 0.01)


def looking(accuracy, seed, size=10, count=1500):
    """Labels of which 40% are any class, and what a model that has classes wrong predicts of them.

    Examples are of Gaussian clusters, and the model knows these and T: where it is wrong, the true class, which most
    labels name, is often its second choice. `accuracy` is that by true classes, of a sample of this kind.
    """
    spread = {0.79: 1.5, 0.85: 1.35, 0.95: 1.0}[accuracy]
    rng = np.random.default_rng([seed, 5])
    centers, true = rng.normal(size=(size, 16)), rng.integers(size, size=count)
    x = centers[true] + spread * rng.normal(size=(count, 16))
    logits = -np.square(x[:, None] - centers).sum(-1) / (2 * spread**2) + 0.5 * rng.normal(size=(count, size))
    return softmax(logits, axis=1) @ symmetric(size, 0.4), corrupt(true, symmetric(size, 0.4), [seed, 1])


@pytest.mark.statistical
@pytest.mark.parametrize("accuracy", [0.79, 0.95])
def test_uniform_noise_is_not_said_to_be_by_example_of_a_model_with_classes_wrong(accuracy, base_seed):
    """Not in one of a hundred draws, even of a model that is right for four of five."""
    kinds = [diagnose_noise(*looking(accuracy, seed)).kind for seed in range(base_seed, base_seed + 40)]
    assert kinds.count("by example") <= binom.isf(FALSE_ALARM, 40, 0.01), kinds


def test_of_a_model_that_learned_nothing_no_kind_is_said():
    """The more so of one that always says the largest class, and whatever the labels are."""
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=1000)
    guesses, constant = rng.dirichlet(np.full(10, 0.5), size=1000), np.tile(np.linspace(0.05, 0.15, 10), (1000, 1))
    for p in (guesses, constant / constant.sum(axis=1, keepdims=True)):
        found = diagnose_noise(p, labels)
        assert found.kind == "unknown"
        assert "no kind can be told by a model that has learned so little. Is it trained" in found.reason
    mostly = np.where(rng.random(1000) < 0.03, labels, 0)  # of which 97% are one class, as the model says
    assert diagnose_noise(np.eye(10)[np.zeros(1000, int)], mostly).kind == "unknown"


def test_what_is_counted_is_said_and_no_interval_of_wrong_labels_is():
    found = diagnose_noise(*make("pairs"))
    assert f"disagreement: the model disagrees with {found.disagreement:.1%} of the labels" in str(found)
    assert "+-" not in str(found)


def test_the_share_the_flips_and_the_transition_are_those_that_were_planted():
    p, labels = make("pairs")
    found = diagnose_noise(p, labels, class_names=list("abcdefgh"))
    assert abs(found.disagreement - 0.4) < 4 * np.sqrt(0.4 * 0.6 / len(labels))
    assert {(flip.true, flip.label) for flip in found.flips} == set(zip("abcdefgh", "bcdefgha", strict=True))
    assert all(flip.p_value < 1e-10 for flip in found.flips)
    np.testing.assert_allclose(found.transition, pair_flip(8, 0.4), atol=0.12)
    np.testing.assert_allclose(found.transition.sum(axis=1), 1.0)


def test_of_two_classes_only_none_can_be_told():
    assert diagnose_noise(*make("none", size=2)).kind == "none"
    found = diagnose_noise(*make("uniform", size=2))
    assert found.kind == "unknown"
    assert "two classes" in found.reason
    assert np.isnan(found.p_value)


def test_of_few_examples_nothing_is_said():
    p, labels = make("uniform")
    assert diagnose_noise(p[:30], labels[:30]).reason == "There are only 14 examples of which the class is clear."
    p, labels = make("none")
    assert diagnose_noise(p[:10], labels[:10]).kind == "unknown"
    p, labels = make("uniform", size=5, count=60)
    assert "only" in diagnose_noise(p, labels).reason


def test_a_class_without_labels_keeps_its_row():
    p, labels = make("uniform", size=5)
    p = np.hstack([p, np.zeros((len(p), 1))])
    found = diagnose_noise(p, labels)
    assert found.transition[5].tolist() == [0, 0, 0, 0, 0, 1]


def test_it_prints_as_sentences_and_names_are_plain_text():
    found = diagnose_noise(*make("pairs"), class_names=[f"<b>{k}" for k in range(8)])
    titles = [line.split(":")[0] for line in str(found).splitlines()]
    assert titles == ["kind of noise", "why", "disagreement", "systematic flips", "next step"]
    assert "and 3 more" in str(found)
    assert "<b>" in str(found)
    assert "<b>" not in found._repr_html_()
    assert "&lt;b&gt;" in found._repr_html_()


def test_a_thousand_classes_take_seconds():
    start = time.process_time()
    p, labels = make("uniform", count=3000, size=1000)
    assert diagnose_noise(p, labels).kind in (*KINDS, "unknown")
    assert time.process_time() - start < 20


def test_labels_of_one_class_are_refused():
    with pytest.raises(ValueError, match=r"`labels` must be of at least two classes\. Received: 1"):
        diagnose_noise([[0.5, 0.5]] * 3, [1, 1, 1])


def test_arguments_in_the_order_of_cleanlab_are_refused():
    with pytest.raises(ValueError, match=r"`probabilities` must .* of shape \(N, K\). Received: shape \(2,\)"):
        diagnose_noise([0, 1], [[0.9, 0.1], [0.2, 0.8]])


def test_names_of_labels_appear_in_the_flips():
    p, labels = make("pairs")
    names = np.array([f"class {letter}" for letter in "hgfedcba"])
    order = np.argsort(names)
    expected = diagnose_noise(p, labels, class_names=names.tolist())
    for found in (
        diagnose_noise(p, names[labels], class_names=names.tolist()),
        diagnose_noise(p[:, order], names[labels]),  # by no names: in sorted order
        diagnose_noise(p, np.eye(8)[labels], class_names=names.tolist()),
    ):
        assert {(flip.true, flip.label) for flip in found.flips} == {(flip.true, flip.label) for flip in expected.flips}
        assert found.disagreement == expected.disagreement
    assert expected.flips[0].true.startswith("class ")


def test_names_of_other_classes_are_refused():
    with pytest.raises(ValueError) as error:
        diagnose_noise(np.full((3, 3), 1 / 3), ["b", "a", "b"])
    assert str(error.value) == (
        "`labels` must be names of the 3 classes of `probabilities`, with `class_names` if some do not occur. "
        "Received: 'a', 'b'"
    )
    found = diagnose_noise(np.full((3, 3), 1 / 3), ["b", "a", "b"], class_names=["a", "c", "b"])
    assert found.kind == "unknown"
