"""Linear classifiers of features: logistic regression, and a discriminant; held-out labels choose one."""

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from keras_het.base.batches import row_blocks
from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.labels.data import Data

STRENGTHS = (0.001, 0.004, 0.016, 0.064, 0.256)  # C of logistic regression, for weights of mean 1
SHRINKAGES = (0.9, 0.7, 0.5)  # with less, the discriminant follows label errors that can be predicted
MAX_REGRESSION_ROWS = 20_000  # logistic regression reads all rows at every step, and the discriminant twice
MAX_TUNING_ROWS = 20_000
MAX_COVARIANCE_FEATURES = 4096  # with more, the covariance of the discriminant is the identity
MAX_STEPS = 200
MIN_RELATIVE_DEVIATION = 1e-4  # float32 rounds to 6e-8
MIN_SCALE = 1e-7  # of `keras.layers.Normalization`
DEVIATIONS = (1e-30, 1e30)  # float32 holds kernels of such features
MIN_LOG = -1e4  # for a label of a class without labels in the other folds
TINY = float(np.finfo("float32").tiny)


class Candidate(NamedTuple):
    """Kind of classifier with its setting: C of "logistic regression" or a shrinkage of the discriminant."""

    kind: str
    setting: float

    @property
    def is_regression(self) -> bool:
        """Whether it is logistic regression."""
        return self.kind == "logistic regression"

    def __str__(self) -> str:
        if self.is_regression:
            return f"logistic regression (C = {self.setting:g}, class priors as in the labels)"
        return f"linear discriminant (shrinkage {self.setting:g}, equal class priors)"


REGRESSIONS = tuple(Candidate("logistic regression", strength) for strength in STRENGTHS)
DISCRIMINANTS = tuple(Candidate("linear discriminant", shrinkage) for shrinkage in SHRINKAGES)


class Classifier(NamedTuple):
    """Classifier of scaled features: kernel, `(D, K)`, and bias, `(K,)`."""

    kernel: np.ndarray
    bias: np.ndarray

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Returns the logits of scaled features, `(N, K)`."""
        return x @ self.kernel + self.bias


class Choice(NamedTuple):
    """Chosen candidate, the factor of its logits, and the best balanced accuracy of each kind on held-out labels."""

    candidate: Candidate
    factor: float
    scores: dict[str, float]


class Sums(NamedTuple):
    """Weights and sums of features by class, `(K,)` and `(K, D)`, and sums of v x x', `(D, D)` or `(0, 0)`."""

    counts: np.ndarray
    features: np.ndarray
    products: np.ndarray


class Scaling(NamedTuple):
    """Mean and standard deviation of features, `(D,)`, float64; 1 for a constant feature."""

    mean: np.ndarray
    deviation: np.ndarray

    def __call__(self, x: Any) -> np.ndarray:
        """Returns (x - mean) / deviation, float32."""
        return ((x - self.mean) / self.deviation).astype("float32")

    def warn_of_rounding(self) -> None:
        """Warns of a feature whose differences float32 rounds, because models read float32."""
        is_coarse = (self.deviation < MIN_RELATIVE_DEVIATION * np.abs(self.mean)) & (self.deviation != 1.0)
        if is_coarse.any():
            k = int(is_coarse.argmax())
            warnings.warn(
                f"Feature {k} is about {self.mean[k]:.10g}, and float32 rounds its differences of about "
                f"{self.deviation[k]:.3g}. Subtract {self.mean[k]:.10g} from it.",
                stacklevel=outside_level(),
            )

    def layer(self) -> keras.layers.Layer:
        """Returns a new layer that scales."""
        mean, variance = self.mean.tolist(), np.square(np.maximum(self.deviation, MIN_SCALE)).tolist()
        return keras.layers.Normalization(mean=mean, variance=variance, dtype="float32")


def scaling(x: Any, weights: np.ndarray | None = None) -> Scaling:
    """Returns the scaling of features, `(N, D)`, which are read in blocks; a constant feature becomes 0."""
    scaler = StandardScaler()
    for rows in row_blocks(len(x)):
        if weights is None or weights[rows].any():
            scaler.partial_fit(np.asarray(x[rows], "float64"), sample_weight=None if weights is None else weights[rows])
    low, high = scaler.scale_.min(), scaler.scale_.max()
    is_far = not (DEVIATIONS[0] <= low and high <= DEVIATIONS[1])
    refuse_if(is_far, "x", "have standard deviations from 1e-30 to 1e30", f"from {low:.3g} to {high:.3g}")
    return Scaling(scaler.mean_, scaler.scale_)


