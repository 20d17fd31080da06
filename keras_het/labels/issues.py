"""Likely label errors, from out-of-sample predictions or from one training."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import scipy.special

from keras_het.base.batches import check_same_index
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import TextTable, number_of
from keras_het.base.validation import check_labels
from keras_het.callbacks.training_record import TrainingRecord
from keras_het.labels.decoding import decode
from keras_het.labels.estimation import check_distributions, confident_counts, systematic_flips, warn_of_order

SHOWN_ROWS = 20


class LabelTable(TextTable):
    """Labels with suggested classes and scores, which print as a table of the first 20, also in a notebook."""

    index: np.ndarray
    label: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    class_names: Any
    example_names: Any

    _left = ()

    def _columns(self) -> dict[str, Any]:
        """Returns the columns of the table, with the names of examples and classes."""
        index = self.index if self.example_names is None else self.example_names[self.index]
        label, suggested = (
            classes if self.class_names is None else np.asarray(self.class_names)[classes]
            for classes in (self.label, self.suggested)
        )
        return {"index": index, "label": label, "suggested": suggested, "score": self.score}

    def to_frame(self) -> Any:
        """Returns a `pandas.DataFrame` with a row for each label, and the index of the examples.

        Raises:
            ImportError: without pandas.
        """
        return super().to_frame().set_index("index")

    def _cells(self) -> list[list[str]]:
        """Returns the first rows as texts, below their titles, without `is_issue`, because `kind` shows it."""
        columns = {name: values[:SHOWN_ROWS] for name, values in self._columns().items() if name != "is_issue"}
        columns["score"] = [f"{score:.4f}" for score in columns["score"]]
        return [[*columns], *([*map(str, row)] for row in zip(*columns.values(), strict=True))]


@dataclasses.dataclass(frozen=True)
class LabelIssues(LabelTable):
    """All labels, issues or not, the lowest score first, in arrays of shape `(N,)`.

    They print as a table of the first 20, also in a notebook. `to_frame` returns all labels as a pandas frame;
    `sort_index()` restores their order in the data.

    Attributes:
        index: row number of the example.
        label: observed label.
        suggested: most probable class of those that occur in the labels; the label if it is as probable. If held-out
            labels prove a transition matrix, it is the class by that matrix.
        score: probability of the observed label, in [0, 1]; for a training 1 / (1 + exp(-mean margin)), so that 0.5 is
            a mean margin of 0.
        is_issue: boolean, whether the label is an issue, because it is not the suggested class. From probabilities,
            only the worst labels of each pair of classes are issues, as many as are estimated to be errors.
        kind: "confusable" for an issue of two classes that are often confused, which a person can confuse as well;
            "wrong" for any other issue; "" for no issue.
        class_names: names of the K classes, for texts and frames; None for numbers.
        example_names: index of a pandas frame, for texts and frames; None for numbers.
    """

    index: np.ndarray
    label: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    is_issue: np.ndarray
    kind: np.ndarray
    class_names: Any = None
    example_names: Any = None

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yields index, label, suggested, score, is_issue and kind of each label; the first three are numbers."""
        return zip(self.index, self.label, self.suggested, self.score, self.is_issue, self.kind, strict=True)

    def _columns(self) -> dict[str, Any]:
        return super()._columns() | {"is_issue": self.is_issue, "kind": self.kind}

    @property
    def _below(self) -> str:  # type: ignore[override]
        """Numbers of issues and disagreements, in a sentence."""
        count, confusable = self.is_issue.sum(), np.sum(self.kind == "confusable")
        issues = f"Issues: {count:,} of {len(self.index):,} labels ({confusable:,} confusable)"
        return f"{issues}; the model disagrees with {np.sum(self.suggested != self.label):,}."


class Evidence(NamedTuple):
    """Evidence on labels.

    Attributes:
        p: probabilities of the classes, `(N, K)`, float32 or float64, each row of sum 1.
        labels: `(N,)`.
        margins: mean margins of a training, `(N,)`; None otherwise.
    """

    p: np.ndarray
    labels: np.ndarray
    margins: np.ndarray | None = None


