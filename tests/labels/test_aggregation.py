"""Dawid-Skene and the majority, against loops that share nothing with them, and the report on annotators, by hand."""

import itertools
import math
import sys
import time

import keras
import numpy as np
import pytest
import scipy.special
import scipy.stats
from scipy.special import digamma as psi
from scipy.stats import binomtest

from keras_het.labels import aggregate, annotators, corrupt, pair_flip, symmetric
from keras_het.layers import NoiseTransition
from keras_het.ops.transition import total_variation
from tests.checks import refusals
from tests.common import built

pytestmark = pytest.mark.once

MODULE = sys.modules[aggregate.__module__]  # in the package the function has its name

UNITS, EXAMPLES = 4, 1500
NAMES = ("probabilities", "transitions", "prior", "pooled", "strength")
PLANTED = [symmetric(UNITS, 0.1), symmetric(UNITS, 0.3), pair_flip(UNITS, 0.4), np.eye(UNITS), symmetric(UNITS, 0.75)]


def planted(examples=EXAMPLES, seed=0, share=0.7):
    """True classes of unequal share, and labels of which some are missing, of some examples all."""
    rng = np.random.default_rng([seed, 99])  # NumPy takes [0, 0] for 0, and labels would follow the draw of the classes
    clean = rng.choice(UNITS, size=examples, p=[0.4, 0.3, 0.2, 0.1])
    labels = np.stack([corrupt(clean, t, [seed, m]) for m, t in enumerate(PLANTED)], axis=1)
    return clean, np.where(rng.random(labels.shape) < share, labels, -1)


def slow(labels, iterations):
    """The same steps one label at a time: p, T, prior, pooled T, strength, and what grows."""
    examples, classes, size = [], range(UNITS), len(labels)
    for row in labels.tolist():
        votes = [sum(label == k for label in row) + 1 / UNITS for k in classes]
        examples.append([v / sum(votes) for v in votes])
    c = counted(labels, examples)
    extra = [[(16 if i == j else 0) + 16 / UNITS for j in classes] for i in classes]
    pooled = [[sum(t[i][j] for t in c) + extra[i][j] for j in classes] for i in classes]
    s, pooled, targets = UNITS, [[x / sum(row) for x in row] for row in pooled], []
    for step in range(iterations):
        prior = [(sum(p[k] for p in examples) + 5) / (size + 5 * UNITS) for k in classes]
        c, a = counted(labels, examples), [[s * x for x in row] for row in pooled]
        g = [[a[i][j] * sum(psi(t[i][j] + a[i][j]) - psi(a[i][j]) for t in c) for j in classes] for i in classes]
        s = sum(map(sum, g)) / sum(psi(sum(t[i]) + s) - psi(s) for t in c for i in classes)
        pooled = [[(g[i][j] + extra[i][j]) / (sum(g[i]) + 32) for j in classes] for i in classes]
        a = [[s * x for x in row] for row in pooled]
        target = sum(16 * math.log(pooled[i][i]) + 16 / UNITS * sum(map(math.log, pooled[i])) for i in classes)
        target += 5 * sum(map(math.log, prior))
        target += sum(q * (math.log(prior[k]) - math.log(q)) for p in examples for k, q in enumerate(p) if q)
        targets.append(target + sum(evidence(t[i], a[i]) for t in c for i in classes))
        log_t = [[[psi(t[i][j] + a[i][j]) - psi(sum(t[i]) + s) for j in classes] for i in classes] for t in c]
        if step < iterations - 1:
            examples = posterior(labels, prior, log_t)
    t = [[[(one[i][j] + a[i][j]) / (sum(one[i]) + s) for j in classes] for i in classes] for one in c]
    examples = posterior(labels, prior, [[[math.log(x) for x in row] for row in one] for one in t])
    return *map(np.array, (examples, t, prior, pooled)), s, targets


def counted(labels, examples):
    c = [[[0.0] * UNITS for _ in range(UNITS)] for _ in range(labels.shape[1])]
    for row, p in zip(labels.tolist(), examples, strict=True):
        for m, label in enumerate(row):
            for k in range(UNITS):
                if label >= 0:
                    c[m][k][label] += p[k]
    return c


