"""The report on annotators, by hand."""

import keras
import numpy as np
import pytest
from scipy.stats import binomtest

from keras_het.labels import aggregate, annotators, corrupt, pair_flip, symmetric
from keras_het.labels.annotator_confusion import Confusion
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
    assert [a.accuracy for a in found] == pytest.approx([1.0, 0.5 * 0.5 + 0.3 * 0.9 + 0.2 * 0.7, 1 / 3])
    # Distances of rows 1 and 2, 1 and 3, 2 and 3.
    bob = (0.5**2 + 0.4**2 + 0.1**2, 0.2**2 + 0.5**2 + 0.7**2, 0.3**2 + 0.9**2 + 0.6**2)
    assert [a.separation for a in found] == pytest.approx([1.0, sum(bob) / 6, 0.0])
    assert [a.is_spammer for a in annotators(STACK).annotators] == [False, False, True]
    assert found[1].confusions == (Confusion("cat", "dog", 0.5), Confusion("fox", "cat", 0.3))
    assert found[0].confusions == ()


def test_the_text_has_the_best_first_and_tells_spammers():
    text = str(annotators(STACK, names=["Ann", "Bob", "Cyn"], class_names=["cat", "dog", "fox"]))
    assert text.splitlines() == [
        "annotator  labels  accuracy  separation  confusions",
        "Ann                    1.00        1.00",
        "Bob                    0.70        0.41  cat -> dog 0.50, fox -> cat 0.30, dog -> fox 0.10",
        "Cyn                    0.33        0.00  spammer: labels hardly depend on the class",
    ]


def test_of_a_model_and_of_one_annotator():
    stack = np.stack([pair_flip(4, 0.3), symmetric(4, 0.2)])
    layer = NoiseTransition(4, num_annotators=2, transition=stack, trainable=False)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(4, "log_softmax"), layer])
    for of_model, of_stack in zip(annotators(model).annotators, annotators(stack).annotators, strict=True):
        for name in ("accuracy", "separation"):
            assert getattr(of_model, name) == pytest.approx(getattr(of_stack, name), rel=1e-5)
        assert [(c.true, c.label) for c in of_model.confusions] == [(c.true, c.label) for c in of_stack.confusions]
    (alone,) = annotators(stack[:1]).annotators
    assert alone.name == 0
    assert str(annotators(stack[:1])).splitlines()[1].split()[:3] == ["0", "0.70", "0.44"]


def test_of_rules_that_name_one_class_or_abstain_t_says_nothing():
    """Rules 0 and 1 name their class and are right in 9 of 10, where T has an accuracy of a third; Cyn names all."""
    true = np.arange(300) % 3
    noisy = np.where(np.arange(300) % 10 == 0, (true + 1) % 3, true)
    votes = np.stack([np.where(noisy == 0, 0, -1), np.where(noisy == 1, 1, -1), np.where(true < 2, -1, noisy)], axis=1)
    found = annotators(np.stack([np.eye(3)[[k] * 3] for k in (0, 1, 2)]), votes, names=["a", "b", "Cyn"])
    assert all(np.isnan([each.accuracy, each.separation]).all() and each.confusions == () for each in found.annotators)
    assert [each.num_labels for each in found.annotators] == [np.sum(noisy == 0), np.sum(noisy == 1), 100]
    assert str(found).splitlines()[1].split()[:3] == ["a", str(np.sum(noisy == 0)), "-"]
    assert str(found).splitlines()[-1].startswith("-: unknown, because most labels come from annotators")


def test_of_people_who_mostly_see_one_class_t_says_something():
    """Of 200 examples six are of class 1: each annotator names class 0 in at least 95%, as a rule would."""
    true = np.repeat([0, 1], [194, 6])
    votes = np.stack([true, np.roll(true, 1), true], axis=1)
    found = annotators(aggregate(votes, 2), votes)
    assert all(each.accuracy > 0.9 for each in found.annotators)
    assert len(str(found).splitlines()) == 4


def test_of_an_annotator_without_a_label_nothing_is_said_in_print_or_frame():
    """Though T has the numbers of the best of all: it is what it began as."""
    found = annotators(STACK, np.where(np.arange(3) == 0, -1, LABELS), names=["Ann", "Bob", "Cyn"])
    ann = found.annotators[0]
    assert np.isnan([ann.accuracy, ann.separation, ann.agreement, *ann.interval]).all()
    assert (ann.num_labels, ann.confusions, ann.is_spammer) == (0, (), False)
    assert str(found).splitlines()[-1].split() == ["Ann", "0", "-", "-"]
    frame = found.to_frame()
    assert frame.annotator.tolist() == ["Bob", "Cyn", "Ann"]
    assert frame.num_labels.tolist() == [3, 2, 0]
    assert found._repr_html_().count("<tr>") == 4


