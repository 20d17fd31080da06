"""Which labels are probably wrong: by predictions out of sample, by one training, or by neighbours."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import scipy.special

from keras_het.analysis.neighbors import neighbor_fractions
from keras_het.base.batches import check_same_index, largest_of_rows, row_blocks
from keras_het.base.refusal import refusal
from keras_het.base.tables import Tabled
from keras_het.base.validation import check_labels
from keras_het.explain.covariance import ConfusedPair
from keras_het.label_noise.decoding import decode
from keras_het.label_noise.discriminant import discriminant, scaling
from keras_het.label_noise.estimation import check_distributions, confident_counts, systematic_flips
from keras_het.reading.probabilities import exclusive_probabilities
from keras_het.reading.training_record import TrainingRecord

SHOWN = 20  # lines of the table that is printed
NEARLY_NONE = 0.03  # fraction of clear labels that differ from the class
CLEAR = 2.0  # paired standard errors by which neighbours must predict more labels


@dataclasses.dataclass(frozen=True)
class LabelIssues(Tabled):
    """All labels, issues or not, the least score first; arrays of shape `(N,)`.

    They print as a table of the first 20, also in a notebook; `to_frame` makes a pandas frame of all.

    Attributes:
        index: index of the example.
        given: the label that it has.
        suggested: the class of the largest probability, among the classes that occur in the labels; the class that the
            example has, if by a training or by features.
        score: the probability of the given label, in [0, 1]; the lower, the worse. By a training it is
            1 / (1 + exp(-mean margin)), so 0.5 is a mean margin of 0.
        is_issue: boolean, whether the label is probably wrong. For each pair of classes these are the worst labels, as
            many as are estimated to be wrong; by a training or by features they are those that are not the suggested
            class.
        kind: kind of an issue, "confusable" if its two classes are taken for each other more often than others, so that
            a person may err, too, and should look twice; "wrong" if they are not, so that the label is plainly wrong.
            Else "".
        class_names: names of the K classes, for texts and frames; None for numbers.
        example_names: index of a pandas frame, for the same; None for numbers.
    """

    index: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    is_issue: np.ndarray
    kind: np.ndarray
    class_names: Any = None
    example_names: Any = None

    _left = ()

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The labels one by one: index, given, suggested, score, is_issue, kind; the first three as numbers."""
        return zip(self.index, self.given, self.suggested, self.score, self.is_issue, self.kind, strict=True)

    def _columns(self) -> dict[str, Any]:
        """The columns of the table, with the names of examples and classes."""
        index = self.index if self.example_names is None else self.example_names[self.index]
        given, suggested = (
            labels if self.class_names is None else np.asarray(self.class_names)[labels]
            for labels in (self.given, self.suggested)
        )
        judged = {"score": self.score, "is_issue": self.is_issue, "kind": self.kind}
        return {"index": index, "given": given, "suggested": suggested, **judged}

    def to_frame(self) -> Any:
        """The labels as a `pandas.DataFrame`, a line for each, the worst first; `sort_index()` gives the data's order.

        Its index, named "index", is that of the examples; the columns are given, suggested, score, is_issue and kind.

        Raises:
            ImportError: without pandas.
        """
        return super().to_frame().set_index("index")

    def _cells(self) -> list[list[str]]:
        """The first lines of the table as texts, below their titles."""
        columns = {name: values[:SHOWN] for name, values in self._columns().items() if name != "is_issue"}
        lines = zip(*columns.values(), strict=True)
        return [
            [*columns],
            *(
                [f"{cell:.4f}" if name == "score" else str(cell) for name, cell in zip(columns, line, strict=True)]
                for line in lines
            ),
        ]

    @property
    def _below(self) -> str:  # type: ignore[override]
        """How many labels are issues, in a sentence."""
        kinds = (("confusable", "of confusable classes"), ("ambiguous", "of ambiguous examples"))
        counts = {text: int((self.kind == kind).sum()) for kind, text in kinds}
        more = [f"{count} of them {text}" for text, count in counts.items() if count] or [f"0 of them {kinds[0][1]}"]
        return f"{self.is_issue.sum()} of {len(self.index)} labels are probably wrong, {', '.join(more)}"


