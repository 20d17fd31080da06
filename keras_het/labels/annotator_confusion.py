"""Quality of annotators and the classes that each confuses, from transition matrices and labels."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops
from scipy.stats import binom, binomtest

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import TextTable
from keras_het.base.validation import (
    check_annotations,
    check_class_names,
    check_integer,
    check_rows,
    check_transitions,
)
from keras_het.labels.aggregation import are_of_rules, must_encode
from keras_het.labels.classes import encode_votes, joined_names, ordered_names
from keras_het.reading.clean_and_noisy import TransitionPredictor

TITLES = ["annotator", "labels", "accuracy", "agreement", "95% interval", "separation", "confusions"]
RULES_NOTE = "-: unknown, because most labels come from annotators who nearly always name one class, like rules"
MAX_SPAMMER_SEPARATION, MIN_SPAMMER_ODDS = 0.05, 20.0


@dataclasses.dataclass(frozen=True)
class Confusion:
    """Confusion of two classes by an annotator.

    Attributes:
        true: name of the true class.
        label: name of the label that the annotator gives instead.
        probability: p(label | true class), an entry of T.
    """

    true: Any
    label: Any
    probability: float


@dataclasses.dataclass(frozen=True)
class Annotator:
    """Quality and confusions of an annotator.

    All numbers are nan for an annotator without labels. If most labels come from annotators who act like rules (see
    `aggregate`), T cannot show how good they are. Then accuracy and separation are nan for all annotators.

    Attributes:
        name: name of the annotator.
        accuracy: p(label is the true class) = sum_i prior_i T_ii.
        separation: mean of |T_i - T_k|^2 / 2 over pairs of rows: 1 for an annotator who makes no errors, or always the
            same swap, and 0 for a spammer, whose labels do not depend on the class. Source: Raykar and Yu 2012,
            "Eliminating spammers and ranking annotators for crowdsourced labeling tasks".
        confusions: largest off-diagonal entries of T, the largest first.
        num_labels: number of labels; None if unknown.
        agreement: fraction of the labels that equal the consensus of the other annotators; nan without a consensus.
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
        """Boolean, whether the labels hardly depend on the class: separation below 0.05, or agreement at chance.

        Agreement is at chance if its interval holds 1 / K, and it is 20 times as likely for random labels as for the
        mean annotator. Fewer than one in 20 average annotators are called spammers. With few labels and many classes,
        T stays near the pooled T, so the separation is rarely below 0.05.
        """
        return self.separation < MAX_SPAMMER_SEPARATION or self._is_at_chance


@dataclasses.dataclass(frozen=True)
class Annotators(TextTable):
    """All annotators, which print as a table, the most accurate first; `to_frame` returns this table.

    Attributes:
        annotators: `Annotator` objects in the order of the matrices.
    """

    annotators: tuple[Annotator, ...]

    @property
    def _left(self) -> tuple[int, int]:  # type: ignore[override]
        return 0, len(self._cells()[0]) - 1

    def _sorted(self) -> list[Annotator]:
        return sorted(self.annotators, key=lambda one: (one.num_labels == 0, -np.nan_to_num(one.accuracy)))

    def _cells(self) -> list[list[str]]:
        rows = [TITLES, *map(annotator_cells, self._sorted())]
        if all(np.isnan(annotator.agreement) for annotator in self.annotators):
            rows = [[*row[:3], *row[5:]] for row in rows]
        return rows

    @property
    def _below(self) -> str:  # type: ignore[override]
        return RULES_NOTE if any(one.num_labels and np.isnan(one.accuracy) for one in self.annotators) else ""

    def _columns(self) -> dict[str, Any]:
        annotators = self._sorted()
        names = ("num_labels", "accuracy", "agreement", "separation", "is_spammer")
        low, high = np.array([annotator.interval for annotator in annotators]).T
        values = {name: [getattr(annotator, name) for annotator in annotators] for name in names}
        return {"annotator": [annotator.name for annotator in annotators], **values, "low": low, "high": high}


