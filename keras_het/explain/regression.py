"""Scores of the predicted means and covariances of a regression."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from keras_het.base.batches import as_numpy, check_same_index
from keras_het.base.refusal import refusal, refuse_first, refuse_if
from keras_het.base.tables import align_columns, number_of
from keras_het.base.validation import check_numbers
from keras_het.ops.normal import least_squares
from keras_het.ops.packed import packed_factors


@dataclasses.dataclass(frozen=True)
class RegressionScores:
    """Scores of the predicted distributions of K targets, in the units of the targets; they print as a table.

    Attributes:
        nll: mean of -log p(y | x) over the examples, in nats, for all targets jointly.
        distance: mean of (y - mu)' Sigma^-1 (y - mu) / K: 1 if the covariances match the errors, more if they are too
            small.
        rmse: root mean square error of the predicted mean, `(K,)`.
        mae: mean absolute error of the predicted mean, `(K,)`.
        crps: continuous ranked probability score, `(K,)`; the absolute error if the standard deviation is 0.
        levels: L probabilities.
        coverage: fraction of the targets inside the central intervals of these probabilities, `(L, K)`.
        width: mean width of these intervals, `(L, K)`.
    """

    nll: float
    distance: float
    rmse: np.ndarray
    mae: np.ndarray
    crps: np.ndarray
    levels: tuple[float, ...]
    coverage: np.ndarray
    width: np.ndarray

    def __str__(self) -> str:
        names = [f"{part} {level:.0%}" for level in self.levels for part in ("inside", "width")]
        cells = [["target", "rmse", "mae", "crps", *names]]
        for index, errors in enumerate(zip(self.rmse, self.mae, self.crps, strict=True)):
            inside = (f"{part[index]:.3g}" for pair in zip(self.coverage, self.width, strict=True) for part in pair)
            cells.append([str(index), *(f"{error:.4g}" for error in errors), *inside])
        return "\n".join(
            [*align_columns(cells), f"nll {self.nll:.4g}, mean distance {self.distance:.3g} (calibrated: 1)"]
        )


def regression_scores(outputs: Any, targets: Any, levels: Sequence[float] = (0.5, 0.9, 0.95)) -> RegressionScores:
    """Computes the likelihood, the errors of the mean and the coverage of intervals of a `HeteroscedasticNormal` model.

        CRPS = integral of (F(t) - 1[y <= t])^2 dt = s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)),  z = (y - mu) / s

    Read the likelihood together with the error of the mean: a large covariance can hide a poor mean.

    Args:
        outputs: outputs of `DistributionModel.predict_distribution`, `(N, K (2 + R) + 1)`.
        targets: `(N, K)`, or `(N,)` for a single target.
        levels: probabilities of the intervals, in (0, 1).
    Returns:
        `RegressionScores`.
    Raises:
        ValueError: for other shapes, numbers that are not finite, or no example.
    Source: Gneiting and Raftery, JASA 2007 (the score); its closed form for a Gaussian: Gneiting, Raftery, Westveld and
        Goldman, Monthly Weather Review 2005.

    Example:
        >>> outputs = [[0.0, 1.0, -1.0]] * 3  # one target with mu = 0 and d = 1
        >>> print(regression_scores(outputs, [-1.0, 0.0, 1.0], levels=[0.5]))
        target    rmse     mae    crps  inside 50%  width 50%
             0  0.8165  0.6667  0.4795       0.333       1.35
        nll 1.252, mean distance 0.667 (calibrated: 1)
    """
    values = check_numbers("levels", levels)
    is_wrong = values.ndim != 1 or not values.size or not ((values > 0.0) & (values < 1.0)).all()
    refuse_if(is_wrong, "levels", "be a sequence of numbers in (0, 1), at least one", value=levels)
    error, scale, distance, log_det = _residuals(outputs, targets)
    units, z = error.shape[1], error / scale
    density = np.exp(-0.5 * np.square(z)) / math.sqrt(2.0 * math.pi)
    crps = scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / math.sqrt(math.pi))
    quantiles = ndtri(0.5 + 0.5 * values)[:, None]
    return RegressionScores(
        nll=float(np.mean(distance + log_det + units * math.log(2.0 * math.pi))) / 2.0,
        distance=float(distance.mean()) / units,
        rmse=np.sqrt(np.square(error).mean(0)),
        mae=error.mean(0),
        crps=crps.mean(0),
        levels=tuple(values.tolist()),
        coverage=np.mean(z <= quantiles[..., None], axis=1),
        width=2.0 * quantiles * scale.mean(0),
    )


def _residuals(outputs: Any, targets: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns |y - mu|, the standard deviations, the distances and log det Sigma, in float64, of checked arguments."""
    check_same_index(outputs=outputs, targets=targets)
    outputs, targets = check_numbers("outputs", as_numpy(outputs)), check_numbers("targets", as_numpy(targets))
    y = targets[:, None] if targets.ndim == 1 else targets
    if outputs.ndim != 2 or y.ndim != 2 or len(y) != len(outputs) or not len(y):
        rule = "have shape (N, K) or (N,), and as many rows as `outputs`, (N, K (2 + R) + 1)"
        raise refusal("targets", rule, f"{targets.shape} and {outputs.shape}")
    factors = packed_factors(outputs.shape[1], y.shape[1])
    if factors is None or factors > y.shape[1]:
        rule = f"have {y.shape[1]} (2 + R) + 1 columns, where R is the number of factors, at most {y.shape[1]}"
        raise refusal("outputs", rule, shape=outputs)
    for name, array in (("outputs", outputs), ("targets", y)):
        refuse_first(~np.isfinite(array), name, "be finite", array)
    mean, d, factor = np.split(outputs[:, :-1], [y.shape[1], 2 * y.shape[1]], axis=1)
    rule = f"have standard deviations above 0 after the {number_of(y.shape[1], 'mean')}: use predict_distribution"
    refuse_if((d <= 0).any(), "outputs", rule, f"{d.min():g}")
    factor, error = factor.reshape(*y.shape, factors), y - mean
    residual, triangular = least_squares(factor / d[..., None], error / d, np)
    log_det = 2.0 * np.log(np.abs(np.diagonal(triangular, axis1=1, axis2=2))).sum(-1) + 2.0 * np.log(d).sum(-1)
    scale = np.sqrt(np.square(d) + np.square(factor).sum(-1))
    return np.abs(error), scale, np.square(residual).sum(-1), log_det
