"""Accuracy against the true classes by a few verified examples, under any label noise.

All N examples are divided into two strata by what is known of all of them: does the label agree with the prediction?
With W_h the fraction of all examples in stratum h, and a_h the fraction of its verified examples that count,

    a = sum_h W_h a_h

is unbiased whatever the labels are, and the better the strata separate what counts, the less it varies. It is the
estimate of prediction-powered inference with the best power, and of two-phase sampling (Angelopoulos, Duchi and Zrnic
2023, "PPI++", arXiv 2311.01453, eq. 7; Neyman 1938).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import bdtr, gammaln
from scipy.stats import hypergeom

from keras_het.base.batches import argmax_rows, as_array, read_index
from keras_het.base.classes import encode, index_labels, is_index_unambiguous, joined_names, order_columns
from keras_het.base.refusal import refuse_if
from keras_het.base.tables import TitledLines
from keras_het.base.validation import check_class_names, check_labels
from keras_het.base.verified import encode_verified
from keras_het.labels.draws import Sample, check_random, read_sample, sample_of
from keras_het.labels.estimation import check_distributions, count_pairs
from keras_het.labels.intervals import Estimate, Part, jeffreys, ratio_of, stratified

MIN_CHECKED, MISMATCH = 20, 0.2  # verified examples, and further agreement in another order, for a warning
FALSE_ALARMS = 0.01  # largest rate of each warning in random samples


def _fraction(counts: np.ndarray, strata: np.ndarray, sample: Sample) -> Estimate:
    """Returns the fraction of all examples that count, by `counts` of verified ones `(n,)` and strata of all `(N,)`."""
    number, own, weights = int(strata.max()) + 1, strata[sample.rows], sample.weights
    sums = [np.bincount(own, x, number) for x in (weights * counts, weights, weights**2)]
    return stratified(np.bincount(strata, minlength=number) / len(strata), sums, len(strata)).estimate()


def _strata(proxy: np.ndarray, sample: Sample) -> np.ndarray:
    """Returns the stratum of each example: above the median of the proxy, and of the probability of being drawn."""
    strata = np.zeros(len(proxy), int)
    for values in (proxy, sample.inclusion):
        if values is not None:
            above = values > np.median(values)
            strata = 2 * strata + (above if above.any() else values > values.min())
    return np.unique(strata, return_inverse=True)[1]


@dataclasses.dataclass(frozen=True)
class VerifiedAccuracy(TitledLines):
    """Accuracy of a model, and of labels, against the true classes; it prints in plain words.

    Each `Estimate` has value, low and high, of 95%, each interval by itself.

    Attributes:
        accuracy: fraction of predictions that are the true class.
        noisy_accuracy: fraction of predictions that are the label.
        alone: the accuracy by the verified examples alone.
        label_accuracy: fraction of labels that are the true class.
        recall: fraction of the examples of each true class that are predicted so, `(K,)`; nan if none was verified.
        precision: fraction of the predictions of each class that are the true class, `(K,)`; nan if none was verified.
        classes: names of the K classes, `(K,)`.
        index: row numbers of the verified examples, `(n,)`.
        notes: (title, text) of the assumptions, and of warnings.
    """

    accuracy: Estimate
    noisy_accuracy: float
    alone: Estimate
    label_accuracy: Estimate
    recall: Estimate
    precision: Estimate
    classes: np.ndarray
    index: np.ndarray
    notes: tuple[tuple[str, str], ...]

    @property
    def worth(self) -> float:
        """Number of verified labels that alone would give so short an interval: n (width alone / width)^2."""
        width, width_alone = (each.high - each.low for each in (self.accuracy, self.alone))
        return float(len(self.index) * (width_alone / width) ** 2)

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the estimates, and of the assumptions."""
        return [
            ("accuracy, true classes", f"{self.accuracy}; by the {len(self.index)} verified alone {self.alone}"),
            ("as exact as", f"{self.worth:.0f} verified examples without the other labels"),
            ("accuracy, labels", f"{self.noisy_accuracy:.3f}"),
            ("correct labels", str(self.label_accuracy)),
            *self.notes,
        ]


