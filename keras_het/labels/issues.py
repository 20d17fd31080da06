"""Label errors, by predictions out of sample or by one training."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import scipy.special

from keras_het.base.batches import check_same_index
from keras_het.base.refusal import refusal
from keras_het.base.tables import TextTable
from keras_het.base.validation import check_labels
from keras_het.labels.decoding import decode
from keras_het.labels.estimation import check_distributions, confident_counts, systematic_flips
from keras_het.reading.probabilities import exclusive_probabilities
from keras_het.reading.training_record import TrainingRecord

SHOWN_LINES = 20


class LabelTable(TextTable):
    """Labels with suggested classes and scores, which print as a table of the first 20, also in a notebook."""

    index: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    class_names: Any
    example_names: Any

    _left = ()

    def _columns(self) -> dict[str, Any]:
        """Columns of the table, with the names of examples and classes."""
        index = self.index if self.example_names is None else self.example_names[self.index]
        given, suggested = (
            labels if self.class_names is None else np.asarray(self.class_names)[labels]
            for labels in (self.given, self.suggested)
        )
        return {"index": index, "given": given, "suggested": suggested, "score": self.score}

    def to_frame(self) -> Any:
        """Returns a `pandas.DataFrame`, a line for each label; its index, "index", is that of the examples.

        Raises:
            ImportError: without pandas.
        """
        return super().to_frame().set_index("index")

    def _cells(self) -> list[list[str]]:
        """Texts of the first lines, below their titles; `is_issue` is left out, for `kind` tells it."""
        columns = {name: values[:SHOWN_LINES] for name, values in self._columns().items() if name != "is_issue"}
        columns["score"] = [f"{score:.4f}" for score in columns["score"]]
        return [[*columns], *([*map(str, line)] for line in zip(*columns.values(), strict=True))]


@dataclasses.dataclass(frozen=True)
class LabelIssues(LabelTable):
    """All labels, issues or not, the lowest score first; arrays of shape `(N,)`.

    They print as a table of the first 20, also in a notebook; `to_frame` returns all as a pandas frame, and its
    `sort_index()` the data's order.

    Attributes:
        index: row number of the example.
        given: observed label.
        suggested: class of the largest probability, of the classes that occur in the labels. It is the label if the
            label has the largest probability, too. If classes by T are clearly better on held-out labels, as for
            swapped classes, it is the class by T.
        score: probability of the observed label, in [0, 1]; the lower, the worse. By a training it is
            1 / (1 + exp(-mean margin)), so 0.5 is a mean margin of 0.
        is_issue: boolean, whether the label is flagged: it is not the suggested class. Probabilities flag the worst
            labels of each pair of classes alone, as many as are estimated to be wrong.
        kind: "confusable" for an issue whose two classes are confused more often than others, so that a person can err,
            too; "wrong" for any other issue, and "" for no issue.
        class_names: names of the K classes, for texts and frames; None for numbers.
        example_names: index of a pandas frame, for texts and frames; None for numbers.
    """

    index: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    is_issue: np.ndarray
    kind: np.ndarray
    class_names: Any = None
    example_names: Any = None

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yields index, given, suggested, score, is_issue and kind of each label; the first three are numbers."""
        return zip(self.index, self.given, self.suggested, self.score, self.is_issue, self.kind, strict=True)

    def _columns(self) -> dict[str, Any]:
        return super()._columns() | {"is_issue": self.is_issue, "kind": self.kind}

    @property
    def _below(self) -> str:  # type: ignore[override]
        """Numbers of disagreements and issues, in a sentence."""
        confusable = int((self.kind == "confusable").sum())
        flagged = f"{self.is_issue.sum()} are flagged, {confusable} of them of confusable classes"
        differs = np.sum(self.suggested != self.given)
        return f"the model disagrees with {differs} of {len(self.index)} labels: {flagged}"


class Evidence(NamedTuple):
    """Evidence on labels.

    Attributes:
        p: probabilities of the classes, `(N, K)`, float32 as given or float64, rows of sum 1.
        labels: `(N,)`.
        margins: mean margins of a training, `(N,)`; None otherwise.
    """

    p: np.ndarray
    labels: np.ndarray
    margins: np.ndarray | None = None


