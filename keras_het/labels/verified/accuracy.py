"""Clean accuracy from a few verified examples, under any label noise."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import beta

from keras_het.base.batches import argmax_rows, as_array, read_index
from keras_het.base.refusal import refuse_if
from keras_het.base.tables import TitledLines, number_of
from keras_het.base.validation import check_class_names, check_labels
from keras_het.labels.classes import encode, is_index_unambiguous, joined_names
from keras_het.labels.estimation import check_distributions
from keras_het.labels.verified.draws import Sample, check_random, encode_verified, read_sample

Z_95 = 1.959964  # standard deviations that hold 95% of a normal distribution


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Estimate with a 95% interval.

    Attributes:
        value: estimate.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


def jeffreys(fraction: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends of Jeffreys' 95% interval of fractions of `count` examples.

    The ends are quantiles of Beta(n a + 1/2, n (1 - a) + 1/2), but 0 for a = 0, 1 for a = 1, and 0 and 1 for n = 0.

    Source: Brown, Cai and DasGupta 2001, "Interval estimation for a binomial proportion", section 4.1.
    """
    low, high = beta.interval(0.95, count * fraction + 0.5, count * (1.0 - fraction) + 0.5)
    low = np.where((fraction <= 0) | (count == 0), 0.0, np.minimum(low, fraction))
    return low, np.where((fraction >= 1) | (count == 0), 1.0, np.maximum(high, fraction))


def stratified(hits: np.ndarray, strata: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> Estimate:
    """Returns the fraction sum_h W_h a_h of hits among N examples, with its interval.

    The squared distances to the ends of the strata's Jeffreys intervals add up. The effective sample size of weighted
    examples is (sum w)^2 / sum w^2. The interval includes the variance between strata, and the range from 0 to W_h of a
    stratum without verified examples.

    Args:
        hits: booleans of the verified examples, `(n,)`.
        strata: stratum of each example, `(N,)`.
        rows: row numbers of the verified examples, `(n,)`.
        weights: weights of the verified examples, `(n,)`.
    Source: Zou and Donner 2008, "Construction of confidence limits about effect measures", eq. 2.
    """
    fractions: Any = np.bincount(strata) / len(strata)
    sums = (np.bincount(strata[rows], x, len(fractions)) for x in (weights * hits, weights, weights**2))
    hit_weights, sizes, squares = sums
    has_sample = sizes > 0
    a = np.where(has_sample, hit_weights / np.where(has_sample, sizes, 1.0), hit_weights.sum() / sizes.sum())
    low, high = jeffreys(a, np.where(has_sample, np.square(sizes) / np.where(has_sample, squares, 1.0), 0.0))
    value, sampled, unsampled = fractions @ a, fractions * has_sample, fractions * ~has_sample
    between = Z_95**2 * max(fractions @ np.square(a) - value**2, 0.0) / len(strata)
    below, above = (np.sqrt(np.square(sampled * x).sum() + between) for x in (a - low, high - a))
    ends = value - below - unsampled @ a, value + above + unsampled @ (1.0 - a)
    return Estimate(float(value), *np.clip(ends, 0.0, 1.0).tolist())


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
        classes: names of the K classes, `(K,)`.
        index: row numbers of the verified examples, `(n,)`.
        notes: (title, text) of the assumptions, and of a warning if the sample hardly looks random.
    """

    accuracy: Estimate
    noisy_accuracy: float
    verified_only: Estimate
    label_accuracy: Estimate
    classes: np.ndarray
    index: np.ndarray
    notes: tuple[tuple[str, str], ...]

    @property
    def equivalent_labels(self) -> float:
        """Number of verified labels that alone would give as short an interval."""
        width, verified_width = (one.high - one.low for one in (self.accuracy, self.verified_only))
        return float(len(self.index) * (verified_width / width) ** 2)

    def lines(self) -> list[tuple[str, str]]:
        """Returns (title, text) of the estimates, the assumptions and the warning."""
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
    Selections by confidence or class are refused. With 25 verified examples or more, the intervals hold in about
    95% of samples. Do not use a model that was trained on these labels or chosen by the verified labels.

    It is the estimate of prediction-powered inference with optimal power tuning, and of two-phase sampling.

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
    Source: Angelopoulos et al. 2023, "Prediction-powered inference" (arXiv 2301.09633); Angelopoulos, Duchi and Zrnic
        2023, "PPI++" (arXiv 2311.01453), eq. 7; Neyman 1938.

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
    verified_labels, sample = read_sample(verified_labels, draw_order, inclusion, len(predicted), index)
    numbers = [np.arange(len(classes))] if is_index_unambiguous(classes) else []
    true = encode_verified(verified_labels, classes, *numbers)
    agrees = observed == predicted
    scores = {"agreement of label and prediction": agrees.astype(float)}
    if p is not None:
        scores |= {"confidence": p.max(axis=1), "probability of the label": p[np.arange(len(p)), observed]}
    warning = check_random(sample, scores, {"label": observed, "prediction": predicted})
    no_gap = "; no drawn example is left out (pass `draw_order` to check this)" * (draw_order is None)
    notes = [("assumes", f"{sample}; verified labels are correct{no_gap}"), ("warning", warning)]
    is_correct, strata = true == predicted[sample.rows], _strata(agrees, sample)
    fraction = functools.partial(stratified, rows=sample.rows, weights=sample.weights)
    return VerifiedAccuracy(
        accuracy=fraction(is_correct, strata),
        noisy_accuracy=float(agrees.mean()),
        verified_only=fraction(is_correct, _strata(np.zeros(len(predicted)), sample)),
        label_accuracy=fraction(true == observed[sample.rows], strata),
        classes=classes,
        index=sample.rows,
        notes=tuple(notes if warning else notes[:1]),
    )


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
        class_names = encode(labels, name="labels", defines_classes=True).classes
    classes = np.asarray(check_class_names(class_names, len(class_names)))
    return None, _class_numbers(values, classes, "predictions"), _class_numbers(observed, classes, "labels"), classes


def _class_numbers(values: np.ndarray, classes: np.ndarray, name: str) -> np.ndarray:
    """Returns names or numbers as numbers of the classes, `(N,)`."""
    if values.dtype.kind in "iu" and is_index_unambiguous(classes):
        return check_labels(values, len(classes), name=name)
    names = joined_names(classes.tolist())
    rule = f"have at least one label, and only the classes {names}. Pass `class_names` for other classes"
    indices = {label: index for index, label in enumerate(classes.tolist())}
    unknown = [label for label in values.tolist() if label not in indices]
    refuse_if(unknown or not len(values), name, rule, repr(unknown[0]) if unknown else "no label")
    return np.array([indices[label] for label in values.tolist()])