def test_a_spammer_of_many_classes_is_named_by_the_agreement_where_t_says_little():
    """By T all are alike. The swapper agrees in 0 of 64, so the interval, up to .06, does not hold 1 / 8."""
    true = np.arange(64) % 8
    votes = np.stack([*[true] * 4, np.repeat(np.arange(8), 8), (true + 1) % 8], axis=1)
    votes[::4, 0] = 0  # wrong in 8 of 64
    found = annotators(np.stack([symmetric(8, 0.3)] * 6), votes).annotators
    assert [each.is_spammer for each in found] == [False] * 4 + [True, False]
    assert found[4].agreement == 1 / 8
    assert (
        not annotators(np.stack([symmetric(8, 0.3)] * 6), votes[:4]).annotators[4].is_spammer
    )  # of 4 labels nobody knows


VOTES = np.array(
    [[0, 0, 0, 1], [1, 1, 1, -1], [2, 0, 0, 0], [1, -1, -1, -1], [0, 1, 2, -1], [2, 2, -1, 2], [-1, 1, 0, 1]]
)


def test_agreement_is_by_the_consensus_of_the_others_without_ties():
    """For the last annotator row 0 is a miss, rows 2 and 5 are hits, and row 6 is a tie of the others."""
    found = annotators(np.stack([symmetric(3, 0.2)] * 4), VOTES).annotators
    assert [a.num_labels for a in found] == [6, 6, 5, 4]
    assert [a.agreement for a in found] == pytest.approx([3 / 4, 4 / 4, 3 / 4, 2 / 3])
    for annotator, hits, count in zip(found, (3, 4, 3, 2), (4, 4, 4, 3), strict=True):
        expected = binomtest(hits, count).proportion_ci(method="wilson")
        assert annotator.interval == pytest.approx((expected.low, expected.high))


@pytest.mark.statistical
def test_spammers_with_many_labels_are_named_and_others_are_not(base_seed):
    """Eight of 24 with 5, 20 and 150 labels, by T of `aggregate`; a swapper is as consistent as a good one."""
    hits, others = [], []
    for seed in range(base_seed, base_seed + 4):
        rng = np.random.default_rng([seed, 4])
        true, stack = rng.integers(3, size=400), [symmetric(3, rate) for rate in rng.uniform(0.05, 0.5, 24)]
        stack[:8], stack[-1] = [np.full((3, 3), 1 / 3)] * 8, np.eye(3)[[1, 2, 0]]
        labels = np.stack([corrupt(true, t, [seed, m]) for m, t in enumerate(stack)], axis=1)
        sizes = np.array([5, 20, 150] * 8)
        labels = np.where(np.argsort(np.argsort(rng.random((400, 24)), axis=0), axis=0) < sizes, labels, -1)
        found = annotators(aggregate(labels, 3), labels).annotators
        hits.append([a.is_spammer for a in found[2:8:3]])
        others.append([a.is_spammer for a in found[8:]])
    assert np.mean(hits) >= 0.75
    assert np.mean(others) <= 0.15


test_errors_say_what_is_wrong = refusals([
    (lambda: annotators(np.eye(3)),
     "`source` must be transition matrices (M, K, K), or a model that ends in a NoiseTransition with num_annotators."),
    (lambda: annotators(STACK * 2), "`source[0]` must have rows that sum to one. Received: row 0 sums to 2"),
    (lambda: annotators(STACK, names="ab"), "`names` must have a name for each of the 3 annotators. Received: 2"),
    (lambda: annotators(STACK, prior=[0.5, 0.5]), "`prior` must have an entry for each of the 3 classes. Received: 2"),
    (lambda: annotators(STACK, LABELS[:, :2]),
     "`labels` must be integers of shape (N, 3). Received: shape (5, 2), dtype int64"),
    (lambda: annotators(STACK, np.array(["ant", "bee"])[[[0, 1, 0]] * 5]),
     "`labels` must have the names of the 3 classes, or `class_names` must name them. Received: 'ant', 'bee'"),
    (lambda: annotators(STACK, count=-1), "`count` must be an integer at least 0. Received: count=-1"),
])  # fmt: skip
