"""Linear discriminant analysis for noisy labels: a linear classifier of features in closed form."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.special import log_softmax

from keras_het.base.refusal import outside_level
from keras_het.base.seeds import random_generator

SHRINKAGES = (0.9, 0.7, 0.5)  # with less, the classifier follows label errors that can be predicted
MAX_COVARIANCE_FEATURES = 4096  # with more, the nearest class mean decides, without a covariance
BLOCK_ROWS = 2048
EMPTY_LOGIT = -1e4  # for a class without labels
FOLDS = 5
MAX_TUNING_ROWS = 20_000
MIN_CLASS_EXAMPLES = 3  # else held-out labels of a rare class would flatten all probabilities
RARE_FRACTION = 0.1  # relative to N / K; with an equal prior, a rarer class would attract examples of other classes
MIN_NET_GAIN = 1 / 3  # of the changed predictions; on labels by rules, 63% become correct although accuracy falls
MIN_VARIANCE_FRACTION = 1e-4  # within classes; without it, equal features of a class give a singular matrix
MIN_RELATIVE_SCALE = 100 * float(np.finfo("float32").eps)  # scale / mean; below it, float32 has too few steps
FLIP_RATES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
MIN_PRIOR = 0.01  # relative to 1 / K
MAX_SCALE_RATIO = 10.0  # scale of a feature / its scale without a few far values
MIN_DISTINCT_EXAMPLES = 10  # off the median; a word of few texts has no usual distance
MAX_RELATIVE_ROUNDING = 5e-4  # float32 rounding / largest distance from the median
LAYER_SCALES = (1e-6, 1e18)  # else a Normalization layer underflows: it squares in float32, and has an epsilon of 1e-7
HeldOut = tuple[np.ndarray, np.ndarray, np.ndarray]  # logits, labels and weights


class Discriminant(NamedTuple):
    """Linear classifier of scaled features: kernel, `(D, K)`, bias, `(K,)`, and whether priors are frequencies."""

    kernel: np.ndarray
    bias: np.ndarray
    has_frequencies: bool = False

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Returns the logits of scaled features, `(N, K)`."""
        return x @ self.kernel + self.bias


class Sums(NamedTuple):
    """Weights and sums of features by class, `(K,)` and `(K, D)`, and sum of x x', `(D, D)` or `(0, 0)`."""

    counts: np.ndarray
    features: np.ndarray
    products: np.ndarray

    def subtract(self, other: "Sums") -> "Sums":
        """Returns the sums without the examples of `other`."""
        return Sums(*(total - part for total, part in zip(self, other, strict=True)))


class Scaling(NamedTuple):
    """Scaling of features, z = (x - mean) / scale, with mean and scale `(D,)`, float64."""

    mean: np.ndarray
    scale: np.ndarray

    def __call__(self, x: Any) -> np.ndarray:
        """Returns scaled features, `(N, D)`, float32."""
        return ((x - self.mean) / self.scale).astype("float32")

    def layers(self) -> list[keras.layers.Layer]:
        """Returns new layers that scale; the first changes the unit if float32 cannot hold the squares."""
        low, high = float(self.scale.min()), float(self.scale.max())
        fits = LAYER_SCALES[0] <= low and high <= LAYER_SCALES[1]
        unit = 1.0 if fits else 2.0 ** np.round(np.log2(low * min(np.sqrt(high / low), 1.0 / LAYER_SCALES[0])))
        rescaling = [] if fits else [keras.layers.Rescaling(float(1.0 / unit), dtype="float32")]
        mean, variance = (self.mean / unit).tolist(), np.square(self.scale / unit).tolist()
        return [*rescaling, keras.layers.Normalization(mean=mean, variance=variance, dtype="float32")]


