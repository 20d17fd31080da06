"""Accuracy against the true classes, and means of verdicts, by a few verified examples: under any label noise.

All N examples are divided into two strata by what is known of all of them: does the label agree with the prediction, or
the judge's verdict? With W_h the fraction of all examples in stratum h, and a_h the fraction of its verified examples
that count,

    a = sum_h W_h a_h

is unbiased whatever the labels are, and the better the strata separate what counts, the less it varies. It is the
estimate of prediction-powered inference with the best power, and of two-phase sampling (Angelopoulos, Duchi and Zrnic
2023, "PPI++", arXiv 2311.01453, eq. 7; Neyman 1938).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import betaincinv, ndtr, stdtrit
from scipy.stats import hypergeom, rankdata

from keras_het.base.batches import as_numpy, check_same_index, largest_of_rows
from keras_het.base.classes import encode, encode_among, some
from keras_het.base.refusal import refuse_first, refuse_if
from keras_het.base.tables import Titled
from keras_het.base.validation import check_class_names, check_labels, check_numbers
from keras_het.base.verified import encode_verified, verified_places
from keras_het.labels.estimation import check_distributions

NORMAL = 1.959964  # 95% of a normal distribution lie within this number of standard deviations
TAIL = 0.025  # on each side of an interval
REFUSED_P, WARNING_P = 1e-5, 0.01  # p-values of the tests of a random sample, over all tests
MIN_NORMAL_COUNT = 30  # expected values beside the most frequent one, for a normal approximation
MIN_NUMBERS = 20  # verified numbers without a warning
MIN_PER_COEFFICIENT = 5  # verified numbers
MIN_CHECKED, MISMATCH = 20, 0.2  # verified examples, and further agreement in another order, for a warning
REMEDY = "give `inclusion`, the probability of each example to be drawn, or only those that were drawn at random"


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An estimate, or an array of estimates, with its 95% interval.

    Attributes:
        value: the estimate; nan if nothing was verified.
        low: lower end of the interval.
        high: upper end of the interval.
    """

    value: Any
    low: Any
    high: Any

    def __str__(self) -> str:
        if np.ndim(self.value):
            return "\n".join(str(Estimate(*each)) for each in zip(self.value, self.low, self.high, strict=True))
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


class Sample(NamedTuple):
    """Verified examples.

    Attributes:
        rows: row numbers among the N examples, `(n,)`.
        weights: 1 / probability of being drawn, divided by the mean, `(n,)`.
        is_uniform: boolean, whether each example was equally likely to be drawn.
        inclusion: probabilities of being drawn of all examples, `(N,)`, if they are known and unequal; or None.
    """

    rows: np.ndarray
    weights: np.ndarray
    is_uniform: bool = True
    inclusion: np.ndarray | None = None

    def __str__(self) -> str:
        text = f"{len(self.rows)} verified examples that were drawn at random"
        effective = self.weights.sum() ** 2 / np.square(self.weights).sum()  # Kish 1965
        return text if self.is_uniform else f"{text}, with unequal probabilities, as good as {effective:.0f}"


class Part(NamedTuple):
    """A fraction that is a sum over strata: value, and distances to the ends of its 95% interval."""

    value: Any
    below: Any
    above: Any

    def estimate(self) -> Estimate:
        """Returns the value with its interval within [0, 1]."""
        ends = self.value - self.below, self.value + self.above
        return _estimate(self.value, *(np.clip(end, 0.0, 1.0) for end in ends))


def _estimate(value: Any, low: Any, high: Any) -> Estimate:
    return Estimate(*(float(x) if np.ndim(x) == 0 else x for x in (value, low, high)))


