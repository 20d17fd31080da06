"""How good a model is against the true classes, by held-out noisy labels and T."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from keras_het.base.batches import largest_of_rows, row_blocks
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


class Weighted(NamedTuple):
    """What the labels of each example say by one T.

    Attributes:
        inverses: T^-1, `(M, K, K)`.
        hit: weight for the predicted class, `(N,)`.
        loss: sum over the classes of weight and -log p, `(N,)`.
    """

    inverses: np.ndarray
    hit: np.ndarray
    loss: np.ndarray


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
        probabilities: probabilities of the model for held-out examples, `(N, K)`, each row of sum 1; float32 is not
            copied, so they may be a memory map.
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
    sample = _Sample(noisy, bins)
    own = sample.weighted(noisy.inverses)
    found = sample.metrics(np.ones(len(noisy.p)), own)
    error, of_transition, share, shifts = _drawn(noisy, sample, own, found, draws, rng)
    intervals, above = TruthIntervals(noisy, sample.predicted, found.joint), _upward(sample.count)
    accuracy = intervals.of_accuracy(found.accuracy, of_transition.accuracy)
    normal = rng.standard_normal(shifts.shape)
    ends = intervals.of_calibration_error(found.gaps, sample.count, found.curve, sample.by_bin, shifts, normal)
    return TruePerformance(
        accuracy,
        _agreement(noisy, sample.predicted),
        estimate(2.0 * found.error - error, *ends),  # what chance adds is in the mean of the draws once more
        intervals.of_loss(found.nll, sample.losses, own.loss, of_transition.nll),
        intervals.of_table(of_transition.joint),
        sample.edges,
        sample.count,
        sample.mean_confidence,
        intervals.of_bins(found.curve, sample.filled, sample.by_bin, of_transition.curve),
        above / len(noisy.p),
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

    def __init__(self, noisy: Noisy, bins: int) -> None:
        self.noisy, self.bins, self.predicted = noisy, bins, largest_of_rows(noisy.p)
        self.confidence = noisy.p.max(axis=1).astype("float64")
        self.parts = noisy.parts().T if len(noisy.inverses) > 1 else np.ones((1, len(noisy.p)))
        self.edges = np.arange(bins + 1) / bins
        self.places = np.clip(np.searchsorted(self.edges, self.confidence, "right") - 1, 0, bins - 1)
        self.count = np.bincount(self.places, minlength=bins)
        self.filled, self.above = (np.where(each, each, np.nan) for each in (self.count, _upward(self.count)))
        self.mean_confidence = self.by_bin(self.confidence) / self.filled

    def losses(self, rows: slice) -> np.ndarray:
        """-log p of each class for some examples, `(n, K)`."""
        return -np.log(np.maximum(self.noisy.p[rows].astype("float64"), SMALL))

    def weighted(self, inverses: np.ndarray) -> Weighted:
        """What the labels of each example say by one T."""
        found = Weighted(inverses, np.empty(len(self.predicted)), np.empty(len(self.predicted)))
        for rows in row_blocks(len(self.predicted)):
            weights = self.noisy.weights(inverses, rows)
            found.hit[rows] = np.take_along_axis(weights, self.predicted[rows, None], axis=1)[:, 0]
            found.loss[rows] = np.einsum("nk,nk->n", weights, self.losses(rows))
        return found

    def joint(self, occurs: np.ndarray, inverses: np.ndarray) -> np.ndarray:
        """Sums of the weights for true class i of the examples with prediction j, `(K, K)`, by counts of labels."""
        total, size = np.zeros(inverses.shape[1:]), inverses.shape[1]
        for part, labels, inverse in zip(self.parts, self.noisy.labels.T, inverses, strict=True):
            counts = np.bincount(np.maximum(labels, 0) * size + self.predicted, occurs * part, size * size)
            total += (scipy.sparse.csr_array(counts.reshape(size, size).T) @ inverse).T
        return total

    def metrics(self, occurs: np.ndarray, own: Weighted, around: Metrics | None = None) -> Metrics:
        """The metrics of a sample in which each example occurs so often, and counts for the classes by its labels.

        The curves are linear in the sample near those of `around`, so that an empty bin is none of nan.
        """
        total, joint = occurs.sum(), self.joint(occurs, own.inverses)
        hits, size = self.by_bin(occurs * own.hit), self.by_bin(occurs)
        gaps = (hits - self.by_bin(occurs * self.confidence)) / total
        curve = _ratio(hits, size, self.filled, around and around.curve)
        kept = _ratio(_upward(hits), _upward(size), self.above, around and around.keep_rate)
        nll = occurs @ own.loss / total
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
    noisy: Noisy, sample: _Sample, own: Weighted, found: Metrics, draws: int, rng: np.random.Generator
) -> tuple[float, Metrics, float, np.ndarray]:
    """The mean calibration error of the draws, and what an error of T adds.

    Returns:
        The mean error; the variance of each figure that is from T; its fraction of that of the accuracy; and by how
        much each drawn T shifts the gaps of the bins, `(D, B)`.
    """
    shifts, fields = [], len(Metrics._fields)

    def both() -> Iterator[tuple]:
        for occurs, inverses in noisy.draws(draws, rng):
            known = sample.metrics(occurs, own, found)
            exact = inverses is own.inverses
            whole = known if exact else sample.metrics(occurs, sample.weighted(inverses), found)
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


def _agreement(noisy: Noisy, predicted: np.ndarray) -> float:
    """The fraction of all given labels that are the prediction."""
    given = noisy.labels >= 0
    return float((noisy.labels == predicted[:, None])[given].mean())
