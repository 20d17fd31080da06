"""Diagnosis of the kind of label noise from labels and out-of-sample probabilities."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaincc, logit, ndtr
from scipy.stats import binomtest

from keras_het.base.batches import argmax_rows, check_same_index
from keras_het.base.refusal import refusal
from keras_het.base.tables import TitledLines
from keras_het.base.validation import check_class_names, check_labels
from keras_het.labels.classes import encode
from keras_het.labels.decoding import Decoded, decode
from keras_het.labels.estimation import check_distributions, count_pairs, flip_p_values, warn_of_order

SIGNIFICANCE_LEVEL = 0.05
NEGLIGIBLE_RATE = 0.03  # else correct labels would often be diagnosed as noisy
MIN_SLOPE = 0.5  # else uniform noise would pass for model errors that do not fall with clearness
BINS = 100  # ranks by clearness
CLEAR_BINS = BINS // 2  # bins of the clear examples, which both tests of flips use
BIN_LOGITS = logit((np.arange(BINS) + 0.5) / BINS)
MAX_SHOWN_FLIPS = 5
ANSWERS = {
    "none": "none found. Model errors explain the labels that the model disagrees with.",
    "symmetric": "class-dependent, random flips (symmetric). Label errors do not depend on the example, and no flip is "
    "more frequent than the others.",
    "class-dependent": "class-dependent. Label errors depend on the true class, not on the example.",
    "instance-dependent": "instance-dependent, or the model is too weak to tell.",
}
NEXT_STEPS = {
    "none": "Train as usual, or with losses.SmoothedCrossentropy. Check the confident issues, the issues of "
    "labels.find_issues.",
    "symmetric": "Compare methods with labels.choose, or stop early by noisy validation labels.",
    "class-dependent": "Compare methods with labels.choose, or train with losses.ForwardCorrectedCrossentropy and the "
    "transition of this diagnosis.",
    "instance-dependent": "Compare HeteroscedasticDense with Dense from the same start, by labels.choose. Drop "
    "only the confident issues, the issues of labels.find_issues.",
}
NOTHING_LEARNED = (
    "The model predicts {model:.1%} of the labels, the majority class alone {majority:.1%}. Train longer, scale the "
    "inputs, and check that rows and labels have the same order."
)
SECOND_CHOICES = "Label errors {} the model's second choice for each example"


@dataclasses.dataclass(frozen=True)
class Flip:
    """Flip from one class to another that is more frequent than chance explains.

    Attributes:
        true: name of the class.
        label: name of the observed label.
        count: number of clear examples of the class with this label.
        p_value: probability of this count or more if all other classes are equally likely, not Bonferroni-corrected.
    """

    true: Any
    label: Any
    count: int
    p_value: float


@dataclasses.dataclass(frozen=True)
class Diagnosis(TitledLines):
    """Kind of label noise, with its evidence and the next step.

    Attributes:
        kind: "none" (model errors explain the labels that the model disagrees with), "class-dependent" (label errors
            depend on the true class only, symmetric noise included), or "instance-dependent" (they depend on the
            example, or the model is too weak to exclude that).
        reason: evidence for the kind, in a sentence or two.
        transition: T[i, j] = p(label j | class i), `(K, K)`, over all examples.
        rate: estimated noise rate, the disagreement on the clearest examples. It is too low for noise that prefers
            unclear examples.
        disagreement: fraction of the labels that the model disagrees with. It includes correct labels of hard examples,
            so it is not the noise rate.
        flips: flips that are too frequent for symmetric noise, the most frequent first; empty if the kind is "none".
            The class is the model's most probable one, so a flip can be a model error.
        noise_p_value: p-value of a noise rate of at most 3%, by a likelihood-ratio test.
        symmetry_p_value: p-value of symmetric noise, by a chi-square test; nan without flips or for two classes.
        class_p_value: p-value of class-dependent noise, by a permutation test of second choices; nan without
            disagreements or for two classes.
    """

    kind: str
    reason: str
    transition: np.ndarray
    rate: float
    disagreement: float
    flips: tuple[Flip, ...]
    noise_p_value: float
    symmetry_p_value: float
    class_p_value: float

    @property
    def answer(self) -> str:
        """Kind of noise, in a sentence or two. Symmetric noise has its own text."""
        return ANSWERS[self._text]

    @property
    def next_step(self) -> str:
        """Advice on what to do, in a sentence or two."""
        return NEXT_STEPS[self._text]

    @property
    def _text(self) -> str:
        """Key of the texts: the kind, or "symmetric" if the chi-square test does not reject symmetric noise."""
        is_symmetric = self.kind == "class-dependent" and self.symmetry_p_value >= SIGNIFICANCE_LEVEL
        return "symmetric" if is_symmetric else self.kind

    def lines(self) -> list[tuple[str, str]]:
        """Returns (title, text) of the answer, the evidence, the flips and the next step."""
        flips = [f"{flip.true} -> {flip.label} ({flip.count})" for flip in self.flips[:MAX_SHOWN_FLIPS]]
        more = [f"and {len(self.flips) - MAX_SHOWN_FLIPS} more"] * (len(self.flips) > MAX_SHOWN_FLIPS)
        return [
            ("label noise", self.answer),
            ("evidence", self.reason),
            ("frequent flips", ", ".join([*flips, *more]) or "none"),
            ("next step", self.next_step),
        ]


def diagnose(probabilities: Any, labels: Any, class_names: Sequence | Mapping | None = None) -> Diagnosis:
    """Tells the kind of label noise: none, class-dependent, or instance-dependent.

    The class of an example is the suggested class of `find_issues`. The model disagrees with a label that is another
    class. Three tests use these disagreements:

    1. Model errors get rare on clear examples, and class-dependent noise does not. With r in (0, 1) the rank of an
       example in its class, the clearest first, p(disagreement) = rate + (1 - rate) s(a + b logit r), where s is the
       logistic function and b >= 0.5. A likelihood-ratio test of rate <= 0.03 separates noise from model errors.
    2. On the clearer half, a chi-square test compares class-dependent flips with symmetric flips. It decides which
       flips are reported, not the kind: symmetric noise is "class-dependent".
    3. On the same half, a permutation test within classes counts labels that are the model's second choice for the
       example. Its slack is the fraction of the disagreements that test 1 attributes to model errors.

    Noise is "class-dependent" only if test 3 does not reject it. Also, label errors must be more than half of the
    disagreements, and fewer than half of the labels (each at 5%). Otherwise it is "instance-dependent". So two classes,
    noise near 50%, or a weak model give "instance-dependent" or "none". A model that is no better than the majority
    class gives "none".

    No test can tell a hard example from a label error that happened because the example is hard. Out-of-distribution
    examples give "none", because the model is unsure about them.

    Args:
        probabilities: out-of-sample probabilities, from cross-validation, `(N, K)`, K >= 2, each row of sum 1. Columns
            of a frame are matched by name.
        labels: integers in [0, K), `(N,)`, label vectors, or names in sorted order or the order of `class_names`.
        class_names: names of the K classes, a sequence or a dict {class: name}; None for the names of the labels.
    Returns:
        `Diagnosis`; print it.
    Raises:
        ValueError: for other shapes or values, or labels of one class only.
    Warns: if the labels fit the columns far better in another order.
    Source: Finney 1971, "Probit Analysis", ch. 7, for test 1 ("natural mortality"); Pearson 1900 for test 2.

    Example:
        >>> rng, true = np.random.default_rng(0), np.arange(3).repeat(100)
        >>> labels = np.where((true == 0) & (np.arange(300) % 3 == 0), 1, true)  # a third of class 0
        >>> t = np.array([[0.67, 0.33, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> p = (t[true] + 0.02) * rng.gamma(50.0, size=(300, 3))
        >>> result = diagnose(p / p.sum(axis=1, keepdims=True), labels, class_names=["cat", "lynx", "dog"])
        >>> result.kind, [(flip.true, flip.label) for flip in result.flips]
        ('class-dependent', [('cat', 'lynx')])
    """
    check_same_index(probabilities=probabilities, labels=labels)
    p = check_distributions(probabilities, keep_float32=True)
    size = p.shape[1]
    labels, names = _read(labels, class_names, len(p), size)
    if hasattr(probabilities, "columns"):
        p = check_distributions(probabilities, classes=names)
    warn_of_order(p, labels)
    decoded = decode(labels, p)
    differs = decoded.classes != labels
    bins = (BINS * _ranks(decoded.margin, decoded.classes)).astype(int)
    fit = _fit_noise(np.bincount(bins, differs, BINS), np.bincount(bins, minlength=BINS))
    is_clear = bins < CLEAR_BINS
    is_most_probable = is_clear & (decoded.classes == argmax_rows(p))
    counts = count_pairs(decoded.classes[is_most_probable], labels[is_most_probable], size)
    symmetry_p_value = _test_symmetry(counts)
    second_p_value = _test_second_choices(decoded, labels, is_clear & differs, fit.error_fraction)
    class_p_value, disagreement = second_p_value if size > 2 else float("nan"), float(differs.mean())
    kind, reason = _nothing_learned(p, labels) or _decide(fit, class_p_value, disagreement)
    flips = _flips(counts, names) if symmetry_p_value < SIGNIFICANCE_LEVEL and kind != "none" else ()
    transition = _normalize(count_pairs(decoded.classes, labels, size))
    p_values = fit.p_value, symmetry_p_value, class_p_value
    return Diagnosis(kind, reason, transition, fit.rate, disagreement, flips, *p_values)


def _read(labels: Any, class_names: Any, count: int, size: int) -> tuple[np.ndarray, list]:
    """Returns labels of any form as integers in [0, size), and the names of the classes."""
    values, codes = encode(labels, count, "labels")
    if values.dtype.kind == "i":
        return check_labels(values[codes], size), check_class_names(class_names, size)
    names = values.tolist() if class_names is None else check_class_names(class_names, size)
    if len(names) != size or not set(values.tolist()) <= set(names):
        rule = f"name the {size} classes of `probabilities`. Pass `class_names` if a class does not occur"
        raise refusal("labels", rule, ", ".join(map(repr, values.tolist())))
    return np.array([names.index(name) for name in values.tolist()])[codes], names


def _normalize(counts: np.ndarray) -> np.ndarray:
    """Returns counts with rows of sum 1; a row without counts becomes a row of the identity."""
    counts = np.where(counts.sum(axis=1, keepdims=True) > 0, counts, np.eye(len(counts)))
    return counts / counts.sum(axis=1, keepdims=True)


def _ranks(margin: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Returns the rank of each example in its class, the clearest first, as a fraction in (0, 1), `(N,)`.

    Equal margins share their mean rank, because no example is clearer.
    """
    order = np.lexsort((-margin, classes))
    ordered, totals = classes[order], np.bincount(classes)
    positions = np.arange(len(order)) - (np.cumsum(totals) - totals)[ordered] + 0.5
    is_new = (np.diff(ordered, prepend=-1) != 0) | (np.diff(margin[order], prepend=np.inf) != 0)
    groups = np.cumsum(is_new) - 1
    ranks = np.empty(len(order))
    ranks[order] = (np.bincount(groups, positions) / np.bincount(groups))[groups] / totals[ordered]
    return ranks


class _NoiseFit(NamedTuple):
    """Fit of the disagreement by clearness.

    rate: disagreement on the clearest examples.
    p_value: p-value of a rate of at most 3%.
    majority_p_value: p-value of a rate of at most half of the disagreement.
    half_p_value: p-value of a rate of at least one half.
    error_fraction: fraction of the disagreements on clear examples that model errors explain.
    """

    rate: float
    p_value: float
    majority_p_value: float
    half_p_value: float
    error_fraction: float


def _fit_noise(counts: np.ndarray, totals: np.ndarray) -> _NoiseFit:
    """Fits p(disagreement) = rate + (1 - rate) s(a + b logit r) by maximum likelihood to counts by rank, `(BINS,)`."""
    (rate, intercept, slope), loss = _minimize(counts, totals, 0.0, 0.99)

    def signed_root(null: float) -> float:
        drop = _minimize(counts, totals, null, null)[1] - loss
        return float(np.sign(rate - null) * np.sqrt(max(0.0, 2.0 * drop)))

    errors = totals * (1 - rate) * expit(intercept + slope * BIN_LOGITS)
    expected = (totals * rate + errors)[:CLEAR_BINS].sum()
    return _NoiseFit(
        float(rate),
        float(ndtr(-signed_root(NEGLIGIBLE_RATE))),
        float(ndtr(-signed_root(counts.sum() / totals.sum() / 2))),
        float(ndtr(signed_root(0.5))),
        float(errors[:CLEAR_BINS].sum() / expected) if expected > 0 else 1.0,
    )


def _minimize(counts: np.ndarray, totals: np.ndarray, low: float, high: float) -> tuple[np.ndarray, float]:
    """Returns (rate, a, b) and the negative log-likelihood for a rate in [low, high], from two starts."""

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns the negative log-likelihood and its gradient."""
        rate, intercept, slope = parameters
        error = expit(intercept + slope * BIN_LOGITS)
        p = np.clip(rate + (1 - rate) * error, 1e-12, 1 - 1e-12)
        value = -float(counts @ np.log(p) + (totals - counts) @ np.log1p(-p))
        p_gradient = (totals - counts) / (1 - p) - counts / p
        logit_gradient = p_gradient * (1 - rate) * error * (1 - error)
        return value, np.array([p_gradient @ (1 - error), logit_gradient.sum(), logit_gradient @ BIN_LOGITS])

    bounds = [(low, high), (-20.0, 20.0), (MIN_SLOPE, 5.0)]
    starts = (low, (low + min(high, 2 * counts.sum() / totals.sum())) / 2) if low < high else (low,)
    fits = [minimize(loss, [rate, -2.0, 1.0], jac=True, method="L-BFGS-B", bounds=bounds) for rate in starts]
    best = min(fits, key=lambda fit: fit.fun)
    return best.x, float(best.fun)


def _test_symmetry(counts: np.ndarray) -> float:
    """Returns the p-value of flips to all other classes alike; nan without flips or for two classes.

    Pearson's statistic is compared with a gamma distribution of its exact mean and variance, which is valid for small
    counts.
    """
    others = len(counts) - 1
    flips = counts * (1.0 - np.eye(len(counts)))
    totals = flips.sum(axis=1)
    totals, flips = totals[totals > 0], flips[totals > 0]
    variance = float(np.sum(2 * (others - 1) * (1 - 1 / totals)))
    if not variance:
        return float("nan")
    statistic = float(np.sum(others * np.square(flips).sum(axis=1) / totals - totals))
    mean = len(totals) * (others - 1)
    return float(gammaincc(mean**2 / variance, statistic * mean / variance))


def _test_second_choices(decoded: Decoded, labels: np.ndarray, mask: np.ndarray, slack: float) -> float:
    """Returns the p-value of labels that are the second choice no more often than classes and model errors explain.

    The number of labels in `mask`, `(N,)`, that are the second choice is compared with a normal distribution. Its mean
    and variance over all permutations of the labels within each class are exact. A fraction `slack` of the labels can
    be the second choice because of model errors.
    """
    second, labels, classes = decoded.second[mask], labels[mask], decoded.classes[mask]
    if not len(labels):
        return float("nan")
    moments = [_moments(second[classes == k], labels[classes == k]) for k in np.unique(classes)]
    expected, variance = np.sum(moments, axis=0)
    excess = np.sum(second == labels) - expected - slack * len(labels) - 0.5
    return float(ndtr(-excess / np.sqrt(max(1e-12, variance + len(labels) * slack * (1 - slack)))))


def _moments(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Returns mean and variance of the number of equal pairs if values are paired at random."""
    size, count = 1 + max(first.max(), second.max()), float(len(first))
    a, b = (np.bincount(values, minlength=size).astype("float64") for values in (first, second))
    pairs = (a * b).sum()
    squares = pairs - ((a * b * b).sum() + (b * a * a).sum()) / count + (pairs / count) ** 2
    return pairs / count, max(0.0, squares) / max(1.0, count - 1.0)


def _flips(counts: np.ndarray, names: list) -> tuple[Flip, ...]:
    """Returns the flips that are too frequent by a Bonferroni-corrected binomial test."""
    p_values = flip_p_values(counts)
    pairs = np.argwhere(p_values < SIGNIFICANCE_LEVEL / max(1, len(counts) * (len(counts) - 1))).tolist()
    pairs.sort(key=lambda pair: -counts[tuple(pair)])
    return tuple(Flip(names[i], names[j], int(counts[i, j]), float(p_values[i, j])) for i, j in pairs)


def _nothing_learned(p: np.ndarray, labels: np.ndarray) -> tuple[str, str] | None:
    """Returns "none" and the reason if a model is not better than the majority class, by McNemar's test."""
    is_correct, is_majority = argmax_rows(p) == labels, labels == np.bincount(labels).argmax()
    gains, losses = int(np.sum(is_correct & ~is_majority)), int(np.sum(is_majority & ~is_correct))
    if gains and binomtest(gains, gains + losses, alternative="greater").pvalue < SIGNIFICANCE_LEVEL:
        return None
    return "none", NOTHING_LEARNED.format(model=is_correct.mean(), majority=is_majority.mean())


def _decide(fit: _NoiseFit, class_p_value: float, disagreement: float) -> tuple[str, str]:
    """Returns the kind and the reason."""
    text = f"The model disagrees with {disagreement:.1%} of the labels"
    if fit.p_value >= SIGNIFICANCE_LEVEL:
        rare = "Like model errors, these disagreements are rare on clear examples"
        return "none", f"{text}. {rare} (p = {fit.p_value:.2g} for noise)."
    text = f"{text}, and with about {fit.rate:.1%} on the clearest examples (p = {fit.p_value:.1g})."
    unclear = "Many disagreements are on unclear examples, so noise that prefers these examples is possible."
    doubts = [
        (np.isnan(class_p_value), "With two classes, or without clear examples, the kind cannot be told."),
        (class_p_value < SIGNIFICANCE_LEVEL, f"{SECOND_CHOICES.format('prefer')} (p = {class_p_value:.1g})."),
        (fit.majority_p_value >= SIGNIFICANCE_LEVEL, unclear),
        (fit.half_p_value >= SIGNIFICANCE_LEVEL, "This is close to half of the labels, as for a weak model."),
    ]
    if doubt := next((doubt for applies, doubt in doubts if applies), ""):
        return "instance-dependent", f"{text} {doubt}"
    return "class-dependent", f"{text} {SECOND_CHOICES.format('do not prefer')} (p = {class_p_value:.2g})."