class Features:
    """Features and noisy labels, which all candidates read.

    The discriminant is

        z_k(x) = (m_k' C^-1 x - m_k' C^-1 m_k / 2) / temperature,    C = (1 - a) S + a (tr S / D) I

    with m_k the mean of class k, a the shrinkage, and S = sum_k S_k / K the mean of the covariances within the K
    classes. So each class counts equally, in the priors and in S. Label errors that do not depend on the features
    shorten the differences of the means, and keep their directions.

    Both classifiers exist in scikit-learn. Its discriminant needs all rows in memory and one label for each example.
    This one reads a memory map in blocks, and accepts votes as weights of the classes.

    Source: Fisher 1936; Friedman 1989, "Regularized discriminant analysis", Eq. 18, for the shrinkage; Lee et al. 2019,
        "Robust inference via generative classifiers for handling noisy labels", section 3.1, for noisy labels.
    """

    def __init__(self, data: Data, scale: Scaling):
        self.x, self.y, self.units, self.scale = data.x, data.y, data.units, scale
        self.weights = np.ones(len(data)) if data.weight is None else data.weight / data.weight.mean()
        counts = sum(self.weights[rows] @ self.one_hot(rows) for rows in row_blocks(len(data)))
        self.class_weights = np.where(counts > 0, 1.0 / np.maximum(counts, TINY), 0.0)

    def one_hot(self, rows: Any) -> np.ndarray:
        """Returns labels as distributions over the classes, `(n, K)`."""
        y = self.y[rows]
        return y if y.ndim == 2 else y[:, None] == np.arange(self.units)

    def choose(self, fold_of: np.ndarray) -> Choice:
        """Returns the candidate with the best balanced accuracy on held-out labels, at most 20,000."""
        rows = np.sort(random_generator(0).permutation(len(self.y))[:MAX_TUNING_ROWS])
        candidates = DISCRIMINANTS if len(self.y) > MAX_REGRESSION_ROWS else (*DISCRIMINANTS, *REGRESSIONS)
        logits = self.held_out(candidates, fold_of, rows)
        recalls = [self._balanced_accuracy(z.argmax(axis=1), rows) for z in logits]
        best = int(np.argmax(recalls))
        scores: dict[str, float] = {}
        for candidate, recall in zip(candidates, recalls, strict=True):
            scores[candidate.kind] = max(recall, scores.get(candidate.kind, 0.0))
        factor = 1.0 if candidates[best].is_regression else self._factor(logits[best], rows)
        return Choice(candidates[best], factor, scores)

    def held_out(
        self, candidates: tuple[Candidate, ...], fold_of: np.ndarray, rows: np.ndarray, kept: np.ndarray | None = None
    ) -> np.ndarray:
        """Returns logits of `rows`, `(len(candidates), n, K)`, by training on the other folds, on `kept` rows only."""
        logits = np.empty((len(candidates), len(rows), self.units), "float32")
        is_kept = np.ones(len(self.y), bool) if kept is None else kept
        for fold, classifiers in self._fit_each_fold(candidates, fold_of, is_kept, np.unique(fold_of[rows])):
            places = np.flatnonzero(fold_of[rows] == fold)
            for block in row_blocks(len(places)):
                x = self.scale(self.x[rows[places[block]]])
                logits[:, places[block]] = np.stack([model.logits(x) for model in classifiers])
        return logits

    def fit(self, choice: Choice, rows: np.ndarray) -> Classifier:
        """Returns the chosen classifier, trained on `rows`, with its factor."""
        candidate = choice.candidate
        fitted = self._regressions(rows, (candidate,)) if candidate.is_regression else None
        (model,) = fitted or self._discriminants(self._sums(rows), (candidate,))
        return Classifier(np.float32(choice.factor) * model.kernel, np.float32(choice.factor) * model.bias)

    def _fit_each_fold(
        self, candidates: tuple[Candidate, ...], fold_of: np.ndarray, is_kept: np.ndarray, predicted: np.ndarray
    ) -> Iterator[tuple[int, list[Classifier]]]:
        """Yields each `predicted` fold with the candidates that are trained on the other folds."""
        discriminants = tuple(candidate for candidate in candidates if not candidate.is_regression)
        regressions = tuple(candidate for candidate in candidates if candidate.is_regression)
        folds = np.unique(fold_of)
        parts = [self._sums(np.flatnonzero((fold_of == fold) & is_kept)) for fold in folds] if discriminants else []
        whole = [np.sum(values, axis=0) for values in zip(*parts, strict=True)]
        for place, fold in enumerate(folds):
            if fold not in predicted:
                continue
            models = []
            if discriminants:
                others = Sums(*(total - part for total, part in zip(whole, parts[place], strict=True)))
                models += self._discriminants(others, discriminants)
            if regressions:
                models += self._regressions(np.flatnonzero((fold_of != fold) & is_kept), regressions)
            yield int(fold), models

    def _sums(self, rows: np.ndarray) -> Sums:
        """Returns the sums over `rows`."""
        width = self.x.shape[1]
        size = width if width <= MAX_COVARIANCE_FEATURES else 0
        counts, sums, products = np.zeros(self.units), np.zeros((self.units, width)), np.zeros((size, size))
        for block in row_blocks(len(rows)):
            x = self.scale(self.x[rows[block]])
            weighted = (self.weights[rows[block], None] * self.one_hot(rows[block])).astype("float32")
            counts += weighted.sum(axis=0)
            sums += weighted.T @ x
            if size:
                products += (x * (weighted @ self.class_weights.astype("float32"))[:, None]).T @ x
        return Sums(counts, sums, products)

    def _discriminants(self, sums: Sums, candidates: tuple[Candidate, ...]) -> list[Classifier]:
        """Returns a discriminant for each shrinkage."""
        has_labels = sums.counts > 0.5 * self.weights.min(initial=1.0, where=self.weights > 0)  # else it is rounding
        means = np.where(has_labels[:, None], sums.features / np.maximum(sums.counts, TINY)[:, None], 0.0)
        kernels = [means.T / means.shape[1] for _ in candidates]
        if len(sums.products):
            total = np.where(has_labels, self.class_weights * sums.counts, 0.0)
            within = (sums.products - (means.T * total) @ means) / max(total.sum(), TINY)
            variance = max(np.trace(within), 1e-4 * np.trace(sums.products) / max(total.sum(), TINY), TINY)
            ridges = [(candidate.setting, variance / len(within)) for candidate in candidates]
            kernels = [_solve((1.0 - a) * within, a * ridge, means.T) for a, ridge in ridges]
        biases = [np.where(has_labels, -0.5 * np.einsum("kd,dk->k", means, kernel), -np.inf) for kernel in kernels]
        pairs = zip(kernels, biases, strict=True)
        return [Classifier(kernel.astype("float32"), bias.astype("float32")) for kernel, bias in pairs]

    def _regressions(self, rows: np.ndarray, candidates: tuple[Candidate, ...]) -> list[Classifier]:
        """Returns logistic regressions, the smallest C first, each started from the one before."""
        weights = self.weights[rows, None] * self.one_hot(rows)
        examples, labels = np.nonzero(weights)
        x, weight = self.scale(self.x[rows])[examples], weights[examples, labels]
        occur = np.unique(labels)
        if len(occur) < 2:
            return [self._classifier(occur, np.zeros((1, x.shape[1])), np.zeros(1))] * len(candidates)
        model, models = LogisticRegression(tol=1e-3, max_iter=MAX_STEPS, warm_start=True), []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # held-out labels judge it
            for candidate in candidates:
                model.set_params(C=candidate.setting).fit(x, labels, weight)
                models.append(self._classifier(model.classes_, model.coef_, model.intercept_))
        return models

    def _classifier(self, classes: np.ndarray, coefficients: np.ndarray, intercepts: np.ndarray) -> Classifier:
        """Returns a classifier of all K classes, from scikit-learn's parameters, which have one row for two classes."""
        if len(classes) == 2:
            coefficients, intercepts = (np.concatenate([-part, part]) / 2.0 for part in (coefficients, intercepts))
        kernel = np.zeros((coefficients.shape[1], self.units), "float32")
        bias = np.full(self.units, -np.inf, "float32")  # of a class without labels
        kernel[:, classes], bias[classes] = coefficients.T, intercepts
        return Classifier(kernel, bias)

    def _balanced_accuracy(self, predicted: np.ndarray, rows: np.ndarray) -> float:
        """Returns the mean over the classes of the accuracy on their held-out labels."""
        weights = self.weights[rows, None] * self.one_hot(rows)
        totals, correct = weights.sum(axis=0), weights * (predicted[:, None] == np.arange(self.units))
        return float((correct.sum(axis=0)[totals > 0] / totals[totals > 0]).mean())

    def _factor(self, logits: np.ndarray, rows: np.ndarray) -> float:
        """Returns the factor of the logits, 1 / temperature, that makes held-out labels most likely."""
        weights = self.weights[rows, None] * self.one_hot(rows)
        gaps = np.ptp(np.partition(logits, -2, axis=1)[:, -2:], axis=1)  # to the second class
        gap = float(gaps[np.isfinite(gaps)].mean() if np.isfinite(gaps).any() else 0.0) or 1.0

        def loss(log_factor: float) -> float:
            log_p = log_softmax(np.float32(np.exp(log_factor) / gap) * logits, axis=1)
            return -float((weights * np.maximum(log_p, MIN_LOG)).sum() / weights.sum())

        fitted = scipy.optimize.minimize_scalar(loss, bounds=(-6.0, 6.0), method="bounded", options={"xatol": 0.01})
        return float(np.exp(fitted.x)) / gap


def _solve(covariance: np.ndarray, ridge: float, means: np.ndarray) -> np.ndarray:
    """Returns C^-1 m of all classes, `(D, K)`, and overwrites the covariance."""
    covariance.flat[:: len(covariance) + 1] += ridge
    return scipy.linalg.cho_solve(scipy.linalg.cho_factor(covariance, overwrite_a=True), means)