def verify_accuracy(
    predictions: Any,
    labels: Any,
    verified_labels: Mapping,
    *,
    inclusion: Any = None,
    drawn: Any = None,
    class_names: Sequence | None = None,
) -> VerifiedAccuracy:
    """Returns how good a model is, by noisy labels of all examples and verified labels of a few.

        accuracy = sum_h W_h a_h,    W_h = fraction of all examples in stratum h, a_h = accuracy of its verified ones

    The two strata are the examples whose label is the prediction, and all others. **The estimate holds under any
    noise**: noise can depend on the example, and people, a model that labels and the model that is judged can share
    errors. Then the labels only help less. It rests on two assumptions: verified labels are correct, and their examples
    were drawn at random from all, each with the probability `inclusion`. Examples that were selected (the worst, the
    first, one class) make it wrong by any amount. Selections by confidence or by class are refused.

    To learn which fraction of outputs is right by a judge's verdicts, predict "right" for every output: the labels are
    the verdicts, "right" or "wrong", and the verified labels are people's.

    The intervals hold in about 95% from twenty verified examples on. Use predictions of a model that was neither
    trained on these labels nor chosen by the verified ones.

    Args:
        predictions: probabilities out of sample, `(N, K)`, each row of sum 1; or predicted classes, `(N,)`.
        labels: noisy labels as they were before anybody verified any, integers or names, `(N,)`. For several labels
            of an example, give the majority.
        verified_labels: verified labels, a dict from row numbers, or names of a pandas index, to classes. An integer is
            the number of a class, unless names of classes are numbers.
        inclusion: probability of each example to be drawn, up to a factor, `(N,)`; None for equal ones.
        drawn: argument of `errors_left`: only its first examples that are verified count. None for all verified ones.
        class_names: names of the K classes in the order of the probabilities; None for integers, for the columns of a
            frame, which are matched by name, or for names without probabilities.
    Returns:
        `VerifiedAccuracy`; print it.
    Raises:
        ValueError: for other shapes or values, no verified label, a probability of 0, a gap in `drawn`, or examples
            that cannot have been drawn at random (p below 0.00001).
    Source: Angelopoulos et al. 2023, "Prediction-powered inference" (arXiv 2301.09633); Angelopoulos, Duchi and Zrnic
        2023, "PPI++" (arXiv 2311.01453), eq. 7.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> true = rng.integers(3, size=5000)
        >>> predicted = np.where(rng.random(5000) < 0.8, true, 0)
        >>> by_llm = np.where(rng.random(5000) < 0.9, true, 0)  # errs as the model does
        >>> rows = rng.choice(5000, 200, replace=False)
        >>> found = verify_accuracy(predicted, by_llm, dict(zip(rows, true[rows])))
        >>> print(found.accuracy, found.noisy_accuracy, np.mean(predicted == true).round(3))
        0.859 (0.830 to 0.890) 0.8208 0.865
    """
    index = read_index(predictions=predictions, labels=labels)
    p, predicted, given, classes = _read(predictions, labels, class_names)
    verified_labels = sample_of(verified_labels, drawn, len(predicted), index)
    sample = read_sample(verified_labels, len(predicted), inclusion, index)
    numbers = [np.arange(len(classes))] if is_index_unambiguous(classes) else []
    true = encode_verified(verified_labels, classes, *numbers)
    agrees = given == predicted
    scores = {"whether the label is the prediction": agrees.astype(float)}
    if p is not None:
        own = p[np.arange(len(p)), given]
        scores |= {"their confidence": p.max(axis=1), "the probability of their labels": own}
    doubt = check_random(sample, scores, {"the label": given, "the prediction": predicted})
    warnings = [doubt, *_mistakes(predicted, given, sample.rows, true, len(classes))]
    assumptions = [str(sample), "verified labels are correct"]
    assumptions += ["none of the draw is left out (`drawn` checks that)"] if drawn is None else []
    right, strata = true == predicted[sample.rows], _strata(agrees, sample)
    recall, precision = _by_class(predicted, given, true, sample, len(classes))
    return VerifiedAccuracy(
        accuracy=_fraction(right, strata, sample),
        noisy_accuracy=float(agrees.mean()),
        alone=_fraction(right, _strata(np.zeros(len(predicted)), sample), sample),
        label_accuracy=_fraction(true == given[sample.rows], strata, sample),
        recall=recall,
        precision=precision,
        classes=classes,
        index=sample.rows,
        notes=(("rests on", "; ".join(assumptions)), *(("warning", x) for x in warnings if x)),
    )


def _by_class(predicted: np.ndarray, given: np.ndarray, true: np.ndarray, sample: Sample, size: int) -> list[Estimate]:
    """Returns recall and precision of each class, by strata: whether the label is the class, times `_strata`."""
    classes, count, weights = np.arange(size), len(predicted), sample.weights[:, None]
    halves = _strata(np.zeros(count), sample)
    shape = int(halves.max()) + 1, size, size
    pairs = np.bincount((halves * size + predicted) * size + given, minlength=np.prod(shape)).reshape(shape)
    predictions, same = pairs.sum(axis=2), pairs.diagonal(axis1=1, axis2=2)
    others = pairs.sum(axis=1) - same
    is_predicted, is_label = (x[sample.rows][:, None] == classes for x in (predicted, given))
    is_true, is_half = true[:, None] == classes, halves[sample.rows][:, None, None] == np.arange(shape[0])

    def part(inside: np.ndarray, counts: tuple[np.ndarray, np.ndarray], total: Any) -> Part:
        strata = np.concatenate([(inside & is_own)[..., None] & is_half for is_own in (is_label, ~is_label)], axis=-1)
        sums = [(x[..., None] * strata).sum(axis=0) for x in (weights * is_true, weights, weights**2)]
        return stratified(np.concatenate(counts).T / np.reshape(total, (-1, 1)), sums, np.ravel(total))

    outside = others, pairs.sum(axis=(1, 2))[:, None] - predictions - others
    inside, total = (same, predictions - same), predictions.sum(axis=0)
    precision = part(is_predicted, inside, np.maximum(total, 1)).estimate()
    over, under = part(is_predicted, inside, count), part(~is_predicted, outside, count)
    unseen = np.where(total == 0, jeffreys(np.zeros(1), np.array([float(count)]))[1], 0.0)  # among these N
    recall = ratio_of(over._replace(above=np.hypot(over.above, unseen)), under)
    return [_if_known(recall, is_true.any(axis=0)), _if_known(precision, is_predicted.any(axis=0))]


