"""How many errors remain if only the most confident predictions are kept."""

import dataclasses
from typing import Any

import numpy as np

from keras_het.analysis.calibration import confidence_and_success


@dataclasses.dataclass(frozen=True)
class RiskCoverage:
    """Errors among the predictions that are kept, the most confident first.

    Attributes:
        coverage: the share of examples that is kept, `(N,)`, from 1/N to 1.
        risk: the share of errors among them, `(N,)`; its last entry is the error rate of all.
        area: the mean of the risk; 0 is best.
    """

    coverage: np.ndarray
    risk: np.ndarray
    area: float


def risk_coverage(probabilities: Any, labels: Any) -> RiskCoverage:
    """The share of errors among the most confident predictions, for every share of examples that is kept.

    The mean over all orders is taken for predictions of equal confidence, so that the order of the examples does not
    matter.

    Args:
        probabilities: `(N, K)`.
        labels: integers, `(N,)`.
    Returns:
        `RiskCoverage`.
    Raises:
        ValueError: for other shapes, labels of no class, or no example.
    Source: Geifman, Uziel and El-Yaniv 2019, "Bias-reduced uncertainty estimation for deep neural classifiers".

    Example:
        >>> curve = risk_coverage([[0.9, 0.1], [0.6, 0.4]], [0, 1])
        >>> curve.coverage.tolist(), curve.risk.tolist(), curve.area
        ([0.5, 1.0], [0.0, 0.5], 0.25)
    """
    confidence, success = confidence_and_success(probabilities, labels)
    values, group, size = np.unique(-confidence, return_inverse=True, return_counts=True)
    errors_of_group = np.bincount(group, 1 - success, len(values)) / size
    errors = np.cumsum(np.repeat(errors_of_group, size))  # each example has the share of errors in its group
    kept = np.arange(1, len(success) + 1)
    return RiskCoverage(kept / len(kept), errors / kept, float(np.mean(errors / kept)))
