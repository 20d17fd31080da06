"""How good a model is against the true classes, by noisy labels of all and verified ones of a few: under any noise."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_het.base.tables import Titled
from keras_het.base.validation import check_integer
from keras_het.truth.cells import Part, cells_of, counted, fraction, part, worth
from keras_het.truth.class_tables import ClassTables
from keras_het.truth.intervals import Estimate, estimate
from keras_het.truth.verified_data import VerifiedData
from keras_het.truth.verified_mean import mean_estimate
from keras_het.truth.verified_sample import Sample

MOST_CLASSES = 1000  # of a joint table
SMALL = float(np.finfo("float32").tiny)


@dataclasses.dataclass(frozen=True)
class VerifiedPerformance(Titled):
    """How good a model is against the true classes; it prints in plain words.

    Each `Estimate` has value, low and high, of 95%, arrays if the metric is one: each interval by itself.

    Attributes:
        accuracy: fraction of predictions that are the true class.
        noisy_accuracy: fraction of predictions that are the label.
        alone: the accuracy by the verified examples alone.
        label_accuracy: fraction of labels that are the true class.
        recall: fraction of the examples of each true class that are predicted so, `(K,)`; nan where none was verified.
        precision: fraction of the predictions of each class that are the true class, `(K,)`; nan where none was
            verified.
        joint: fraction of the examples with true class i and prediction j, `(K, K)`; None for more than 1,000 classes.
        overconfidence: mean confidence less the accuracy; None without probabilities.
        nll: mean of -log p(true class), no probability below the smallest float32; None without probabilities. Its
            interval is Student's, and holds less where few verified examples have a large loss.
        edges: edges of the bins of the calibration curve, `(B + 1,)`, from 0 to 1; None without probabilities.
        count: examples in each bin, `(B,)`; None without.
        confidence: their mean confidence, `(B,)`, nan in an empty bin; None without.
        curve: fraction of the predictions of each bin that is the true class, `(B,)`; None without.
        classes: labels of the K classes, `(K,)`.
        index: places of the verified examples, `(n,)`.
        notes: (title, text) of what the result rests on.
    """

    accuracy: Estimate
    noisy_accuracy: float
    alone: Estimate
    label_accuracy: Estimate
    recall: Estimate
    precision: Estimate
    joint: Estimate | None
    overconfidence: Estimate | None
    nll: Estimate | None
    edges: np.ndarray | None
    count: np.ndarray | None
    confidence: np.ndarray | None
    curve: Estimate | None
    classes: np.ndarray
    index: np.ndarray
    notes: tuple[tuple[str, str], ...]

    @property
    def worth(self) -> float:
        """Number of verified labels that alone would give so short an interval: n (width alone / width)^2."""
        return worth(self.accuracy, self.alone, len(self.index))

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the metrics and of what they rest on."""
        beside = f"by the {len(self.index)} verified alone {self.alone}"
        sure = []
        if self.nll is not None:
            sure = [
                ("mean confidence above the accuracy", str(self.overconfidence)),
                ("negative log-likelihood, true classes", str(self.nll)),
            ]
        return [
            ("accuracy, true classes", f"{self.accuracy}; {beside}"),
            ("as exact as", f"{self.worth:.0f} verified examples without the other labels"),
            ("accuracy, labels", f"{self.noisy_accuracy:.3f}"),
            ("labels that are right", str(self.label_accuracy)),
            *sure,
            *self.notes,
        ]


