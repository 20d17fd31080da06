"""Linear discriminant analysis of features whose labels may be wrong: a linear classifier in closed form."""

from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.special import log_softmax

from keras_het.base.seeds import random_generator

SHRINKAGES = (0.9, 0.7, 0.5)  # with less, the classifier follows wrong labels that can be predicted
MOST = 4096  # features: of more, the covariance is left out, and the nearest mean decides
BLOCK = 8192  # examples at a time
LEAST = 1e-10  # of the largest variance: less is rounding
NEVER = -1e4  # logit of a class that no label has
FOLDS = 5


class Scaling(NamedTuple):
    """What features, `(N, D)`, are centred and divided by, whatever their units: `mean` and `deviation`, `(D,)`."""

    mean: np.ndarray
    deviation: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Scaled features, float32."""
        return ((x - self.mean) / self.deviation).astype("float32")


class Discriminant(NamedTuple):
    """A linear classifier: logits of scaled features are `x @ kernel + bias`; `(D, K)` and `(K,)`, float32."""

    kernel: np.ndarray
    bias: np.ndarray

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Logits of scaled features, `(N, K)`."""
        return x @ self.kernel + self.bias


class Sums(NamedTuple):
    """What a discriminant is made of, and what can be added and subtracted: of classes, and of products.

    counts: weight of each class, `(K,)`.
    features: sums of features by class, `(K, D)`.
    products: sum of x x', `(D, D)`; `(0, 0)` where the covariance is left out.
    """

    counts: np.ndarray
    features: np.ndarray
    products: np.ndarray

    def without(self, other: "Sums") -> "Sums":
        """Those of the other examples."""
        return Sums(*(own - part for own, part in zip(self, other, strict=True)))


def scaling(x: np.ndarray) -> Scaling:
    """A scaling of features, `(N, D)`, that makes none large that hardly varies.

        (x_d - mean_d) / sqrt(variance_d + v),    v the median of the variances above zero

    Without v a word in one of a thousand texts would be thirty standard deviations.
    """
    mean, variance = x.mean(axis=0, dtype="float64"), x.var(axis=0).astype("float64")
    varies = variance > LEAST * np.max(variance, initial=0.0)
    added = np.median(variance[varies]) if varies.any() else 1.0
    return Scaling(mean.astype("float32"), np.sqrt(variance + added).astype("float32"))


def sums_of(x: np.ndarray, labels: np.ndarray, units: int, weights: np.ndarray) -> Sums:
    """The sums of scaled features, `(N, D)`, with labels `(N,)` or distributions `(N, K)`, and weights `(N,)`."""
    size = x.shape[1] if x.shape[1] <= MOST else 0
    counts, features, products = np.zeros(units), np.zeros((units, x.shape[1])), np.zeros((size, size))
    for start in range(0, len(x), BLOCK):
        rows = slice(start, start + BLOCK)
        weighted, own = x[rows] * weights[rows, None].astype("float32"), labels[rows]
        share = own if own.ndim == 2 else own[:, None] == np.arange(units)
        counts += weights[rows] @ share
        features += share.T.astype("float32") @ weighted
        if size:
            products += weighted.T @ x[rows]
    return Sums(counts, features, products)


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
        identity = variance * np.eye(size)
        covariances = ((1.0 - a) * within + a * identity for a in shrinkages)
        kernels = [scipy.linalg.solve(covariance, means.T, assume_a="pos") for covariance in covariances]
    biases = [np.where(known, -0.5 * np.einsum("kd,dk->k", means, kernel), NEVER) for kernel in kernels]
    pairs = zip(kernels, biases, strict=True)
    return [Discriminant(kernel.astype("float32"), bias.astype("float32")) for kernel, bias in pairs]


def discriminant(
    x: np.ndarray,
    labels: np.ndarray,
    units: int,
    fold_of: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> tuple[Discriminant, np.ndarray]:
    """A discriminant of all examples, and the probabilities of each by the other folds.

    Shrinkage a, and the temperature that all logits are divided by, are those under which labels of held-out folds are
    most likely. Wrong labels leave the directions between the class means as they are, and only shorten them, so long
    as they do not depend on the features; and a mean of many examples hardly moves for a few.

    Args:
        x: scaled features, `(N, D)`, float32.
        labels: integers in [0, K), `(N,)`, which may be wrong; or a distribution for each example, `(N, K)`.
        units: K.
        fold_of: the fold of each example, `(N,)`; None for five at random.
        weights: weights of the examples, `(N,)`; None for equal ones.
    Returns:
        the classifier, and `(N, K)`, float32, each row of sum 1.
    Source: Fisher 1936; shrinkage toward a multiple of the identity: Friedman 1989, "Regularized discriminant
        analysis", Eq. 18; for wrong labels on features of a trained network: Lee et al. 2019, "Robust inference via
        generative classifiers for handling noisy labels", section 3.1.

    Example:
        >>> x = np.array([[0.0], [0.1], [1.0], [0.9], [0.05], [0.95]], "float32")
        >>> fitted, p = discriminant(x, np.array([0, 0, 1, 1, 0, 1]), 2, np.arange(6) % 2)
        >>> fitted.logits(x).argmax(axis=1).tolist(), p.argmax(axis=1).tolist()
        ([0, 0, 1, 1, 0, 1], [0, 0, 1, 1, 0, 1])
    """
    weights = np.ones(len(x)) if weights is None else weights
    fold_of = random_generator(0).permutation(len(x)) % FOLDS if fold_of is None else fold_of
    parts = [np.flatnonzero(fold_of == fold) for fold in np.unique(fold_of)]
    sums = [sums_of(x[rows], labels[rows], units, weights[rows]) for rows in parts]
    whole = Sums(*(np.sum(values, axis=0) for values in zip(*sums, strict=True)))
    held_out = np.empty((len(SHRINKAGES), len(x), units), "float32")
    for rows, part in zip(parts, sums, strict=True):
        for number, fitted in enumerate(solved(whole.without(part))):
            held_out[number, rows] = fitted.logits(x[rows])
    found = [best_scale(logits, labels, weights) for logits in held_out]
    best = int(np.argmin([loss for _, loss in found]))
    scale = np.float32(found[best][0])
    (fitted,) = solved(whole, SHRINKAGES[best : best + 1])
    p = np.exp(log_softmax(scale * held_out[best], axis=1))
    return Discriminant(scale * fitted.kernel, scale * fitted.bias), p / p.sum(axis=1, keepdims=True)


def best_scale(logits: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """The factor of logits under which labels are most likely, one over the temperature, and their mean -log p."""
    rows, share = np.arange(len(labels)), weights / weights.sum()

    def loss(log_scale: float) -> float:
        log_p = log_softmax(np.exp(log_scale) * logits, axis=1)
        return float(-share @ (log_p[rows, labels] if labels.ndim == 1 else np.einsum("nk,nk->n", labels, log_p)))

    found = scipy.optimize.minimize_scalar(loss, bounds=(-8.0, 3.0), method="bounded", options={"xatol": 0.01})
    return float(np.exp(found.x)), float(found.fun)