class Evidence(NamedTuple):
    """What labels are judged by.

    Attributes:
        p: probabilities of the classes, `(N, K)`, float32 as given or float64, rows of sum 1.
        labels: `(N,)`.
        margins: mean margins of a training, `(N,)`; None otherwise.
    """

    p: np.ndarray
    labels: np.ndarray
    margins: np.ndarray | None = None


def find_label_issues(
    probabilities: Any = None,
    labels: Any = None,
    x: Any = None,
    *,
    features: Any = None,
    num_neighbors: int = 10,
    pairs: Iterable | None = None,
    batch_size: int = 128,
    verbose: int = 1,
) -> LabelIssues:
    """Which labels are probably wrong, by predictions out of sample, by one training, or by neighbours.

    The result holds all labels, the least scores first; `kind` is blank for labels that are no issue. The evidence is
    one of three:

    * Probabilities of models that were not trained on the examples, as by `cross_val_probabilities`; float32 is not
      copied, so they may be a memory map. The method is
      confident learning. An example counts for class j if p_j is at least the mean p_j of the examples labelled j, and
      j is the most probable class with this property. The counts of each pair (given label i, class j) are scaled to
      the number of examples with label i. They then say how many labels i should be j: the labels with the largest p_j
      - p_i are the issues.
    * A `callbacks.TrainingDynamics`: one training that has seen the labels. Its mean margin ranks them, and the
      probabilities are its means over the epochs, of which those count little that know the labels by heart.
    * Features, with no training: the probabilities are those of a linear discriminant (`training.LinearDiscriminant`)
      of the other folds; or, if they predict more of the labels by two paired standard errors, the fractions of the
      classes among the nearest other examples.

    By a training and by features an issue is a label that is not the class of the example, the k of the largest
    sum_j p_j log T_kj, where T is estimated as in `diagnose`. Of labels of people and rules it names more of the
    wrong ones than confident learning, and is right about as often (`benchmarks/results/real_issues.md`). Where the
    labels are nearly right, most that features contradict are right labels of hard examples: there it is confident
    learning again. A training contradicts few right labels, for it has seen them.

    The counts also say which classes are confusable: pairs with more flips than chance gives. With only two classes
    this cannot be told. On digits with planted pairs and random flips, they give the right kind to every issue whose
    suggestion is right; so does a learned T. The covariance of a head gives the right kind to 7 of 10, because it has
    more pairs than the swapped ones (`benchmarks/results/label_issues.md`). A model predicts its own training labels
    too well: give no predictions of a model for the examples that it was trained on. `benchmarks/results/dynamics.md`
    compares the three.

    Args:
        probabilities: probabilities of examples that were not trained on, shape `(N, K)`, each row of sum 1, which
            cleanlab calls `pred_probs`, and takes behind the labels; or a model of exclusive classes; or a
            `TrainingDynamics` that has seen an epoch. None with features.
        labels: integers in [0, K), shape `(N,)`; a class that no label has is never suggested. None takes those of a
            `TrainingDynamics`.
        x: inputs of a model, arrays; None with anything else.
        features: features of the examples, `(N, D)`, not all zero, as by `explain.features`, best of a model that was
            trained on other data; or flattened inputs. The neighbours of more than 20,000 examples are found by faiss
            (`pip install "keras-het[neighbors]"`), of 50,000 about 99 in a hundred
            (`benchmarks/results/neighbors.md`); of fewer they are compared all with all.
        num_neighbors: number of the nearest other examples that count, by the cosine of features.
        pairs: classes that are confusable, each (i, j), or a `ConfusedPair` of numbers, which does not count if its
            covariance is positive; None uses the counts.
        batch_size: size of the batches of the predictions of a model.
        verbose: 1 for a bar of the search of neighbours where it takes more than ten seconds; 0 for nothing.
    Returns:
        `LabelIssues`.
    Raises:
        ValueError: for other shapes or values, a model without `x`, or not one kind of evidence.
        ImportError: for features of more than 20,000 examples without faiss.
    Warns: if fewer than nine of ten of the nearest neighbours were found.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", sections 3.1 and 3.2 (prune by noise rate); the
        scores are cleanlab's `self_confidence`. The mean margin: Pleiss et al. 2020, "Identifying mislabeled data using
        the area under the margin ranking", with equal weights, and a threshold by a class of its own. Neighbours: Zhu,
        Dong and Liu 2022, "Detecting corrupted labels without training a model to predict". Classes by T: Banerjee et
        al. 2005, "Clustering with Bregman divergences".

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]]
        >>> print(find_label_issues(p, [0, 0, 1, 1, 1, 1]))
        index  given  suggested   score   kind
            2      1          0  0.0500  wrong
            1      0          0  0.8000
            3      1          1  0.8000
            0      0          0  0.9000
            4      1          1  0.9000
            5      1          1  0.9500
        1 of 6 labels are probably wrong, 0 of them of confusable classes
    """
    if (probabilities is None) == (features is None):
        rule = "be given without `features`, and one of the two must be given"
        raise refusal("probabilities", rule, "none" if features is None else "both")
    _check_given(probabilities, labels, x)
    check_same_index(x=x, features=features, probabilities=probabilities, labels=labels)
    if features is None:
        p, labels, margins = _evidence(probabilities, labels, x, batch_size)
    else:
        p, labels, margins = _of_features(features, labels, num_neighbors, verbose)
    counts = confident_counts(labels, p)
    suggested = most_probable(p, np.bincount(labels, minlength=p.shape[1]) > 0)
    if margins is not None or (features is not None and not nearly_right(labels, p)):
        suggested = decode(labels, p).classes
        is_issue = suggested != labels
    else:
        is_issue = _issues(labels, p, _joint(labels, counts)) & (suggested != labels)
    confusable = systematic_flips(counts) if pairs is None else _both_ways(pairs, p.shape[1])
    return _table(labels, p, suggested, is_issue, confusable, margins)


