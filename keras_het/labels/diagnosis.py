"""Kinds of label noise, told by out-of-sample probabilities and the labels alone."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaincc, logit, ndtr
from scipy.stats import binomtest

from keras_het.base.batches import argmax_rows, check_same_index
from keras_het.base.classes import encode, order_columns
from keras_het.base.refusal import refusal
from keras_het.base.tables import TitledLines
from keras_het.base.validation import check_class_names, check_labels
from keras_het.labels.decoding import Decoded, decode
from keras_het.labels.estimation import check_distributions, count_pairs, flip_p_values

LEVEL = 0.05  # of every test
NEARLY_NONE = 0.03  # noise rate that counts as none
MIN_SLOPE = 0.5  # a model's error odds fall at least as the square root of the odds of the rank by clearness
BINS = 100  # ranks by clearness; the first half of them is of the clear examples, which both tests of flips use
CLEAR = BINS // 2
LOGITS = logit((np.arange(BINS) + 0.5) / BINS)
MAX_SHOWN_FLIPS = 5
ANSWERS = {
    "none": "none shown. The model's own errors explain the labels that it disagrees with.",
    "by class": "by class. A wrong label depends on the class of the example, not on the example itself.",
    "by example": "by example. Wrong labels depend on the example, or the model is too weak to tell.",
}
NEXT_STEPS = {
    "none": "Train as usual, or with losses.SmoothedCrossentropy. Check the labels that labels.find_issues flags.",
    "by class": "Compare methods with labels.choose. By hand, train with losses.ForwardCorrectedCrossentropy and its "
    "transition.",
    "by example": "Compare a layers.HeteroscedasticDense head in labels.choose. Drop only the surest issues.",
}
NOTHING_LEARNED = (
    "The model predicts {right:.1%} of the labels, and the majority class alone predicts {majority:.1%}. Train longer, "
    "scale the inputs, and check that rows and labels have the same order."
)

SECOND_CHOICES = "Wrong labels name the model's second choice for the very example {} often than their class explains"


@dataclasses.dataclass(frozen=True)
class Flip:
    """A flip from one class to another that is more frequent than others by chance.

    Attributes:
        true: name of the class.
        label: name of the observed label.
        count: number of clear examples of the class with this label.
        p_value: probability of this count or more if all other classes are equally likely, before Bonferroni's
            correction.
    """

    true: Any
    label: Any
    count: int
    p_value: float


@dataclasses.dataclass(frozen=True)
class Diagnosis(TitledLines):
    """Kind of label noise with its evidence. It prints the answer, how sure it is, and what to do next.

    Attributes:
        kind: "none" (the model's own errors explain the labels that it disagrees with), "by class" (a wrong label
            depends on the class of its example alone, symmetric noise included), or "by example" (it depends on the
            example, or the model is too weak to exclude that).
        reason: reason for the kind, in a sentence or two.
        transition: T[i, j] = p(label j | class i), `(K, K)`, over all examples.
        rate: fraction of disputed labels that stays however clear the example is, an estimate of the noise rate. It is
            too low for noise that prefers unclear examples.
        disputed: fraction of the labels that the model disagrees with. Hard examples count, so it is no estimate of the
            noise rate.
        flips: flips that are too frequent for symmetric noise, the most frequent first; empty if the kind is "none".
            The class is the most probable one, and can be the model's error.
        noise_p_value: p-value of a noise rate of at most 3%, by a likelihood-ratio test.
        symmetry_p_value: p-value of symmetric noise, by a chi-square test; nan without flips or with two classes.
        class_p_value: p-value of labels that depend on the class alone, by a permutation test of second choices; nan
            without disputed labels or with two classes.
    """

    kind: str
    reason: str
    transition: np.ndarray
    rate: float
    disputed: float
    flips: tuple[Flip, ...]
    noise_p_value: float
    symmetry_p_value: float
    class_p_value: float

    @property
    def answer(self) -> str:
        """Answer in a sentence."""
        return ANSWERS[self.kind]

    @property
    def next_step(self) -> str:
        """Advice on training, in a sentence or two."""
        return NEXT_STEPS[self.kind]

    def evidence(self) -> str:
        """Returns the printed text without the next step."""
        return "\n".join(f"{title}: {text}" for title, text in self.lines()[:-1])

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
    """Tells which kind of label noise there is: none, by class, or by example.

    A method that gains on one kind of noise loses on another. The class of an example is the suggested class of
    `find_issues`, and the model disagrees with a label that is another class. Then:

    1. A model's errors get rare on clear examples, and noise that depends on the class alone does not. With r in (0, 1)
       the rank of an example in its class, the clearest first, p(disputed) = rate + (1 - rate) s(a + b logit r), where
       s is the logistic function and b >= .5. A likelihood-ratio test of rate <= .03 separates noise from the
       model's errors.
    2. On the clearer half, a chi-square test compares class-dependent flips with symmetric ones. It says which flips
       are worth naming. It does not change the kind: symmetric noise is "by class".
    3. On the same half, a permutation test within classes counts disputed labels that are the model's second choice
       for the very example. Its slack is the fraction of disputed labels that the model's own errors explain by 1.

    Noise is "by class" only if the second choices agree with that, the model's errors are fewer than half of the
    disputed labels, and fewer than half of the labels are wrong (each at 5%). Otherwise it is "by example", for which
    only sure errors are dropped. Two classes, noise near 50%, fewer label errors than errors of the model, or a model
    that is right for half of the examples therefore give "by example" or "none". A model that does not predict the
    labels better than the majority class gives "none".

    Nobody can tell a hard example from a label that is wrong because its example is hard. Labels of examples that
    belong to no class give "none", because these examples are unclear.

    Args:
        probabilities: out of sample, by cross-validation, shape `(N, K)`, K >= 2, rows of sum 1. Columns of a frame are
            matched by name.
        labels: integers in [0, K), shape `(N,)`, or label vectors, or names. Names are sorted, or in the order of
            `class_names`.
        class_names: names of the K classes, a sequence or a dict {class: name}; None for the names of the labels.
    Returns:
        `Diagnosis`; print it.
    Raises:
        ValueError: for other shapes or values, or labels of one class only.
    Source: Finney 1971, "Probit Analysis", ch. 7, for the floor ("natural mortality"); Pearson 1900 for the chi-square.

    Example:
        >>> rng, true = np.random.default_rng(0), np.arange(3).repeat(100)
        >>> labels = np.where((true == 0) & (np.arange(300) % 3 == 0), 1, true)  # a third of class 0
        >>> t = np.array([[0.67, 0.33, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> p = (t[true] + 0.02) * rng.gamma(50.0, size=(300, 3))
        >>> result = diagnose(p / p.sum(axis=1, keepdims=True), labels, class_names=["cat", "lynx", "dog"])
        >>> result.kind, [(flip.true, flip.label) for flip in result.flips]
        ('by class', [('cat', 'lynx')])
    """
    check_same_index(probabilities=probabilities, labels=labels)
    p = check_distributions(probabilities, as_given=True)
    size = p.shape[1]
    labels, names = _read(labels, class_names, len(p), size)
    if hasattr(probabilities, "columns"):
        p = check_distributions(order_columns(names, order_columns(None, probabilities)))
    decoded = decode(labels, p)
    disputed = decoded.classes != labels
    bins = (BINS * _ranks(decoded.margin, decoded.classes)).astype(int)
    floor = _fit_floor(np.bincount(bins, disputed, BINS), np.bincount(bins, minlength=BINS))
    is_clear = bins < CLEAR
    is_most_probable = is_clear & (decoded.classes == argmax_rows(p))
    counts = count_pairs(decoded.classes[is_most_probable], labels[is_most_probable], size)
    symmetry = _test_symmetry(counts)
    second = _test_second_choices(decoded, labels, is_clear & disputed, floor.error_fraction)
    class_p_value = second if size > 2 else float("nan")
    kind, reason = _nothing_learned(p, labels) or _judge(floor, class_p_value, float(disputed.mean()))
    flips = _flips(counts, names) if symmetry < LEVEL and kind != "none" else ()
    return Diagnosis(
        kind,
        reason,
        _transition(count_pairs(decoded.classes, labels, size)),
        floor.rate,
        float(disputed.mean()),
        flips,
        floor.p_value,
        symmetry,
        class_p_value,
    )


def _read(labels: Any, class_names: Any, count: int, size: int) -> tuple[np.ndarray, list]:
    """Returns labels of any form as integers in [0, size), and the names of the classes."""
    own, places = encode(labels, count, "labels")
    if own.dtype.kind == "i":
        return check_labels(own[places], size), check_class_names(class_names, size)
    names = own.tolist() if class_names is None else check_class_names(class_names, size)
    if len(names) != size or not set(own.tolist()) <= set(names):
        rule = f"be names of the {size} classes of `probabilities`, with `class_names` if some do not occur"
        raise refusal("labels", rule, ", ".join(map(repr, own.tolist())))
    return np.array([names.index(name) for name in own.tolist()])[places], names


def _transition(counts: np.ndarray) -> np.ndarray:
    """Returns counts with rows of sum one; a class without examples keeps its labels."""
    counts = np.where(counts.sum(axis=1, keepdims=True) > 0, counts, np.eye(len(counts)))
    return counts / counts.sum(axis=1, keepdims=True)


def _ranks(margin: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Returns the rank of each example in its class, the clearest first, as a fraction in (0, 1), `(N,)`.

    Equal margins share their mean rank: probabilities that are all alike do not tell which examples are clear.
    """
    order = np.lexsort((-margin, classes))
    ordered, totals = classes[order], np.bincount(classes)
    positions = np.arange(len(order)) - (np.cumsum(totals) - totals)[ordered] + 0.5
    is_new = (np.diff(ordered, prepend=-1) != 0) | (np.diff(margin[order], prepend=np.inf) != 0)
    groups = np.cumsum(is_new) - 1
    ranks = np.empty(len(order))
    ranks[order] = (np.bincount(groups, positions) / np.bincount(groups))[groups] / totals[ordered]
    return ranks


class _Floor(NamedTuple):
    """Fit of disputed labels by clearness.

    rate: fraction that stays for the clearest examples.
    p_value: p-value of a rate of at most 3%.
    majority_p_value: p-value of a rate of at most half of the disputed labels, so that the model errs in the others.
    half_p_value: p-value of a rate of at least one half.
    error_fraction: fraction of the disputed labels of clear examples that the model's errors explain.
    """

    rate: float
    p_value: float
    majority_p_value: float
    half_p_value: float
    error_fraction: float


def _fit_floor(disputed: np.ndarray, totals: np.ndarray) -> _Floor:
    """Fits p(disputed) = rate + (1 - rate) s(a + b logit r) by maximum likelihood to counts by rank, `(BINS,)`."""
    (rate, intercept, slope), loss = _minimum(disputed, totals, 0.0, 0.99)

    def signed_root(null: float) -> float:
        drop = _minimum(disputed, totals, null, null)[1] - loss
        return float(np.sign(rate - null) * np.sqrt(max(0.0, 2.0 * drop)))

    errors = totals * (1 - rate) * expit(intercept + slope * LOGITS)
    both = (totals * rate + errors)[:CLEAR].sum()
    return _Floor(
        float(rate),
        float(ndtr(-signed_root(NEARLY_NONE))),
        float(ndtr(-signed_root(disputed.sum() / totals.sum() / 2))),
        float(ndtr(signed_root(0.5))),
        float(errors[:CLEAR].sum() / both) if both > 0 else 1.0,
    )


def _minimum(disputed: np.ndarray, totals: np.ndarray, low: float, high: float) -> tuple[np.ndarray, float]:
    """Returns (rate, a, b) and the negative log-likelihood for a rate in [low, high], from two starts."""

    def loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Returns the negative log-likelihood and its gradient."""
        rate, intercept, slope = parameters
        error = expit(intercept + slope * LOGITS)
        p = np.clip(rate + (1 - rate) * error, 1e-12, 1 - 1e-12)
        value = -float(disputed @ np.log(p) + (totals - disputed) @ np.log1p(-p))
        p_gradient = (totals - disputed) / (1 - p) - disputed / p
        logit_gradient = p_gradient * (1 - rate) * error * (1 - error)
        return value, np.array([p_gradient @ (1 - error), logit_gradient.sum(), logit_gradient @ LOGITS])

    bounds = [(low, high), (-20.0, 20.0), (MIN_SLOPE, 5.0)]
    starts = (low, (low + min(high, 2 * disputed.sum() / totals.sum())) / 2) if low < high else (low,)
    fits = [minimize(loss, [rate, -2.0, 1.0], jac=True, method="L-BFGS-B", bounds=bounds) for rate in starts]
    best = min(fits, key=lambda fit: fit.fun)
    return best.x, float(best.fun)


def _test_symmetry(counts: np.ndarray) -> float:
    """Returns the p-value of flips to all other classes alike; nan without flips, or of two classes.

    Pearson's statistic over the classes is compared with a gamma distribution of its exact mean and variance, which
    holds for small counts also.
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


def _test_second_choices(decoded: Decoded, labels: np.ndarray, chosen: np.ndarray, slack: float) -> float:
    """Returns the p-value of labels that name the second choice no more often than the class and the model's errors do.

    Mean and variance of the number of agreements over all permutations of the labels within each class are exact, and
    the number is normal. The test is of the labels that are `chosen`, `(N,)`, the disputed ones of clear examples. Of
    those that would not agree by their class, a fraction `slack` may, because the model's errors explain it.
    """
    second, labels, classes = decoded.second[chosen], labels[chosen], decoded.classes[chosen]
    if not len(labels):
        return float("nan")
    moments = [_moments(second[classes == k], labels[classes == k]) for k in np.unique(classes)]
    expected, variance = np.sum(moments, axis=0)
    excess = np.sum(second == labels) - expected - slack * len(labels) - 0.5
    return float(ndtr(-excess / np.sqrt(max(1e-12, variance + len(labels) * slack * (1 - slack)))))


def _moments(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Returns mean and variance of the number of equal pairs if the values are paired at random."""
    size, count = 1 + max(first.max(), second.max()), float(len(first))
    a, b = (np.bincount(values, minlength=size).astype("float64") for values in (first, second))
    pairs = (a * b).sum()
    squares = pairs - ((a * b * b).sum() + (b * a * a).sum()) / count + (pairs / count) ** 2
    return pairs / count, max(0.0, squares) / max(1.0, count - 1.0)


def _flips(counts: np.ndarray, names: list) -> tuple[Flip, ...]:
    """Returns the flips that are too frequent by a binomial test with Bonferroni's correction."""
    p_values = flip_p_values(counts)
    pairs = np.argwhere(p_values < LEVEL / max(1, len(counts) * (len(counts) - 1))).tolist()
    pairs.sort(key=lambda pair: -counts[tuple(pair)])
    return tuple(Flip(names[i], names[j], int(counts[i, j]), float(p_values[i, j])) for i, j in pairs)


def _nothing_learned(p: np.ndarray, labels: np.ndarray) -> tuple[str, str] | None:
    """Returns "none" and the reason for a model that is not better than the majority class, by McNemar's test."""
    right, majority = argmax_rows(p) == labels, labels == np.bincount(labels).argmax()
    gained, lost = int(np.sum(right & ~majority)), int(np.sum(majority & ~right))
    if gained and binomtest(gained, gained + lost, alternative="greater").pvalue < LEVEL:
        return None
    return "none", NOTHING_LEARNED.format(right=right.mean(), majority=majority.mean())


def _judge(floor: _Floor, class_p_value: float, disputed: float) -> tuple[str, str]:
    """Returns the kind and the reason."""
    said = f"The model disagrees with {disputed:.1%} of the labels"
    if floor.p_value >= LEVEL:
        return "none", f"{said}. Like model errors, they get rare on clear examples (p {floor.p_value:.2g} for noise)."
    said = f"{said}, and about {floor.rate:.1%} however clear the example is (p {floor.p_value:.1g})."
    rest = "Too many of the others are of unclear examples to exclude that noise follows them."
    reasons = [
        (np.isnan(class_p_value), "With two classes, or no clear example, more cannot be told."),
        (class_p_value < LEVEL, f"{SECOND_CHOICES.format('more')} (p {class_p_value:.1g})."),
        (floor.majority_p_value >= LEVEL, rest),
        (floor.half_p_value >= LEVEL, "This is too near to half of the labels: a weak model looks the same."),
    ]
    if doubt := next((reason for is_so, reason in reasons if is_so), ""):
        return "by example", f"{said} {doubt}"
    return "by class", f"{said} {SECOND_CHOICES.format('no more')} (p {class_p_value:.2g})."
