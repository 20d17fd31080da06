"""How good a model is against the true classes, by held-out noisy labels and T."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.seeds import random_generator
from keras_het.base.tables import Titled
from keras_het.base.validation import check_integer, check_open_fraction
from keras_het.truth.corrected_weights import Noisy, read_noisy
from keras_het.truth.intervals import TAIL, Estimate, TruthIntervals, estimate

DRAWS = 500  # the deviation of so many is known to 3%
WANTED = 0.95  # the accuracy for which the text names the confidence
SMALL = float(np.finfo("float32").tiny)  # least probability in a logarithm, as in the metric


@dataclasses.dataclass(frozen=True)
class TruePerformance(Titled):
    """How good a model is against the true classes; it prints in plain words.

    Each `Estimate` has value, low and high, arrays if the figure is one. Values are as they were computed: noise may
    push a share below 0 or above 1. Intervals, of 95%, are cut to the range of the figure. By ten examples they
    are wide, those of the calibration error and of the likelihood wider than they need be.

    Attributes:
        accuracy: the fraction of predictions that are the true class.
        noisy_accuracy: the fraction of predictions that are the label.
        calibration_error: the expected calibration error against the true classes. What chance adds to it is taken off.
        nll: the mean of -log p(true class), no probability below the smallest float32.
        joint: fraction of the examples with true class i and prediction j, `(K, K)`; its sums over j are the class
            shares.
        edges: edges of the bins of the calibration curve, `(B + 1,)`, from 0 to 1.
        count: examples in each bin, `(B,)`.
        confidence: their mean confidence, `(B,)`, nan in an empty bin.
        curve: the fraction of the predictions of each bin that is the true class, `(B,)`, nan in an empty bin.
        keep_rate: the fraction of predictions that are at least as sure as the lower edge of each bin, `(B,)`.
        kept_accuracy: the fraction of these that is the true class, `(B,)`, nan where there are none.
        condition: the condition number of T.
        transition_fraction: fraction of the variance of `accuracy` that is from the error of T; 0 for a T taken for
            exact.
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
    keep_rate: np.ndarray
    kept_accuracy: Estimate
    condition: float
    transition_fraction: float
    notes: tuple[tuple[str, str], ...]

    def threshold(self, accuracy: float = 0.95) -> float:
        """The confidence from which on predictions are the true class at least so often, by the interval's low end.

        The least edge of a filled bin whose `kept_accuracy.low` is at least `accuracy`, or infinity if these labels
        show none: with fewer than n predictions, accuracy^n = 0.025, clean labels would not show it either, and an
        estimate above 1 by more than chance shows nothing. More `bins` are more edges. These examples have chosen it,
        so check it on others before much depends on it.

        Args:
            accuracy: the wanted fraction of true classes, greater than 0, less than 1.
        Raises:
            ValueError: for another number.
        """
        accuracy = check_open_fraction("accuracy", accuracy)
        found, shown = self.kept_accuracy, self.keep_rate * self.count.sum() * np.log(accuracy) <= np.log(TAIL)
        impossible = (found.value > 1.0) & (found.low >= 1.0)
        enough = self.edges[:-1][(found.low >= accuracy) & shown & ~impossible & (self.count > 0)]
        return float(enough[0]) if len(enough) else np.inf

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the metrics and of what they rest on."""
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
        kept, right = self.keep_rate[place], self.kept_accuracy.low[place]
        return f"{edge:.3g} or more keeps {kept:.0%} of the predictions, right in at least {right:.1%} by the interval"


class Metrics(NamedTuple):
    """The metrics of one sample."""

    accuracy: Any
    error: Any
    nll: Any
    joint: Any
    curve: Any
    keep_rate: Any
    gaps: Any


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
    cannot show whether that is so; `truth.check_transition` tests it, by a few clean or repeated labels. The
    examples must be held out: labels that trained the model cannot be told apart from others, and it agrees with their
    errors, too. So do not judge a model by its training data, nor by data that chose it.

    Intervals hold all values that what was found does not speak against, by the variance that labels have under T, and
    not by that of the sample, which is none where all agree. For shares without noise it is Wilson's interval. T is
    drawn anew for each sample of the examples if it is uncertain, see `transition`. Then its error is in the intervals,
    to first order: a T that is counted on too few examples for that makes them hold the truth too seldom, in half of
    the cases by 20 of each of two classes at 40% noise, and the notes say so.

    Args:
        probabilities: probabilities of the model for held-out examples, `(N, K)`, each row of sum 1.
        labels: their noisy labels, integers `(N,)`; or of M annotators `(N, M)`, -1 where one gave none; or counts,
            floats `(N, K)`, of people who are alike and have one T. Several must err independently of each other, given
            the true class.
        transition: T[i, j] = p(noisy label j | true class i). One of

            * a matrix `(K, K)`, or one for each annotator, `(M, K, K)`; a `layers.NoiseTransition`, or a model that
              ends in one; the result of `label_noise.dawid_skene`: taken for exact;
            * a `truth.CountedTransition`, of a few examples of known class: drawn from what they allow;
            * a function `(probabilities, labels) -> T`, such as `lambda p, y: estimate_by_confident_joint(y, p)` or
              `lambda p, y: dawid_skene(y, K).transitions`: called for each sample. An error that it makes on all of
              them, a bias, is not seen.

            For a T with an outlier class, the probabilities and the labels have that class, too.
        bins: number of bins of the calibration curve, of equal width.
        draws: samples.
        seed: seed of the samples; an integer, at least 0, or a list of them.
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
        1.000 (0.938 to 1.000) 0.75
    """
    noisy, rng = read_noisy(probabilities, labels, transition), random_generator(seed)
    bins, draws = check_integer("bins", bins, 1), check_integer("draws", draws, 2)
    sample, own = _Sample(noisy.p, bins), noisy.weights(noisy.inverses)
    found = sample.metrics(np.ones(len(own)), own)
    error, of_transition, share, shifts = _drawn(noisy, sample, own, found, draws, rng)
    intervals, above = TruthIntervals(noisy, sample.predicted, found.joint), _upward(sample.count)
    accuracy = intervals.of_accuracy(found.accuracy, of_transition.accuracy)
    normal = rng.standard_normal(shifts.shape)
    ends = intervals.of_calibration_error(found.gaps, sample.count, found.curve, sample.by_bin, shifts, normal)
    return TruePerformance(
        accuracy,
        _agreement(noisy),
        estimate(2.0 * found.error - error, *ends),  # what chance adds is in the mean of the draws once more
        intervals.of_loss(found.nll, sample.loss, own, of_transition.nll),
        intervals.of_table(of_transition.joint),
        sample.edges,
        sample.count,
        sample.mean_confidence,
        intervals.of_bins(found.curve, sample.filled, sample.by_bin, of_transition.curve),
        above / len(own),
        intervals.of_bins(
            found.keep_rate, sample.above, lambda each: _upward(sample.by_bin(each)), of_transition.keep_rate
        ),
        noisy.condition,
        share,
        tuple(_notes(noisy, accuracy, share)),
    )