def _of_features(features: Any, labels: Any, num_neighbors: int, verbose: int) -> Evidence:
    """Probabilities by the discriminant of the other folds, or by neighbours where these predict clearly more labels.

    Neighbours know classes of any shape; but of wrong labels that follow the features they know most.
    """
    shares, labels = neighbor_fractions(features, labels, num_neighbors, verbose)
    x = np.asarray(features, "float32").reshape(len(labels), -1)
    p = discriminant(x, labels, shares.shape[1], scale=scaling(x))[1]
    gain = 1.0 * (shares.argmax(axis=1) == labels) - (largest_of_rows(p) == labels)
    clear = gain.mean() > CLEAR * gain.std() / np.sqrt(len(gain))
    return Evidence(shares if clear else p / p.sum(axis=1, keepdims=True), labels)


def most_probable(p: np.ndarray, occurs: np.ndarray) -> np.ndarray:
    """The most probable class of each example, `(N,)`, of those that occur, `(K,)`, without a second array like p."""
    if occurs.all():
        return largest_of_rows(p)
    classes = np.flatnonzero(occurs)
    return np.concatenate([classes[p[rows, classes].argmax(axis=1)] for rows in row_blocks(len(p))])


def nearly_right(labels: np.ndarray, p: np.ndarray) -> bool:
    """Whether most labels that the model contradicts are right ones of hard examples, so that few are issues."""
    if len(np.unique(labels)) < 2:
        return True
    found = decode(labels, p)
    is_clear = found.margin >= np.median(found.margin)
    return float(np.mean(found.classes[is_clear] != labels[is_clear])) < NEARLY_NONE


def issues_by_class(p: np.ndarray, labels: np.ndarray) -> LabelIssues:
    """All labels, the least score first; an issue is a label that is not the class that `decode` finds.

    Confident learning suggests the most probable label, which is often wrong where 40% of a class have the label of one
    other class.

    Args:
        p: probabilities out of sample, `(N, K)`, K >= 2.
        labels: integers in [0, K), `(N,)`.

    Example:
        >>> p = np.array([[0.6, 0.4, 0.0], [0.45, 0.55, 0.0], [0.0, 0.6, 0.4], [0.0, 0.0, 1.0]]).repeat(5, axis=0)
        >>> labels = np.array([0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2])
        >>> found = issues_by_class(p, labels)
        >>> np.sort(found.index[found.is_issue]).tolist()
        [3, 4, 7, 8, 9, 13, 14]
    """
    suggested = decode(labels, p).classes
    return _table(labels, p, suggested, suggested != labels, systematic_flips(confident_counts(labels, p)))


