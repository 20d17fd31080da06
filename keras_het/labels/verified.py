"""Clean accuracy from a few verified examples, under any label noise.

Two strata hold all N examples: those whose label equals the prediction, and those whose label differs. With W_h the
fraction of all examples in stratum h, and a_h the fraction of hits among its verified examples,

    a = sum_h W_h a_h

is unbiased for any labels. It varies less if the strata separate hits from misses. It is the estimate of
prediction-powered inference with optimal power tuning, and of two-phase sampling (Angelopoulos, Duchi and Zrnic 2023,
"PPI++", arXiv 2311.01453, eq. 7; Neyman 1938).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import bdtr
from scipy.stats import hypergeom

from keras_het.base.batches import argmax_rows, as_array, read_index
from keras_het.base.refusal import refuse_if
from keras_het.base.tables import TitledLines, number_of
from keras_het.base.validation import check_class_names, check_labels
from keras_het.labels.classes import encode, index_labels, is_index_unambiguous, joined_names
from keras_het.labels.draws import Sample, check_random, read_sample, select_sample
from keras_het.labels.estimation import MAX_FALSE_ALARMS, MIN_EXTRA_AGREEMENT, check_distributions, describe_order
from keras_het.labels.intervals import Estimate, Part, jeffreys, ratio, stratified
from keras_het.labels.verified_labels import encode_verified

MIN_VERIFIED = 20  # below it, a warning of mixed-up arguments could be chance


def _fraction(hits: np.ndarray, strata: np.ndarray, sample: Sample) -> Estimate:
    """Returns the fraction of hits in all examples, from verified `hits`, `(n,)`, and the strata of all, `(N,)`."""
    number, sample_strata, weights = int(strata.max()) + 1, strata[sample.rows], sample.weights
    sums = [np.bincount(sample_strata, x, number) for x in (weights * hits, weights, weights**2)]
    return stratified(np.bincount(strata, minlength=number) / len(strata), sums, len(strata)).estimate()


def _strata(proxy: np.ndarray, sample: Sample) -> np.ndarray:
    """Returns strata of all examples, `(N,)`, split at the median of the proxy and of the inclusion probability."""
    strata = np.zeros(len(proxy), int)
    for values in (proxy, sample.inclusion):
        if values is not None:
            above = values > np.median(values)
            strata = 2 * strata + (above if above.any() else values > values.min())
    return np.unique(strata, return_inverse=True)[1]


@dataclasses.dataclass(frozen=True)
class VerifiedAccuracy(TitledLines):
    """Clean accuracy of a model and of labels. Each `Estimate` has a 95% interval.

    Attributes:
        accuracy: fraction of predictions that are the true class.
        noisy_accuracy: fraction of predictions that are the label.
        verified_only: accuracy from the verified examples only.
        label_accuracy: fraction of labels that are the true class.
        recall: fraction of the examples of each class that are predicted as it, `(K,)`; nan if none was verified.
        precision: fraction of the predictions of each class that are correct, `(K,)`; nan if none was verified.
        classes: names of the K classes, `(K,)`.
        index: row numbers of the verified examples, `(n,)`.
        notes: (title, text) of the assumptions and the warnings.
    """

    accuracy: Estimate
    noisy_accuracy: float
    verified_only: Estimate
    label_accuracy: Estimate
    recall: Estimate
    precision: Estimate
    classes: np.ndarray
    index: np.ndarray
    notes: tuple[tuple[str, str], ...]

    @property
    def equivalent_labels(self) -> float:
        """Number of verified labels that alone would give as short an interval."""
        width, verified_width = (one.high - one.low for one in (self.accuracy, self.verified_only))
        return float(len(self.index) * (verified_width / width) ** 2)

    def lines(self) -> list[tuple[str, str]]:
        """Returns (title, text) of the estimates, the assumptions and the warnings."""
        verified_only = f"from the {number_of(len(self.index), 'verified label')} only {self.verified_only}"
        return [
            ("clean accuracy", f"{self.accuracy}, 95% interval; {verified_only}"),
            ("equivalent to", f"{number_of(round(self.equivalent_labels), 'verified label')} alone"),
            ("noisy accuracy", f"{self.noisy_accuracy:.3f}, the agreement with the labels"),
            ("label accuracy", f"{self.label_accuracy}"),
            *self.notes,
        ]


def verify_accuracy(
    predictions: Any,
    labels: Any,
    verified_labels: Mapping,
    *,
    inclusion: Any = None,
    draw_order: Any = None,
    class_names: Sequence | None = None,
) -> VerifiedAccuracy:
    """Estimates the clean accuracy of a model from noisy labels of all examples and verified labels of a few.

        accuracy = sum_h W_h a_h,    W_h = fraction of all examples in stratum h, a_h = its verified accuracy

    The two strata are the examples whose label equals the prediction, and all others. **The estimate holds under any
    noise.** Noise can depend on the example, and annotators and the model can share errors. Then the interval is wider.
    The estimate assumes that verified labels are correct, and that you drew their examples at random, each with the
    probability `inclusion`. If you selected them (the worst, the first, one class), it can be wrong by any amount.
    Selections by confidence or class are refused.

    To estimate the fraction of correct outputs from a judge's verdicts, predict "right" for every output. The labels
    are the verdicts, "right" or "wrong", and people verify some of them.

    With twenty verified examples or more, the intervals hold in about 95% of samples. Do not use a model that was
    trained on these labels or chosen by the verified labels.

    Args:
        predictions: out-of-sample probabilities, `(N, K)`, each row of sum 1; or predicted classes, `(N,)`.
        labels: noisy labels before any correction, integers or names, `(N,)`. For several labels of an example, use the
            majority.
        verified_labels: dict from row numbers, or names of a pandas index, to classes. An integer is the number of a
            class, unless classes have integers as names.
        inclusion: probability of each example to be drawn, up to a factor, `(N,)`; None if all are equal.
        draw_order: argument of `errors_left`; only the verified examples at its start count. None uses all verified
            examples.
        class_names: names of the K classes in the order of the probabilities; None for integers, for the columns of a
            frame, which are matched by name, or for names without probabilities.
    Returns:
        `VerifiedAccuracy`; print it.
    Raises:
        ValueError: for other shapes or values, no verified label, a probability of 0, a gap in `draw_order`, or
            examples that cannot be a random sample (p below 0.00001).
    Source: Angelopoulos et al. 2023, "Prediction-powered inference" (arXiv 2301.09633); Angelopoulos, Duchi and Zrnic
        2023, "PPI++" (arXiv 2311.01453), eq. 7.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> true = rng.integers(3, size=5000)
        >>> predicted = np.where(rng.random(5000) < 0.8, true, 0)
        >>> llm_labels = np.where(rng.random(5000) < 0.9, true, 0)  # with errors like the model's
        >>> rows = rng.choice(5000, 200, replace=False)
        >>> result = verify_accuracy(predicted, llm_labels, dict(zip(rows, true[rows])))
        >>> print(result.accuracy, result.noisy_accuracy, np.mean(predicted == true).round(3))
        0.859 (0.830 to 0.890) 0.8208 0.865
    """
    index = read_index(predictions=predictions, labels=labels)
    p, predicted, observed, classes = _read(predictions, labels, class_names)
    verified_labels = select_sample(verified_labels, draw_order, len(predicted), index)
    sample = read_sample(verified_labels, len(predicted), inclusion, index)
    numbers = [np.arange(len(classes))] if is_index_unambiguous(classes) else []
    true = encode_verified(verified_labels, classes, *numbers)
    agrees = observed == predicted
    scores = {"agreement of label and prediction": agrees.astype(float)}
    if p is not None:
        scores |= {"confidence": p.max(axis=1), "probability of the label": p[np.arange(len(p)), observed]}
    warning = check_random(sample, scores, {"label": observed, "prediction": predicted})
    warnings = [warning, *_argument_warnings(predicted, observed, sample.rows, true, len(classes))]
    assumptions = [str(sample), "verified labels are correct"]
    assumptions += ["no drawn example is left out (pass `draw_order` to check this)"] if draw_order is None else []
    is_correct, strata = true == predicted[sample.rows], _strata(agrees, sample)
    recall, precision = _recall_and_precision(predicted, observed, true, sample, len(classes))
    return VerifiedAccuracy(
        accuracy=_fraction(is_correct, strata, sample),
        noisy_accuracy=float(agrees.mean()),
        verified_only=_fraction(is_correct, _strata(np.zeros(len(predicted)), sample), sample),
        label_accuracy=_fraction(true == observed[sample.rows], strata, sample),
        recall=recall,
        precision=precision,
        classes=classes,
        index=sample.rows,
        notes=(("assumes", "; ".join(assumptions)), *(("warning", x) for x in warnings if x)),
    )


def _recall_and_precision(
    predicted: np.ndarray, observed: np.ndarray, true: np.ndarray, sample: Sample, size: int
) -> list[Estimate]:
    """Returns recall and precision of each class; strata depend on whether the label is the class, and on inclusion."""
    classes, count, weights = np.arange(size), len(predicted), sample.weights[:, None]
    halves = _strata(np.zeros(count), sample)
    shape = int(halves.max()) + 1, size, size
    pairs = np.bincount((halves * size + predicted) * size + observed, minlength=np.prod(shape)).reshape(shape)
    predictions, same = pairs.sum(axis=2), pairs.diagonal(axis1=1, axis2=2)
    others = pairs.sum(axis=1) - same
    is_predicted, is_label = (x[sample.rows][:, None] == classes for x in (predicted, observed))
    is_true, is_half = true[:, None] == classes, halves[sample.rows][:, None, None] == np.arange(shape[0])

    def part(inside: np.ndarray, counts: tuple[np.ndarray, np.ndarray], total: Any) -> Part:
        strata = np.concatenate([(inside & mask)[..., None] & is_half for mask in (is_label, ~is_label)], axis=-1)
        sums = [(x[..., None] * strata).sum(axis=0) for x in (weights * is_true, weights, weights**2)]
        return stratified(np.concatenate(counts).T / np.reshape(total, (-1, 1)), sums, np.ravel(total))

    outside = others, pairs.sum(axis=(1, 2))[:, None] - predictions - others
    inside, total = (same, predictions - same), predictions.sum(axis=0)
    precision = part(is_predicted, inside, np.maximum(total, 1)).estimate()
    hits, misses = part(is_predicted, inside, count), part(~is_predicted, outside, count)
    unseen = np.where(total == 0, jeffreys(np.zeros(1), np.array([float(count)]))[1], 0.0)  # for no prediction of N
    recall = ratio(hits._replace(above=np.hypot(hits.above, unseen)), misses)
    return [_mask(recall, is_true.any(axis=0)), _mask(precision, is_predicted.any(axis=0))]


def _mask(estimate: Estimate, is_known: np.ndarray) -> Estimate:
    """Returns estimates that are nan, from 0 to 1, for classes without a verified example."""
    value, high = np.where(is_known, estimate.value, np.nan), np.where(is_known, estimate.high, 1.0)
    return Estimate(value, estimate.low * is_known, high)


def _read(predictions: Any, labels: Any, class_names: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Returns probabilities or None, predicted classes and labels as integers `(N,)`, and the names of the classes."""
    observed, values = as_array("labels", labels), as_array("predictions", predictions)
    refuse_if(values.ndim not in (1, 2), "predictions", "have shape (N,) or (N, K)", shape=values)
    rule = f"have a label for each of the {len(values)} predictions"
    refuse_if(observed.shape != (len(values),), "labels", rule, shape=observed)
    if values.ndim == 2:
        names = getattr(predictions, "columns", None) if class_names is None else class_names
        classes = np.asarray(check_class_names(names, values.shape[1]))
        p = check_distributions(predictions, "predictions", classes=classes)
        return p, argmax_rows(p), _class_numbers(observed, classes, "labels"), classes
    rule = "be classes (N,) or probabilities (N, K). For p of the second of two classes, use np.stack([1 - p, p], 1)"
    is_fraction = values.dtype.kind == "f" and np.any(values != np.floor(values))
    refuse_if(is_fraction, "predictions", rule, "fractions of shape (N,)")
    if class_names is None:
        classes = encode(labels, name="labels", defines_classes=True).classes
    else:
        classes = np.asarray(check_class_names(class_names, len(class_names)))
    return None, _class_numbers(values, classes, "predictions"), _class_numbers(observed, classes, "labels"), classes


