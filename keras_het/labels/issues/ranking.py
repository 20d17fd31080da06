"""Likely label errors, from out-of-sample predictions or from one training."""

import collections
import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import scipy.special

from keras_het.base.batches import read_index, row_blocks
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import TextTable, number_of
from keras_het.base.validation import check_choice, check_labels
from keras_het.callbacks.training_record import TrainingRecord
from keras_het.labels.estimation import (
    ROUNDING,
    check_distributions,
    classes_by_transition,
    confident_counts,
    count_pairs,
    warn_of_order,
)

SHOWN_ROWS = 20
SHOWN_PAIRS = 5
RANKINGS = ("confidence", "transition")
# Both values were set by hand on real datasets. Fewer added labels or more rounds would overfit T.
ADDED_LABELS = 200  # for each row of T
ROUNDS = 3


@dataclasses.dataclass(frozen=True, eq=False)
class LabelIssues(TextTable):
    """All labels, issues or not, the lowest score first, in arrays of shape `(N,)`.

    They print as a table of the first 20, also in a notebook. `to_frame` returns all labels as a pandas frame;
    `sort_index()` restores their order in the data.

    Attributes:
        index: row number of the example.
        label: observed label.
        suggested: most probable class of those that occur in the labels; the label if it is as probable. The model
            disagrees with the label if it is another class.
        score: probability that ranks the labels, in [0, 1]: of the observed label; with `ranking="transition"`, that
            the label is correct; for a training 1 / (1 + exp(-mean margin)).
        is_issue: boolean, whether the label is an issue: the model disagrees with it, and from probabilities, it is
            also one of the worst labels of its pair of classes, as many as are estimated to be errors.
        probabilities: p, `(N, K)`, in the order of the data.
        class_names: names of the K classes, for texts and frames; None for numbers.
        example_names: index of a pandas frame, for texts and frames; None for numbers.
    """

    index: np.ndarray
    label: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    is_issue: np.ndarray
    probabilities: np.ndarray = dataclasses.field(repr=False)
    class_names: Any = None
    example_names: Any = None

    _left = ()

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yields index, label, suggested, score and is_issue of each label; the first three are numbers."""
        return zip(self.index, self.label, self.suggested, self.score, self.is_issue, strict=True)

    def to_frame(self) -> Any:
        """Returns a `pandas.DataFrame` with a row for each label, and the index of the examples."""
        return super().to_frame().set_index("index")

    @property
    def disagrees(self) -> np.ndarray:
        """Boolean, `(N,)`: whether the suggested class is not the label."""
        return self.suggested != self.label

    @property
    def pairs(self) -> list[tuple[Any, Any, int]]:
        """Suggested class, label and count of the disagreements, the most frequent pair first.

        A pair can be a model error: the model may confuse the two classes although the labels are correct.
        """
        counts = collections.Counter(zip(self.suggested.tolist(), self.label.tolist(), strict=True))
        names = range(self.probabilities.shape[1]) if self.class_names is None else np.asarray(self.class_names)
        return [(names[i], names[j], count) for (i, j), count in counts.most_common() if i != j]

    @functools.cached_property
    def transition(self) -> np.ndarray:
        """T[i, j] = p(label j | class i), `(K, K)`, for `ForwardCorrectedCrossentropy`; see `find_issues`."""
        labels = np.empty(len(self.label), int)
        labels[self.index] = self.label
        return classes_by_transition(labels, self.probabilities)[0]

    def summary(self) -> str:
        """Returns the numbers of disagreements and issues, and the frequent pairs, in two sentences."""
        count, issues = int(self.disagrees.sum()), int(self.is_issue.sum())
        verb = "is an issue" if issues == 1 else "are issues"
        text = f"The model disagrees with {count:,} of {number_of(len(self.label), 'label')}; {issues:,} {verb}."
        if not count:
            return text
        pairs = [f"{label} for {suggested} ({number:,})" for suggested, label, number in self.pairs[:SHOWN_PAIRS]]
        return f"{text} Most frequent: {', '.join(pairs)}; a pair can be a model error."

    def _columns(self) -> dict[str, Any]:
        """Returns the columns of the table, with the names of examples and classes."""
        index = self.index if self.example_names is None else self.example_names[self.index]
        label, suggested = (
            classes if self.class_names is None else np.asarray(self.class_names)[classes]
            for classes in (self.label, self.suggested)
        )
        columns = {"index": index, "label": label, "suggested": suggested, "score": self.score}
        return columns | {"is_issue": self.is_issue}

    def _cells(self) -> list[list[str]]:
        """Returns the first rows as texts, below their titles."""
        columns = {name: values[:SHOWN_ROWS] for name, values in self._columns().items()}
        columns["score"] = [f"{score:.4f}" for score in columns["score"]]
        columns["issue"] = np.where(columns.pop("is_issue"), "yes", "")
        return [[*columns], *([*map(str, row)] for row in zip(*columns.values(), strict=True))]

    @property
    def _below(self) -> str:  # type: ignore[override]
        return self.summary()


def find_issues(probabilities: Any, labels: Any = None, *, ranking: str = "confidence") -> LabelIssues:
    """Ranks labels by how likely they are errors, and flags those that a model disagrees with.

    The result has all labels, the lowest score first. Review them in this order: between a fifth and nearly all of the
    issues are errors (docs/real-labels.md). The evidence is one of two:

    * Probabilities of models that were not trained on the examples, such as `result.probabilities` of `clean`. The
      method is confident learning. The threshold of class j is the mean p_j of the examples labelled j, but at
      least 1 / K. An example counts for the most probable class that reaches its threshold. A class with fewer than
      three labels never counts. Scaled to all examples with label i, the counts estimate how many labels i should be j.
      As many labels are issues, those with the largest p_j - p_i, if i is not the suggested class. With few errors and
      a good model, these are too few: then review all labels that the model disagrees with.
    * A `callbacks.TrainingDynamics` of one training on these labels. Its mean margin ranks them. The probabilities are
      means over the epochs, with little weight for epochs that have memorised the labels. All labels that are not the
      suggested class are issues.

    The model sees no errors that it has learned, for example the errors of a rule. On features you need no network. Use
    any scikit-learn classifier: `cross_val_predict(KNeighborsClassifier(10), x, y, method="predict_proba")`. For
    several labels of an example, use `cleanlab.multilabel_classification`. Never use predictions on the model's own
    training examples, because it memorises their labels.

    With `ranking="transition"`, the score of a label j is the probability that it is correct, with p the predictions of
    the observed label:

        score = q_j T_jj / sum_k q_k T_kj,      q T = p

    Here T counts the labels of each class, by the class whose row of `transition` is nearest to p, with 200 more labels
    in each row, their errors spread evenly. Three multiplicative updates from q = p give q; more would overfit T. This
    ranking finds more errors of some rules, and fewer of some people (docs/real-labels.md).

    Args:
        probabilities: out-of-sample probabilities, `(N, K)`, each row of sum 1, which cleanlab calls `pred_probs` and
            expects after the labels; or a `TrainingDynamics` after an epoch. A float32 memory map is not copied.
        labels: integers in [0, K), `(N,)`, the columns of their classes; a class without labels is never suggested. A
            Series keeps its index. None for the labels of a `TrainingDynamics`.
        ranking: "confidence" ranks labels by p_j, "transition" by the score above.
    Returns:
        `LabelIssues`; its `transition` is the T of `ForwardCorrectedCrossentropy`.
    Raises:
        ValueError: for other shapes or values, or missing labels.
    Warns: if the labels fit the columns far better in another order.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", sections 3.1 and 3.2 (prune by noise rate); the
        scores are cleanlab's `self_confidence`. Pleiss et al. 2020, "Identifying mislabeled data using the area under
        the margin ranking", for the mean margin, without their threshold class. Banerjee et al. 2005, "Clustering with
        Bregman divergences", for T; Richardson 1972, "Bayesian-based iterative method of image restoration", for q.

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.95, 0.05], [0.1, 0.9], [0.2, 0.8], [0.05, 0.95]]
        >>> print(find_issues(p, [0, 0, 0, 1, 1, 1, 1]))
        index  label  suggested   score  issue
            3      1          0  0.0500    yes
            2      0          0  0.7000
            1      0          0  0.8000
            5      1          1  0.8000
            0      0          0  0.9000
            4      1          1  0.9000
            6      1          1  0.9500
        The model disagrees with 1 of 7 labels; 1 is an issue. Most frequent: 1 for 0 (1); a pair can be a model error.
    """
    check_choice("ranking", ranking, RANKINGS)
    if hasattr(probabilities, "record"):
        refuse_if(ranking != "confidence", "ranking", 'be "confidence" for a TrainingDynamics', repr(ranking))
        return _from_training(probabilities, labels)
    is_model = isinstance(probabilities, keras.Model)
    refuse_if(is_model, "probabilities", "be out-of-sample probabilities, or a TrainingDynamics", kind=probabilities)
    refuse_if(labels is None, "labels", "be an array, except for a TrainingDynamics", "None")
    names = read_index(labels=labels, probabilities=probabilities)
    p = check_distributions(probabilities, keep_float32=True)
    labels = check_labels(labels, p.shape[1], len(p))
    warn_of_order(p, labels)
    issues = from_probabilities(p, labels, ranking)
    return dataclasses.replace(issues, example_names=names)


def from_probabilities(p: np.ndarray, labels: np.ndarray, ranking: str = "confidence") -> LabelIssues:
    """Returns all labels by out-of-sample probabilities, as `find_issues` does."""
    suggested = _suggested(labels, p)
    confident = _is_confident(labels, p, _joint(labels, confident_counts(labels, p)))
    score = p[np.arange(len(p)), labels] if ranking == "confidence" else _correct_probability(labels, p)
    return _ranked(labels, suggested, score, confident & (suggested != labels), p, score)


def _from_training(dynamics: Any, labels: Any) -> LabelIssues:
    """Returns all labels by a callback with a `TrainingRecord`, the lowest mean margin first."""
    margins, record = dynamics.mean_margin, dynamics.record  # `mean_margin` raises a ValueError before the first epoch
    assert isinstance(record, TrainingRecord)
    if labels is not None and not np.array_equal(check_labels(labels, record.units, len(margins)), record.labels):
        rows = np.flatnonzero(np.asarray(labels) != record.labels)
        received = f"{number_of(len(rows), 'other label')}, the first at [{rows[0]}]"
        raise refusal("labels", "be None or the labels of the training", received)
    p = record.mean_probabilities.astype("float64")
    suggested = _suggested(record.labels, p)
    is_issue = suggested != record.labels
    return _ranked(record.labels, suggested, scipy.special.expit(margins), is_issue, p, margins)


def _ranked(
    labels: np.ndarray,
    suggested: np.ndarray,
    score: np.ndarray,
    is_issue: np.ndarray,
    p: np.ndarray,
    order_by: np.ndarray,
) -> LabelIssues:
    order = np.argsort(order_by, kind="stable")
    return LabelIssues(order, labels[order], suggested[order], score[order], is_issue[order], p)


def _suggested(labels: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns the most probable class of those that occur in the labels, `(N,)`; the label if it is as probable."""
    occurs, parts = np.bincount(labels, minlength=p.shape[1]) > 0, []
    for rows in row_blocks(len(p)):
        scores, label = np.where(occurs, p[rows], -1.0), labels[rows]
        is_best = scores[np.arange(len(label)), label] >= scores.max(axis=1) - ROUNDING
        parts.append(np.where(is_best, label, scores.argmax(axis=1)))
    return np.concatenate(parts)