def annotator_cells(annotator: Annotator) -> list[str]:
    """Returns the texts of the columns of `TITLES`."""
    accuracy, agreement, separation = map(_number, (annotator.accuracy, annotator.agreement, annotator.separation))
    interval = "" if np.isnan(annotator.agreement) else " to ".join(map(_number, annotator.interval))
    pairs = ", ".join(f"{pair.true} -> {pair.label} {pair.probability:.2f}" for pair in annotator.confusions)
    confusions = "spammer: labels hardly depend on the class" if annotator.is_spammer else pairs
    count = "" if annotator.num_labels is None else str(annotator.num_labels)
    return [str(annotator.name), count, accuracy, agreement, interval, separation, confusions]


def _number(x: float) -> str:
    return "-" if np.isnan(x) else f"{x:.2f}"


def annotators(
    source: Any, labels: Any = None, prior: Any = None, names: Any = None, class_names: Any = None, count: int = 3
) -> Annotators:
    """Returns the quality of each annotator, and the classes that each confuses.

    The table has these columns:

    * accuracy: p(label is the true class) by T, with the class fractions of `prior`.
    * agreement: fraction of the labels that equal the consensus of the other annotators, with Wilson's 95% interval.
      Examples without another label, or with a tie of the others, do not count. It is no interval of the accuracy,
      because people make the same mistakes.
    * separation: information in the labels about the true class, from 1 (no errors, or always the same swap) to 0.
    * confusions: pairs confused most, with p(label | true class); "cat -> dog" is a cat labelled dog.

    For agreement beyond chance use `sklearn.metrics.cohen_kappa_score` for two annotators, and
    `statsmodels.stats.inter_rater.fleiss_kappa` for more.

    Args:
        source: transition matrices `(M, K, K)`, the result of `aggregate`, or a model that ends in a
            `NoiseTransition` with `num_annotators`.
        labels: labels of the annotators, `(N, M)`, as for `aggregate`; None leaves out the number of labels and the
            agreement.
        prior: fraction of each class, `(K,)`; None for equal fractions.
        names: names of the annotators, a sequence; None uses the columns of a frame, or numbers.
        class_names: names of the K classes, a sequence or a dict {class: name}; None uses the names in `labels`, or
            numbers.
        count: number of confused pairs of each annotator, at least 0.
    Returns:
        `Annotators`; print it.
    Raises:
        ValueError: for matrices, labels, a prior or names that do not fit together, or a model without annotators.
    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference", for the interval.

    Example:
        >>> transitions = [[[0.9, 0.1], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]
        >>> print(annotators(transitions, [[0, 0], [1, 0], [1, 1], [0, 1]], names=["Ann", "Bob"]))
        annotator  labels  accuracy  agreement  95% interval  separation  confusions
        Ann             4      0.95       0.50  0.15 to 0.85        0.81  0 -> 1 0.10
        Bob             4      0.50       0.50  0.15 to 0.85        0.00  spammer: labels hardly depend on the class
    """
    source = getattr(source, "transitions", source)
    refuse_if(source is None, "source", "have a T for each annotator", "a majority, which has none")
    transitions = _read_transitions(source)
    num_annotators, size = transitions.shape[:2]
    names = getattr(labels, "columns", None) if names is None else names
    if labels is not None and must_encode(labels, "labels"):
        classes, labels = encode_votes(labels, "labels", False)
        if classes.dtype.kind in "OSUb":
            rule = f"have the names of the {size} classes, or `class_names` must name them"
            refuse_if(class_names is None and len(classes) != size, "labels", rule, joined_names(classes.tolist()))
            class_names, codes = ordered_names(classes, class_names, "labels", allows_more=True)
            labels = np.where(labels < 0, -1, codes[labels])
    count, class_names = check_integer("count", count, 0), check_class_names(class_names, size)
    names = list(range(num_annotators) if names is None else names)
    if len(names) != num_annotators:
        raise refusal("names", f"have a name for each of the {num_annotators} annotators", len(names))
    prior, result = _read_prior(prior, size), []
    for name, t in zip(names, transitions, strict=True):
        pairs = tuple(Confusion(class_names[i], class_names[j], p) for i, j, p in _largest_flips(t, count))
        result.append(Annotator(name, float(prior @ t.diagonal()), float(_separation(t)), pairs))
    if labels is not None:
        votes = check_annotations(labels, size, num_annotators)
        counts_and_hits, chance = _compare_with_consensus(votes, size), 1.0 / size
        if are_of_rules(votes, size):
            result, chance = [Annotator(name, np.nan, np.nan, ()) for name in names], np.nan
        all_hits = np.concatenate([hits for _, hits in counts_and_hits])
        mean = all_hits.mean() if len(all_hits) else np.nan
        rows = zip(result, counts_and_hits, strict=True)
        result = [_add_agreement(annotator, *numbers, chance, mean) for annotator, numbers in rows]
    return Annotators(tuple(result))


