"""Which labels to check next: the worst, and never what somebody has verified."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from keras_het.labels import next_labels
from keras_het.labels.checking_order import ADDED_LABELS, ROUNDS
from tests.checks import refusals

pytestmark = pytest.mark.once


def flipped(count=1000, seed=0):
    """Classes, and labels of which 40% of class 0 are 1, and a tenth of all others any class; p of a fair model."""
    rng = np.random.default_rng(seed)
    true = rng.integers(4, size=count)
    transition = np.full((4, 4), 0.1 / 3) + (0.9 - 0.1 / 3) * np.eye(4)
    transition[0] = [0.55, 0.4, 0.03, 0.02]
    labels = (transition[true].cumsum(axis=1) < rng.random((count, 1))).sum(axis=1)
    return true, labels, (rng.dirichlet(np.ones(4), count) * 0.5 + 0.5 * np.eye(4)[true]) @ transition


def test_scores_rise_suggestions_are_the_classes_and_wrong_labels_come_before_unsure_ones():
    true, labels, p = flipped(300)
    found = next_labels(p, labels, 300)
    assert np.all(np.diff(found.score) >= 0)
    assert sorted(found.index) == list(range(300))
    np.testing.assert_array_equal(found.label, labels[found.index])
    assert np.mean(true[found.index[:60]] == found.suggested[:60]) > 0.9
    true, labels, p = flipped()
    wrong, worst = true != labels, np.argsort(p[np.arange(1000), labels])[:150]
    assert wrong[next_labels(p, labels, 150).index].sum() > 1.2 * wrong[worst].sum()


def test_the_updates_and_the_added_labels_by_hand():
    """With loops: T of labels of which none is contradicted has, beside them, the added ones."""
    p = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.1, 0.7]])
    rate, counts = 1 / 5, np.eye(3)
    counts = counts + ADDED_LABELS * np.where(np.eye(3), 1 - rate, rate / 2)
    t, scores = counts / counts.sum(axis=1, keepdims=True), []
    for label, row in enumerate(p):
        q = row.copy()
        for _ in range(ROUNDS):
            q = np.array([q[k] * sum(t[k, j] * row[j] / sum(q * t[:, j]) for j in range(3)) for k in range(3)])
        scores.append(q[label] * t[label, label] / sum(q * t[:, label]))
    found = next_labels(p, [0, 1, 2], 3)
    np.testing.assert_allclose(found.score, np.sort(scores), rtol=1e-12)
    assert found.index.tolist() == np.argsort(scores).tolist()


def test_without_a_pattern_the_order_is_that_of_self_confidence():
    p = np.random.default_rng(0).dirichlet([8.0, 1.0, 1.0], 30)
    p = np.concatenate([np.roll(p, shift, axis=1) for shift in range(3)])
    labels = np.arange(3).repeat(30)
    found = next_labels(p, labels, 90)
    assert scipy.stats.spearmanr(found.score, p[np.arange(90), labels][found.index]).statistic > 0.99


def test_verified_labels_are_not_proposed_again():
    _, labels, p = flipped(100)
    first = next_labels(p, labels, 30)
    rest = next_labels(p, labels, 70, verified_labels=dict.fromkeys(first.index.tolist(), "any"))
    assert sorted([*first.index, *rest.index]) == list(range(100))
    assert rest.score.min() >= first.score.max()
    names = pd.Series(labels, index=np.arange(100) + 500)
    again = next_labels(p, names, 70, verified_labels=dict.fromkeys((first.index + 500).tolist(), 0))
    assert again.index.tolist() == rest.index.tolist()
    assert again.to_frame().index.tolist() == (rest.index + 500).tolist()
    columns = pd.DataFrame(
        p, columns=["b", "a", "c", "d"]
    )  # of integer labels they are no names, unless they are 0 to 3
    assert next_labels(columns, labels, 70).index.tolist() == next_labels(p, labels, 70).index.tolist()
    turned = pd.DataFrame(p[:, ::-1], columns=[3, 2, 1, 0])
    assert next_labels(turned, labels, 70).index.tolist() == next_labels(p, labels, 70).index.tolist()


@pytest.mark.parametrize("count", [1, 2])
def test_few_examples(count):
    assert next_labels(np.full((count, 2), 0.5), [1, 0][:count], count).index.tolist() == [*range(count)]


def test_probabilities_of_zero_and_a_class_that_no_label_has():
    found = next_labels(np.eye(3)[[0, 0, 1, 1]], [0, 1, 1, 1], 4)
    assert found.index[0] == 1
    assert found.score[0] == 0
    assert np.isfinite(found.score).all()


def test_the_table_has_twenty_lines():
    _, labels, p = flipped(100)
    found = next_labels(p, labels, 30)
    lines = str(found).splitlines()
    assert lines[0].split() == ["index", "label", "suggested", "score"]
    assert len(lines) == 22
    assert lines[-1] == "30 labels to check"
    assert found._repr_html_().count("<tr>") == 21
    frame = found.to_frame()
    assert frame.shape == (30, 3)
    assert frame.index.tolist() == found.index.tolist()


def test_blocks_of_rows_and_float32_give_the_same_order(monkeypatch):
    rng = np.random.default_rng(0)
    p, labels = rng.dirichlet(np.ones(4), size=300).astype("float32"), rng.integers(4, size=300)
    whole = next_labels(p.astype("float64"), labels, 300)
    monkeypatch.setattr("keras_het.base.batches.BLOCK_ROWS", 7)
    found = next_labels(p, labels, 300)
    np.testing.assert_allclose(found.score[found.index.argsort()], whole.score[whole.index.argsort()], rtol=1e-5)


P = [[0.5, 0.5], [0.9, 0.1]]
test_refusals = pytest.mark.refusal(refusals([
    (lambda: next_labels(P, [0, 1], 3), "`count` must be an integer in [1, 2]. Received: count=3"),
    (lambda: next_labels(P, [0, 1], 0), "`count` must be an integer in [1, 2]. Received: count=0"),
    (lambda: next_labels(P, [0, 2], 1), "`labels` must be in [0, 2). Received: 2 at [1]"),
    (lambda: next_labels([[1.0]] * 2, [0, 0], 1), "must be of at least two classes. Received: shape (2, 1)"),
    (lambda: next_labels([[0.5, 0.4], [1, 0]], [0, 0], 1), "must have rows of sum 1. Received: row 0 sums to 0.9"),
    (lambda: next_labels(P, [0, 1], 1, verified_labels={0: 0, 1: 1}),
     "`verified_labels` must leave an unverified label."),
    (lambda: next_labels(P, [0, 1], 1, verified_labels={2: 0}),
     "`verified_labels` must have integer indices in [0, 2). Received: 2"),
    (lambda: next_labels(P, pd.Series([0, 1], index=[7, 9]), 1, verified_labels={7: 0, 1: 0}),
     "`verified_labels` must have only names of the pandas index. Received: 1; example number 1 has the name"),
    (lambda: next_labels(P, pd.Series([0, 1], index=[7, 7]), 1), "must have an index without duplicates"),
    (lambda: next_labels(P, [0, 1], 1, verified_labels={0: np.nan}),
     "`verified_labels` must have a label for each key. Leave out keys without a label. For `verify_accu"),
    (lambda: next_labels([[0.5, 0.5], [1.0]], [0, 1], 1), "`probabilities` must have rows of equal length."),
]))  # fmt: skip