def _notes(noisy: Noisy, accuracy: Estimate, share: float) -> list[tuple[str, str]]:
    """What the result rests on, in words."""
    notes = noisy.explain()
    if noisy.redraw is not None:
        notes.append(("error of T", f"{share:.0%} of the variance of the accuracy is from its error."))
    if accuracy.low == accuracy.high:  # no accuracy in [0, 1] is within chance of the estimate
        notes.append(("warning", "the accuracy is outside [0, 1] by more than chance: T or the assumption is wrong."))
    return notes


class _Sample:
    """What metrics need of the predictions, computed once."""

    def __init__(self, p: np.ndarray, bins: int) -> None:
        self.predicted, self.confidence, self.bins = p.argmax(axis=1), p.max(axis=1), bins
        self.order = np.argsort(self.predicted, kind="stable")
        self.classes, self.starts = np.unique(self.predicted[self.order], return_index=True)
        self.edges = np.arange(bins + 1) / bins
        self.places = np.clip(np.searchsorted(self.edges, self.confidence, "right") - 1, 0, bins - 1)
        self.count = np.bincount(self.places, minlength=bins)
        self.filled, self.above = (np.where(each, each, np.nan) for each in (self.count, _upward(self.count)))
        self.mean_confidence = self.by_bin(self.confidence) / self.filled
        self.loss, self.rows = -np.log(np.maximum(p, SMALL)), np.arange(len(p))

    def metrics(self, occurs: np.ndarray, weights: np.ndarray, around: Metrics | None = None) -> Metrics:
        """The metrics of a sample in which each example occurs so often, and counts for the classes with its weights.

        The curves are linear in the sample near those of `around`, so that an empty bin is none of nan.
        """
        total, counted = occurs.sum(), occurs[:, None] * weights
        joint = np.zeros((weights.shape[1],) * 2)
        joint[:, self.classes] = np.add.reduceat(counted[self.order], self.starts).T
        hits, size = self.by_bin(counted[self.rows, self.predicted]), self.by_bin(occurs)
        gaps = (hits - self.by_bin(occurs * self.confidence)) / total
        curve = _ratio(hits, size, self.filled, around and around.curve)
        kept = _ratio(_upward(hits), _upward(size), self.above, around and around.keep_rate)
        nll = np.vdot(counted, self.loss) / total
        return Metrics(joint.trace() / total, np.abs(gaps).sum(), nll, joint / total, curve, kept, gaps)

    def by_bin(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.places, values, self.bins)