def posterior(labels, prior, log_t):
    examples = []
    for row in labels.tolist():
        votes = [(m, label) for m, label in enumerate(row) if label >= 0]
        joint = [math.log(prior[k]) + sum(log_t[m][k][label] for m, label in votes) for k in range(len(prior))]
        examples.append([math.exp(x - scipy.special.logsumexp(joint)) for x in joint])
    return examples


def evidence(counts, a):
    """Log-likelihood of labels in order under a Dirichlet-multinomial distribution, by scipy for whole counts."""
    n = round(sum(counts))
    if n and np.allclose(counts, np.round(counts)):  # scipy 1.13 refuses zero
        orders = math.lgamma(n + 1) - sum(math.lgamma(x + 1) for x in counts)
        return scipy.stats.dirichlet_multinomial.logpmf(np.round(counts).astype(int), a, n) - orders
    own = sum(math.lgamma(x + y) - math.lgamma(y) for x, y in zip(counts, a, strict=True))
    return own + math.lgamma(sum(a)) - math.lgamma(sum(counts) + sum(a))


@pytest.mark.parametrize("iterations", [1, 5])
def test_against_the_slow_way_and_the_bound_grows_at_every_step(iterations):
    _, labels = planted(60)
    labels[3] = -1
    found, (*expected, targets) = aggregate(labels, UNITS, max_iterations=iterations), slow(labels, iterations)
    for ours, theirs in zip((getattr(found, name) for name in NAMES), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)
    bounds = [bound for bound, *_ in steps_of(labels, UNITS, 15)]
    np.testing.assert_allclose(bounds[:iterations], targets, rtol=1e-9)
    assert np.diff(bounds).min() > -1e-8
    assert bounds[-1] - bounds[0] > 1


def steps_of(labels, units, count):
    return list(itertools.islice(MODULE._steps(MODULE._indicators(labels, units), units), count))


def test_bound_and_posterior_beside_all_ways_to_assign_classes():
    """Seven examples of two classes: 128 ways, T integrated out of each; the bound is below their sum, and near."""
    labels, size = np.array([[0, 0, 0], [1, 1, 1], [0, 0, 1], [1, -1, 1], [0, 1, 0], [1, 1, 0], [0, 0, -1]]), 2
    target, prior, _, a = steps_of(labels, size, 30)[-1]
    pooled = a / a.sum(axis=1, keepdims=True)
    ways, logs = np.array(list(itertools.product(range(size), repeat=len(labels)))), []
    for way in ways:
        c = [[[sum((way == i) & (own == j)) for j in range(size)] for i in range(size)] for own in labels.T]
        value = sum(evidence(t[i], a[i]) for t in c for i in range(size)) + np.log(prior)[way].sum()
        value += 16 * np.log(pooled.diagonal()).sum() + 16 / size * np.log(pooled).sum() + 5 * np.log(prior).sum()
        logs.append(value)
    exact = scipy.special.logsumexp(logs)
    assert exact - 0.7 < target < exact
    p = np.exp(np.array(logs) - exact) @ ways
    found = aggregate(labels, size, max_iterations=30)
    np.testing.assert_allclose(found.probabilities[:, 1], p, atol=0.15)


def test_somebody_with_three_labels_has_nearly_the_pooled_t_and_with_a_thousand_one_of_their_own():
    clean = np.random.default_rng(0).integers(UNITS, size=2000)
    labels = np.stack([corrupt(clean, symmetric(UNITS, 0.2), m) for m in range(6)], axis=1)
    labels[:, 0] = np.where(np.arange(2000) < 1000, corrupt(clean, pair_flip(UNITS, 0.9), 9), -1)
    labels[3:, 1], labels[:, 2] = -1, -1
    found = aggregate(labels, UNITS)
    assert total_variation(found.transitions[0], pair_flip(UNITS, 0.9)) < 0.06
    assert total_variation(found.transitions[1], found.pooled) < 0.25
    np.testing.assert_allclose(found.transitions[2], found.pooled)
    assert np.linalg.cond(found.transitions[1]) < 10


