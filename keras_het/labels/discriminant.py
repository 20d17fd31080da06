"""Linear discriminant analysis of features whose labels may be wrong: a linear classifier in closed form."""

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

SHRINKAGES = (0.9, 0.7, 0.5)  # with less, the classifier follows wrong labels that can be predicted
MAX_FEATURES = 4096  # with more, the covariance is left out, and the nearest mean decides
BLOCK_ROWS = 2048
EMPTY_LOGIT = -1e4  # of a class without labels
FOLDS = 5
MAX_TUNING_ROWS = 20_000  # by which shrinkage and temperature are chosen
MIN_EXAMPLES = 3  # of a class: held-out labels of a rarer one would only flatten all probabilities
RARE = 0.1  # of N / K: with an equal prior, the mean of a few examples would take those of other classes
MIN_GAIN = 1 / 3  # of the labels that frequencies change: on labels of rules, 63% become right, and accuracy falls
MIN_VARIANCE = 1e-4  # within the classes, as a part of the whole: equal features of a class have no inverse
MIN_STEPS = 100 * float(np.finfo("float32").eps)  # of a scale, as a part of the mean: below it float32 is coarse
FLIPS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)  # rates of labels drawn from all classes alike
MIN_SHARE = 0.01  # of a class without flips, as a part of N / K
MAX_RATIO = 10.0  # of the scale of a feature to that without a few far values
MIN_OTHERS = 10  # examples off the median of a feature: a word of few texts has no usual distance
MAX_ROUNDING = 5e-4  # by float32, as a part of the farthest distance from the median
LAYER_SCALES = (1e-6, 1e18)  # else a Normalization layer underflows: it squares in float32, and has an epsilon of 1e-7
HeldOut = tuple[np.ndarray, np.ndarray, np.ndarray]  # logits, labels and weights


class Discriminant(NamedTuple):
    """A linear classifier of scaled features: kernel, `(D, K)`, and bias, `(K,)`, float32; the kind of its priors."""

    kernel: np.ndarray
    bias: np.ndarray
    frequencies: bool = False

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Returns the logits of scaled features, `(N, K)`."""
        return x @ self.kernel + self.bias


class Sums(NamedTuple):
    """Weight and sum of features of each class, `(K,)` and `(K, D)`, and sum of x x', `(D, D)`; `(0, 0)` if unused."""

    counts: np.ndarray
    features: np.ndarray
    products: np.ndarray

    def minus(self, other: "Sums") -> "Sums":
        """Returns the sums of the other examples."""
        return Sums(*(own - part for own, part in zip(self, other, strict=True)))


class Scaling(NamedTuple):
    """A scaling of features, z = (x - mean) / scale: mean and scale, `(D,)`, float64."""

    mean: np.ndarray
    scale: np.ndarray

    def __call__(self, x: Any) -> np.ndarray:
        """Returns scaled features, `(N, D)`, float32."""
        return ((x - self.mean) / self.scale).astype("float32")

    def layers(self) -> list[keras.layers.Layer]:
        """Returns new layers of the same scaling, the first one in other units if float32 cannot hold the squares."""
        low, high = float(self.scale.min()), float(self.scale.max())
        is_held = LAYER_SCALES[0] <= low and high <= LAYER_SCALES[1]
        unit = 1.0 if is_held else 2.0 ** np.round(np.log2(low * min(np.sqrt(high / low), 1.0 / LAYER_SCALES[0])))
        first = [] if is_held else [keras.layers.Rescaling(float(1.0 / unit), dtype="float32")]
        mean, variance = (self.mean / unit).tolist(), np.square(self.scale / unit).tolist()
        return [*first, keras.layers.Normalization(mean=mean, variance=variance, dtype="float32")]


def scaling(x: Any, weights: np.ndarray | None = None) -> Scaling:
    """Returns the scaling of features, `(N, D)`, in any units, which makes none large that hardly varies.

        z_d = (x_d - mean_d) / s_d,    s_d^4 = 4/3 mean (x_d - mean_d)^4

    For a normal feature, s_d is sqrt(2) standard deviations. A word in one of a thousand texts would be thirty standard
    deviations, and is 5 s_d. A feature of less than 1e-24 of the largest s_d hardly counts.
    """
    with np.errstate(all="ignore"):  # of features that are not finite, which are refused elsewhere
        w, blocks = np.ones(len(x)) if weights is None else weights.astype("float64"), _blocks(np.arange(len(x)))
        mean = np.sum([w[rows] @ x[rows] for rows in blocks], axis=0) / w.sum()
        powers = [w[rows] @ np.square(np.square(x[rows] - mean)) for rows in blocks]
        scale = np.power(np.sum(powers, axis=0) * (4.0 / 3.0) / w.sum(), 0.25)
    scale = np.maximum(scale, MIN_STEPS * np.abs(mean))
    scale = np.maximum(scale, scale.max(initial=0.0) * LAYER_SCALES[0] / LAYER_SCALES[1])  # no layer holds both
    return Scaling(mean, np.where(scale > 0, scale, scale.max(initial=0.0) or 1.0))