def _upward(values: np.ndarray) -> np.ndarray:
    """The sum of each bin and of all above it, `(B,)` to `(B,)`."""
    return values[::-1].cumsum()[::-1]


def _ratio(hits: np.ndarray, size: np.ndarray, given: np.ndarray, around: np.ndarray | None) -> np.ndarray:
    """Hits by the sizes of the bins, all `(B,)`; of a sample, to first order near `around`, for sizes `given`."""
    return hits / given if around is None else around + (hits - around * size) / given


def _drawn(
    noisy: Noisy, sample: _Sample, own: np.ndarray, found: Metrics, draws: int, rng: np.random.Generator
) -> tuple[float, Metrics, float, np.ndarray]:
    """The mean calibration error of the draws, and what an error of T adds.

    Returns:
        The mean error; the variance of each figure that is from T; its fraction of that of the accuracy; and by how
        much each drawn T shifts the gaps of the bins, `(D, B)`.
    """
    shifts, fields = [], len(Metrics._fields)

    def both() -> Iterator[tuple]:
        for occurs, weights in noisy.draws(draws, rng):
            known = sample.metrics(occurs, own, found)
            whole = known if weights is own else sample.metrics(occurs, weights, found)
            shifts.append(whole.gaps - known.gaps)
            yield known + whole

    mean, variance = _moments(both(), 2 * fields)
    pairs = list(zip(variance[:fields], variance[fields:], strict=True))
    of_transition = Metrics(*(np.maximum(whole - known, 0.0) for known, whole in pairs))
    whole = pairs[0][1]
    share = float(of_transition.accuracy / whole) if whole else 0.0
    return float(Metrics(*mean[fields:]).error), of_transition, share, np.array(shifts)


def _moments(draws: Iterator[tuple], fields: int) -> tuple[list, list]:
    """Mean and variance of each field; a joint of very many classes is never kept for all draws."""
    number, sums, squares = 0, [0.0] * fields, [0.0] * fields
    for drawn in draws:
        number += 1
        sums = list(map(np.add, sums, drawn))
        squares = list(map(np.add, squares, map(np.square, drawn)))
    mean = [total / number for total in sums]
    return mean, [np.maximum(total / number - m**2, 0.0) for total, m in zip(squares, mean, strict=True)]


def _agreement(noisy: Noisy) -> float:
    """The fraction of all given labels that are the prediction."""
    given = noisy.labels >= 0
    return float((noisy.labels == noisy.p.argmax(axis=1)[:, None])[given].mean())