def find_issues(
    probabilities: Any,
    labels: Any = None,
    x: Any = None,
    *,
    pairs: Iterable | None = None,
    batch_size: int = 128,
) -> LabelIssues:
    """Returns labels that a model disagrees with, by predictions out of sample or by one training.

    The result holds all labels, the lowest score first. Go by this order: of the labels that are flagged, from a fifth
    to nearly all are wrong (docs/real-labels.md). The evidence is one of two:

    * Probabilities of models that were not trained on the examples, such as `found.probabilities` of `clean`; a memory
      map of float32 is not copied. The method is confident learning. An example counts for class j if p_j is at least
      the mean p_j of the examples labelled j and 1 / K, and j is the most probable class with this property. A class of
      fewer than three labels is never counted. The counts of each pair (label i, class j) are scaled to the number of
      examples with label i. They then estimate how many labels i should be j: the labels with the largest p_j - p_i are
      the issues, if they are not the suggested class. If this class is by T, and most labels that are not it are such
      issues, all of them are.
    * A `callbacks.TrainingDynamics`: one training that has seen the labels. Its mean margin ranks them, and the
      probabilities are means over the epochs, where epochs that have memorised the labels weigh little. An issue is a
      label that is not the suggested class. A training contradicts few correct labels, because it has seen them.

    Features need no network: give the probabilities of any scikit-learn classifier out of sample, such as
    `cross_val_predict(KNeighborsClassifier(10), x, y, method="predict_proba")`. For several labels of an example, use
    `cleanlab.multilabel_classification`.

    The counts also show which classes are confusable: pairs with more flips than chance gives. With only two classes
    this cannot be told. On digits with planted pairs and random flips, they give the correct kind to every issue whose
    suggestion is correct; the covariance of a head to 7 of 10 (`benchmarks/results/label_issues.md`). A model memorises
    its own training labels, so never give predictions for examples that the model was trained on.

    Args:
        probabilities: probabilities out of sample, `(N, K)`, each row of sum 1, which cleanlab calls `pred_probs` and
            expects after the labels; or a model of exclusive classes; or a `TrainingDynamics` that has seen an epoch.
        labels: integers in [0, K), `(N,)`; a class that no label has is never suggested. None for the labels of a
            `TrainingDynamics`.
        x: inputs of a model, arrays; None with anything else.
        pairs: pairs (i, j) of classes that are confusable, such as the `explain.confused_pairs` of negative covariance;
            None uses the counts.
        batch_size: size of the batches of the predictions of a model.
    Returns:
        `LabelIssues`.
    Raises:
        ValueError: for other shapes or values, or a model without `x`.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", sections 3.1 and 3.2 (prune by noise rate); the
        scores are cleanlab's `self_confidence`. The mean margin: Pleiss et al. 2020, "Identifying mislabeled data using
        the area under the margin ranking", with equal weights, and a threshold by a class of its own. Classes by T:
        Banerjee et al. 2005, "Clustering with Bregman divergences".

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.95, 0.05], [0.1, 0.9], [0.2, 0.8], [0.05, 0.95]]
        >>> print(find_issues(p, [0, 0, 0, 1, 1, 1, 1]))
        index  given  suggested   score   kind
            3      1          0  0.0500  wrong
            2      0          0  0.7000
            1      0          0  0.8000
            5      1          1  0.8000
            0      0          0  0.9000
            4      1          1  0.9000
            6      1          1  0.9500
        the model disagrees with 1 of 7 labels: 1 are flagged, 0 of them of confusable classes
    """
    _check_given(probabilities, labels, x)
    check_same_index(x=x, probabilities=probabilities, labels=labels)
    return _table(_evidence(probabilities, labels, x, batch_size), pairs)


def all_issues(p: np.ndarray, labels: np.ndarray, decoded: Any = None, takes_all: bool = True) -> LabelIssues:
    """Returns the labels with more issues: all that are not the suggested class, if `find_issues` flags most of them.

    On a good data set it flags few, because the others are correct labels of hard examples. On labels with many errors
    it flags too few. Without `takes_all` the issues are those of `find_issues`.
    """
    return _table(Evidence(p, labels), None, takes_all, decoded)