def _add_agreement(annotator: Annotator, num_labels: int, hits: np.ndarray, chance: float, mean: float) -> Annotator:
    """Returns the annotator with the number of labels and the agreement, the mean of `hits`.

    `chance` and `mean` are the agreements of random labels and of all annotators; `chance` is nan for rules.
    """
    if not num_labels:
        return Annotator(annotator.name, np.nan, np.nan, (), 0)
    if not len(hits):
        return dataclasses.replace(annotator, num_labels=num_labels)
    low, high = binomtest(int(hits.sum()), len(hits)).proportion_ci(method="wilson")
    odds = binom.pmf(hits.sum(), len(hits), chance) > MIN_SPAMMER_ODDS * binom.pmf(hits.sum(), len(hits), mean)
    is_at_chance = bool(odds and chance < mean and low <= chance <= high)
    agreement: dict[str, Any] = {"agreement": float(hits.mean()), "interval": (low, high)}
    agreement["_is_at_chance"] = is_at_chance
    return dataclasses.replace(annotator, num_labels=num_labels, **agreement)


def _compare_with_consensus(votes: np.ndarray, size: int) -> list[tuple[int, np.ndarray]]:
    """Returns the number of labels of each annotator, and which of them equal the consensus of the others."""
    counts, result = np.stack([(votes == k).sum(axis=1) for k in range(size)], axis=1), []
    for column in votes.T:
        rows = np.flatnonzero(column >= 0)
        others = counts[rows]
        others[np.arange(len(rows)), column[rows]] -= 1
        largest = others.max(axis=1, initial=0)
        has_consensus = (largest > 0) & ((others == largest[:, None]).sum(axis=1) == 1)
        result.append((len(rows), (others.argmax(axis=1) == column[rows])[has_consensus]))
    return result


def _read_transitions(source: Any) -> np.ndarray:
    if isinstance(source, keras.Model):
        source = ops.convert_to_numpy(TransitionPredictor(source).layer.transition)
    transitions = check_transitions(source, "source")
    rule = "be transition matrices (M, K, K), or a model that ends in a NoiseTransition with num_annotators"
    refuse_if(transitions.ndim != 3 or not len(transitions), "source", rule, f"one T of shape {transitions.shape}")
    return transitions


def _read_prior(prior: Any, size: int) -> np.ndarray:
    fractions = np.full(size, 1.0 / size) if prior is None else check_rows([prior], "prior")[0]
    refuse_if(len(fractions) != size, "prior", f"have an entry for each of the {size} classes", len(fractions))
    return fractions


def _separation(t: np.ndarray) -> float:
    """Returns the mean of half the squared distance between two rows."""
    squares = np.square(t).sum(axis=1)
    return (len(t) * squares.sum() - np.square(t.sum(axis=0)).sum()) / (len(t) * (len(t) - 1))


def _largest_flips(t: np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """Returns the largest non-zero entries off the diagonal, as (row, column, entry)."""
    flips = np.where(np.eye(len(t), dtype=bool), 0.0, t)
    order = np.argsort(-flips, axis=None, kind="stable")[:count]
    return [(*divmod(int(k), len(t)), float(flips.flat[k])) for k in order if flips.flat[k] > 0]