def _class_numbers(values: np.ndarray, classes: np.ndarray, name: str) -> np.ndarray:
    """Returns names or numbers as numbers of the classes, `(N,)`."""
    if values.dtype.kind in "iu" and is_index_unambiguous(classes):
        return check_labels(values, len(classes), name=name)
    rule = f"only the classes {joined_names(classes.tolist())}. Pass `class_names` for other classes"
    return index_labels(values, classes, name, rule)


def _argument_warnings(
    predicted: np.ndarray, observed: np.ndarray, rows: np.ndarray, true: np.ndarray, size: int
) -> Iterator[str]:
    """Yields warnings of arguments that do not seem to belong together.

    Each warning has a probability of at most `MAX_FALSE_ALARMS` in a random sample. The third needs labels and
    predictions that are correct in a fifth of the cases that chance leaves wrong.
    """
    if text := describe_order(predicted, observed, size):
        yield f"predictions {text}. Check that predictions follow the order of `class_names`."
    if text := describe_order(observed[rows], true, size):
        yield f"verified labels {text}. Check that numbers and `class_names` follow one order."
    if len(true) < MIN_VERIFIED:
        return
    if max(_chance_p_value(x[rows], true, size) for x in (observed, predicted)) < MAX_FALSE_ALARMS:
        yield "verified labels agree with the labels only by chance. Check that their rows belong to these labels."
    agrees = predicted == observed
    p_value = hypergeom.sf(agrees[rows].sum() - 1, len(agrees), agrees.sum(), len(rows))
    if np.all(observed[rows] == true) and p_value < MAX_FALSE_ALARMS:
        yield "every verified label equals its label. If you have corrected `labels`, pass the original labels."


def _chance_p_value(values: np.ndarray, true: np.ndarray, size: int) -> float:
    """Returns P(so few agree) if a fifth of the cases that chance leaves wrong is correct."""
    chance = np.bincount(values, minlength=size) @ np.bincount(true, minlength=size) / len(values) ** 2
    return float(bdtr(np.sum(values == true), len(values), chance + MIN_EXTRA_AGREEMENT * (1.0 - chance)))