def find_issues(probabilities: Any, labels: Any = None) -> LabelIssues:
    """Ranks labels by how likely they are errors, and flags those that a model disagrees with.

    The result has all labels, the lowest score first. Review them in this order: between a fifth and nearly all of the
    issues are errors (docs/real-labels.md). The evidence is one of two:

    * Probabilities of models that were not trained on the examples, such as `result.probabilities` of `clean`. The
      method is confident learning. The threshold of class j is the mean p_j of the examples labelled j, but at
      least 1 / K. An example counts for the most probable class that reaches its threshold. A class with fewer than
      three labels never counts. Scaled to all examples with label i, the counts estimate how many labels i should be j.
      As many labels are issues, those with the largest p_j - p_i, if i is not the suggested class. If the suggested
      classes come from a transition matrix, and most disagreements are issues, all of them are.
    * A `callbacks.TrainingDynamics` of one training on these labels. Its mean margin ranks them. The probabilities are
      means over the epochs, with little weight for epochs that have memorised the labels. All labels that are not the
      suggested class are issues.

    On features you need no network. Use any scikit-learn classifier:
    `cross_val_predict(KNeighborsClassifier(10), x, y, method="predict_proba")`. For several labels of an example, use
    `cleanlab.multilabel_classification`. Never use predictions on the model's own training examples, because it
    memorises their labels.

    The counts also show which classes are confusable: pairs with more flips than chance explains, for three classes or
    more.

    Args:
        probabilities: out-of-sample probabilities, `(N, K)`, each row of sum 1, which cleanlab calls `pred_probs` and
            expects after the labels; or a `TrainingDynamics` after an epoch. A float32 memory map is not copied.
        labels: integers in [0, K), `(N,)`, the columns of their classes; a class without labels is never suggested.
            None for the labels of a `TrainingDynamics`.
    Returns:
        `LabelIssues`.
    Raises:
        ValueError: for other shapes or values, or missing labels.
    Warns: if the labels fit the columns far better in another order.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", sections 3.1 and 3.2 (prune by noise rate); the
        scores are cleanlab's `self_confidence`. Pleiss et al. 2020, "Identifying mislabeled data using the area under
        the margin ranking", for the mean margin, without their threshold class. Banerjee et al. 2005, "Clustering with
        Bregman divergences", for the classes by a transition matrix.

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.95, 0.05], [0.1, 0.9], [0.2, 0.8], [0.05, 0.95]]
        >>> print(find_issues(p, [0, 0, 0, 1, 1, 1, 1]))
        index  label  suggested   score   kind
            3      1          0  0.0500  wrong
            2      0          0  0.7000
            1      0          0  0.8000
            5      1          1  0.8000
            0      0          0  0.9000
            4      1          1  0.9000
            6      1          1  0.9500
        Issues: 1 of 7 labels (0 confusable); the model disagrees with 1.
    """
    if hasattr(probabilities, "record"):
        return _table(_training_evidence(probabilities, labels))
    is_model = isinstance(probabilities, keras.Model)
    refuse_if(is_model, "probabilities", "be out-of-sample probabilities, or a TrainingDynamics", kind=probabilities)
    refuse_if(labels is None, "labels", "be an array, except for a TrainingDynamics", "None")
    check_same_index(probabilities=probabilities, labels=labels)
    p = check_distributions(probabilities, keep_float32=True)
    labels = check_labels(labels, p.shape[1], len(p))
    warn_of_order(p, labels)
    return _table(Evidence(p, labels))


def all_issues(p: np.ndarray, labels: np.ndarray, decoded: Any = None, flags_all: bool = True) -> LabelIssues:
    """Returns all labels; with `flags_all`, all disagreements are issues if most of them are confident issues.

    In data with few label errors, most disagreements are correct labels of hard examples, and few are confident issues.
    In data with many errors, they are too few.
    """
    return _table(Evidence(p, labels), flags_all, decoded)


def _table(evidence: Evidence, flags_all: bool = False, decoded: Any = None) -> LabelIssues:
    """Returns all labels, the lowest score or margin first.

    With `flags_all`, or with classes by T, all disagreements are issues if most of them are confident issues.
    """
    p, labels, margins = evidence
    decoded, counts = decoded or decode(labels, p), confident_counts(labels, p)
    suggested, is_issue = decoded.classes, decoded.classes != labels
    if margins is None:
        confident = is_issue & _is_confident(labels, p, _joint(labels, counts))
        are_most = 2 * confident.sum() > is_issue.sum()
        is_issue = is_issue if are_most and (flags_all or decoded.is_proven) else confident
    score = p[np.arange(len(p)), labels] if margins is None else scipy.special.expit(margins)
    kind = np.where(is_issue, np.where(systematic_flips(counts)[suggested, labels], "confusable", "wrong"), "")
    order = np.argsort(score if margins is None else margins, kind="stable")
    return LabelIssues(order, *(part[order] for part in (labels, suggested, score, is_issue, kind)))


def _training_evidence(dynamics: Any, labels: Any) -> Evidence:
    """Returns the evidence of a callback with a `TrainingRecord`."""
    margins, record = dynamics.mean_margin, dynamics.record  # `mean_margin` raises a ValueError before the first epoch
    assert isinstance(record, TrainingRecord)
    if labels is not None and not np.array_equal(check_labels(labels, record.units, len(margins)), record.labels):
        rows = np.flatnonzero(np.asarray(labels) != record.labels)
        received = f"{number_of(len(rows), 'other label')}, the first at [{rows[0]}]"
        raise refusal("labels", "be None or the labels of the training", received)
    return Evidence(record.mean_probabilities.astype("float64"), record.labels, margins)


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