def _table(evidence: Evidence, pairs: Any = None, takes_all: bool = False, decoded: Any = None) -> LabelIssues:
    """Returns the labels in the order of their scores, which follow the margins of a training if there are any.

    With `takes_all`, or by T, all labels that are not the suggested class are issues if most of them are confident.
    """
    p, labels, margins = evidence
    decoded, counts = decoded or decode(labels, p), confident_counts(labels, p)
    suggested, is_issue = decoded.classes, decoded.classes != labels
    if margins is None:
        confident = is_issue & _issues(labels, p, _joint(labels, counts))
        are_most = 2 * confident.sum() > is_issue.sum()
        is_issue = is_issue if are_most and (takes_all or decoded.is_proven) else confident
    confusable = systematic_flips(counts) if pairs is None else _both_ways(pairs, p.shape[1])
    score = p[np.arange(len(p)), labels] if margins is None else scipy.special.expit(margins)
    kind = np.where(is_issue, np.where(confusable[suggested, labels], "confusable", "wrong"), "")
    order = np.argsort(score if margins is None else margins, kind="stable")
    return LabelIssues(order, *(part[order] for part in (labels, suggested, score, is_issue, kind)))


def _check_given(probabilities: Any, labels: Any, x: Any) -> None:
    """Raises a ValueError if labels or x are missing, or x is not used."""
    if labels is None and not hasattr(probabilities, "record"):
        raise refusal("labels", "be given, except for a TrainingDynamics", "labels=None")
    is_model = isinstance(probabilities, keras.Model)
    if is_model == (x is None):
        received = "a model without x" if is_model else "x beside probabilities"
        raise refusal("x", "be given for a model, and only for a model", received)


def _evidence(given: Any, labels: Any, x: Any, batch_size: int) -> Evidence:
    """Returns the evidence of probabilities, of a model and its inputs, or of a training."""
    if hasattr(given, "record"):
        return _of_training(given, labels)
    p = check_distributions(exclusive_probabilities(given, x, batch_size) if x is not None else given, as_given=True)
    return Evidence(p, check_labels(labels, p.shape[1], len(p)))


def _of_training(dynamics: Any, labels: Any) -> Evidence:
    """Returns the evidence of a callback with a `TrainingRecord`."""
    margins, record = dynamics.mean_margin, dynamics.record  # the first raises a ValueError if there is no epoch
    assert isinstance(record, TrainingRecord)
    if labels is not None and not np.array_equal(check_labels(labels, record.units, len(margins)), record.labels):
        wrong = np.flatnonzero(np.asarray(labels) != record.labels)
        raise refusal("labels", "be None, or those of the training", f"{len(wrong)} others, the first at [{wrong[0]}]")
    return Evidence(record.mean_probabilities.astype("float64"), record.labels, margins)


def _issues(labels: np.ndarray, p: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """Returns whether each label is an issue: of pair (i, j) the `joint[i, j]` labels with the largest p_j - p_i."""
    is_issue = np.zeros(len(p), bool)
    for i in np.unique(labels):
        of_label = np.flatnonzero(labels == i)
        for j in np.flatnonzero(joint[i]):
            if j != i:
                margin = p[of_label, j] - p[of_label, i]
                is_issue[of_label[np.argsort(-margin, kind="stable")[: joint[i, j]]]] = True
    return is_issue


def _joint(labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns numbers of examples with label i and class j, `(K, K)`: the confident ones, scaled to all of label i."""
    counts = counts.T.copy()
    empty = counts.sum(axis=1) == 0
    counts[empty, empty] = 1.0  # else 0 / 0: no example is confident, so these labels stand
    totals = np.bincount(labels, minlength=len(counts))
    exact = counts / counts.sum(axis=1, keepdims=True) * totals[:, None]
    whole = np.floor(exact).astype(int)
    missing = totals - whole.sum(axis=1)  # the largest remainders are rounded up
    ranks = np.argsort(np.argsort(whole - exact, axis=1, kind="stable"), axis=1)
    return whole + (ranks < missing[:, None])


def _both_ways(pairs: Iterable, size: int) -> np.ndarray:
    found = np.zeros((size, size), bool)
    for pair in pairs:
        first, second = check_labels(list(pair), size, 2, name="pairs")
        found[first, second] = found[second, first] = True
    return found
