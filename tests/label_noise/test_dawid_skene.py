"""Dawid-Skene and the majority, against loops in plain Python that share nothing with them."""

import math
import sys
import time

import numpy as np
import pytest

from keras_het.label_noise import corrupt_labels, dawid_skene, majority_vote, pair_flip, symmetric, total_variation

pytestmark = pytest.mark.once

UNITS, EXAMPLES, ANNOTATORS = 4, 1500, 5
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
    labels = np.stack([corrupt_labels(clean, t, [seed, m]) for m, t in enumerate(PLANTED)], axis=1)
    return clean, np.where(rng.random(labels.shape) < share, labels, -1)


def slow(labels, iterations, smoothing):
    """The same steps one label at a time."""
    examples = []
    for row in labels.tolist():
        votes = [sum(label == k for label in row) for k in range(UNITS)]
        examples.append([v / sum(votes) for v in votes] if sum(votes) else [1 / UNITS] * UNITS)
    likelihoods = []
    for _ in range(iterations):
        prior = [sum(p[k] for p in examples) / len(examples) for k in range(UNITS)]
        t = [[[smoothing / UNITS] * UNITS for _ in range(UNITS)] for _ in range(labels.shape[1])]
        for row, p in zip(labels.tolist(), examples, strict=True):
            for m, label in enumerate(row):
                for k in range(UNITS):
                    if label >= 0:
                        t[m][k][label] += p[k]
        t = [[[x / sum(r) if sum(r) else 1 / UNITS for x in r] for r in one] for one in t]
        likelihood, examples = 0.0, []
        for row in labels.tolist():
            joint = [
                prior[k] * math.prod(t[m][k][label] for m, label in enumerate(row) if label >= 0) for k in range(UNITS)
            ]
            likelihood += math.log(sum(joint))
            examples.append([x / sum(joint) for x in joint])
        likelihoods.append(
            likelihood + (smoothing / UNITS * sum(math.log(x) for one in t for r in one for x in r) if smoothing else 0)
        )
    return np.array(examples), np.array(t), np.array(prior), likelihood, likelihoods


