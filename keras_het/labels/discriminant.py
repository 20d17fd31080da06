"""Linear discriminant analysis of features whose labels may be wrong: a linear classifier in closed form."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.special import log_softmax

from keras_het.base.seeds import random_generator

SHRINKAGES = (0.9, 0.7, 0.5)  # with less, the classifier follows wrong labels that can be predicted
MAX_FEATURES = 4096  # with more, the covariance is left out, and the nearest mean decides
BLOCK_ROWS = 2048
ROUNDING = 1e-10  # variances below this part of the largest one are rounding
EMPTY_LOGIT = -1e4  # of a class without labels
FOLDS = 5
MAX_TUNING_ROWS = 20_000  # by which shrinkage and temperature are chosen


class Discriminant(NamedTuple):
    """A linear classifier of scaled features: kernel, `(D, K)`, and bias, `(K,)`, float32."""

    kernel: np.ndarray
    bias: np.ndarray

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


def normalization(x: Any, weights: np.ndarray | None = None) -> keras.layers.Normalization:
    """Returns a layer that scales features, `(N, D)`, and makes none large that hardly varies.

        (x_d - mean_d) / sqrt(variance_d + v),    v the median of the variances above zero

    Without v a word in one of a thousand texts would be thirty standard deviations.
    """
    with np.errstate(all="ignore"):  # of features that are not finite, which are refused elsewhere
        w = np.ones(len(x)) if weights is None else weights.astype("float64")
        mean = np.asarray(x.mean(axis=0, dtype="float64") if weights is None else w @ x / w.sum())
        squares = (w[rows] @ np.square(x[rows] - mean) for rows in _blocks(np.arange(len(x))))
        variance: np.ndarray = np.sum(list(squares), axis=0) / max(1.0, w.sum())
    varies = variance > ROUNDING * variance.max(initial=0.0)
    variance = variance + (np.median(variance[varies]) if varies.any() else 1.0)
    return keras.layers.Normalization(mean=mean.tolist(), variance=variance.tolist(), dtype="float32")


def discriminant(
    x: Any,
    labels: np.ndarray,
    units: int,
    weights: np.ndarray | None = None,
    scale: Callable[[np.ndarray], Any] = np.asarray,
) -> Discriminant:
    """Returns the discriminant of examples whose labels may be wrong, with equal priors of the classes.

        z_k(x) = (m_k' C^-1 x - m_k' C^-1 m_k / 2) / temperature,    C = (1 - a) S + a (tr S / D) I

    m_k is the mean of class k, and S the covariance of features less the mean of their class. With over 4,096 features
    S is left out. The shrinkage a (0.9, 0.7 or 0.5) and the temperature make the labels of held-out folds most likely,
    on 20,000 of them at most. Wrong labels leave the directions between the class means as they are, and only shorten
    them, as long as they do not depend on the features. The mean of many examples hardly moves for a few.

    Args:
        x: features, `(N, D)`, in memory or on disk; blocks of rows are read.
        labels: integers in [0, K), `(N,)`, or a distribution for each example, `(N, K)`.
        units: K.
        weights: weights of the examples, `(N,)`; None for equal ones.
        scale: function that scales a block of features, such as a `normalization`.
    Source: Fisher 1936; shrinkage toward a multiple of the identity: Friedman 1989, "Regularized discriminant
        analysis", Eq. 18; for wrong labels on features of a trained network: Lee et al. 2019, "Robust inference via
        generative classifiers for handling noisy labels", section 3.1.

    Example:
        >>> x = np.array([[0.0], [0.1], [1.0], [0.9], [0.05], [0.95]], "float32")
        >>> discriminant(x, np.array([0, 0, 1, 1, 0, 1]), 2).logits(x).argmax(axis=1).tolist()
        [0, 0, 1, 1, 0, 1]
    """
    weights = np.ones(len(x)) if weights is None else weights
    order, tuned = random_generator(0).permutation(len(x)), max(1, MAX_TUNING_ROWS // FOLDS)
    folds = [np.sort(order[start::FOLDS]) for start in range(min(FOLDS, len(x)))]
    parts = [sums_of(x, labels, units, weights, scale, rows) for rows in folds]
    whole = Sums(*(np.sum(values, axis=0) for values in zip(*parts, strict=True)))
    some = [rows if len(rows) <= tuned else np.sort(order[start::FOLDS][:tuned]) for start, rows in enumerate(folds)]
    logits = [
        _logits(x, rows, scale, solved(whole.minus(part), SHRINKAGES)) for rows, part in zip(some, parts, strict=True)
    ]
    rows = np.concatenate(some)
    scales = [best_scale(each, labels[rows], weights[rows]) for each in np.concatenate(logits, axis=1)]
    number = int(np.argmin([loss for _, loss in scales]))
    (best,), factor = solved(whole, SHRINKAGES[number : number + 1]), np.float32(scales[number][0])
    return Discriminant(factor * best.kernel, factor * best.bias)


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
        within = (sums.products - means.T @ sums.features) / sums.counts.sum()
        variance = max(float(np.trace(within)) / len(within), float(np.finfo("float32").tiny))
        kernels = [_kernel((1.0 - a) * within, a * variance, means) for a in shrinkages]
    biases = [np.where(has_labels, -0.5 * np.einsum("kd,dk->k", means, kernel), EMPTY_LOGIT) for kernel in kernels]
    pairs = zip(kernels, biases, strict=True)
    return [Discriminant(kernel.astype("float32"), bias.astype("float32")) for kernel, bias in pairs]


def best_scale(logits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Returns the factor of the logits, 1 / temperature, that makes labels most likely, and their mean -log p."""
    rows, share = np.arange(len(labels)), weights / weights.sum()

    def loss(log_scale: float) -> float:
        log_p = log_softmax(np.float32(np.exp(log_scale)) * logits, axis=1)
        return float(-share @ (log_p[rows, labels] if labels.ndim == 1 else np.einsum("nk,nk->n", labels, log_p)))

    result = scipy.optimize.minimize_scalar(loss, bounds=(-8.0, 3.0), method="bounded", options={"xatol": 0.01})
    return float(np.exp(result.x)), float(result.fun)


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
    return keras.ops.convert_to_numpy(scale(np.asarray(block, "float32")))
