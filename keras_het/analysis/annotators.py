"""How good annotators are, and which classes they and the noise confuse, by transition matrices."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.analysis.annotator_evidence import SPAMMER, evidence
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import Tabled
from keras_het.base.validation import (
    check_annotations,
    check_class_names,
    check_integer,
    check_rows,
    check_transitions,
)
from keras_het.label_noise import total_variation
from keras_het.label_noise.dawid_skene import DawidSkene
from keras_het.reading.clean_and_noisy import CleanAndNoisy

HEAD = ["annotator", "labels", "accuracy", "95% interval", "separation", "95% interval", "distance", "takes"]


@dataclasses.dataclass(frozen=True)
class Confusion:
    """Two classes that an annotator confuses.

    Attributes:
        true: the true class, by name.
        label: the label that the annotator gives instead, by name.
        probability: p(label | true class), an entry of T.
    """

    true: Any
    label: Any
    probability: float


@dataclasses.dataclass(frozen=True)
class Annotator:
    """An annotator's quality and confusions, by a transition matrix T.

    Of an annotator without a label nothing is known, whatever T has: the numbers are nan, and there are no confusions.

    Attributes:
        name: name of the annotator.
        accuracy: p(label is the true class) = sum_i prior_i T_ii. By labels and a `DawidSkene`, the mean of the draws
            whose middle 95% is the interval. By that T it may be outside: the rows of T shrink each alone, and where
            classes are many, each has few labels; the draws know that who is good is so on all classes.
        separation: mean of |T_i - T_k|^2 / 2 over pairs of rows; found as the accuracy is. It is 1 for an annotator who
            is never wrong, or as consistent, such as one who always swaps two classes. It is 0 for a spammer, whose
            labels do not depend on the class (Raykar and Yu 2012, "Eliminating spammers and ranking annotators for
            crowdsourced labeling tasks": their score of spammers for several classes).
        distance: total variation from the mean T of the others, mean over the rows; nan for a single annotator.
        confusions: the largest entries off the diagonal, the largest first.
        num_labels: the number of labels that the annotator gave; None if it is not known.
        interval: 95% interval of the accuracy, (low, high), by the labels of all; None if these are not known. It need
            not hold the accuracy by the T of a model, which has learned from more than labels.
        separation_interval: 95% interval of the separation, (low, high); None if the labels are not known.
        is_spammer: true where labels hardly depend on the class. Without labels: the separation is below 0.05. With
            labels: they are over 20 times as likely of somebody whose labels do not depend on the class as of a good
            annotator, at the upper quartile of all, and nothing shows that they depend on it: they agree with those of
            others no more, and no less, than in any order, by a test at 1%, or the interval of the separation ends
            below 0.05. So a good annotator is named in at most one of 20 cases, however few the labels are.
    """

    name: Any
    accuracy: float
    separation: float
    distance: float
    confusions: tuple[Confusion, ...]
    num_labels: int | None
    interval: tuple[float, float] | None = None
    separation_interval: tuple[float, float] | None = None
    is_spammer: bool = False


@dataclasses.dataclass(frozen=True)
class Annotators(Tabled):
    """All annotators, in their order; they print as a table, the best first, and last those without a label.

    `to_frame` has the same lines, with the ends of intervals as `_low` and `_high`.

    Attributes:
        each: an `Annotator` for each.
    """

    each: tuple[Annotator, ...]

    @property
    def _left(self) -> tuple[int, int]:  # type: ignore[override]
        return 0, len(self._cells()[0]) - 1

    def _in_order(self) -> list[Annotator]:
        return sorted(self.each, key=lambda a: (a.num_labels == 0, -a.accuracy))

    def _cells(self) -> list[list[str]]:
        rows = [HEAD, *map(cells_of, self._in_order())]
        if all(annotator.interval is None for annotator in self.each):
            rows = [[*row[:3], row[4], *row[6:]] for row in rows]
        return rows

    def _columns(self) -> dict[str, Any]:
        nothing, found = (np.nan, np.nan), self._in_order()
        ends = np.array([(*(a.interval or nothing), *(a.separation_interval or nothing)) for a in found]).T
        return {
            "annotator": [a.name for a in found],
            "labels": [a.num_labels for a in found],
            "accuracy": [a.accuracy for a in found],
            **dict(zip(("accuracy_low", "accuracy_high"), ends[:2], strict=True)),
            "separation": [a.separation for a in found],
            **dict(zip(("separation_low", "separation_high"), ends[2:], strict=True)),
            "distance": [a.distance for a in found],
            "is_spammer": [a.is_spammer for a in found],
        }


def cells_of(annotator: Annotator) -> list[str]:
    """The line of an annotator, as `HEAD` has it."""
    accuracy, separation, distance = map(_number, (annotator.accuracy, annotator.separation, annotator.distance))
    first, second = (" to ".join(map(_number, x or ())) for x in (annotator.interval, annotator.separation_interval))
    pairs = ", ".join(f"{pair.true} for {pair.label} {pair.probability:.2f}" for pair in annotator.confusions)
    says = "any for any: the labels hardly depend on the class" if annotator.is_spammer else pairs
    count = "" if annotator.num_labels is None else str(annotator.num_labels)
    return [str(annotator.name), count, accuracy, first, separation, second, distance, says]


def _number(x):
    return "-" if np.isnan(x) else f"{x:.2f}"


def annotators(
    source: Any, labels: Any = None, prior: Any = None, names: Any = None, class_names: Any = None, count: int = 3
) -> Annotators:
    """How good each annotator is, which classes each one confuses, and who is of no use.

    The columns of the table, see `Annotator`:

    * accuracy: p(label is the true class), for classes in the fractions of `prior`.
    * 95% interval: with `labels`, of the accuracy, and of the separation. Few labels say little, whatever T has, and
      somebody with few is held for one like the others. Labels beside which others leave the class open count less.
      Of 3,360 planted annotators with 2 to 200 labels, T by Dawid and Skene, the intervals held .951 of the accuracies
      (.93 to .98 at each number of labels) and .943 of the separations; of fewer than 20 annotators about .92. They
      assume that people err independently: those who make the same mistakes are held for better than they are. Of the
      accuracies by gold labels they held half of those of LabelMe's 59, and two thirds of those of Sentiment's 203.
    * separation: how much the labels say of the true class, from 1 (always right, or always the same swap) to 0.
    * distance: from 0 to 1, how far T is from the mean T of the other annotators, not from the true T.
    * takes: the pairs confused most, with p(label | true class); "cat for dog" is a cat that is labelled dog.

    Args:
        source: transition matrices, `(M, K, K)`, or the result of `label_noise.dawid_skene`, or a model that
            ends in a `NoiseTransition` with `num_annotators`.
        labels: integers `(N, M)`, -1 where the annotator gave none, for the number of labels and the intervals. None if
            they are not known; a T that no label has touched then looks like any other.
        prior: fraction of each class, `(K,)`; None for equal shares.
        names: names of the annotators, a sequence; None takes those of `labels` if `label_noise.votes_from_table` made
            them, as it takes the names of the classes, and else numbers the annotators.
        class_names: a sequence or a dict {class: name}; None numbers the classes.
        count: the number of confused pairs of each annotator, at least 0.
    Returns:
        `Annotators`; print it.
    Raises:
        ValueError: for matrices, labels, a prior or names that do not fit together, or a model without annotators.

    Example:
        >>> transitions = [[[0.9, 0.1], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]
        >>> print(annotators(transitions, names=["Ann", "Bob"], class_names=["cat", "dog"]))
        annotator  labels  accuracy  separation  distance  takes
        Ann                    0.95        0.81      0.45  cat for dog 0.10
        Bob                    0.50        0.00      0.45  any for any: the labels hardly depend on the class
    """
    transitions = _transitions(getattr(source, "transitions", source))
    num_annotators, size = transitions.shape[:2]
    names = getattr(labels, "annotators", None) if names is None else names
    class_names = getattr(labels, "classes", None) if class_names is None else class_names
    count, class_names = check_integer("count", count, 0), check_class_names(class_names, size)
    names = list(range(num_annotators) if names is None else names)
    if len(names) != num_annotators:
        raise refusal("names", f"have a name for each of the {num_annotators} annotators", len(names))
    prior = _prior(prior, size)
    labels = None if labels is None else check_annotations(labels, size, num_annotators)
    given = np.ones(num_annotators, bool) if labels is None else (labels >= 0).any(axis=0)
    found = [
        _judged(names[m], m, transitions, given, prior, class_names, count) if given[m] else _unknown(names[m])
        for m in range(num_annotators)
    ]
    if labels is not None:
        found = _with_evidence(found, transitions, labels, prior, isinstance(source, DawidSkene))
    return Annotators(tuple(found))


def _judged(name, m, transitions, given, prior, class_names, count):
    """An annotator by T; the others are those of whom there are labels."""
    t, others = transitions[m], transitions[given & (np.arange(len(given)) != m)]
    distance = total_variation(t, others.mean(axis=0)) if len(others) else np.nan
    pairs = tuple(Confusion(class_names[i], class_names[j], p) for i, j, p in _largest(t, count))
    separation = float(_separation(t))
    accuracy, is_spammer = float(prior @ t.diagonal()), separation < SPAMMER
    return Annotator(name, accuracy, separation, float(distance), pairs, None, is_spammer=is_spammer)


def _unknown(name):
    unknown = float("nan")
    return Annotator(name, unknown, unknown, unknown, (), 0)


def _with_evidence(found, transitions, labels, prior, by_labels):
    """The annotators with the numbers of their labels, and with what these say of those who gave any.

    Where T is `by_labels` alone, accuracy and separation are those of the draws, too.
    """
    totals = (labels >= 0).sum(axis=0)
    if not totals.any():
        return found
    of_labels = evidence(transitions, labels, prior)
    return [
        dataclasses.replace(
            annotator,
            accuracy=float(of_labels.accuracy[m, 1]) if by_labels else annotator.accuracy,
            separation=float(of_labels.separation[m, 1]) if by_labels else annotator.separation,
            num_labels=int(totals[m]),
            interval=tuple(of_labels.accuracy[m, ::2].tolist()),
            separation_interval=tuple(of_labels.separation[m, ::2].tolist()),
            is_spammer=bool(of_labels.spammers[m]),
        )
        if totals[m]
        else annotator
        for m, annotator in enumerate(found)
    ]


def _transitions(source):
    if isinstance(source, keras.Model):
        source = ops.convert_to_numpy(CleanAndNoisy(source).layer.transition)
    transitions = check_transitions(source, "source")
    rule = "be transition matrices of shape (M, K, K), or end in a NoiseTransition with num_annotators"
    refuse_if(transitions.ndim != 3 or not len(transitions), "source", rule, f"one T of shape {transitions.shape}")
    return transitions


def _prior(prior, size):
    shares = np.full(size, 1.0 / size) if prior is None else check_rows([prior], "prior")[0]
    refuse_if(len(shares) != size, "prior", f"have an entry for each of the {size} classes", len(shares))
    return shares


def _separation(t):
    """The mean of half the squared distance of two rows, by their inner products."""
    squares = np.square(t).sum(axis=1)
    return (len(t) * squares.sum() - np.square(t.sum(axis=0)).sum()) / (len(t) * (len(t) - 1))


def _largest(t, count):
    """The largest entries off the diagonal that are not zero, as (row, column, entry)."""
    flips = np.where(np.eye(len(t), dtype=bool), 0.0, t)
    order = np.argsort(-flips, axis=None, kind="stable")[:count]
    return [(*divmod(int(k), len(t)), float(flips.flat[k])) for k in order if flips.flat[k] > 0]