def scaling(x: Any, weights: np.ndarray | None = None) -> Scaling:
    """Returns a scaling of features, `(N, D)`, in any units, that keeps nearly constant features small.

        z_d = (x_d - mean_d) / s_d,    s_d^4 = 4/3 mean (x_d - mean_d)^4

    For a normal feature, s_d is sqrt(2) standard deviations. A word in one of a thousand texts is 5 s_d from the mean,
    not 30 standard deviations. A feature with less than 1e-24 of the largest s_d hardly counts.
    """
    with np.errstate(all="ignore"):  # the caller refuses features that are not finite
        w, blocks = np.ones(len(x)) if weights is None else weights.astype("float64"), _blocks(np.arange(len(x)))
        mean = np.sum([w[rows] @ x[rows] for rows in blocks], axis=0) / w.sum()
        powers = [w[rows] @ np.square(np.square(x[rows] - mean)) for rows in blocks]
        scale = np.power(np.sum(powers, axis=0) * (4.0 / 3.0) / w.sum(), 0.25)
    scale = np.maximum(scale, MIN_RELATIVE_SCALE * np.abs(mean))
    scale = np.maximum(scale, scale.max(initial=0.0) * LAYER_SCALES[0] / LAYER_SCALES[1])  # no layer has a wider range
    return Scaling(mean, np.where(scale > 0, scale, scale.max(initial=0.0) or 1.0))