def verified_performance(
    predictions: Any,
    labels: Any,
    verified_labels: Any,
    *,
    inclusion: Any = None,
    class_names: Sequence | None = None,
    bins: int = 10,
) -> VerifiedPerformance:
    """How good a model is, by noisy labels of all examples and verified labels of a few: prediction-powered inference.

        accuracy = sum_h W_h a_h,    W_h = fraction of all examples in cell h, a_h = fraction right of its verified ones

    Examples are cut into cells by what is known of all: whether the prediction is the label, then, as far as 20
    verified ones, and an eighth of all, are left in each, by confidence and by how often predictions of that class are
    the label. With two cells it is

        accuracy = mean over verified (right) + l (mean over all (agrees) - mean over verified (agrees))

    with the best l. **It holds under any noise**: noise may depend on the example, and people, a model that labels and
    the model that is judged may share errors. Then labels only help less. It rests on this alone: verified labels are
    right, and their examples were drawn at random from all, each with the probability `inclusion`. Examples that were
    picked (the worst, the first, one class) make it wrong by any amount; what shows it, an order by confidence or one
    class, is refused.

    Intervals of fractions add those of Jeffreys of the cells in squares, and hold about 95% from some twenty verified
    examples on, whether nearly all are right or few; normal ones hold less where few are wrong. Predictions must not be
    of a model that was trained on these labels, or that the verified ones have chosen.

    Args:
        predictions: probabilities of held-out examples, `(N, K)`, each row of sum 1; or predicted classes, `(N,)`.
        labels: their noisy labels as they were before anybody verified any: integers or names, `(N,)`; votes of
            several people, rules or models, `(N, M)`, integers, -1 for none, or names, or `label_noise.Votes`; or
            counts or distributions over the classes, floats `(N, K)`.
        verified_labels: labels that somebody has verified, a dict from the indices of examples to labels; indices are
            those of `labels`, if it is a pandas Series.
        inclusion: probability of each example to be drawn, a dict from the same indices or an array `(N,)`; None
            for equal ones. They count up to a factor.
        class_names: labels of the K classes in the order of the probabilities; None for integers, or for names without
            probabilities, which are sorted.
        bins: number of bins of the calibration curve, of equal width.
    Returns:
        `VerifiedPerformance`; print it.
    Raises:
        ValueError: for other shapes or values, no verified label, a probability of 0, or examples that cannot have been
            drawn at random (less than one in 100,000).
    Source: Angelopoulos et al. 2023, "Prediction-powered inference" (arXiv 2301.09633); Angelopoulos, Duchi and Zrnic
        2023, "PPI++" (2311.01453), eq. 7 for l. Cells and intervals: `truth/cells.py`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> true = rng.integers(3, size=5000)
        >>> predicted = np.where(rng.random(5000) < 0.8, true, 0)
        >>> by_llm = np.where(rng.random(5000) < 0.9, true, 0)  # errs as the model does
        >>> some = rng.choice(5000, 200, replace=False)
        >>> found = verified_performance(predicted, by_llm, dict(zip(some, true[some])))
        >>> print(found.accuracy, found.noisy_accuracy, np.mean(predicted == true).round(3))
        0.859 (0.826 to 0.890) 0.8208 0.865
    """
    data = VerifiedData(predictions, labels, verified_labels, inclusion, class_names)
    sample = data.sample
    right, weights = (data.true == data.predicted[sample.rows]).astype(float), sample.weights
    accuracy = fraction(right, weights, cells_of(data.proxies(), sample.rows, weights), sample.rows)
    label_right = (data.true == data.label[sample.rows]).astype(float)
    of_label = [data.agrees, data.rate_of(data.label)] if data.of_label is None else [data.of_label, data.agrees]
    tables = ClassTables(len(data.classes), (data.predicted, data.label), data.true, data.sample)
    notes = [("rests on", f"{_drawn(sample)}; verified labels are right")]
    notes += [("warning", each) for each in (data.check_random(), *data.mistakes()) if each]
    return VerifiedPerformance(
        accuracy=accuracy,
        noisy_accuracy=float(data.agrees.mean()),
        alone=_alone(right, sample),
        label_accuracy=fraction(label_right, weights, cells_of(of_label, sample.rows, weights), sample.rows),
        recall=tables.recall(),
        precision=tables.precision(),
        joint=tables.joint() if len(data.classes) <= MOST_CLASSES else None,
        **_calibration(data, accuracy, right, check_integer("bins", bins, 1)),
        classes=data.classes,
        index=sample.rows,
        notes=tuple(notes),
    )


def _drawn(sample: Sample) -> str:
    """How the sample was drawn, in words."""
    number = f"{len(sample.rows)} verified examples that were drawn at random"
    return number if sample.is_uniform else f"{number}, with unequal probabilities, as good as {sample.effective:.0f}"


def _alone(right: np.ndarray, sample: Sample) -> Estimate:
    """The accuracy by the verified examples alone."""
    return fraction(right, sample.weights, np.zeros(len(right), int), np.arange(len(right)))


def _calibration(data: VerifiedData, accuracy: Estimate, right: np.ndarray, bins: int) -> dict[str, Any]:
    """Overconfidence, likelihood, and the curve with its edges, counts and confidences; None without probabilities."""
    names = "overconfidence", "nll", "edges", "count", "confidence", "curve"
    if data.p is None:
        return dict.fromkeys(names)
    sample, sure = data.sample, data.p.max(axis=1)
    mean = float(sure.mean())
    loss = -np.log(np.maximum(data.p, SMALL))
    own = mean_estimate(
        loss[sample.rows, data.true], loss[np.arange(len(loss)), data.label][:, None], sample, least=0.0
    )
    edges = np.arange(bins + 1) / bins
    place = np.clip(np.searchsorted(edges, sure, "right") - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(place, sure, bins) / count
    of_cells = counted(right, sample.weights, 2 * place + (data.agrees > 0.5), sample.rows, 2 * bins)
    in_bin = of_cells._replace(share=of_cells.share * len(place) / np.repeat(np.maximum(count, 1), 2))
    curve = _by_bin(part(in_bin), count, of_cells.size)
    over = estimate(mean - accuracy.value, mean - accuracy.high, mean - accuracy.low, least=-1.0)
    return dict(zip(names, (over, own, edges, count, confidence, curve), strict=True))


def _by_bin(parts: Part, count: np.ndarray, size: np.ndarray) -> Estimate:
    """Sums of two cells each, with their intervals; nan where nothing was verified, all if empty.

    Args:
        parts: parts of the cells, `(2 B,)`.
        count: examples of each bin, `(B,)`.
        size: sums of the weights of verified examples, `(2 B,)`.
    """
    found = Part(*(each.reshape(-1, 2) for each in parts)).summed(1).estimate(np.maximum(count, 1))
    seen, empty = size.reshape(-1, 2).sum(axis=1) > 0, np.where(count == 0, np.nan, 0.0)
    ends = found.low * seen + empty, np.where(seen, found.high, 1.0) + empty
    return Estimate(np.where(seen, found.value, np.nan), *ends)
