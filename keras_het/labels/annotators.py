"""How good annotators are, and which classes each one confuses, by transition matrices and by their labels."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops
from scipy.stats import binom, binomtest

from keras_het.base.classes import encode_votes, ordered_names
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import TextTable
from keras_het.base.validation import (
    check_annotations,
    check_class_names,
    check_integer,
    check_rows,
    check_transitions,
)
from keras_het.labels.aggregation import are_of_rules
from keras_het.reading.clean_and_noisy import TransitionPredictor

HEAD = ["annotator", "labels", "accuracy", "agreement", "95% interval", "separation", "takes"]
RULES_LINE = "-: most labels are of annotators who nearly always name one class, as rules do, so T says nothing of them"
MAX_SPAMMER_SEPARATION, LEAST_ODDS = 0.05, 20.0


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
    """An annotator's quality and confusions.

    For an annotator without a label all numbers are nan, and there are no confusions. If most labels are of annotators
    who nearly always name one class, as rules do, and these name several, T does not say how good they are: then its
    numbers are nan for all.

    Attributes:
        name: name of the annotator.
        accuracy: p(label is the true class) = sum_i prior_i T_ii.
        separation: mean of |T_i - T_k|^2 / 2 over pairs of rows. It is 1 for an annotator who is never wrong, or who
            always swaps the same classes, and 0 for a spammer, whose labels do not depend on the class (Raykar and Yu
            2012, "Eliminating spammers and ranking annotators for crowdsourced labeling tasks").
        confusions: the largest entries of T off the diagonal, the largest first.
        num_labels: number of labels; None if it is not known.
        agreement: fraction of the labels that are the consensus of the other annotators; nan without one.
        interval: 95% interval of the agreement, (low, high).
        _is_at_chance: boolean, whether the agreement is chance, see `is_spammer`.
    """

    name: Any
    accuracy: float
    separation: float
    confusions: tuple[Confusion, ...]
    num_labels: int | None = None
    agreement: float = float("nan")
    interval: tuple[float, float] = (float("nan"), float("nan"))
    _is_at_chance: bool = False

    @property
    def is_spammer(self) -> bool:
        """Whether the labels hardly depend on the class: a separation below 0.05, or an agreement that is chance.

        T of few labels of many classes stays near that of all, so its separation is seldom so small. The agreement is
        chance if its interval holds 1 / K, and it is 20 times as likely for labels at random as for the mean annotator:
        of such annotators less than one of 20 is named.
        """
        return self.separation < MAX_SPAMMER_SEPARATION or self._is_at_chance


@dataclasses.dataclass(frozen=True)
class Annotators(TextTable):
    """All annotators, in their order. They print as a table, the most accurate first; `to_frame` has the same lines.

    Attributes:
        each: an `Annotator` for each.
    """

    each: tuple[Annotator, ...]

    @property
    def _left(self) -> tuple[int, int]:  # type: ignore[override]
        return 0, len(self._cells()[0]) - 1

    def _in_order(self) -> list[Annotator]:
        return sorted(self.each, key=lambda annotator: (annotator.num_labels == 0, -np.nan_to_num(annotator.accuracy)))

    def _cells(self) -> list[list[str]]:
        rows = [HEAD, *map(cells_of, self._in_order())]
        if all(np.isnan(annotator.agreement) for annotator in self.each):
            rows = [[*row[:3], *row[5:]] for row in rows]
        return rows

    @property
    def _below(self) -> str:  # type: ignore[override]
        return RULES_LINE if any(each.num_labels and np.isnan(each.accuracy) for each in self.each) else ""

    def _columns(self) -> dict[str, Any]:
        lines = self._in_order()
        names = ("num_labels", "accuracy", "agreement", "separation", "is_spammer")
        low, high = np.array([annotator.interval for annotator in lines]).T
        figures = {name: [getattr(annotator, name) for annotator in lines] for name in names}
        return {"annotator": [annotator.name for annotator in lines], **figures, "low": low, "high": high}


def cells_of(annotator: Annotator) -> list[str]:
    """Texts of the columns of `HEAD`."""
    accuracy, agreement, separation = map(_number, (annotator.accuracy, annotator.agreement, annotator.separation))
    interval = "" if np.isnan(annotator.agreement) else " to ".join(map(_number, annotator.interval))
    pairs = ", ".join(f"{pair.true} for {pair.label} {pair.probability:.2f}" for pair in annotator.confusions)
    takes = "any for any: the labels hardly depend on the class" if annotator.is_spammer else pairs
    count = "" if annotator.num_labels is None else str(annotator.num_labels)
    return [str(annotator.name), count, accuracy, agreement, interval, separation, takes]


def _number(x: float) -> str:
    return "-" if np.isnan(x) else f"{x:.2f}"


def annotators(
    source: Any, labels: Any = None, prior: Any = None, names: Any = None, class_names: Any = None, count: int = 3
) -> Annotators:
    """Returns how good each annotator is, and which classes each one confuses.

    The columns of the table are:

    * accuracy: p(label is the true class) by T, for classes in the fractions of `prior`.
    * agreement: fraction of the labels that are the consensus of the other annotators of the example, with Wilson's 95%
      interval; an example without another label, or with a tie of the others, does not count. It says how far the
      number of labels supports a verdict. It is not an interval of the accuracy: people make the same mistakes.
    * separation: how much the labels say of the true class, from 1 (always right, or always the same swap) to 0.
    * takes: the pairs confused most, with p(label | true class); "cat for dog" is a cat that is labelled dog.

    For agreement beyond chance use `sklearn.metrics.cohen_kappa_score` for two annotators, and
    `statsmodels.stats.inter_rater.fleiss_kappa` for more.

    Args:
        source: transition matrices `(M, K, K)`, or what `aggregate` returned, or a model that ends in a
            `NoiseTransition` with `num_annotators`.
        labels: integers `(N, M)`, -1 where the annotator gave none, or a pandas frame, as `aggregate` accepts them;
            None leaves out the number of labels and the agreement.
        prior: fraction of each class, `(K,)`; None for equal fractions.
        names: names of the annotators, a sequence; None uses the columns of a frame, or numbers.
        class_names: a sequence or a dict {class: name}; None uses the names in `labels`, or numbers.
        count: number of confused pairs of each annotator, at least 0.
    Returns:
        `Annotators`; print it.
    Raises:
        ValueError: for matrices, labels, a prior or names that do not fit together, or a model without annotators.
    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference", for the interval.

    Example:
        >>> transitions = [[[0.9, 0.1], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]
        >>> print(annotators(transitions, [[0, 0], [1, 0], [1, 1], [0, 1]], names=["Ann", "Bob"]))
        annotator  labels  accuracy  agreement  95% interval  separation  takes
        Ann             4      0.95       0.50  0.15 to 0.85        0.81  0 for 1 0.10
        Bob             4      0.50       0.50  0.15 to 0.85        0.00  any for any: the labels hardly depend on the \
class
    """
    source = getattr(source, "transitions", source)
    refuse_if(source is None, "source", "have a T of each annotator", "a majority, which has none")
    transitions = _transitions(source)
    num_annotators, size = transitions.shape[:2]
    if hasattr(labels, "columns"):
        names = labels.columns if names is None else names
        classes, labels = encode_votes(labels, "labels", False)
        if classes.dtype.kind in "OSUb":
            class_names, places = ordered_names(classes, class_names, "labels", allows_more=True)
            labels = np.where(labels < 0, -1, places[labels])
    count, class_names = check_integer("count", count, 0), check_class_names(class_names, size)
    names = list(range(num_annotators) if names is None else names)
    if len(names) != num_annotators:
        raise refusal("names", f"have a name for each of the {num_annotators} annotators", len(names))
    prior, found = _prior(prior, size), []
    for name, t in zip(names, transitions, strict=True):
        pairs = tuple(Confusion(class_names[i], class_names[j], p) for i, j, p in _largest(t, count))
        found.append(Annotator(name, float(prior @ t.diagonal()), float(_separation(t)), pairs))
    if labels is not None:
        votes = check_annotations(labels, size, num_annotators)
        consensus, chance = _consensus(votes, size), 1.0 / size
        if are_of_rules(votes, size):
            found, chance = [Annotator(name, np.nan, np.nan, ()) for name in names], np.nan
        all_hits = np.concatenate([hits for _, hits in consensus])
        mean = all_hits.mean() if len(all_hits) else np.nan
        both = zip(found, consensus, strict=True)
        found = [_with_labels(annotator, *each, chance, mean) for annotator, each in both]
    return Annotators(tuple(found))


def _with_labels(annotator: Annotator, num_labels: int, hits: np.ndarray, chance: float, mean: float) -> Annotator:
    """Returns the annotator with the number of labels, and the agreement by labels that are a consensus or not.

    `chance` and `mean` are the agreements of labels at random, and of all annotators; `chance` is nan for rules.
    """
    if not num_labels:
        return Annotator(annotator.name, np.nan, np.nan, (), 0)
    if not len(hits):
        return dataclasses.replace(annotator, num_labels=num_labels)
    low, high = binomtest(int(hits.sum()), len(hits)).proportion_ci(method="wilson")
    odds = binom.pmf(hits.sum(), len(hits), chance) > LEAST_ODDS * binom.pmf(hits.sum(), len(hits), mean)
    at_chance = bool(odds and chance < mean and low <= chance <= high)
    figures = dataclasses.replace(
        annotator, agreement=float(hits.mean()), interval=(low, high), _is_at_chance=at_chance
    )
    return dataclasses.replace(figures, num_labels=num_labels)


def _consensus(votes: np.ndarray, size: int) -> list[tuple[int, np.ndarray]]:
    """Returns for each annotator the number of labels, and whether each label is the one consensus of the others."""
    counts, found = np.stack([(votes == k).sum(axis=1) for k in range(size)], axis=1), []
    for own in votes.T:
        rows = np.flatnonzero(own >= 0)
        others = counts[rows]
        others[np.arange(len(rows)), own[rows]] -= 1
        most = others.max(axis=1, initial=0)
        is_clear = (most > 0) & ((others == most[:, None]).sum(axis=1) == 1)
        found.append((len(rows), (others.argmax(axis=1) == own[rows])[is_clear]))
    return found


def _transitions(source: Any) -> np.ndarray:
    if isinstance(source, keras.Model):
        source = ops.convert_to_numpy(TransitionPredictor(source).layer.transition)
    transitions = check_transitions(source, "source")
    rule = "be transition matrices of shape (M, K, K), or end in a NoiseTransition with num_annotators"
    refuse_if(transitions.ndim != 3 or not len(transitions), "source", rule, f"one T of shape {transitions.shape}")
    return transitions


def _prior(prior: Any, size: int) -> np.ndarray:
    fractions = np.full(size, 1.0 / size) if prior is None else check_rows([prior], "prior")[0]
    refuse_if(len(fractions) != size, "prior", f"have an entry for each of the {size} classes", len(fractions))
    return fractions


def _separation(t: np.ndarray) -> float:
    """Returns the mean of half the squared distance of two rows, by their inner products."""
    squares = np.square(t).sum(axis=1)
    return (len(t) * squares.sum() - np.square(t.sum(axis=0)).sum()) / (len(t) * (len(t) - 1))


def _largest(t: np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """Returns the largest entries off the diagonal that are not zero, as (row, column, entry)."""
    flips = np.where(np.eye(len(t), dtype=bool), 0.0, t)
    order = np.argsort(-flips, axis=None, kind="stable")[:count]
    return [(*divmod(int(k), len(t)), float(flips.flat[k])) for k in order if flips.flat[k] > 0]