def test_one_label_each_leaves_t_at_the_start_and_no_row_empty():
    """Nothing says who is right: the majority stays, and a layer that starts at T has no zeros."""
    _, labels = planted(400)
    labels = np.where(np.arange(len(PLANTED)) == (np.arange(400) % len(PLANTED))[:, None], labels, -1)
    with pytest.warns(UserWarning, match="No example has labels of several annotators"):
        found, voted = aggregate(labels, UNITS), (labels >= 0).any(axis=1)
    assert (found.probabilities.argmax(axis=1) == labels.max(axis=1))[voted].all()
    layer = built(NoiseTransition(UNITS, num_annotators=len(PLANTED), transition=found.transitions), (None, UNITS))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(layer.transition), found.transitions, atol=0.01)
    assert found.transitions.min() > 1e-4


def test_planted_transitions_classes_and_prior_are_recovered():
    clean, labels = planted(6000)
    found = aggregate(labels, UNITS)
    assert max(total_variation(t, true) for t, true in zip(found.transitions, PLANTED, strict=True)) < 0.05
    np.testing.assert_allclose(found.prior, [0.4, 0.3, 0.2, 0.1], atol=0.02)
    voted = (labels >= 0).any(axis=1)
    majority = aggregate(labels[voted], UNITS, "majority").labels
    assert np.mean(found.probabilities.argmax(axis=1)[voted] == clean[voted]) > np.mean(majority == clean[voted])
    np.testing.assert_allclose(found.probabilities[~voted] - found.prior, 0.0, atol=1e-3)


def test_many_labels_of_one_example_do_not_underflow_and_a_hundred_thousand_take_a_second():
    labels = np.zeros((3, 3000), int)
    labels[1] = 1
    found = aggregate(labels, 2)
    assert np.isfinite(found.probabilities).all()
    assert found.probabilities.argmax(axis=1).tolist() == [0, 1, 0]
    _, labels = planted(29_000)
    start = time.process_time()
    aggregate(labels, UNITS)
    assert (labels >= 0).sum() > 100_000
    assert time.process_time() - start < 6


def test_majority_and_the_few_lines_of_the_print():
    labels = np.array([[2, 1, 1], [3, -1, 3], [-1, -1, 0], [1, 2, -1]])
    assert aggregate(labels, method="majority").labels.tolist() == [1, 3, 0, 1]
    shares = aggregate(labels, 5, "majority").probabilities
    np.testing.assert_allclose(shares, [[0, 2 / 3, 1 / 3, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0]])
    found = aggregate([[0, 0, 1], [1, 1, 1], [0, 0, -1], [1, 1, 1], [0, 0, 1]], num_classes=2)
    lines = str(found).splitlines()
    assert [line.split(":")[0] for line in lines] == ["examples", "assumes", "prior", "annotators"]
    accuracy = (found.prior * found.transitions.diagonal(axis1=1, axis2=2)).sum(axis=1)
    assert f"3, agreement with these classes {accuracy.min():.2f} to {accuracy.max():.2f}" in lines[3]
    majority = aggregate(np.array(["ant", "bee"])[[[0, 0, 1], [1, 1, 1]]], 2, "majority")
    assert str(majority) == "examples: 2, 50% with 90% or more of the labels for one class\nprior: ant 0.33, bee 0.67"
    assert aggregate([["ant"], ["bee"]], 3, "majority").classes.tolist() == ["ant", "bee", 2]


test_errors_say_what_is_wrong = refusals([
    (lambda: aggregate([[0, 3]], 3), "`votes` must be in [0, 3), or -1 if missing. Received: 3 at [0, 1]"),
    (lambda: aggregate([["ant", "bee"], ["cat", "ant"]], 2),
     "`votes` must have at most 2 classes, `num_classes`. Received: 3: 'ant', 'bee', 'cat'"),
    (lambda: aggregate(["a", "b"]), "`votes` must be integers of shape (N, M). Received: shape (2,), dtype int32"),
    (lambda: aggregate([[0, 1], [-1, -1]], method="majority"),
     "`votes` must have at least one label for every example. Leave out the others. Received: no label for example 1"),
], whole=True)  # fmt: skip


