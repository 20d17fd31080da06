"""Dawid-Skene and the majority, against loops in plain Python that share nothing with them."""

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

from keras_het.labels import aggregate, annotators, corrupt, pair_flip, symmetric
from keras_het.layers import NoiseTransition
from keras_het.ops.transition import total_variation
from tests.checks import refusals
from tests.common import built

pytestmark = pytest.mark.once

MODULE = sys.modules[aggregate.__module__]  # in the package the function has its name

UNITS, EXAMPLES = 4, 1500
NAMES = ("probabilities", "transitions", "prior", "pooled", "strength")
PLANTED = [
    symmetric(UNITS, 0.1),
    symmetric(UNITS, 0.3),
    pair_flip(UNITS, 0.4),
    np.eye(UNITS),
    np.full((UNITS, UNITS), 0.25),
]


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
    if np.allclose(counts, np.round(counts)):
        orders = math.lgamma(n + 1) - sum(math.lgamma(x + 1) for x in counts)
        return scipy.stats.dirichlet_multinomial.logpmf(np.round(counts).astype(int), a, n) - orders
    own = sum(math.lgamma(x + y) - math.lgamma(y) for x, y in zip(counts, a, strict=True))
    return own + math.lgamma(sum(a)) - math.lgamma(sum(counts) + sum(a))


@pytest.mark.parametrize("iterations", [1, 5])
def test_against_the_slow_way(iterations):
    _, labels = planted(60)
    labels[3] = -1
    found, expected = aggregate(labels, UNITS, max_iterations=iterations), slow(labels, iterations)[:-1]
    for ours, theirs in zip((getattr(found, name) for name in NAMES), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)


def steps_of(labels, units, count):
    return list(itertools.islice(MODULE._steps(MODULE._indicators(labels, units), units), count))


def test_the_bound_grows_at_every_step():
    _, labels = planted(300)
    targets = [bound for bound, *_ in steps_of(labels, UNITS, 15)]
    assert np.diff(targets).min() > -1e-8
    assert targets[-1] - targets[0] > 1
    np.testing.assert_allclose(targets[:3], slow(labels, 3)[-1], rtol=1e-9)


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
    assert np.mean(found.probabilities.argmax(axis=1)[voted] == clean[voted]) > np.mean(
        aggregate(labels[voted], UNITS, "majority").labels == clean[voted]
    )
    np.testing.assert_allclose(
        found.probabilities[~voted], np.broadcast_to(found.prior, ((~voted).sum(), UNITS)), atol=1e-3
    )


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
    majority = aggregate([[0, 0, 1], [1, 1, 1]], 2, "majority")
    assert str(majority) == "examples: 2, 50% with 90% or more of the labels for one class\nprior: 0 0.33, 1 0.67"


def test_names_are_printed_and_more_classes_than_names_are_numbers():
    votes = np.array(["ant", "bee", "cat"])[[[0, 0], [1, 1], [2, 2]]]
    assert "prior: ant 0.33, bee 0.33, cat 0.33" in str(aggregate(votes))
    assert aggregate(votes, 4).classes.tolist() == ["ant", "bee", "cat", 3]


test_errors_say_what_is_wrong = refusals([
    (lambda: aggregate([[1_000_000, 0], [5, 2]]),
     ("`votes` must be in [0, 40), 10 times the number of classes that occur; pass ids as strings. "
      "Received: 1000000 at [0]")),
    (lambda: aggregate([[0, 3]], 3), "`votes` must be in [0, 3), or -1 if missing. Received: 3 at [0, 1]"),
    (lambda: aggregate([[0, -2]], 3), "`votes` must be in [0, 16777216). Received: -2 at [1]"),
    (lambda: aggregate([["ant", "bee"], ["cat", "ant"]], 2),
     "`votes` must have at most 2 classes, `num_classes`. Received: 3: 'ant', 'bee', 'cat'"),
    (lambda: aggregate([["a", 1]]), "`votes` must have labels of one type. Received: int and str"),
    (lambda: aggregate(["a", "b"]), "`votes` must be integers of shape (N, M). Received: shape (2,), dtype int32"),
    (lambda: aggregate([[None, None]]), "`votes` must have at least one label. Received: no label"),
    (lambda: aggregate([[0.5, 0.0]], 3), "`votes` must be integers or names. Received: 0.5 at [0]"),
    (lambda: aggregate([[1, 2]]),
     ("`votes` must begin with 0: use votes - 1 if labels begin with 1, or strings if numbers are names. "
      "Received: integers from 1 to 2")),
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


def test_few_labels_of_one_class_are_no_rules():
    votes = np.full((90, 60), -1)
    for annotator in range(60):
        votes[(annotator + 30 * np.arange(3)) % 90, annotator] = [annotator % 2, annotator % 2, annotator % 2]
    votes[0, 0] = 1 - votes[0, 0]
    assert aggregate(votes, 2).transitions is not None
