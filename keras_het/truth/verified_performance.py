"""How good a model is against the true classes, by noisy labels of all and verified ones of a few: under any noise."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_het.base.batches import as_numpy, check_same_index
from keras_het.base.classes import encode_among, is_missing
from keras_het.base.refusal import refuse_if
from keras_het.base.tables import Titled
from keras_het.base.validation import check_class_names, check_integer
from keras_het.label_noise.estimation import check_distributions
from keras_het.label_noise.label_shares import label_shares
from keras_het.truth.cells import Counted, Part, cells_of, fraction, part
from keras_het.truth.class_tables import ClassTables
from keras_het.truth.intervals import Estimate, estimate
from keras_het.truth.verified_mean import mean_estimate
from keras_het.truth.verified_sample import Sample, check_random, read_sample

SMALL = float(np.finfo("float32").tiny)  # least probability in a logarithm, as in the metric
OTHER_ROAD = (
    "`true_performance` needs T, and noise that depends on the true class alone. This holds under any noise, if "
    "verified labels are right and were drawn at random."
)


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
        precision: fraction of the predictions of each class that are the true class, `(K,)`.
        joint: fraction of the examples with true class i and prediction j, `(K, K)`.
        overconfidence: mean confidence less the accuracy; None without probabilities.
        nll: mean of -log p(true class), no probability below the smallest float32; None without probabilities.
        edges: edges of the bins of the calibration curve, `(B + 1,)`, from 0 to 1; None without probabilities.
        count: examples in each bin, `(B,)`; None without.
        confidence: their mean confidence, `(B,)`, nan in an empty bin; None without.
        curve: fraction of the predictions of each bin that is the true class, `(B,)`; None without.
        classes: labels of the K classes, `(K,)`.
        verified: number of verified examples.
        notes: (title, text) of what the result rests on.
    """

    accuracy: Estimate
    noisy_accuracy: float
    alone: Estimate
    label_accuracy: Estimate
    recall: Estimate
    precision: Estimate
    joint: Estimate
    overconfidence: Estimate | None
    nll: Estimate | None
    edges: np.ndarray | None
    count: np.ndarray | None
    confidence: np.ndarray | None
    curve: Estimate | None
    classes: np.ndarray
    verified: int
    notes: tuple[tuple[str, str], ...]

    @property
    def worth(self) -> float:
        """Number of verified labels that alone would give so short an interval: their number times (width ratio)^2."""
        width = self.accuracy.high - self.accuracy.low
        return float(self.verified * ((self.alone.high - self.alone.low) / width) ** 2)

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the metrics and of what they rest on."""
        beside = f"by the {self.verified} verified examples alone {self.alone}"
        sure = (
            []
            if self.nll is None
            else [
                ("mean confidence above the accuracy", str(self.overconfidence)),
                ("negative log-likelihood, true classes", str(self.nll)),
            ]
        )
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

    Intervals add those of Jeffreys of the cells in squares, and hold about 95% from some twenty verified examples on,
    whether nearly all are right or few; normal ones hold far less where few are wrong. Predictions must not be of a
    model that was trained on these labels, or that the verified ones have chosen.

    Args:
        predictions: probabilities of held-out examples, `(N, K)`, each row of sum 1; or predicted classes, `(N,)`.
        labels: their noisy labels: integers or names, `(N,)`; votes of several people, rules or models, integers
            `(N, M)`, -1 for none, or `label_noise.Votes`; or counts or distributions over the classes, floats `(N, K)`.
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
    data = _Data(predictions, labels, verified_labels, inclusion, class_names)
    sample, doubt = data.sample, data.check_random()
    right, weights = (data.true == data.predicted[sample.rows]).astype(float), sample.weights
    accuracy = fraction(right, weights, cells_of(data.proxies(), sample.rows), sample.rows)
    label_right = (data.true == data.label[sample.rows]).astype(float)
    of_label = [data.agrees, data.rate_of(data.label)] if data.of_label is None else [data.of_label, data.agrees]
    tables = ClassTables(data.classes, (data.predicted, data.label), data.true, data.sample)
    notes = [("rests on", f"{len(right)} verified examples, {_drawn(sample)}"), ("without verified labels", OTHER_ROAD)]
    return VerifiedPerformance(
        accuracy=accuracy,
        noisy_accuracy=float(data.agrees.mean()),
        alone=_alone(right, sample),
        label_accuracy=fraction(label_right, weights, cells_of(of_label, sample.rows), sample.rows),
        recall=tables.recall(),
        precision=tables.precision(),
        joint=tables.joint(),
        **_calibration(data, accuracy, right, check_integer("bins", bins, 1)),
        classes=data.classes,
        verified=len(right),
        notes=tuple(notes + ([("warning", doubt)] if doubt else [])),
    )


def _drawn(sample: Sample) -> str:
    """How the sample was drawn, in words."""
    if sample.is_uniform:
        return "which must have been drawn at random, each as likely as another"
    return f"drawn with unequal probabilities, as good as {sample.effective:.0f} of equal ones"


def _alone(right: np.ndarray, sample: Sample) -> Estimate:
    """The accuracy by the verified examples alone."""
    return fraction(right, sample.weights, np.zeros(len(right), int), np.arange(len(right)))


class _Data:
    """Predictions, labels and the verified sample, checked; classes are integers.

    Attributes:
        p: probabilities, `(N, K)`; None for predicted classes.
        predicted: `(N,)`.
        label: label, or the most frequent of several, `(N,)`.
        agrees: fraction of the labels of each example that are the prediction, `(N,)`.
        of_label: probability of the label, `(N,)`; None without probabilities.
        true: verified classes, `(n,)`.
    """

    def __init__(self, predictions: Any, labels: Any, verified: Any, inclusion: Any, class_names: Any) -> None:
        check_same_index(predictions=predictions, labels=labels)
        index = getattr(labels, "index", None) if hasattr(labels, "iloc") else None
        given = np.asarray(as_numpy(predictions))
        self.p = check_distributions(predictions, "predictions") if given.ndim == 2 else None
        count = len(given)
        self.sample = read_sample(verified, count, inclusion, index)
        truths = list(verified.values())
        if self.p is not None:
            names = check_class_names(class_names, self.p.shape[1])
            self.predicted = self.p.argmax(axis=1)
        else:
            names = _names(given, labels, truths) if class_names is None else list(class_names)
            self.predicted = encode_among(given, np.asarray(names), "predictions")
        self.classes = np.asarray(names)
        self.label, self.agrees = _labels(labels, self.classes, self.predicted)
        self.of_label = None if self.p is None else self.p[np.arange(count), self.label]
        self.true = encode_among(truths, self.classes, "verified_labels")

    def rate_of(self, classes: np.ndarray) -> np.ndarray:
        """How often labels are the prediction where `classes`, `(N,)`, are the same, `(N,)`."""
        size = len(self.classes)
        rates = np.bincount(classes, self.agrees, size) / np.maximum(np.bincount(classes, minlength=size), 1)
        return rates[classes]

    def proxies(self) -> list[np.ndarray]:
        """What tells whether a prediction is right, the most telling first."""
        sure = [] if self.p is None else [self.p.max(axis=1)]
        return [self.agrees, *sure, self.rate_of(self.predicted)]

    def check_random(self) -> str:
        """See `verified_sample.check_random`."""
        scores = {"how many labels are the prediction": self.agrees}
        if self.p is not None and self.of_label is not None:
            scores |= {"their confidence": self.p.max(axis=1), "the probability of their labels": self.of_label}
        classes = {"the label": self.label, "the prediction": self.predicted}
        return check_random(self.sample, scores, classes, "verified_labels")


def _names(predictions: np.ndarray, labels: Any, truths: list) -> list:
    """The classes of predictions, labels and verified labels, sorted; integers from 0 on."""
    given = np.asarray(as_numpy(getattr(labels, "votes", labels)))
    if given.dtype.kind == "f" and given.ndim == 2:
        return list(range(given.shape[1]))
    values = [value for each in (predictions, given) for value in each.ravel().tolist()] + truths
    known = {value for value in values if not is_missing(value) and (given.ndim == 1 or value != -1)}
    if all(isinstance(value, int | np.integer) and not isinstance(value, bool) for value in known):
        refuse_if(min(known) < 0, "labels", "be integers from 0 on, or names", min(known))
        return list(range(int(max(known)) + 1))
    return sorted(known)


def _labels(labels: Any, classes: np.ndarray, predicted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The most frequent label of each example, and the fraction of its labels that are the prediction, `(N,)`."""
    size, rule = len(classes), f"have a label for each of the {len(predicted)} predictions"
    given = np.asarray(as_numpy(getattr(labels, "votes", labels)))
    refuse_if(given.ndim == 0 or len(given) != len(predicted), "labels", rule, shape=given)
    if given.ndim == 1:
        label = encode_among(given, classes, "labels")
        return label, (label == predicted).astype(float)
    shares = label_shares(given, size).shares
    return shares.argmax(axis=1), shares[np.arange(len(shares)), predicted]


def _calibration(data: _Data, accuracy: Estimate, right: np.ndarray, bins: int) -> dict[str, Any]:
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
    cells = 2 * place + (data.agrees > 0.5)
    own_cells = cells[sample.rows]
    sums = (
        np.bincount(own_cells, each, 2 * bins) for each in (sample.weights * right, sample.weights, sample.weights**2)
    )
    shares = np.bincount(cells, minlength=2 * bins) / np.repeat(np.maximum(count, 1), 2)
    curve = _by_size(part(Counted(shares, *sums)), count)
    over = estimate(mean - accuracy.value, mean - accuracy.high, mean - accuracy.low, least=-1.0)
    return dict(zip(names, (over, own, edges, count, confidence, curve), strict=True))


def _by_size(parts: Part, count: np.ndarray) -> Estimate:
    """Sums of two cells each, with their intervals; nan where there is no example."""
    found = Part(*(each.reshape(-1, 2) for each in parts)).summed(1).estimate(np.maximum(count, 1))
    empty = count == 0
    return Estimate(*(np.where(empty, np.nan, each) for each in (found.value, found.low, found.high)))
