"""How good a model is against the true classes, by held-out noisy labels and T."""

import dataclasses
import html
from typing import Any, NamedTuple

import numpy as np

from keras_het.analysis.corrected_weights import Noisy, read_noisy
from keras_het.analysis.estimate import NORMAL, Estimate, estimate
from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_integer, check_number

DRAWS = 500  # the deviation of so many is known to 3%
TAIL = 0.025  # of the interval, below its low end
WANTED = 0.95  # the accuracy for which the text names the confidence
SMALL = float(np.finfo("float32").tiny)  # least probability in a logarithm, as in the metric


@dataclasses.dataclass(frozen=True)
class TruePerformance:
    """How good a model is against the true classes; it prints in plain words.

    Each `Estimate` has value, low and high, arrays if the figure is one. Values are as they were computed: noise may
    push a share below 0 or above 1. Intervals, of 95%, are cut to the range of the figure.

    Attributes:
        accuracy: the share of predictions that are the true class.
        noisy_accuracy: the share of predictions that are the label.
        calibration_error: the expected calibration error against the true classes. What chance adds to it is taken off.
        nll: the mean of -log p(true class), no probability below the smallest float32.
        joint: share of the examples with true class i and prediction j, `(K, K)`; its sums over j are the class shares.
        edges: of the bins of the calibration curve, `(B + 1,)`, from 0 to 1.
        count: examples in each bin, `(B,)`.
        confidence: their mean confidence, `(B,)`, nan in an empty bin.
        curve: the share of the predictions of each bin that is the true class, `(B,)`, nan in an empty bin.
        kept: the share of predictions that are at least as sure as the lower edge of each bin, `(B,)`.
        kept_accuracy: the share of these that is the true class, `(B,)`, nan where there are none.
        condition: the condition number of T.
        transition_share: how much of the variance of `accuracy` is from the error of T; 0 for a T taken for exact.
        notes: (title, text) of what the result rests on.
    """

    accuracy: Estimate
    noisy_accuracy: float
    calibration_error: Estimate
    nll: Estimate
    joint: Estimate
    edges: np.ndarray
    count: np.ndarray
    confidence: np.ndarray
    curve: Estimate
    kept: np.ndarray
    kept_accuracy: Estimate
    condition: float
    transition_share: float
    notes: tuple[tuple[str, str], ...]

    def threshold(self, accuracy: float = 0.95) -> float:
        """The confidence from which on predictions are the true class at least so often, by the interval's low end.

        The least edge of a filled bin whose `kept_accuracy.low` is at least `accuracy`, or infinity if these labels
        show none: with fewer than n predictions, accuracy^n = 0.025, clean labels would not show it either, and an
        estimate above 1 by more than chance shows nothing. More `bins` are more edges. These examples have chosen it,
        so check it on others before much depends on it.

        Args:
            accuracy: the wanted share of true classes, greater than 0, less than 1.
        Raises:
            ValueError: for another number.
        """
        if check_number("accuracy", accuracy, above=0.0) >= 1.0:
            raise ValueError(f"`accuracy` must be less than 1, a share. Received: accuracy={accuracy!r}")
        found, shown = self.kept_accuracy, self.kept * self.count.sum() * np.log(accuracy) <= np.log(TAIL)
        impossible = (found.value > 1.0) & (found.low >= 1.0)
        enough = self.edges[:-1][(found.low >= accuracy) & shown & ~impossible & (self.count > 0)]
        return float(enough[0]) if len(enough) else np.inf

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the figures and of what they rest on."""
        return [
            ("accuracy, true classes", str(self.accuracy)),
            ("accuracy, labels", f"{self.noisy_accuracy:.3f}"),
            ("calibration error, true classes", str(self.calibration_error)),
            ("negative log-likelihood, true classes", str(self.nll)),
            (f"confidence for {WANTED:.0%} true classes", self._kept_from(self.threshold(WANTED))),
            *self.notes,
        ]

    def _kept_from(self, edge: float) -> str:
        if np.isinf(edge):
            return "none is shown to be enough by these labels"
        (place,) = np.flatnonzero(self.edges == edge)
        ends = (getattr(self.kept_accuracy, name)[place] for name in ("value", "low", "high"))
        return f"{edge:.3g} or more keeps {self.kept[place]:.0%} of the predictions, right in {Estimate(*ends)}"

    def __str__(self) -> str:
        return "\n".join(f"{title}: {text}" for title, text in self.lines())

    def _repr_html_(self) -> str:
        """The same as a table for a notebook."""
        rows = (f"<tr><th>{title}</th><td>{html.escape(text)}</td></tr>" for title, text in self.lines())
        return f"<table><tbody>{''.join(rows)}</tbody></table>"


class Figures(NamedTuple):
    """The figures of one sample."""

    accuracy: Any
    error: Any
    nll: Any
    joint: Any
    curve: Any
    kept: Any


def true_performance(
    probabilities: Any,
    labels: Any,
    transition: Any,
    *,
    bins: int = 10,
    draws: int = DRAWS,
    seed: int | list[int] = 0,
) -> TruePerformance:
    """How good a model is against the true classes, by noisy labels of held-out examples, and how they came about.

        P(A, true = i) = sum_j P(A, noisy = j) (T^-1)[j, i],   A any event of the example, as "prediction is k"

    **It holds if the noise does not depend on the example, given its true class, and if T is right.** Noisy labels
    cannot show whether that is so; `analysis.check_transition` tests it, by a few clean or repeated labels. The
    examples must be held out: labels that trained the model cannot be told apart from others, and it agrees with their
    errors, too. So do not judge a model by its training data, nor by data that chose it.

    Intervals are of 1.96 standard deviations over samples of the examples, drawn with replacement. T is drawn anew for
    each sample if it is uncertain, see `transition`. Then its error is in the intervals.

    Args:
        probabilities: of the model for held-out examples, `(N, K)`, each row of sum 1.
        labels: their noisy labels, integers `(N,)`; or of M annotators `(N, M)`, -1 where one gave none, who must err
            independently of each other, given the true class.
        transition: T[i, j] = p(noisy label j | true class i). One of

            * a matrix `(K, K)`, or one for each annotator, `(M, K, K)`; a `layers.NoiseTransition`, or a model that
              ends in one; the result of `label_noise.dawid_skene`: taken for exact;
            * a `label_noise.CountedTransition`, of a few examples of known class: drawn from what they allow;
            * a function `(probabilities, labels) -> T`, such as `lambda p, y: estimate_by_confident_joint(y, p)` or
              `lambda p, y: dawid_skene(y, K).transitions`: called for each sample. An error that it makes on all of
              them, a bias, is not seen.

            For a T with an outlier class, the probabilities and the labels have that class, too.
        bins: of the calibration curve, of equal width.
        draws: samples.
        seed: of the samples; an integer, at least 0, or a list of them.
    Returns:
        `TruePerformance`; print it.
    Raises:
        ValueError: for other shapes or values, or a T whose condition number is above 100: labels then hardly separate
            some true classes, and a thousand labels say less than one clean one.
    Source: Natarajan, Dhillon, Ravikumar and Tewari 2013, "Learning with noisy labels", Lemma 1; Patrini et al. 2017,
        Theorem 1, for losses.

    Example:
        >>> p = np.array([[0.9, 0.1], [0.2, 0.8]]).repeat(400, axis=0)
        >>> labels = np.arange(800) % 4 % 3 % 2 ^ (np.arange(800) >= 400)  # a quarter is wrong
        >>> found = true_performance(p, labels, [[0.75, 0.25], [0.25, 0.75]])
        >>> print(found.accuracy, found.noisy_accuracy)
        1.000 (0.939 to 1.000) 0.75
    """
    noisy, rng = read_noisy(probabilities, labels, transition), random_generator(seed)
    bins, draws = check_integer("bins", bins, 1), check_integer("draws", draws, 2)
    sample = _Sample(noisy.p, bins)
    own = noisy.weights(noisy.inverses)
    found = sample.figures(np.ones(len(own)), own)
    mean, deviation = _moments(sample.figures(*drawn, found) for drawn in noisy.draws(draws, rng))
    share = _share_of_transition(noisy, own, deviation.accuracy)
    says = f"{share:.0%} of the variance of the accuracy is from its error"
    notes = [*noisy.explain(), *[("error of T", f"{says}.")] * (noisy.redraw is not None)]
    if abs(found.accuracy - 0.5) - NORMAL * deviation.accuracy > 0.5:
        notes.append(("warning", "the accuracy is outside [0, 1] by more than chance: T or the assumption is wrong."))
    return TruePerformance(
        estimate(found.accuracy, deviation.accuracy),
        _agreement(noisy),
        estimate(2.0 * found.error - mean.error, deviation.error),  # what chance adds is in the mean once more
        estimate(found.nll, deviation.nll, most=np.inf),
        estimate(found.joint, deviation.joint),
        sample.edges,
        sample.count,
        sample.mean_confidence,
        estimate(found.curve, deviation.curve),
        _upward(sample.count) / len(own),
        estimate(found.kept, deviation.kept),
        noisy.condition,
        share,
        tuple(notes),
    )


class _Sample:
    """What figures need of the predictions, computed once."""

    def __init__(self, p: np.ndarray, bins: int) -> None:
        self.predicted, self.confidence, self.bins = p.argmax(axis=1), p.max(axis=1), bins
        self.order = np.argsort(self.predicted, kind="stable")
        self.classes, self.starts = np.unique(self.predicted[self.order], return_index=True)
        self.edges = np.arange(bins + 1) / bins
        self.places = np.clip(np.searchsorted(self.edges, self.confidence, "right") - 1, 0, bins - 1)
        self.count = np.bincount(self.places, minlength=bins)
        self.filled, self.above = (np.where(each, each, np.nan) for each in (self.count, _upward(self.count)))
        self.mean_confidence = self._by_bin(self.confidence) / self.filled
        self.loss, self.rows = -np.log(np.maximum(p, SMALL)), np.arange(len(p))

    def figures(self, occurs: np.ndarray, weights: np.ndarray, around: Figures | None = None) -> Figures:
        """The figures of a sample in which each example occurs so often, and counts for the classes with its weights.

        The curves are linear in the sample near those of `around`, so that an empty bin is none of nan.
        """
        total, counted = occurs.sum(), occurs[:, None] * weights
        joint = np.zeros((weights.shape[1],) * 2)
        joint[:, self.classes] = np.add.reduceat(counted[self.order], self.starts).T
        hits, size = self._by_bin(counted[self.rows, self.predicted]), self._by_bin(occurs)
        error = np.abs(hits - self._by_bin(occurs * self.confidence)).sum()
        curve = _ratio(hits, size, self.filled, around and around.curve)
        kept = _ratio(_upward(hits), _upward(size), self.above, around and around.kept)
        nll = np.vdot(counted, self.loss) / total
        return Figures(joint.trace() / total, error / total, nll, joint / total, curve, kept)

    def _by_bin(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.places, values, self.bins)


def _upward(values: np.ndarray) -> np.ndarray:
    """The sum of each bin and of all above it, `(B,)` to `(B,)`."""
    return values[::-1].cumsum()[::-1]


def _ratio(hits: np.ndarray, size: np.ndarray, given: np.ndarray, around: np.ndarray | None) -> np.ndarray:
    """Hits by the sizes of the bins, all `(B,)`; of a sample, to first order near `around`, for sizes `given`."""
    return hits / given if around is None else around + (hits - around * size) / given


def _moments(draws: Any) -> tuple[Figures, Figures]:
    """Mean and standard deviation of each figure; a joint of very many classes is never kept for all draws."""
    number, sums, squares = 0, [0.0] * len(Figures._fields), [0.0] * len(Figures._fields)
    for drawn in draws:
        number += 1
        sums = list(map(np.add, sums, drawn))
        squares = list(map(np.add, squares, map(np.square, drawn)))
    mean = [total / number for total in sums]
    rest = [np.maximum(total / number - m**2, 0.0) for total, m in zip(squares, mean, strict=True)]
    return Figures(*mean), Figures(*map(np.sqrt, rest))


def _share_of_transition(noisy: Noisy, weights: np.ndarray, deviation: float) -> float:
    """The share of the variance of the accuracy that is not from the examples."""
    if noisy.redraw is None:
        return 0.0
    own = weights[np.arange(len(weights)), noisy.p.argmax(axis=1)]
    return float(np.clip(1.0 - own.var() / len(own) / deviation**2, 0.0, 1.0))


def _agreement(noisy: Noisy) -> float:
    """The share of all given labels that are the prediction."""
    given = noisy.labels >= 0
    return float((noisy.labels == noisy.p.argmax(axis=1)[:, None])[given].mean())