def _if_known(found: Estimate, is_known: np.ndarray) -> Estimate:
    """Returns estimates that are nan, from 0 to 1, for classes of which nothing was verified."""
    return Estimate(np.where(is_known, found.value, np.nan), found.low * is_known, np.where(is_known, found.high, 1.0))


def _read(predictions: Any, labels: Any, class_names: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Returns probabilities or None, predicted classes and labels as integers `(N,)`, and the names of the classes."""
    observed, given = as_array("labels", labels), as_array("predictions", predictions)
    refuse_if(given.ndim not in (1, 2), "predictions", "have shape (N,) or (N, K)", shape=given)
    rule = f"have a label for each of the {len(given)} predictions"
    refuse_if(observed.shape != (len(given),), "labels", rule, shape=observed)
    if given.ndim == 2:
        names = getattr(predictions, "columns", None) if class_names is None else class_names
        classes = np.asarray(check_class_names(names, given.shape[1]))
        p = check_distributions(
            as_array("predictions", order_columns(classes, predictions, "predictions")), "predictions"
        )
        return p, argmax_rows(p), _numbers_of(observed, classes, "labels"), classes
    rule = "be classes (N,), or probabilities (N, K): np.stack([1 - p, p], axis=1) for p of the second of two classes"
    is_fraction = given.dtype.kind == "f" and np.any(given != np.floor(given))
    refuse_if(is_fraction, "predictions", rule, "fractions of shape (N,)")
    classes = (
        encode(labels, name="labels", defines_classes=True).classes if class_names is None else np.asarray(class_names)
    )
    return None, _numbers_of(given, classes, "predictions"), _numbers_of(observed, classes, "labels"), classes


def _numbers_of(given: np.ndarray, classes: np.ndarray, name: str) -> np.ndarray:
    """Returns names or numbers as numbers of the classes, `(N,)`."""
    if given.dtype.kind in "iu" and is_index_unambiguous(classes):
        return check_labels(given, len(classes), name=name)
    return index_labels(
        given, classes, name, f"only the classes {joined_names(classes.tolist())}; give `class_names` for others"
    )


def _mistakes(predicted: np.ndarray, given: np.ndarray, rows: np.ndarray, true: np.ndarray, size: int) -> Iterator[str]:
    """Yields warnings of arguments that do not seem to belong together.

    In a random sample each has a probability of at most `FALSE_ALARMS`: the first if no order of the classes agrees
    more often than theirs; the second if labels or predictions are right in a fifth of what chance leaves wrong; the
    third always.
    """
    table, count = count_pairs(predicted, given, size), len(given)
    order = linear_sum_assignment(-table)[1]
    agrees, other = predicted == given, order[predicted] == given
    gain, differ = other.sum() - agrees.sum(), np.sum(other != agrees)
    is_far = gain > MISMATCH * count and np.ptp(predicted) > 0  # predictions of one class show no order
    if is_far and gain**2 > 2 * differ * (gammaln(size + 1) - np.log(FALSE_ALARMS)):  # Hoeffding
        now = f"predictions agree with {agrees.mean():.0%} of the labels"
        yield f"{now}, in another order of classes with {other.mean():.0%}: are they in the order of `class_names`?"
    if len(true) < MIN_CHECKED:
        return
    if max(_p_of_chance(x[rows], true, size) for x in (given, predicted)) < FALSE_ALARMS:
        yield "verified labels are the labels no more often than by chance: do the rows belong to these labels?"
    more = hypergeom.sf(agrees[rows].sum() - 1, count, agrees.sum(), len(rows))
    if np.all(given[rows] == true) and more < FALSE_ALARMS:
        yield "every verified label is the label: if they were put into `labels`, give those as they were before."


def _p_of_chance(own: np.ndarray, true: np.ndarray, size: int) -> float:
    """Returns P(so few agree) if a fifth of what chance leaves wrong is right."""
    chance = np.bincount(own, minlength=size) @ np.bincount(true, minlength=size) / len(own) ** 2
    return float(bdtr(np.sum(own == true), len(own), chance + MISMATCH * (1.0 - chance)))