@pytest.mark.parametrize("smoothing", [0.0, 0.01, 2.0])
@pytest.mark.parametrize("iterations", [1, 7])
def test_against_the_slow_way(iterations, smoothing):
    _, labels = planted(60)
    labels[3] = -1
    found = dawid_skene(labels, UNITS, max_iterations=iterations, tolerance=0.0, smoothing=smoothing)
    assert found.iterations == iterations
    for ours, theirs in zip(vars(found).values(), slow(labels, iterations, smoothing)[:4], strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.planted
def test_a_planted_t_that_is_transposed_is_caught(monkeypatch):
    module = sys.modules[dawid_skene.__module__]  # in the package the function has its name
    plain = module._confusions
    monkeypatch.setattr(module, "_confusions", lambda *arguments: plain(*arguments).swapaxes(1, 2))
    with pytest.raises(AssertionError):
        test_against_the_slow_way(7, 0.01)


@pytest.mark.parametrize("smoothing", [0.0, 0.01, 2.0])
def test_the_likelihood_grows_at_every_step(smoothing):
    _, labels = planted(300)
    plain = [dawid_skene(labels, UNITS, n, 0.0, smoothing) for n in range(1, 12)]
    targets = [f.log_likelihood + (smoothing / UNITS * np.log(f.transitions).sum() if smoothing else 0) for f in plain]
    assert np.diff(targets).min() > -1e-8
    assert targets[-1] - targets[0] > 1


def test_planted_transitions_classes_and_prior_are_recovered():
    clean, labels = planted(6000)
    found = dawid_skene(labels, UNITS)
    assert found.iterations < 100
    assert max(total_variation(t, true) for t, true in zip(found.transitions, PLANTED, strict=True)) < 0.05
    np.testing.assert_allclose(found.prior, [0.4, 0.3, 0.2, 0.1], atol=0.02)
    voted = (labels >= 0).any(axis=1)
    assert np.mean(found.probabilities.argmax(axis=1)[voted] == clean[voted]) > np.mean(
        majority_vote(labels[voted], UNITS) == clean[voted]
    )
    np.testing.assert_allclose(
        found.probabilities[~voted], np.broadcast_to(found.prior, ((~voted).sum(), UNITS)), atol=1e-3
    )


def test_one_perfect_annotator_alone():
    clean = np.arange(40) % UNITS
    found = dawid_skene(clean[:, None], UNITS, smoothing=0.0)
    np.testing.assert_allclose(found.transitions, [np.eye(UNITS)])
    np.testing.assert_allclose(found.probabilities, np.eye(UNITS)[clean])
    assert found.log_likelihood == pytest.approx(40 * np.log(1 / UNITS))


def test_many_labels_of_one_example_do_not_underflow():
    labels = np.zeros((3, 3000), int)
    labels[1] = 1
    found = dawid_skene(labels, 2)
    assert np.isfinite(found.log_likelihood)
    assert found.probabilities.argmax(axis=1).tolist() == [0, 1, 0]


def test_an_annotator_without_labels_is_flat():
    _, labels = planted(100)
    labels[:, 2] = -1
    np.testing.assert_allclose(dawid_skene(labels, UNITS).transitions[2], 1 / UNITS)


def test_a_million_labels_take_seconds():
    _, labels = planted(290_000)
    start = time.process_time()
    dawid_skene(labels, UNITS, max_iterations=10, tolerance=0.0)
    assert (labels >= 0).sum() > 1_000_000
    assert time.process_time() - start < 15


def test_majority_vote():
    labels = np.array([[2, 1, 1], [3, -1, 3], [-1, -1, 0], [1, 2, -1]])
    assert majority_vote(labels).tolist() == [1, 3, 0, 1]
    shares = majority_vote(labels, 5, shares=True)
    np.testing.assert_allclose(shares, [[0, 2 / 3, 1 / 3, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0]])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: dawid_skene([[0, 3]], 3), "`labels` must be in [0, 3), or -1 where missing. Received: 3 at [0, 1]"),
        (lambda: dawid_skene([[0, -2]], 3), "`labels` must be in [0, 3), or -1 where missing. Received: -2 at [0, 1]"),
        (
            lambda: dawid_skene([0, 1], 3),
            "`labels` must be integers of shape (N, M). Received: shape (2,), dtype int64",
        ),
        (
            lambda: dawid_skene([[0.0]], 3),
            "`labels` must be integers of shape (N, M). Received: shape (1, 1), dtype float64",
        ),
        (lambda: dawid_skene([[-1]], 3), "`labels` must have at least one label. Received: none"),
        (lambda: dawid_skene([[0]], 1), "`num_classes` must be an integer at least 2. Received: num_classes=1"),
        (
            lambda: dawid_skene([[0]], 2, max_iterations=0),
            "`max_iterations` must be an integer at least 1. Received: max_iterations=0",
        ),
        (
            lambda: dawid_skene([[0]], 2, smoothing=-1),
            "`smoothing` must be a finite float32 number at least 0. Received: smoothing=-1",
        ),
        (
            lambda: majority_vote([[0, 1], [-1, -1]]),
            "`labels` must have at least one label of every example. Received: none of example 1",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == text


def test_rules_that_say_one_class_each_are_warned_of():
    """A rule for each class: all examples become those of one class, though nearly all rules are right."""
    rng = np.random.default_rng(0)
    clean = rng.integers(UNITS, size=600)
    said = np.where(rng.random(clean.shape) < 0.9, clean, rng.integers(UNITS, size=600))
    speaks = rng.random((600, UNITS)) < 0.05
    labels = np.where((said[:, None] == np.arange(UNITS)) | speaks, np.arange(UNITS), -1)
    with pytest.warns(UserWarning, match="one class only, as rules do"):
        found = dawid_skene(labels, UNITS)
    assert np.mean(found.probabilities.argmax(axis=1) == clean) < np.mean(majority_vote(labels) == clean) - 0.2
