"""The report on annotators, by hand."""

import keras
import numpy as np
import pytest
from scipy.stats import binomtest

from keras_het.labels import aggregate, annotators, corrupt, pair_flip, symmetric
from keras_het.layers import NoiseTransition
from tests.checks import refusals

pytestmark = pytest.mark.once

STACK = np.stack([np.eye(3), [[0.5, 0.5, 0.0], [0.0, 0.9, 0.1], [0.3, 0.0, 0.7]], np.full((3, 3), 1 / 3)])
LABELS = np.array([[0, -1, 2], [1, 1, -1], [-1, -1, 0], [-1, 2, -1], [2, 0, -1]])


def test_the_figures_by_hand():
    found = annotators(
        STACK, LABELS, prior=[0.5, 0.3, 0.2], names=["Ann", "Bob", "Cyn"], class_names=["cat", "dog", "fox"], count=2
    ).annotators
    assert [a.name for a in found] == ["Ann", "Bob", "Cyn"]
    assert [a.num_labels for a in found] == [3, 3, 2]
    assert [a.agreement for a in found] == pytest.approx([1.0, 0.5 * 0.5 + 0.3 * 0.9 + 0.2 * 0.7, 1 / 3])
    # Distances of rows 1 and 2, 1 and 3, 2 and 3.
    bob = (0.5**2 + 0.4**2 + 0.1**2, 0.2**2 + 0.5**2 + 0.7**2, 0.3**2 + 0.9**2 + 0.6**2)
    assert [a.separation for a in found] == pytest.approx([1.0, sum(bob) / 6, 0.0])
    assert found[1].confusions == (("cat", "dog", 0.5), ("fox", "cat", 0.3))
    assert found[0].confusions == ()


def test_the_text_has_the_best_first():
    lines = str(annotators(STACK, names=["Ann", "Bob", "Cyn"], class_names=["cat", "dog", "fox"], count=2)).splitlines()
    assert lines == [
        "annotator  labels  agreement  with others  95% interval  separation  confusions",
        "Ann             -       1.00            -             -        1.00",
        "Bob             -       0.70            -             -        0.41  cat -> dog 0.50, fox -> cat 0.30",
        "Cyn             -       0.33            -             -        0.00  cat -> dog 0.33, cat -> fox 0.33",
    ]


def test_of_a_model_and_of_one_annotator():
    stack = np.stack([pair_flip(4, 0.3), symmetric(4, 0.2)])
    layer = NoiseTransition(4, num_annotators=2, transition=stack, trainable=False)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, "log_softmax"), layer])
    for of_model, of_stack in zip(annotators(model).annotators, annotators(stack).annotators, strict=True):
        for name in ("agreement", "separation"):
            assert getattr(of_model, name) == pytest.approx(getattr(of_stack, name), rel=1e-5)
        assert [each[:2] for each in of_model.confusions] == [each[:2] for each in of_stack.confusions]
    assert str(annotators(stack[:1])).splitlines()[1].split()[:3] == ["0", "-", "0.70"]


def test_of_rules_that_name_one_class_or_abstain_t_says_nothing():
    """Rules 0 and 1 name their class and are right in 9 of 10, where T has an accuracy of a third; Cyn names all."""
    true = np.arange(300) % 3
    noisy = np.where(np.arange(300) % 10 == 0, (true + 1) % 3, true)
    votes = np.stack([np.where(noisy == 0, 0, -1), np.where(noisy == 1, 1, -1), np.where(true < 2, -1, noisy)], axis=1)
    found = annotators(np.stack([np.eye(3)[[k] * 3] for k in (0, 1, 2)]), votes, names=["a", "b", "Cyn"])
    assert all(np.isnan([each.agreement, each.separation]).all() and each.confusions == () for each in found.annotators)
    assert [each.num_labels for each in found.annotators] == [np.sum(noisy == 0), np.sum(noisy == 1), 100]
    assert str(found).splitlines()[1].split()[:3] == ["a", str(np.sum(noisy == 0)), "-"]
    assert str(found).splitlines()[-1].startswith("-: unknown, because most labels come from annotators")