def warn_of_values(x: Any) -> None:
    """Warns of a few values that make a scale ten times as large, as -9999 does, and of what float32 rounds."""
    sample = np.asarray(x[:: 1 + len(x) // BLOCK_ROWS], "float64")
    middle, low, high = np.median(sample, axis=0), x.min(axis=0), x.max(axis=0)
    farthest = np.where(high - middle > middle - low, high, low)
    distance, usual = np.abs(farthest - middle), _usual(np.abs(sample - middle))
    gaps = (np.abs(x[rows] - middle) for rows in _blocks(np.arange(len(x))))
    powers = ((np.square(np.square(gap)), gap > usual) for gap in gaps)
    far, near = np.sum([[(part * is_far).sum(axis=0), (part * ~is_far).sum(axis=0)] for part, is_far in powers], axis=0)
    ratio = np.power(far / np.where(near > 0, near, np.inf), 0.25)
    feature, count = int(ratio.argmax()), int((ratio > MAX_RATIO).sum())
    if count:
        warnings.warn(
            f"Feature {feature} of example {int((x[:, feature] == farthest[feature]).argmax())} is "
            f"{farthest[feature]:g}, which is {distance[feature] / usual[feature]:.0f} times as far from the median as "
            f"nearly all other values, and hides them{f' (so in {count} features)' * (count > 1)}. "
            "Replace it if it stands for a missing value, or leave the example out.",
            stacklevel=outside_level(),
        )
    rounding = np.abs(sample.astype("float32") - sample).max(axis=0)
    is_coarse = (distance < MIN_STEPS * np.abs(middle)) | (rounding > MAX_ROUNDING * distance)
    is_coarse &= (distance > 0) & (distance < np.abs(middle))
    if is_coarse.any():
        feature = int(is_coarse.argmax())
        warnings.warn(
            f"Feature {feature} is about {middle[feature]:.10g}, and its values differ by {distance[feature]:.3g}, "
            f"which float32 rounds. Subtract {middle[feature]:.10g} from it.",
            stacklevel=outside_level(),
        )


def _usual(distances: np.ndarray) -> np.ndarray:
    """Returns the largest distance of each feature but for two, or 2.5%, of the distinct ones; inf if most are 0."""
    ordered = np.sort(distances, axis=0)
    number = np.cumsum(np.diff(ordered, axis=0, prepend=0.0) > 0, axis=0)  # of different distances, from the least on
    few = np.minimum(np.maximum(2, number[-1] // 40), number[-1] - 1)
    is_common = ordered[-min(MIN_OTHERS, len(ordered))] > 0
    return np.where(is_common, np.where(number <= number[-1] - few, ordered, 0.0).max(axis=0), np.inf)


def discriminant(
    x: Any,
    labels: np.ndarray,
    units: int,
    weights: np.ndarray | None = None,
    scale: Callable[[np.ndarray], Any] = np.asarray,
    frequencies: bool | None = None,
) -> Discriminant:
    """Returns the discriminant of examples whose labels may be wrong.

        z_k(x) = (m_k' C^-1 x - m_k' C^-1 m_k / 2) / temperature + b log q_k,    C = (1 - a) S + a (tr S / D) I

    m_k is the mean of class k, q_k the fraction of its labels, and S the covariance of features less the mean of their
    class. With over 4,096 features S is left out. The shrinkage a (0.9, 0.7 or 0.5) and the temperature make the labels
    of held-out folds most likely, on 20,000 of them at most. A class of fewer than three examples has no part in this.
    Wrong labels leave the directions between the class means as they are, and only shorten them, as long as they do not
    depend on the features. The mean of many examples hardly moves for a few.

    Classes have equal priors, b = 0, unless their frequencies are clearly better on held-out labels. Labels of people
    and rules often have other frequencies than the true classes: there b = 1 predicts more labels and fewer classes.
    So the gain must exceed a standard error, and two thirds of the labels that b = 1 changes become right, or equal
    priors predict fewer labels than the largest class does; and labels must be more likely than by equal priors and
    flips to some classes. Then the priors are the frequencies without the uniform flips e that fit best,

        p(label j) = (1 - e) softmax(z)_j + e / K,    prior_k = (q_k - e / K) / (1 - e)

    and the temperature divides all of z. A class of fewer than N / 10 K examples never has an equal prior.

    Args:
        x: features, `(N, D)`, in memory or on disk; blocks of rows are read.
        labels: integers in [0, K), `(N,)`, or a distribution for each example, `(N, K)`.
        units: K.
        weights: weights of the examples, `(N,)`; None for equal ones.
        scale: function that scales a block of features, such as a `scaling`.
        frequencies: boolean, whether b = 1; None for the rule above.
    Source: Fisher 1936; shrinkage toward a multiple of the identity: Friedman 1989, "Regularized discriminant
        analysis", Eq. 18; for wrong labels on features of a trained network: Lee et al. 2019, "Robust inference via
        generative classifiers for handling noisy labels", section 3.1.

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
    own = labels[weights > 0]
    examples = np.bincount(own, minlength=units) if labels.ndim == 1 else own.sum(axis=0)  # few, whatever they weigh
    log_q, is_rare = _frequencies(whole.counts, examples)

    few = examples * (weights.sum() / examples.sum()) / np.where(whole.counts > 0, whole.counts, np.inf)
    part_of = (examples >= MIN_EXAMPLES) * np.where(is_rare, np.minimum(few, 1.0), 1.0)
    tuning, known, blocks = [], [], []
    for start, part in enumerate(parts):
        tuning.append(np.sort(order[start::FOLDS][: MAX_TUNING_ROWS // FOLDS]))
        known.append(np.tile(part_of * (whole.counts > part.counts), (len(tuning[-1]), 1)))
        blocks.append(_logits(x, tuning[-1], scale, solved(whole.minus(part), SHRINKAGES)))
    rows = np.concatenate(tuning)
    counted = _counted(labels[rows], weights[rows], np.concatenate(known))

    shrinkage, held_out = _best_shrinkage(np.concatenate(blocks, axis=1), counted, is_rare * log_q)
    (best,) = solved(whole, (shrinkage,))
    frequencies = _has_frequencies(held_out, log_q, is_rare) if frequencies is None else frequencies
    prior, factor = is_rare * log_q, best_scale(*held_out, is_rare * log_q)[0]
    if frequencies:
        prior, factor, _ = _corrected(held_out, log_q, is_rare)
    bias = np.where(whole.counts > 0, factor * best.bias + prior, EMPTY_LOGIT)
    return Discriminant(np.float32(factor) * best.kernel, bias.astype("float32"), frequencies)


def _best_shrinkage(
    logits: np.ndarray, counted: tuple[np.ndarray, np.ndarray], prior: np.ndarray
) -> tuple[float, HeldOut]:
    """Returns the shrinkage that makes held-out labels most likely, and its logits with labels and weights."""
    number = int(np.argmin([best_scale(each, *counted, prior)[1] for each in logits]))
    return SHRINKAGES[number], (logits[number], *counted)


def sums_of(
    x: Any, labels: np.ndarray, units: int, weights: np.ndarray, scale: Callable[[np.ndarray], Any], rows: np.ndarray
) -> Sums:
    """Returns the sums of some rows; arguments are those of `discriminant`."""
    width = x.shape[1]
    size = width if width <= MAX_FEATURES else 0
    counts, sums, squares = np.zeros(units), np.zeros((units, width)), np.zeros((size, size))
    for block in _blocks(rows):
        features, own = _scaled(scale, x[block]), labels[block]
        weighted = features * weights[block, None].astype("float32")
        shares = own if own.ndim == 2 else own[:, None] == np.arange(units)
        counts += weights[block] @ shares
        sums += shares.T.astype("float32") @ weighted
        if size:
            squares += weighted.T @ features
    return Sums(counts, sums, squares)


def solved(sums: Sums, shrinkages: tuple[float, ...]) -> list[Discriminant]:
    """Returns a discriminant for each shrinkage in (0, 1]."""
    has_labels = sums.counts > 0
    means = sums.features / np.where(has_labels, sums.counts, 1.0)[:, None]
    if not len(sums.products):
        kernels = [means.T / means.shape[1] for _ in shrinkages]
    else:
        total = max(sums.counts.sum(), float(np.finfo("float32").tiny))  # of a single example, a fold leaves none
        within = (sums.products - means.T @ sums.features) / total
        least = MIN_VARIANCE * np.trace(sums.products) / total
        variance = max(np.trace(within), least, float(np.finfo("float32").tiny)) / len(within)
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
    some: bool = False,
) -> tuple[float, float]:
    """Returns the factor of the logits, 1 / temperature, that makes labels most likely, and their mean -log p.

    p = (1 - flips) softmax(factor logits + prior) + flips g,    g = 1 / K, or the classes whose labels p lacks
    """
    tiny = np.finfo("float32").tiny
    rows, share = np.arange(len(labels)), weights / max(weights.sum(), tiny)
    q = np.bincount(labels, share, logits.shape[1]) if labels.ndim == 1 else share @ labels
    size = float(np.ptp(np.partition(logits, -2, axis=1)[:, -2:], axis=1).mean()) or 1.0  # of the gap to the next class
    added = np.asarray(prior, "float32")

    def loss(log_scale: float) -> float:
        log_p = log_softmax(np.float32(np.exp(log_scale) / size) * logits + added, axis=1)
        if flips:
            p = (1.0 - flips) * np.exp(log_p)
            lacking = np.maximum(q - share @ p, tiny) if some else np.ones_like(q)
            log_p = np.log(p + flips * lacking / lacking.sum())
        return float(-share @ (log_p[rows, labels] if labels.ndim == 1 else np.einsum("nk,nk->n", labels, log_p)))

    result = scipy.optimize.minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 0.01})
    return float(np.exp(result.x)) / size, float(result.fun)


def _frequencies(counts: np.ndarray, examples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns log K q of the classes, 0 for one without labels, and which are too rare for an equal prior."""
    share, own = (np.where(n > 0, n * (n > 0).sum() / n.sum(), 1.0) for n in (counts, examples))
    is_rare = (examples < MIN_EXAMPLES) | (own < RARE)
    return np.log(np.where(is_rare, np.minimum(share, own), share)), is_rare


def _has_frequencies(held_out: HeldOut, log_q: np.ndarray, is_rare: np.ndarray) -> bool:
    """Returns whether frequencies are clearly better priors on held-out labels: see `discriminant`."""
    (logits, labels, weights), prior = held_out, is_rare * log_q
    equal, own = (_scores(best_scale(*held_out, each)[0] * logits + each, labels) for each in (prior, log_q))
    gaps, largest = weights * (own - equal), _scores(np.broadcast_to(log_q, logits.shape), labels)
    is_behind = weights @ equal < weights @ largest
    if gaps.sum() <= max(np.linalg.norm(gaps), (not is_behind) * MIN_GAIN * np.abs(gaps).sum()):
        return False
    least = min(best_scale(*held_out, prior, flips, some=True)[1] for flips in FLIPS)
    return _corrected(held_out, log_q, is_rare)[2] < least


def _corrected(held_out: HeldOut, log_q: np.ndarray, is_rare: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Returns log priors without the uniform flips that fit best, the factor of logits, and the mean -log p."""
    fits = []
    for flips in FLIPS:
        share = np.where(is_rare, np.exp(log_q), (np.exp(log_q) - flips) / (1.0 - flips))
        if flips == 0.0 or share[~is_rare].min(initial=1.0) > MIN_SHARE:
            factor, loss = best_scale(*held_out, np.log(share), flips)
            fits.append((loss, np.log(share), factor))
    loss, prior, factor = min(fits, key=lambda fit: fit[0])
    scale, _ = best_scale(np.float32(factor) * held_out[0] + np.float32(prior), *held_out[1:])  # of p of noisy labels
    return scale * prior, scale * factor, loss


def _scores(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns whether each label is predicted, or the probability of the predicted class, `(n,)`."""
    predicted = logits.argmax(axis=1)
    return 1.0 * (predicted == labels) if labels.ndim == 1 else labels[np.arange(len(labels)), predicted]


def _counted(labels: np.ndarray, weights: np.ndarray, known: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns labels and weights without the labels of classes that are not known to the other folds, `(n, K)`."""
    if labels.ndim == 2:
        return labels * known, weights
    return labels, weights * known[np.arange(len(labels)), labels]


def _kernel(covariance: np.ndarray, added: float, means: np.ndarray) -> np.ndarray:
    """Returns C^-1 m of all classes, `(D, K)`; the covariance is overwritten."""
    covariance.flat[:: len(covariance) + 1] += added
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(covariance, overwrite_a=True), means.T)


def _logits(x: Any, rows: np.ndarray, scale: Callable, classifiers: list[Discriminant]) -> np.ndarray:
    """Returns the logits of some rows by each classifier, `(len(classifiers), n, K)`."""
    blocks = [_scaled(scale, x[block]) for block in _blocks(rows)]
    return np.stack([np.concatenate([each.logits(block) for block in blocks]) for each in classifiers])


def _blocks(rows: np.ndarray) -> list[np.ndarray]:
    return [rows[start : start + BLOCK_ROWS] for start in range(0, len(rows), BLOCK_ROWS)]


def _scaled(scale: Callable[[np.ndarray], Any], block: np.ndarray) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(scale(np.asarray(block))), "float32")