def warn_of_values(x: Any) -> None:
    """Warns if a few values make a scale ten times larger, as -9999 does, or if float32 rounds the features."""
    sample = np.asarray(x[:: 1 + len(x) // BLOCK_ROWS], "float64")
    middle, low, high = np.median(sample, axis=0), x.min(axis=0), x.max(axis=0)
    farthest = np.where(high - middle > middle - low, high, low)
    distance, usual = np.abs(farthest - middle), _usual_distance(np.abs(sample - middle))
    gaps = (np.abs(x[rows] - middle) for rows in _blocks(np.arange(len(x))))
    powers = ((np.square(np.square(gap)), gap > usual) for gap in gaps)
    far, near = np.sum([[(power * mask).sum(axis=0), (power * ~mask).sum(axis=0)] for power, mask in powers], axis=0)
    ratio = np.power(far / np.where(near > 0, near, np.inf), 0.25)
    feature, count = int(ratio.argmax()), int((ratio > MAX_SCALE_RATIO).sum())
    if count:
        warnings.warn(
            f"Feature {feature} of example {int((x[:, feature] == farthest[feature]).argmax())} is "
            f"{farthest[feature]:g}, {distance[feature] / usual[feature]:.0f} times as far from the median as nearly "
            f"all other values, so scaling hides them{f' (in {count} features)' * (count > 1)}. "
            "Replace the value if it marks a missing one, or leave the example out.",
            stacklevel=outside_level(),
        )
    rounding = np.abs(sample.astype("float32") - sample).max(axis=0)
    is_coarse = (distance < MIN_RELATIVE_SCALE * np.abs(middle)) | (rounding > MAX_RELATIVE_ROUNDING * distance)
    is_coarse &= (distance > 0) & (distance < np.abs(middle))
    if is_coarse.any():
        feature = int(is_coarse.argmax())
        warnings.warn(
            f"Feature {feature} is about {middle[feature]:.10g}, and float32 rounds its differences of about "
            f"{distance[feature]:.3g}. Subtract {middle[feature]:.10g} from it.",
            stacklevel=outside_level(),
        )


def _usual_distance(distances: np.ndarray) -> np.ndarray:
    """Returns the largest distance of each feature without its 2 (or 2.5%) largest distinct distances.

    It is inf if fewer than 10 distances are above 0.
    """
    ordered = np.sort(distances, axis=0)
    ranks = np.cumsum(np.diff(ordered, axis=0, prepend=0.0) > 0, axis=0)  # equal distances have equal ranks
    few = np.minimum(np.maximum(2, ranks[-1] // 40), ranks[-1] - 1)
    is_common = ordered[-min(MIN_DISTINCT_EXAMPLES, len(ordered))] > 0
    return np.where(is_common, np.where(ranks <= ranks[-1] - few, ordered, 0.0).max(axis=0), np.inf)


def discriminant(
    x: Any,
    labels: np.ndarray,
    units: int,
    weights: np.ndarray | None = None,
    scale: Callable[[np.ndarray], Any] = np.asarray,
    has_frequencies: bool | None = None,
) -> Discriminant:
    """Returns the linear discriminant of examples with noisy labels.

        z_k(x) = (m_k' C^-1 x - m_k' C^-1 m_k / 2) / temperature + b log q_k,    C = (1 - a) S + a (tr S / D) I

    m_k is the mean of class k, q_k the fraction of its labels, and S the covariance of features minus their class mean.
    With more than 4,096 features S is omitted. The shrinkage a (0.9, 0.7 or 0.5) and the temperature maximise the
    likelihood of held-out labels, at most 20,000. Classes with fewer than three examples do not count in it. Label
    errors that do not depend on the features shorten the differences of the class means, and keep their directions.

    Classes have equal priors, b = 0, unless their frequencies, b = 1, are clearly better on held-out labels. Labels of
    people and rules often have other frequencies than the true classes. Then b = 1 predicts more labels, but fewer true
    classes. So b = 1 must pass three tests. Its gain exceeds a standard error. Two thirds of the predictions that it
    changes become correct, or equal priors are worse than the majority class. And labels are more likely than by equal
    priors with flips to some classes. Then the priors are the frequencies without the uniform flips e that fit best,

        p(label j) = (1 - e) softmax(z)_j + e / K,    prior_k = (q_k - e / K) / (1 - e)

    and the temperature divides all of z. A class with fewer than N / 10 K examples never has an equal prior.

    Args:
        x: features, `(N, D)`, in memory or on disk, read in blocks of rows.
        labels: integers in [0, K), `(N,)`, or distributions, `(N, K)`.
        units: K.
        weights: weights of the examples, `(N,)`; None for equal ones.
        scale: function that scales a block of features, such as a `scaling`.
        has_frequencies: boolean, whether b = 1; None for the rule above.
    Source: Fisher 1936; Friedman 1989, "Regularized discriminant analysis", Eq. 18, for the shrinkage; Lee et al. 2019,
        "Robust inference via generative classifiers for handling noisy labels", section 3.1, for noisy labels.

    Example:
        >>> x = np.array([[0.0], [0.1], [1.0], [0.9], [0.05], [0.95]], "float32")
        >>> discriminant(x, np.array([0, 0, 1, 1, 0, 1]), 2).logits(x).argmax(axis=1).tolist()
        [0, 0, 1, 1, 0, 1]
    """
    weights = np.ones(len(x)) if weights is None else weights
    order = random_generator(0).permutation(len(x))
    folds = [np.sort(order[start::FOLDS]) for start in range(min(FOLDS, len(x)))]
    parts = [sums_of(x, labels, units, weights, scale, rows) for rows in folds]
    whole = Sums(*(np.sum(values, axis=0) for values in zip(*parts, strict=True)))
    used = labels[weights > 0]
    examples = np.bincount(used, minlength=units) if labels.ndim == 1 else used.sum(axis=0)  # regardless of weights
    log_q, is_rare = _log_frequencies(whole.counts, examples)

    relative = examples * (weights.sum() / examples.sum()) / np.where(whole.counts > 0, whole.counts, np.inf)
    class_weights = (examples >= MIN_CLASS_EXAMPLES) * np.where(is_rare, np.minimum(relative, 1.0), 1.0)
    tuning, tuning_weights, blocks = [], [], []
    for start, part in enumerate(parts):
        tuning.append(np.sort(order[start::FOLDS][: MAX_TUNING_ROWS // FOLDS]))
        tuning_weights.append(np.tile(class_weights * (whole.counts > part.counts), (len(tuning[-1]), 1)))
        blocks.append(_logits(x, tuning[-1], scale, solve(whole.subtract(part), SHRINKAGES)))
    rows = np.concatenate(tuning)
    targets = _weigh_classes(labels[rows], weights[rows], np.concatenate(tuning_weights))

    shrinkage, held_out = _best_shrinkage(np.concatenate(blocks, axis=1), targets, is_rare * log_q)
    (best,) = solve(whole, (shrinkage,))
    has_frequencies = _has_frequencies(held_out, log_q, is_rare) if has_frequencies is None else has_frequencies
    prior, factor = is_rare * log_q, best_scale(*held_out, is_rare * log_q)[0]
    if has_frequencies:
        prior, factor, _ = _fit_priors(held_out, log_q, is_rare)
    bias = np.where(whole.counts > 0, factor * best.bias + prior, EMPTY_LOGIT)
    return Discriminant(np.float32(factor) * best.kernel, bias.astype("float32"), has_frequencies)


def _best_shrinkage(
    logits: np.ndarray, targets: tuple[np.ndarray, np.ndarray], prior: np.ndarray
) -> tuple[float, HeldOut]:
    """Returns the shrinkage that makes held-out labels most likely, and its logits with labels and weights."""
    number = int(np.argmin([best_scale(candidate, *targets, prior)[1] for candidate in logits]))
    return SHRINKAGES[number], (logits[number], *targets)


def sums_of(
    x: Any, labels: np.ndarray, units: int, weights: np.ndarray, scale: Callable[[np.ndarray], Any], rows: np.ndarray
) -> Sums:
    """Returns the sums over `rows`; `discriminant` describes the other arguments."""
    width = x.shape[1]
    size = width if width <= MAX_COVARIANCE_FEATURES else 0
    counts, sums, squares = np.zeros(units), np.zeros((units, width)), np.zeros((size, size))
    for block in _blocks(rows):
        features, observed = _scale_block(scale, x[block]), labels[block]
        weighted = features * weights[block, None].astype("float32")
        one_hot = observed if observed.ndim == 2 else observed[:, None] == np.arange(units)
        counts += weights[block] @ one_hot
        sums += one_hot.T.astype("float32") @ weighted
        if size:
            squares += weighted.T @ features
    return Sums(counts, sums, squares)


def solve(sums: Sums, shrinkages: tuple[float, ...]) -> list[Discriminant]:
    """Returns a discriminant for each shrinkage in (0, 1]."""
    has_labels = sums.counts > 0
    means = sums.features / np.where(has_labels, sums.counts, 1.0)[:, None]
    if not len(sums.products):
        kernels = [means.T / means.shape[1] for _ in shrinkages]
    else:
        total = max(sums.counts.sum(), float(np.finfo("float32").tiny))  # a fold without examples has a total of 0
        within = (sums.products - means.T @ sums.features) / total
        floor = MIN_VARIANCE_FRACTION * np.trace(sums.products) / total
        variance = max(np.trace(within), floor, float(np.finfo("float32").tiny)) / len(within)
        kernels = [_kernel((1.0 - a) * within, a * variance, means) for a in shrinkages]
    biases = [np.where(has_labels, -0.5 * np.einsum("kd,dk->k", means, kernel), EMPTY_LOGIT) for kernel in kernels]
    pairs = zip(kernels, biases, strict=True)
    return [Discriminant(kernel.astype("float32"), bias.astype("float32")) for kernel, bias in pairs]


def best_scale(
    logits: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray,
    prior: Any = 0.0,
    flips: float = 0.0,
    flips_to_some: bool = False,
) -> tuple[float, float]:
    """Returns the factor of the logits, 1 / temperature, that makes labels most likely, and their mean -log p.

    p = (1 - flips) softmax(factor logits + prior) + flips g,    g = 1 / K or the classes p lacks
    """
    tiny = np.finfo("float32").tiny
    rows, fractions = np.arange(len(labels)), weights / max(weights.sum(), tiny)
    q = np.bincount(labels, fractions, logits.shape[1]) if labels.ndim == 1 else fractions @ labels
    gap = float(np.ptp(np.partition(logits, -2, axis=1)[:, -2:], axis=1).mean()) or 1.0  # to the second class
    log_prior = np.asarray(prior, "float32")

    def loss(log_scale: float) -> float:
        log_p = log_softmax(np.float32(np.exp(log_scale) / gap) * logits + log_prior, axis=1)
        if flips:
            p = (1.0 - flips) * np.exp(log_p)
            lacking = np.maximum(q - fractions @ p, tiny) if flips_to_some else np.ones_like(q)
            log_p = np.log(p + flips * lacking / lacking.sum())
        return float(-fractions @ (log_p[rows, labels] if labels.ndim == 1 else np.einsum("nk,nk->n", labels, log_p)))

    result = scipy.optimize.minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 0.01})
    return float(np.exp(result.x)) / gap, float(result.fun)


def _log_frequencies(counts: np.ndarray, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns log K q of the classes, 0 for a class without labels, and which are too rare for an equal prior."""
    weighted, unweighted = (np.where(n > 0, n * (n > 0).sum() / n.sum(), 1.0) for n in (counts, examples))
    is_rare = (examples < MIN_CLASS_EXAMPLES) | (unweighted < RARE_FRACTION)
    return np.log(np.where(is_rare, np.minimum(weighted, unweighted), weighted)), is_rare


def _has_frequencies(held_out: HeldOut, log_q: np.ndarray, is_rare: np.ndarray) -> bool:
    """Returns whether frequencies are clearly better priors on held-out labels: see `discriminant`."""
    (logits, labels, weights), equal_prior = held_out, is_rare * log_q
    equal, frequent = (_scores(best_scale(*held_out, q)[0] * logits + q, labels) for q in (equal_prior, log_q))
    gaps, majority = weights * (frequent - equal), _scores(np.broadcast_to(log_q, logits.shape), labels)
    is_worse = weights @ equal < weights @ majority
    if gaps.sum() <= max(np.linalg.norm(gaps), (not is_worse) * MIN_NET_GAIN * np.abs(gaps).sum()):
        return False
    loss = min(best_scale(*held_out, equal_prior, flips, flips_to_some=True)[1] for flips in FLIP_RATES)
    return _fit_priors(held_out, log_q, is_rare)[2] < loss


def _fit_priors(held_out: HeldOut, log_q: np.ndarray, is_rare: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Returns log priors without the uniform flips that fit best, the factor of logits, and the mean -log p."""
    fits = []
    for flips in FLIP_RATES:
        prior = np.where(is_rare, np.exp(log_q), (np.exp(log_q) - flips) / (1.0 - flips))
        if flips == 0.0 or prior[~is_rare].min(initial=1.0) > MIN_PRIOR:
            factor, loss = best_scale(*held_out, np.log(prior), flips)
            fits.append((loss, np.log(prior), factor))
    loss, log_prior, factor = min(fits, key=lambda fit: fit[0])
    logits = np.float32(factor) * held_out[0] + np.float32(log_prior)
    scale, _ = best_scale(logits, *held_out[1:])  # so that p is calibrated on noisy labels
    return scale * log_prior, scale * factor, loss


def _scores(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns whether each label is predicted, or the probability of the predicted class, `(n,)`."""
    predicted = logits.argmax(axis=1)
    return 1.0 * (predicted == labels) if labels.ndim == 1 else labels[np.arange(len(labels)), predicted]


def _weigh_classes(labels: np.ndarray, weights: np.ndarray, class_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns labels and weights times the weights of the classes, `(n, K)`."""
    if labels.ndim == 2:
        return labels * class_weights, weights
    return labels, weights * class_weights[np.arange(len(labels)), labels]


def _kernel(covariance: np.ndarray, ridge: float, means: np.ndarray) -> np.ndarray:
    """Returns C^-1 m of all classes, `(D, K)`, and overwrites the covariance."""
    covariance.flat[:: len(covariance) + 1] += ridge
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(covariance, overwrite_a=True), means.T)


def _logits(x: Any, rows: np.ndarray, scale: Callable, classifiers: list[Discriminant]) -> np.ndarray:
    """Returns the logits of `rows` by each classifier, `(len(classifiers), n, K)`."""
    blocks = [_scale_block(scale, x[block]) for block in _blocks(rows)]
    return np.stack([np.concatenate([model.logits(block) for block in blocks]) for model in classifiers])


def _blocks(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[start : start + BLOCK_ROWS] for start in range(0, len(rows), BLOCK_ROWS)]


def _scale_block(scale: Callable[[np.ndarray], Any], block: np.ndarray) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(scale(np.asarray(block))), "float32")