def jeffreys(fraction: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ends of Jeffreys' 95% interval of a fraction of `count` examples, arrays.

    They are quantiles of Beta(n a + 1/2, n (1 - a) + 1/2), but 0 for a = 0, 1 for a = 1, and 0 and 1 for n = 0.

    Source: Brown, Cai and DasGupta 2001, "Interval estimation for a binomial proportion", section 4.1.
    """
    low, high = (
        betaincinv(count * fraction + 0.5, count * (1.0 - fraction) + 0.5, tail) for tail in (TAIL, 1.0 - TAIL)
    )
    low = np.where((fraction <= 0) | (count == 0), 0.0, np.minimum(low, fraction))
    return low, np.where((fraction >= 1) | (count == 0), 1.0, np.maximum(high, fraction))


def stratified(shares: Any, verified: Sequence, count: Any) -> Part:
    """Returns the fraction sum_h W_h a_h of N examples that count, with its interval, over the last axis.

    Squared distances of the strata to the ends of Jeffreys' intervals add up. Verified examples of unequal weights are
    worth (sum w)^2 / sum w^2. The shares W_h of a sample add the variance between strata, and a stratum without a
    verified example a bound from 0 to W_h.

    Args:
        shares: W_h, `(..., H)`.
        verified: sums over the verified examples, three times `(..., H)`: weights of those that count, weights of all,
            and their squares.
        count: N.
    Source: Zou and Donner 2008, "Construction of confidence limits about effect measures", eq. 2.

    Example:
        >>> print(stratified([1.0], ([10.0], [10.0], [10.0]), 10).estimate())
        1.000 (0.783 to 1.000)
    """
    shares, hits, sizes, squares = (np.asarray(x, "float64") for x in (shares, *verified))
    is_seen, total = sizes > 0, sizes.sum(axis=-1, keepdims=True)
    pooled = np.where(total > 0, hits.sum(axis=-1, keepdims=True) / np.where(total > 0, total, 1.0), 0.5)
    a = np.where(is_seen, hits / np.where(is_seen, sizes, 1.0), pooled)
    low, high = jeffreys(a, np.where(is_seen, np.square(sizes) / np.where(is_seen, squares, 1.0), 0.0))
    value, known, unknown = (shares * a).sum(axis=-1), shares * is_seen, shares * ~is_seen
    between = NORMAL**2 * np.maximum((shares * np.square(a)).sum(axis=-1) - np.square(value), 0.0) / count
    below, above = (np.sqrt(np.square(known * x).sum(axis=-1) + between) for x in (a - low, high - a))
    return Part(value, below + (unknown * a).sum(axis=-1), above + (unknown * (1.0 - a)).sum(axis=-1))


def _fraction(counts: np.ndarray, strata: np.ndarray, sample: Sample) -> Estimate:
    """Returns the fraction of all examples that count, by `counts` of verified ones `(n,)` and strata of all `(N,)`."""
    number, own, weights = int(strata.max()) + 1, strata[sample.rows], sample.weights
    sums = [np.bincount(own, x, number) for x in (weights * counts, weights, weights**2)]
    return stratified(np.bincount(strata, minlength=number) / len(strata), sums, len(strata)).estimate()


def _alone(counts: np.ndarray, sample: Sample) -> Estimate:
    """Returns the fraction by the verified examples alone."""
    return _fraction(counts, np.zeros(len(counts), int), sample._replace(rows=np.arange(len(counts))))


def _strata(proxy: np.ndarray, sample: Sample) -> np.ndarray:
    """Returns the stratum of each example: above the median of the proxy, and of the probability of being drawn."""
    strata = np.zeros(len(proxy), int)
    for values in (proxy, sample.inclusion):
        if values is not None:
            above = values > np.median(values)
            strata = 2 * strata + (above if above.any() else values > values.min())
    return np.unique(strata, return_inverse=True)[1]


def _ratio(over: Part, under: Part) -> Estimate:
    """Returns a / (a + b) of two fractions, with its interval; the value is nan if both are 0.

    r = a / b is outside the interval where |a - r b| is more than the root of the sum of the squared distances of a and
    of r b to their ends.

    Source: Donner and Zou 2012, "Closed-form confidence intervals for functions of the normal mean and standard
        deviation", eq. 9.
    """
    (a, *of_a), (b, *of_b) = over, under
    (a_below, a_above), (b_below, b_above) = (map(np.square, distances) for distances in (of_a, of_b))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = a / (a + b)
        root = np.sqrt(np.maximum(a**2 * b**2 - (b**2 - b_above) * (a**2 - a_below), 0.0))
        least = np.maximum(a**2 - a_below, 0.0) / (a * b + root)
        most = (a * b + np.sqrt(np.maximum(a**2 * b**2 - (b**2 - b_below) * (a**2 - a_above), 0.0))) / (b**2 - b_below)
        low = np.where(a > 0, np.where(np.isinf(least), 1.0, least / (1.0 + least)), 0.0)
        high = np.where(b**2 > b_below, most / (1.0 + most), 1.0)
    return Estimate(value, np.nan_to_num(low), np.where(np.isnan(high), 1.0, high))


@dataclasses.dataclass(frozen=True)
class VerifiedAccuracy(Titled):
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
        return _worth(self.accuracy, self.alone, len(self.index))

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
    class_names: Sequence | None = None,
) -> VerifiedAccuracy:
    """Returns how good a model is, by noisy labels of all examples and verified labels of a few.

        accuracy = sum_h W_h a_h,    W_h = fraction of all examples in stratum h, a_h = accuracy of its verified ones

    The two strata are the examples whose label is the prediction, and all others. **The estimate holds under any
    noise**: noise can depend on the example, and people, a model that labels and the model that is judged can share
    errors. Then the labels only help less. It rests on two assumptions: verified labels are correct, and their examples
    were drawn at random from all, each with the probability `inclusion`. Examples that were selected (the worst, the
    first, one class) make it wrong by any amount. Selections by confidence or by class are refused.

    The intervals hold in about 95% from twenty verified examples on. Use predictions of a model that was neither
    trained on these labels nor chosen by the verified ones.

    Args:
        predictions: probabilities out of sample, `(N, K)`, each row of sum 1; or predicted classes, `(N,)`.
        labels: noisy labels as they were before anybody verified any, integers or names, `(N,)`. For several labels
            of an example, give the majority.
        verified_labels: verified labels, a dict from row numbers to classes.
        inclusion: probability of each example to be drawn, up to a factor, a dict from the same rows or an array
            `(N,)`; None for equal ones.
        class_names: names of the K classes in the order of the probabilities; None for integers, or for names without
            probabilities.
    Returns:
        `VerifiedAccuracy`; print it.
    Raises:
        ValueError: for other shapes or values, no verified label, a probability of 0, or examples that cannot have been
            drawn at random (p below 0.00001).
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
    p, predicted, given, classes = _read(predictions, labels, class_names)
    sample = read_sample(verified_labels, len(predicted), inclusion)
    numbers = [] if classes.dtype.kind in "iufb" else [np.arange(len(classes))]
    true = encode_verified(verified_labels, classes, *numbers)
    agrees = given == predicted
    scores = {"whether the label is the prediction": agrees.astype(float)}
    if p is not None:
        own = p[np.arange(len(p)), given]
        scores |= {"their confidence": p.max(axis=1), "the probability of their labels": own}
    doubt = check_random(sample, scores, {"the label": given, "the prediction": predicted}, "verified_labels")
    warnings = [doubt, *_mistakes(predicted, given, given[sample.rows], true, len(classes))]
    right, strata = true == predicted[sample.rows], _strata(agrees, sample)
    recall, precision = _by_class(predicted, given, true, sample, len(classes))
    return VerifiedAccuracy(
        accuracy=_fraction(right, strata, sample),
        noisy_accuracy=float(agrees.mean()),
        alone=_alone(right, sample),
        label_accuracy=_fraction(true == given[sample.rows], strata, sample),
        recall=recall,
        precision=precision,
        classes=classes,
        index=sample.rows,
        notes=(("rests on", f"{sample}; verified labels are correct"), *(("warning", x) for x in warnings if x)),
    )


def _by_class(predicted: np.ndarray, given: np.ndarray, true: np.ndarray, sample: Sample, size: int) -> list[Estimate]:
    """Returns recall and precision of each class, each by two strata: examples whose label is the class, and others."""
    classes, count, weights = np.arange(size), len(predicted), sample.weights[:, None]
    pairs = np.bincount(predicted * size + given, minlength=size**2).reshape(size, size)
    of_predicted, same = pairs.sum(axis=1), pairs.diagonal()
    is_predicted, is_label = (x[sample.rows][:, None] == classes for x in (predicted, given))
    is_true, others = true[:, None] == classes, pairs.sum(axis=0) - same

    def part(inside: np.ndarray, counts: tuple[np.ndarray, np.ndarray], total: Any) -> Part:
        strata = np.stack([inside & is_label, inside & ~is_label], axis=-1)
        sums = [(x[..., None] * strata).sum(axis=0) for x in (weights * is_true, weights, weights**2)]
        return stratified(np.stack(counts, axis=-1) / np.reshape(total, (-1, 1)), sums, np.ravel(total))

    inside, outside = (same, of_predicted - same), (others, count - of_predicted - others)
    precision = part(is_predicted, inside, np.maximum(of_predicted, 1)).estimate()
    over, under = part(is_predicted, inside, count), part(~is_predicted, outside, count)
    unseen = np.where(of_predicted == 0, jeffreys(np.zeros(1), np.array([float(count)]))[1], 0.0)  # among these N
    recall = _ratio(over._replace(above=np.hypot(over.above, unseen)), under)
    return [_if_known(recall, is_true.any(axis=0)), _if_known(precision, is_predicted.any(axis=0))]


def _if_known(found: Estimate, is_known: np.ndarray) -> Estimate:
    """Returns estimates that are nan, from 0 to 1, for classes of which nothing was verified."""
    return Estimate(np.where(is_known, found.value, np.nan), found.low * is_known, np.where(is_known, found.high, 1.0))


def _read(predictions: Any, labels: Any, class_names: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Returns probabilities or None, predicted classes and labels as integers `(N,)`, and the names of the classes."""
    check_same_index(predictions=predictions, labels=labels)
    given, observed = (np.asarray(as_numpy(x)) for x in (predictions, labels))
    refuse_if(given.ndim not in (1, 2), "predictions", "have shape (N,) or (N, K)", shape=given)
    rule = f"have a label for each of the {len(given)} predictions"
    refuse_if(observed.shape != (len(given),), "labels", rule, shape=observed)
    if given.ndim == 2:
        p = check_distributions(predictions, "predictions")
        classes = np.asarray(check_class_names(class_names, p.shape[1]))
        return p, largest_of_rows(p), _numbers_of(observed, classes, "labels"), classes
    rule = "be classes (N,), or probabilities (N, K): np.stack([1 - p, p], axis=1) for p of the second of two classes"
    is_fraction = given.dtype.kind == "f" and np.any(given != np.floor(given))
    refuse_if(is_fraction, "predictions", rule, "fractions of shape (N,)")
    classes = encode(labels, name="labels", alone=True).classes if class_names is None else np.asarray(class_names)
    return None, _numbers_of(given, classes, "predictions"), _numbers_of(observed, classes, "labels"), classes


def _numbers_of(given: np.ndarray, classes: np.ndarray, name: str) -> np.ndarray:
    """Returns names or numbers as numbers of the classes, `(N,)`."""
    if given.dtype.kind in "iu":
        return check_labels(given, len(classes), name=name)
    return encode_among(
        given, classes, name, f"only the classes {some(classes.tolist())}; give `class_names` for others"
    )


def _mistakes(predicted: np.ndarray, given: np.ndarray, own: np.ndarray, true: np.ndarray, size: int) -> Iterator[str]:
    """Yields warnings of arguments that do not seem to belong together."""
    table = np.bincount(predicted * size + given, minlength=size**2).reshape(size, size) / len(given)
    best = table[linear_sum_assignment(-table)].sum()
    if best > table.trace() + MISMATCH:
        now = f"predictions agree with {table.trace():.0%} of the labels"
        yield f"{now}, in another order of classes with {best:.0%}: are they in the order of `class_names`?"
    if len(true) < MIN_CHECKED:
        return
    by_chance = np.bincount(own, minlength=size) @ np.bincount(true, minlength=size)
    if np.mean(own == true) <= by_chance / len(own) ** 2:
        yield "verified labels are the labels no more often than by chance: do the rows belong to these labels?"
    if np.all(own == true) and best < 1.0:
        yield "every verified label is the label: if they were put into `labels`, give those as they were before."


def read_sample(verified: Any, count: int, inclusion: Any, name: str = "verified_labels") -> Sample:
    """Returns the verified examples, with weights by `inclusion`; `name` is the argument, for errors."""
    rows = verified_places(verified, count, None, name)
    refuse_if(not len(rows), name, "have at least one example", "none")
    if inclusion is None:
        return Sample(rows, np.ones(len(rows)))
    if isinstance(inclusion, Mapping):
        missing = [key for key in verified if key not in inclusion]
        those = f"{{k: {name}[k] for k in inclusion}}"
        rule = f"have a probability for each of `{name}`; give only those that were drawn: {those}"
        refuse_if(missing, "inclusion", rule, f"none for {missing[:1]}")
        given = own = check_numbers("inclusion", [inclusion[key] for key in verified])
    else:
        given = check_numbers("inclusion", inclusion)
        refuse_if(given.shape != (count,), "inclusion", f"be a dict, or have shape ({count},)", shape=given)
        own = given[rows]
    rule = "be in (0, 1]: nothing can be said of what could not be drawn"
    refuse_first(~((given > 0) & (given <= 1)), "inclusion", rule, given)
    is_uniform = bool(np.all(given == given[0]))
    return Sample(rows, np.mean(own) / own, is_uniform, None if is_uniform or given is own else given)


def check_random(sample: Sample, scores: dict[str, np.ndarray], classes: dict[str, np.ndarray], name: str) -> str:
    """Returns the doubt about a sample drawn with equal probabilities, in words; empty for none.

    Ranks of scores are compared by Wilcoxon's test, and the frequency of each class by the hypergeometric distribution.
    A selection by anything else is not noticed.

    Args:
        sample: verified examples.
        scores: numbers of each example, `(N,)`, by their meaning.
        classes: classes of each example, `(N,)`, by their meaning.
        name: name of the argument, for errors.
    Raises:
        ValueError: if a random sample would look so in less than one of 100,000 cases.
    """
    if not sample.is_uniform:
        return ""
    chances = {f"by {title}": _rank_p_value(values, sample.rows) for title, values in scores.items()}
    for title, values in classes.items():
        own = _class_p_values(values, sample.rows)
        chances |= {f"in how many have {title} {k}": float(chance) for k, chance in enumerate(own)}
    what, least = min(chances.items(), key=lambda pair: pair[1], default=("", 1.0))
    least *= len(chances)
    rule = f"be of examples that were drawn at random: {REMEDY}"
    refuse_if(least < REFUSED_P, name, rule, f"others than the rest, {what}")
    if least >= WARNING_P:
        return ""
    return f"the verified examples differ from the rest {what} (p = {least:.1g}); if not drawn at random, {REMEDY}."


def _rank_p_value(values: np.ndarray, rows: np.ndarray) -> float:
    """Returns the two-sided p-value of the mean rank of the sample.

    If nearly all values are equal, the normal approximation is far off: then the number of the others is tested.
    """
    unique, place, number = np.unique(values, return_inverse=True, return_counts=True)
    if len(unique) == 2 or len(rows) * (1.0 - number.max() / len(values)) < MIN_NORMAL_COUNT:
        return float(_class_p_values((place == number.argmax()).astype(int), rows).min())
    count, n, ranks = len(values), len(rows), rankdata(values)
    variance = ranks.var() * (count - n) / max(count - 1, 1) / n
    return 1.0 if variance == 0 else float(2.0 * ndtr(-abs(ranks[rows].mean() - ranks.mean()) / np.sqrt(variance)))


def _class_p_values(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns the two-sided p-values of how many of the sample have each class, `(K,)`."""
    own, all_ = (np.bincount(x, minlength=int(values.max()) + 1) for x in (values[rows], values))
    of = len(values), all_, len(rows)
    return np.minimum(2.0 * np.minimum(hypergeom.cdf(own, *of), hypergeom.sf(own - 1, *of)), 1.0)


@dataclasses.dataclass(frozen=True)
class VerifiedMean(Titled):
    """The mean of people's verdicts on all examples; it prints in plain words.

    Attributes:
        mean: `Estimate` of it: value, low and high, of 95%.
        judged: mean of each judge, `(J,)`.
        alone: the mean by the verified examples alone.
        index: row numbers of the verified examples, `(n,)`.
        notes: (title, text) of the assumptions, and of warnings.
    """

    mean: Estimate
    judged: np.ndarray
    alone: Estimate
    index: np.ndarray
    notes: tuple[tuple[str, str], ...]

    @property
    def worth(self) -> float:
        """Number of verified examples that alone would give so short an interval: n (width alone / width)^2."""
        return _worth(self.mean, self.alone, len(self.index))

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the mean, and of the assumptions."""
        judged, worth = ", ".join(f"{mean:.3f}" for mean in self.judged), f"{self.worth:.0f} verified examples"
        return [
            ("mean, as people judge", f"{self.mean}; by the {len(self.index)} verified alone {self.alone}"),
            *([("as exact as", f"{worth} without the other verdicts")] if np.isfinite(self.worth) else []),
            ("mean of the judge" if len(self.judged) == 1 else "means of the judges", judged),
            *self.notes,
        ]


def _worth(found: Estimate, alone: Estimate, count: int) -> float:
    width = found.high - found.low
    return float(count * ((alone.high - alone.low) / width) ** 2) if 0 < width < np.inf else float("nan")


def verified_mean(verdicts: Any, verified: Mapping, *, inclusion: Any = None) -> VerifiedMean:
    """Returns the mean of what people would say of all outputs, by a judge's verdicts on all and people's on a few.

    * If people say 0 or 1 (wrong or correct): sum_h W_h a_h as in `verify_accuracy`, with two strata: verdicts above
      the median, or not.
    * If people give numbers (grades): the mean over all examples of the linear regression of people's numbers on the
      verdicts, or the plain mean if that varies less. The interval is Student's, by residuals that leave the example
      out. It holds in less than 95% if a few rare numbers make the mean.

    **It holds whatever the judge does**: a judge that is partial, or errs where the model errs, only helps less. It
    rests on two assumptions: people are right, and the verified examples were drawn at random, each with the
    probability `inclusion`.

    Args:
        verdicts: numbers or booleans of each example, `(N,)`, or of J judges, `(N, J)`.
        verified: people's verdicts, a dict from row numbers to numbers or booleans.
        inclusion: argument of `verify_accuracy`.
    Returns:
        `VerifiedMean`; print it.
    Raises:
        ValueError: for other shapes or values, missing verdicts, no verified example, or less than two for numbers; a
            probability of 0; or examples that cannot have been drawn at random (p below 0.00001).
    Source: Angelopoulos, Duchi and Zrnic 2023, "PPI++" (arXiv 2311.01453), eq. 7; Cochran 1977, "Sampling techniques",
        section 7.3, for the regression.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> right = rng.random(5000) < 0.7
        >>> judge = right ^ (rng.random(5000) < np.where(right, 0.05, 0.3))  # too friendly
        >>> rows = rng.choice(5000, 200, replace=False)
        >>> print(verified_mean(judge, dict(zip(rows, right[rows]))).mean)
        0.693 (0.643 to 0.740)
    """
    given = _numbers("verdicts", as_numpy(verdicts))
    refuse_if(given.ndim not in (1, 2) or not given.size, "verdicts", "have shape (N,) or (N, J)", shape=given)
    judges = given.reshape(len(given), -1)
    sample = read_sample(verified, len(judges), inclusion, "verified")
    y, mean = _numbers("verified", list(verified.values())), judges.mean(axis=1)
    scores = {"their verdicts": mean} | {f"verdicts of judge {j}": own for j, own in enumerate(judges.T)}
    doubt = check_random(sample, scores, {}, "verified")
    is_fraction = np.isin(y, (0.0, 1.0)).all() and judges.min() >= 0 and judges.max() <= 1
    refuse_if(len(y) < 2 and not is_fraction, "verified", "have at least two examples, for a mean of numbers", len(y))
    kind = "fraction of the ones" if is_fraction else "mean of numbers, by Student's t"
    notes = [("rests on", f"{sample}; it is the {kind}")]
    if is_fraction:
        found, alone = _fraction(y, _strata(mean, sample), sample), _alone(y, sample)
    else:
        found, alone = _regression_mean(y, judges, sample), _regression_mean(y, judges[:, :0], sample)
        if len(y) < MIN_NUMBERS:
            notes.append(("warning", f"intervals of fewer than {MIN_NUMBERS} numbers can hold in far less than 95%."))
    notes += [("warning", doubt)] if doubt else []
    return VerifiedMean(found, judges.mean(axis=0), alone, sample.rows, tuple(notes))


def _numbers(name: str, given: Any) -> np.ndarray:
    """Returns numbers or booleans as finite numbers."""
    array = np.asarray(given)
    rule = "be numbers or booleans; of texts, compare them first, as verdicts == 'right'"
    refuse_if(array.dtype.kind in "SU" or any(isinstance(x, str) for x in array.ravel()[:1]), name, rule, "texts")
    array = check_numbers(name, array.astype("float64"))
    refuse_first(~np.isfinite(array), name, "be finite", array)
    return array


def _regression_mean(y: np.ndarray, judges: np.ndarray, sample: Sample) -> Estimate:
    """Returns the mean of verified numbers `(n,)`, by their weighted regression on numbers of all examples `(N, J)`."""
    found = [_regressed(y, judges[:, :0], sample)]
    if len(y) >= MIN_PER_COEFFICIENT * (judges.shape[1] + 1):
        found.append(_regressed(y, judges, sample))
    value, variance = min(found, key=lambda pair: pair[1])
    if variance == 0:  # equal numbers say nothing of how others differ
        return _estimate(value, -np.inf, np.inf)
    half = stdtrit(len(y) - 1, 1.0 - TAIL) * np.sqrt(variance)
    return _estimate(value, value - half, value + half)


def _regressed(y: np.ndarray, columns: np.ndarray, sample: Sample) -> tuple[float, float]:
    """Returns the mean of the regression over all examples, and its variance by residuals that leave examples out."""
    x = np.column_stack([np.ones(len(columns)), columns - columns.mean(axis=0)])
    own, weights = x[sample.rows], sample.weights / sample.weights.sum()
    inverse = np.linalg.pinv(own.T @ (weights[:, None] * own))
    beta = inverse @ own.T @ (weights * y)
    leverage = weights * np.einsum("ni,ij,nj->n", own, inverse, own)
    residuals = (y - own @ beta) / np.maximum(1.0 - leverage, 1e-9)
    return float(beta[0]), float(np.square(weights * residuals).sum() + (x @ beta).var() / len(x))