def _table(labels: Any, p: Any, suggested: Any, is_issue: Any, confusable: Any, margins: Any = None) -> LabelIssues:
    """The labels in the order of their scores, which are by the margins of a training if there are any."""
    score = p[np.arange(len(p)), labels] if margins is None else scipy.special.expit(margins)
    kind = np.where(is_issue, np.where(confusable[suggested, labels], "confusable", "wrong"), "")
    order = np.argsort(score if margins is None else margins, kind="stable")
    return LabelIssues(order, *(part[order] for part in (labels, suggested, score, is_issue, kind)))


def _check_given(probabilities: Any, labels: Any, x: Any) -> None:
    """Raises a ValueError if labels or x are missing, or x is given where nothing would look at it."""
    if labels is None and not hasattr(probabilities, "record"):
        raise refusal("labels", "be given, except for a TrainingDynamics", "labels=None")
    is_model = isinstance(probabilities, keras.Model)
    if is_model == (x is None):
        rule, other = (
            "be given for a model, and only for a model",
            "features" if probabilities is None else "probabilities",
        )
        raise refusal("x", rule, "a model without x" if is_model else f"x beside {other}")


def _evidence(given: Any, labels: Any, x: Any, batch_size: int) -> Evidence:
    """The evidence of probabilities, of a model and its inputs, or of a training."""
    if hasattr(given, "record"):
        return _of_training(given, labels)
    p = check_distributions(exclusive_probabilities(given, x, batch_size) if x is not None else given, as_given=True)
    return Evidence(p, check_labels(labels, p.shape[1], len(p)))


def _of_training(dynamics: Any, labels: Any) -> Evidence:
    """The evidence of a callback with a `TrainingRecord`."""
    margins, record = dynamics.mean_margin, dynamics.record  # the first raises a ValueError if there is no epoch
    assert isinstance(record, TrainingRecord)
    if labels is not None and not np.array_equal(check_labels(labels, record.units, len(margins)), record.labels):
        wrong = np.flatnonzero(np.asarray(labels) != record.labels)
        raise refusal("labels", "be None, or those of the training", f"{len(wrong)} others, the first at [{wrong[0]}]")
    return Evidence(record.mean_probabilities.astype("float64"), record.labels, margins)


def confident_issues(labels: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Whether each label is probably wrong by confident learning, `(N,)`, of labels `(N,)` and probabilities `(N, K)`.

    A label that is the most probable class is none.
    """
    return _issues(labels, p, _joint(labels, confident_counts(labels, p))) & (largest_of_rows(p) != labels)


def _issues(labels: np.ndarray, p: np.ndarray, joint: np.ndarray) -> np.ndarray:
    """Whether each label is an issue: for each pair (label i, class j) the `joint[i, j]` of the largest p_j - p_i."""
    is_issue = np.zeros(len(p), bool)
    for i in np.unique(labels):
        of_label = np.flatnonzero(labels == i)
        for j in np.flatnonzero(joint[i]):
            if j != i:
                margin = p[of_label, j] - p[of_label, i]
                is_issue[of_label[np.argsort(-margin, kind="stable")[: joint[i, j]]]] = True
    return is_issue


def _joint(labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How many examples have label i and are of class j, `(K, K)`: the confident ones, scaled to all of label i."""
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
        classes = (pair.first, pair.second) if isinstance(pair, ConfusedPair) else pair[:2]
        first, second = check_labels(classes, size, name="pairs")
        if (
            not isinstance(pair, ConfusedPair) or pair.covariance < 0
        ):  # if positive, both are taken for others together, not for each other
            found[first, second] = found[second, first] = True
    return found