def test_rules_that_say_one_class_each_get_the_majority_and_a_warning():
    """A rule for each class: EM would give all examples one class, though nearly all rules are right."""
    rng = np.random.default_rng(0)
    clean = rng.integers(UNITS, size=600)
    said = np.where(rng.random(clean.shape) < 0.9, clean, rng.integers(UNITS, size=600))
    labels = np.where((said[:, None] == np.arange(UNITS)) | (rng.random((600, UNITS)) < 0.05), np.arange(UNITS), -1)
    with pytest.warns(UserWarning, match="nearly always name one class, like rules") as caught:
        found = aggregate(labels, UNITS)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(found.probabilities, aggregate(labels, method="majority").probabilities)
    assert np.mean(found.labels == clean) > 0.85
    with pytest.raises(ValueError, match=r"`source` must have a T for each annotator\. Received: a majority"):
        annotators(found, labels)
    # Few labels of one class are no rules.
    votes = np.full((90, 60), -1)
    for annotator in range(60):
        votes[(annotator + 30 * np.arange(3)) % 90, annotator] = annotator % 2
    votes[0, 0] = 1 - votes[0, 0]
    assert aggregate(votes, 2).transitions is not None


STACK = np.stack([np.eye(3), [[0.5, 0.5, 0.0], [0.0, 0.9, 0.1], [0.3, 0.0, 0.7]], np.full((3, 3), 1 / 3)])
PEOPLE, CLASSES = ["Ann", "Bob", "Cyn"], ["cat", "dog", "fox"]
LABELS = np.array([[0, -1, 2], [1, 1, -1], [-1, -1, 0], [-1, 2, -1], [2, 0, -1]])


def test_the_figures_by_hand_and_the_text_with_the_best_first():
    found = annotators(STACK, LABELS, prior=[0.5, 0.3, 0.2], names=PEOPLE, class_names=CLASSES, count=2).annotators
    assert [a.name for a in found] == PEOPLE
    assert [a.num_labels for a in found] == [3, 3, 2]
    assert [a.agreement for a in found] == pytest.approx([1.0, 0.5 * 0.5 + 0.3 * 0.9 + 0.2 * 0.7, 1 / 3])
    # Distances of rows 1 and 2, 1 and 3, 2 and 3.
    bob = (0.5**2 + 0.4**2 + 0.1**2, 0.2**2 + 0.5**2 + 0.7**2, 0.3**2 + 0.9**2 + 0.6**2)
    assert [a.separation for a in found] == pytest.approx([1.0, sum(bob) / 6, 0.0])
    assert found[1].confusions == (("cat", "dog", 0.5), ("fox", "cat", 0.3))
    assert found[0].confusions == ()
    lines = str(annotators(STACK, names=PEOPLE, class_names=CLASSES, count=2)).splitlines()
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
    found = annotators(STACK, np.where(np.arange(3) == 0, -1, LABELS), names=PEOPLE)
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


def test_agreement_is_by_the_consensus_of_the_others_without_ties():
    """For the last annotator row 0 is a miss, rows 2 and 5 are hits, and row 6 is a tie of the others."""
    votes = [[0, 0, 0, 1], [1, 1, 1, -1], [2, 0, 0, 0], [1, -1, -1, -1], [0, 1, 2, -1], [2, 2, -1, 2], [-1, 1, 0, 1]]
    found = annotators(np.stack([symmetric(3, 0.2)] * 4), votes).annotators
    assert [a.num_labels for a in found] == [6, 6, 5, 4]
    assert [a.agreement_with_others for a in found] == pytest.approx([3 / 4, 4 / 4, 3 / 4, 2 / 3])
    expected = binomtest(3, 4).proportion_ci(method="wilson")
    assert found[0].interval == (expected.low, expected.high)


test_what_is_no_t_of_annotators_is_refused = refusals([
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
