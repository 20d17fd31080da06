"""Quality of annotators and the classes that each confuses, from transition matrices and labels."""

import dataclasses
from typing import Any

import keras
import numpy as np
from keras import ops
from scipy.stats import binomtest

from keras_het.base.refusal import refuse_if
from keras_het.base.tables import TextTable
from keras_het.base.validation import (
    check_annotations,
    check_class_names,
    check_integer,
    check_rows,
    check_transitions,
)
from keras_het.labels.classes import encode_votes, joined_names, ordered_names
from keras_het.labels.votes.aggregation import Aggregate, are_of_rules
from keras_het.reading.clean_and_noisy import TransitionPredictor

TITLES = ["annotator", "labels", "agreement", "with others", "95% interval", "separation", "confusions"]
COLUMNS = ["name", "num_labels", "agreement", "agreement_with_others", "separation", "interval"]
NO_CONSENSUS = np.nan, (np.nan, np.nan)
RULES_NOTE = "-: unknown, because most labels come from annotators who nearly always name one class, like rules"


@dataclasses.dataclass(frozen=True)
class Annotator:
    """Quality and confusions of an annotator.

    All numbers are nan for an annotator without labels. If most labels come from annotators who act like rules (see
    `aggregate`), T cannot show how good they are. Then agreement and separation are nan for all annotators.

    Attributes:
        name: name of the annotator.
        agreement: p(label is the true class) = sum_i prior_i T_ii. Only if T comes from verified labels, it is an
            accuracy.
        separation: mean of |T_i - T_k|^2 / 2 over pairs of rows: 1 for an annotator who makes no errors, or always the
            same swap, and 0 for a spammer, whose labels do not depend on the class. Source: Raykar and Yu 2012,
            "Eliminating spammers and ranking annotators for crowdsourced labeling tasks".
        confusions: (true class, label, p(label | true class)) of the largest entries of T off its diagonal.
        num_labels: number of labels; None if unknown.
        agreement_with_others: fraction of the labels that equal the consensus of the other annotators; nan without a
            consensus.
        interval: 95% interval of `agreement_with_others`, (low, high).
    """

    name: Any
    agreement: float
    separation: float
    confusions: tuple[tuple[Any, Any, float], ...]
    num_labels: int | None
    agreement_with_others: float
    interval: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Annotators(TextTable):
    """All annotators, which print as a table, the largest agreement first; `to_frame` returns this table.

    Attributes:
        annotators: `Annotator` objects in the order of the matrices.
    """

    annotators: tuple[Annotator, ...]

    _left = (0, len(TITLES) - 1)

    def _sorted(self) -> list[Annotator]:
        return sorted(self.annotators, key=lambda one: (one.num_labels == 0, -np.nan_to_num(one.agreement)))

    def _cells(self) -> list[list[str]]:
        return [TITLES, *map(_annotator_cells, self._sorted())]

    @property
    def _below(self) -> str:  # type: ignore[override]
        return RULES_NOTE if any(one.num_labels and np.isnan(one.agreement) for one in self.annotators) else ""

    def _columns(self) -> dict[str, Any]:
        columns = {name: [getattr(one, name) for one in self._sorted()] for name in COLUMNS}
        low, high = np.transpose(columns.pop("interval"))
        return {"annotator": columns.pop("name"), **columns, "low": low, "high": high}


def _annotator_cells(one: Annotator) -> list[str]:
    """Returns the texts of the columns of `TITLES`."""
    values = one.agreement, one.agreement_with_others, *one.interval, one.separation
    agreement, with_others, low, high, separation = ("-" if np.isnan(x) else f"{x:.2f}" for x in values)
    pairs = ", ".join(f"{true} -> {label} {p:.2f}" for true, label, p in one.confusions)
    count, interval = "-" if one.num_labels is None else str(one.num_labels), f"{low} to {high}"
    return [str(one.name), count, agreement, with_others, "-" if low == "-" else interval, separation, pairs]