def test_of_an_annotator_without_a_label_nothing_is_said_in_print_or_frame():
    """Though T has the numbers of the best of all: it is what it began as."""
    found = annotators(STACK, np.where(np.arange(3) == 0, -1, LABELS), names=["Ann", "Bob", "Cyn"])
    ann = found.annotators[0]
    assert np.isnan([ann.agreement, ann.separation, ann.agreement_with_others, *ann.interval]).all()
    assert (ann.num_labels, ann.confusions) == (0, ())
    assert str(found).splitlines()[-1].split() == ["Ann", "0", "-", "-", "-", "-"]
    frame = found.to_frame()
    assert frame.annotator.tolist() == ["Bob", "Cyn", "Ann"]
    assert frame.num_labels.tolist() == [3, 2, 0]
    assert found._repr_html_().count("<tr>") == 4


def test_the_prior_and_the_names_of_an_aggregate_are_used():
    """A spammer who always names the class of 80% agrees in 0.80; with equal fractions, it would be 0.5."""
    rng = np.random.default_rng(0)
    true = (rng.random(4000) < 0.2).astype(int)
    votes = np.stack([corrupt(true, symmetric(2, 0.1), m) for m in range(5)] + [np.zeros(4000, int)], axis=1)
    estimate = aggregate(np.array(["cat", "dog"])[votes])
    spammer = annotators(estimate, votes).annotators[5]
    assert spammer.agreement == pytest.approx(0.8, abs=0.02)
    assert spammer.confusions[0][0] == "dog"
    assert spammer.separation < 0.01
    assert annotators(estimate, votes, prior=[0.5, 0.5]).annotators[5].agreement == pytest.approx(0.5, abs=0.02)
    assert annotators(estimate).to_frame().columns[:3].tolist() == ["annotator", "num_labels", "agreement"]


VOTES = np.array(
    [[0, 0, 0, 1], [1, 1, 1, -1], [2, 0, 0, 0], [1, -1, -1, -1], [0, 1, 2, -1], [2, 2, -1, 2], [-1, 1, 0, 1]]
)


def test_agreement_is_by_the_consensus_of_the_others_without_ties():
    """For the last annotator row 0 is a miss, rows 2 and 5 are hits, and row 6 is a tie of the others."""
    found = annotators(np.stack([symmetric(3, 0.2)] * 4), VOTES).annotators
    assert [a.num_labels for a in found] == [6, 6, 5, 4]
    assert [a.agreement_with_others for a in found] == pytest.approx([3 / 4, 4 / 4, 3 / 4, 2 / 3])
    expected = binomtest(3, 4).proportion_ci(method="wilson")
    assert found[0].interval == (expected.low, expected.high)


test_errors_say_what_is_wrong = refusals([
    (lambda: annotators(np.eye(3)),
     "`source` must be transition matrices (M, K, K), or a model that ends in a NoiseTransition with num_annotators."),
    (lambda: annotators(STACK * 2), "`source[0]` must have rows that sum to one. Received: row 0 sums to 2"),
    (lambda: annotators(STACK, names="ab"), "`names` must have a name for each of the 3 annotators. Received: 2"),
    (lambda: annotators(STACK, prior=[0.5, 0.5]), "`prior` must have an entry for each of the 3 classes. Received: 2"),
    (lambda: annotators(STACK, LABELS[:, :2]),
     "`labels` must be integers of shape (N, 3). Received: shape (5, 2), dtype int32"),
    (lambda: annotators(STACK, np.array(["ant", "bee"])[[[0, 1, 0]] * 5]),
     "`labels` must have the names of the 3 classes, or `class_names` must name them. Received: 'ant', 'bee'"),
    (lambda: annotators(STACK, count=-1), "`count` must be an integer at least 0. Received: count=-1"),
])  # fmt: skip