def _is_confident(labels: np.ndarray, p: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """Returns a mask, `(N,)`, of the `joint[i, j]` labels i with the largest p_j - p_i, for all pairs (i, j)."""
    is_confident = np.zeros(len(p), bool)
    for i in np.unique(labels):
        rows = np.flatnonzero(labels == i)
        for j in np.flatnonzero(joint[i]):
            if j != i:
                margin = p[rows, j] - p[rows, i]
                is_confident[rows[np.argsort(-margin, kind="stable")[: joint[i, j]]]] = True
    return is_confident


def _joint(labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns numbers of examples with label i and class j, `(K, K)`: confident counts, scaled to all of label i."""
    counts = counts.T.copy()
    empty = counts.sum(axis=1) == 0
    counts[empty, empty] = 1.0  # else 0 / 0 if no example of a label is confident
    totals = np.bincount(labels, minlength=len(counts))
    exact = counts / counts.sum(axis=1, keepdims=True) * totals[:, None]
    whole = np.floor(exact).astype(int)
    missing = totals - whole.sum(axis=1)  # round the largest remainders up
    ranks = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1)
    return whole + (ranks < missing[:, None])


def _correct_probability(labels: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Returns the probability that each label is correct, `(N,)`, by T."""
    transition = _smoothed_transition(labels, classes_by_transition(labels, p)[1], p.shape[1])
    parts = [_correct_in_block(labels[rows], p[rows], transition) for rows in row_blocks(len(p))]
    return np.concatenate(parts)


def _correct_in_block(labels: np.ndarray, p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    p = q = p.astype("float64", copy=False)
    for _ in range(ROUNDS):  # the likelihood of p never falls
        q = q * (p / (q @ transition) @ transition.T)
    joint = q * transition[:, labels].T
    return joint[np.arange(len(p)), labels] / joint.sum(axis=1)


def _smoothed_transition(labels: np.ndarray, classes: np.ndarray, size: int) -> np.ndarray:
    """Returns T by classes and labels, with added labels in each row, so that no entry is 0."""
    rate = (np.sum(classes != labels) + 1.0) / (len(labels) + 2.0)
    prior = np.where(np.eye(size), 1.0 - rate, rate / max(1, size - 1))
    counts = count_pairs(classes, labels, size) + ADDED_LABELS * prior
    return counts / counts.sum(axis=1, keepdims=True)