def annotators(
    source: Any, labels: Any = None, prior: Any = None, names: Any = None, class_names: Any = None, count: int = 3
) -> Annotators:
    """Returns the quality of each annotator, and the classes that each confuses.

    See `Annotator` for the columns. `aggregate` and models estimate T and the classes from the same labels. So the
    agreement is no accuracy: errors that annotators share look correct. "with others" has Wilson's 95% interval, and
    leaves out examples without another label, or with a tie of the others.

    For agreement beyond chance use `sklearn.metrics.cohen_kappa_score` for two annotators, and
    `statsmodels.stats.inter_rater.fleiss_kappa` for more.

    Args:
        source: transition matrices `(M, K, K)`, the result of `aggregate`, or a model that ends in a
            `NoiseTransition` with `num_annotators`.
        labels: votes, `(N, M)`, as for `aggregate`; None leaves out the number of labels and the consensus.
        prior: fraction of each class, `(K,)`; None for the prior of `aggregate`, else equal fractions.
        names: names of the annotators, a sequence; None uses the columns of a frame, or numbers.
        class_names: names of the K classes, a sequence or a dict {class: name}; None uses the names in the votes,
            or numbers.
        count: number of confused pairs of each annotator, at least 0.
    Returns:
        `Annotators`; print it.
    Source: Wilson 1927, "Probable inference, the law of succession, and statistical inference", for the interval.

    Example:
        >>> transitions = [[[0.9, 0.1], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]]]
        >>> print(annotators(transitions, [[0, 0], [1, 0], [1, 1], [0, 1]], names=["Ann", "Bob"]))
        annotator  labels  agreement  with others  95% interval  separation  confusions
        Ann             4       0.95         0.50  0.15 to 0.85        0.81  0 -> 1 0.10
        Bob             4       0.50         0.50  0.15 to 0.85        0.00  0 -> 1 0.50, 1 -> 0 0.50
    """
    if isinstance(source, Aggregate):
        prior = source.prior if prior is None else prior
        class_names = source.classes if class_names is None and source.classes.dtype == object else class_names
        source = source.transitions
    refuse_if(source is None, "source", "have a T for each annotator", "a majority, which has none")
    transitions = _read_transitions(source)
    num_annotators, size = transitions.shape[:2]
    names = getattr(labels, "columns", None) if names is None else names
    if labels is not None:
        classes, labels = encode_votes(labels, "labels", defines_classes=False)
        if classes.dtype.kind in "OSUb":
            rule = f"have the names of the {size} classes, or `class_names` must name them"
            refuse_if(class_names is None and len(classes) != size, "labels", rule, joined_names(classes.tolist()))
            class_names, codes = ordered_names(classes, class_names, "labels", allows_more=True)
            labels = np.where(labels < 0, -1, codes[labels])
    count, class_names = check_integer("count", count, 0), check_class_names(class_names, size)
    names = list(range(num_annotators) if names is None else names)
    rule = f"have a name for each of the {num_annotators} annotators"
    refuse_if(len(names) != num_annotators, "names", rule, len(names))
    prior = np.full(size, 1.0 / size) if prior is None else check_rows([prior], "prior")[0]
    refuse_if(len(prior) != size, "prior", f"have an entry for each of the {size} classes", len(prior))
    votes = None if labels is None else check_annotations(labels, size, num_annotators)
    has_rules, result = votes is not None and are_of_rules(votes, size), []
    for m, (name, t) in enumerate(zip(names, transitions, strict=True)):
        pairs = [(class_names[i], class_names[j], p) for i, j, p in _largest_flips(t, count)]
        quality: Any = float(prior @ t.diagonal()), _separation(t), tuple(pairs)
        counts: Any = (None, *NO_CONSENSUS) if votes is None else _compare_with_others(votes, m, size)
        quality = (np.nan, np.nan, ()) if has_rules or counts[0] == 0 else quality
        result.append(Annotator(name, *quality, *counts))
    return Annotators(tuple(result))


def _compare_with_others(votes: np.ndarray, m: int, size: int) -> tuple[int, float, tuple[float, float]]:
    """Returns the number of labels, and the fraction that equals the consensus of the others, with its interval."""
    labels, rows = votes[:, m][votes[:, m] >= 0], votes[votes[:, m] >= 0]
    others = np.stack([(rows == k).sum(axis=1) - (labels == k) for k in range(size)], axis=1)
    has_consensus = (others == others.max(axis=1, keepdims=True)).sum(axis=1) == 1
    hits = (others.argmax(axis=1) == labels)[has_consensus]
    if not len(hits):
        return len(labels), *NO_CONSENSUS
    interval = binomtest(int(hits.sum()), len(hits)).proportion_ci(method="wilson")
    return len(labels), float(hits.mean()), (interval.low, interval.high)


def _read_transitions(source: Any) -> np.ndarray:
    if isinstance(source, keras.Model):
        source = ops.convert_to_numpy(TransitionPredictor(source).layer.transition)
    transitions = check_transitions(source, "source")
    rule = "be transition matrices (M, K, K), or a model that ends in a NoiseTransition with num_annotators"
    refuse_if(transitions.ndim != 3 or not len(transitions), "source", rule, f"one T of shape {transitions.shape}")
    return transitions


def _separation(t: np.ndarray) -> float:
    """Returns the mean of half the squared distance between two rows."""
    squares = np.square(t).sum(axis=1)
    return float((len(t) * squares.sum() - np.square(t.sum(axis=0)).sum()) / (len(t) * (len(t) - 1)))


def _largest_flips(t: np.ndarray, count: int) -> list[tuple[int, int, float]]:
    """Returns the largest non-zero entries off the diagonal, as (row, column, entry)."""
    flips = np.where(np.eye(len(t), dtype=bool), 0.0, t)
    order = np.argsort(-flips, axis=None, kind="stable")[:count]
    return [(*divmod(int(k), len(t)), float(flips.flat[k])) for k in order if flips.flat[k] > 0]
