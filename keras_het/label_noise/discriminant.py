"""Linear discriminant analysis of features whose labels may be wrong: a linear classifier in closed form."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.special import log_softmax

from keras_het.base.seeds import random_generator

SHRINKAGES = (0.9, 0.7, 0.5)  # with less, the classifier follows wrong labels that can be predicted
MOST = 4096  # features: of more, the covariance is left out, and the nearest mean decides
BLOCK = 2048  # examples at a time: their features stay in the caches
LEAST = 1e-10  # of the largest variance: less is rounding
NEVER = -1e4  # logit of a class that no label has
FOLDS = 5
ENOUGH = 20000  # examples by which shrinkage and temperature, two numbers, are chosen


class Scaling(NamedTuple):
    """What features, `(N, D)`, are centred and divided by, whatever their units: `mean` and `deviation`, `(D,)`."""

    mean: np.ndarray
    deviation: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Scaled features, float32."""
        scaled = self.centred(x)
        scaled /= self.deviation
        return scaled

    def centred(self, x: np.ndarray) -> np.ndarray:
        """Features less their means, float32."""
        return np.subtract(x, self.mean, dtype="float32")


class Discriminant(NamedTuple):
    """A linear classifier: logits of scaled features are `x @ kernel + bias`; `(D, K)` and `(K,)`, float32."""

    kernel: np.ndarray
    bias: np.ndarray

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Logits of scaled features, `(N, K)`."""
        return x @ self.kernel + self.bias


class Features(NamedTuple):
    """Features `x`, `(N, D)`, which may be on disk, and the `scale` that blocks of them get, a `Scaling`."""

    x: Any
    scale: Scaling

    def blocks(self, rows: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields some indices, and the scaled features of these examples: all at a time would be a second x."""
        for part in self._parts(rows):
            yield part, self.scale(self.x[part])

    def _parts(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        for start in range(0, len(rows), BLOCK):
            yield rows[start : start + BLOCK]

    def logits(self, rows: np.ndarray, fitted: Discriminant) -> np.ndarray:
        """The logits of some examples, `(n, K)`."""
        found = np.empty((len(rows), len(fitted.bias)), "float32")
        centred = Discriminant(fitted.kernel / self.scale.deviation[..., None], fitted.bias)
        for part, own in zip(self._parts(rows), self._parts(found), strict=True):
            own[:] = centred.logits(self.scale.centred(self.x[part]))
        return found


class Sums(NamedTuple):
    """What a discriminant is made of, and what can be added and subtracted: of classes, and of products.

    counts: weight of each class, `(K,)`.
    features: sums of features by class, `(K, D)`.
    products: sum of x x', `(D, D)`; `(0, 0)` where the covariance is left out.
    """

    counts: np.ndarray
    features: np.ndarray
    products: np.ndarray

    def without(self, *others: "Sums") -> "Sums":
        """Those of the other examples."""
        return Sums(*(own - sum(parts) for own, *parts in zip(self, *others, strict=True)))


def scaling(x: Any) -> Scaling:
    """A scaling of features, `(N, D)`, that makes none large that hardly varies.

        (x_d - mean_d) / sqrt(variance_d + v),    v the median of the variances above zero

    Without v a word in one of a thousand texts would be thirty standard deviations.
    """
    mean, variance = moments(x)
    varies = variance > LEAST * np.max(variance, initial=0.0)
    added = np.median(variance[varies]) if varies.any() else 1.0
    return Scaling(mean.astype("float32"), np.sqrt(variance + added).astype("float32"))


def moments(x: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of each feature, `(D,)` both, float64, without a second x."""
    with np.errstate(all="ignore"):  # of features that are not finite, which are refused elsewhere
        mean = np.asarray(x.mean(axis=0, dtype="float64"))
        squares = np.zeros_like(mean)
        for start in range(0, len(x), BLOCK):
            squares += np.square(x[start : start + BLOCK] - mean).sum(axis=0)
    return mean, squares / max(1, len(x))


def sums_of(
    features: Features, rows: np.ndarray, labels: np.ndarray, units: int, weights: np.ndarray, products: bool = True
) -> Sums:
    """The sums of some examples, with labels `(N,)` or distributions `(N, K)`, and weights `(N,)`, of all examples."""
    width = features.x.shape[1]
    size = width if products and width <= MOST else 0
    counts, sums, squares = np.zeros(units), np.zeros((units, width)), np.zeros((size, size))
    for part, x in features.blocks(rows):
        weighted, own = x * weights[part, None].astype("float32"), labels[part]
        share = own if own.ndim == 2 else own[:, None] == np.arange(units)
        counts += weights[part] @ share
        sums += share.T.astype("float32") @ weighted
        if size:
            squares += weighted.T @ x
    return Sums(counts, sums, squares)


def solved(sums: Sums, shrinkages: tuple[float, ...] = SHRINKAGES) -> list[Discriminant]:
    """A discriminant for each shrinkage, with equal priors of the classes.

        z_k(x) = m_k' C^-1 x - m_k' C^-1 m_k / 2,    C = (1 - a) S + a (tr S / D) I

    m_k is the mean of class k, S the covariance of features less the mean of their class. Without S, C is the identity.

    Args:
        sums: sums of the examples to learn from.
        shrinkages: values of a, in (0, 1].
    """
    known = sums.counts > 0
    means = sums.features / np.where(known, sums.counts, 1.0)[:, None]
    size = means.shape[1]
    if not len(sums.products):
        kernels = [means.T / size for _ in shrinkages]
    else:
        within = (sums.products - means.T @ sums.features) / sums.counts.sum()
        variance = max(float(np.trace(within)) / size, np.finfo("float32").tiny)
        kernels = [_kernel((1.0 - a) * within, a * variance, means) for a in shrinkages]
    biases = [np.where(known, -0.5 * np.einsum("kd,dk->k", means, kernel), NEVER) for kernel in kernels]
    pairs = zip(kernels, biases, strict=True)
    return [Discriminant(kernel.astype("float32"), bias.astype("float32")) for kernel, bias in pairs]


def _kernel(covariance: np.ndarray, added: float, means: np.ndarray) -> np.ndarray:
    """C^-1 m of all classes, `(D, K)`, by Cholesky's factor of C, which takes the place of the covariance."""
    covariance.flat[:: len(covariance) + 1] += added
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(covariance, overwrite_a=True), means.T)


def discriminant(
    x: Any,
    labels: np.ndarray,
    units: int,
    fold_of: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    scale: Scaling | None = None,
) -> tuple[Discriminant, np.ndarray]:
    """A discriminant of all examples, and the probabilities of each by the other folds.

    Shrinkage a, and the temperature that all logits are divided by, are those under which labels of held-out folds are
    most likely, 20,000 of them at random where there are more. Wrong labels leave the directions between the class
    means as they are, and only shorten them, so long as they do not depend on the features; and a mean of many examples
    hardly moves for a few.

    Args:
        x: features, `(N, D)`, in memory or on disk.
        labels: integers in [0, K), `(N,)`, which may be wrong; or a distribution for each example, `(N, K)`.
        units: K.
        fold_of: the fold of each example, `(N,)`; None for five at random.
        weights: weights of the examples, `(N,)`; None for equal ones.
        scale: scaling of the features; None for features that are scaled.
    Returns:
        the classifier, of scaled features, and `(N, K)`, float32, each row of sum 1.
    Source: Fisher 1936; shrinkage toward a multiple of the identity: Friedman 1989, "Regularized discriminant
        analysis", Eq. 18; for wrong labels on features of a trained network: Lee et al. 2019, "Robust inference via
        generative classifiers for handling noisy labels", section 3.1.

    Example:
        >>> x = np.array([[0.0], [0.1], [1.0], [0.9], [0.05], [0.95]], "float32")
        >>> fitted, p = discriminant(x, np.array([0, 0, 1, 1, 0, 1]), 2, np.arange(6) % 2)
        >>> fitted.logits(x).argmax(axis=1).tolist(), p.argmax(axis=1).tolist()
        ([0, 0, 1, 1, 0, 1], [0, 0, 1, 1, 0, 1])
    """
    folds = Folds(x, labels, units, fold_of, weights, scale)
    number, factor = folds.best(())
    p = np.empty((len(labels), units), "float32")
    for fold, rows in enumerate(folds.parts):
        log_p = log_softmax(factor * folds.features.logits(rows, folds.without(fold)[number]), axis=1)
        p[rows] = np.exp(log_p)
    return folds.scaled((), number, factor), p / p.sum(axis=1, keepdims=True)


def discriminants(*arguments: Any) -> list[Discriminant]:
    """A discriminant for each fold, of the examples of the others; shrinkage and temperature are of these, too.

    Sums are made once for all: each is as `discriminant` of the other folds.

    Args:
        arguments: arguments of `discriminant`, with folds, at least three.
    """
    folds = Folds(*arguments)
    return [folds.scaled((fold,), *folds.best((fold,))) for fold in range(len(folds.parts))]


class Folds:
    """The sums of each fold, and the discriminants of all folds but some.

    Args:
        arguments: arguments of `discriminant`.
    """

    def __init__(
        self,
        x: Any,
        labels: np.ndarray,
        units: int,
        fold_of: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        scale: Scaling | None = None,
    ):
        fold_of = random_generator(0).permutation(len(x)) % FOLDS if fold_of is None else fold_of
        unscaled = Scaling(np.zeros((), "float32"), np.ones((), "float32"))
        self.features, self.labels = Features(x, unscaled if scale is None else scale), labels
        self.weights = np.ones(len(x)) if weights is None else weights
        self.parts = [np.flatnonzero(fold_of == fold) for fold in np.unique(fold_of)]
        self._sums = [sums_of(self.features, rows, labels, units, self.weights) for rows in self.parts]
        self._whole = Sums(*(functools.reduce(np.add, values) for values in zip(*self._sums, strict=True)))
        self._found: dict[frozenset, list[Discriminant]] = {}
        share = min(1.0, ENOUGH / len(x))
        self._some = [rows[: max(1, round(share * len(rows)))] for rows in map(self._shuffled, self.parts)]

    def _shuffled(self, rows: np.ndarray) -> np.ndarray:
        return rows if len(self.labels) <= ENOUGH else random_generator(0).permutation(rows)

    def without(self, *left: int) -> list[Discriminant]:
        """A discriminant for each shrinkage, of all folds but some."""
        if (key := frozenset(left)) not in self._found:
            self._found[key] = solved(self._whole.without(*(self._sums[fold] for fold in key)))
        return self._found[key]

    def best(self, left: tuple[int, ...]) -> tuple[int, np.float32]:
        """The number of the shrinkage and the factor of the logits under which labels of held-out folds are likeliest.

        Args:
            left: folds that are left out.
        """
        folds = [fold for fold in range(len(self.parts)) if fold not in left]
        rows = np.concatenate([self._some[fold] for fold in folds])
        found = []
        for number in range(len(SHRINKAGES)):
            parts = [self.features.logits(self._some[fold], self.without(fold, *left)[number]) for fold in folds]
            found.append(best_scale(np.concatenate(parts), self.labels[rows], self.weights[rows]))
        best = int(np.argmin([loss for _, loss in found]))
        return best, np.float32(found[best][0])

    def scaled(self, left: tuple[int, ...], number: int, factor: np.float32) -> Discriminant:
        """The discriminant of all folds but some, whose logits are multiplied by a factor."""
        fitted = self.without(*left)[number]
        return Discriminant(factor * fitted.kernel, factor * fitted.bias)


def best_scale(logits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The factor of logits under which labels are most likely, one over the temperature, and their mean -log p."""
    rows, share = np.arange(len(labels)), weights / weights.sum()

    def loss(log_scale: float) -> float:
        log_p = log_softmax(np.float32(np.exp(log_scale)) * logits, axis=1)
        return float(-share @ (log_p[rows, labels] if labels.ndim == 1 else np.einsum("nk,nk->n", labels, log_p)))

    found = scipy.optimize.minimize_scalar(loss, bounds=(-8.0, 3.0), method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x)), float(found.fun)
