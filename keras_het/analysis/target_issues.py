"""Which targets of a regression are probably wrong."""

import dataclasses
import itertools
from typing import Any

import numpy as np
from scipy.stats import chi2, false_discovery_control

from keras_het.analysis.label_quality import SHOWN
from keras_het.analysis.regression import judged
from keras_het.analysis.text import aligned
from keras_het.base.extras import import_extra
from keras_het.base.validation import check_open_share


@dataclasses.dataclass(frozen=True)
class TargetIssues:
    """All examples, the least probable targets first; arrays of shape `(N,)`.

    They print as a table of the first 20; `to_frame` makes a pandas frame of all.

    Attributes:
        index: of the example.
        target: the one that strays most from its mean, in its standard deviations, as a number.
        given: the value of that target.
        predicted: its mean.
        p_value: of all targets of the example together.
        is_issue: whether the targets are probably wrong.
        scale: the factor by which the predicted variances were multiplied; far above 1 the model is too sure.
    """

    index: np.ndarray
    target: np.ndarray
    given: np.ndarray
    predicted: np.ndarray
    p_value: np.ndarray
    is_issue: np.ndarray
    scale: float

    def to_frame(self) -> Any:
        """The examples as a `pandas.DataFrame`, a line for each, the worst first.

        Raises:
            ImportError: without pandas.
        """
        pandas = import_extra("pandas", "The frame of target issues")
        names = [field.name for field in dataclasses.fields(self) if field.name != "scale"]
        return pandas.DataFrame({name: getattr(self, name) for name in names})

    def __str__(self) -> str:
        rows = zip(self.index, self.target, self.given, self.predicted, self.p_value, self.is_issue, strict=True)
        cells = [["index", "target", "given", "predicted", "p", "issue"]]
        for index, target, given, predicted, p, is_issue in itertools.islice(rows, SHOWN):
            found = "wrong" if is_issue else ""
            cells.append([str(index), str(target), f"{given:.4g}", f"{predicted:.4g}", f"{p:.1e}", found])
        counts = f"{int(self.is_issue.sum())} of {len(self.index)} examples have targets that are probably wrong"
        return "\n".join([*aligned(cells), f"{counts}; variances times {self.scale:.3g}"])


def find_target_issues(outputs: Any, targets: Any, *, level: float = 0.05) -> TargetIssues:
    """Which targets of a regression are probably wrong, by distributions that are predicted out of sample.

    The targets of an example are judged together: (y - mu)' Sigma^-1 (y - mu) has a chi-square distribution of K
    degrees if the model is right, so a target may be usual by itself, and not beside the others. The distances are
    divided by a factor that brings their median to that of the chi-square distribution, for wrong targets in the
    training data make the variances too large, and too long a training too small.

    Of the examples that are named, a share of at most `level` is expected to be right, by the method of Benjamini and
    Hochberg, if the errors are Gaussian. With heavier tails it is more.

    Args:
        outputs: of `DistributionModel.predict_distribution`, by a model that was not trained on the example,
            `(N, K (2 + R) + 1)`.
        targets: `(N, K)`, or `(N,)` for one.
        level: the share of right targets among those that are named, in (0, 1).
    Returns:
        `TargetIssues`.
    Raises:
        ValueError: for other shapes, numbers that are not finite, or a level outside (0, 1).
    Source: Benjamini and Hochberg, Journal of the Royal Statistical Society B 1995, as
        `scipy.stats.false_discovery_control`.

    Example:
        >>> outputs = np.tile([0.0, 1.0, -1.0], (8, 1))  # mu = 0 and d = 1 of one target
        >>> print(find_target_issues(outputs, [0.3, -0.6, 0.9, -1.1, 7.0, 0.1, -0.8, 0.5]))
        index  target  given  predicted        p  issue
            4       0      7          0  2.4e-11  wrong
            3       0   -1.1          0  2.9e-01
            2       0    0.9          0  3.9e-01
            6       0   -0.8          0  4.5e-01
            1       0   -0.6          0  5.7e-01
            7       0    0.5          0  6.3e-01
            0       0    0.3          0  7.7e-01
            5       0    0.1          0  9.2e-01
        1 of 8 examples have targets that are probably wrong; variances times 1.1
    """
    level = check_open_share("level", level)
    found = judged(outputs, targets)
    count, units = found.target.shape
    scale = float(np.median(found.distance) / chi2.median(units)) or 1.0
    p_value = chi2.sf(found.distance / scale, units)
    order, place = np.argsort(p_value, kind="stable"), np.argmax(np.abs(found.error) / found.scale, axis=1)
    given, error = (array[np.arange(count), place] for array in (found.target, found.error))
    is_issue = false_discovery_control(p_value) <= level
    return TargetIssues(
        index=order,
        target=place[order],
        given=given[order],
        predicted=(given - error)[order],
        p_value=p_value[order],
        is_issue=is_issue[order],
        scale=scale,
    )
