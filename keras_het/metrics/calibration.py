"""Calibration errors: how far probabilities are from the shares of right predictions."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.validation import check_integer
from keras_het.metrics.metric import MAX_BINS, Examples, ProbabilityMetric, confidence_and_success, place_in, sum_by
from keras_het.metrics.table import Rows, TableMetric


@keras.saving.register_keras_serializable("keras_het")
class ExpectedCalibrationError(ProbabilityMetric):
    """The mean distance of the confidence from the share of right predictions, over bins of equal width.

    Confidence is the probability of the predicted class. The bins of `EqualMassCalibrationError` hold equally many
    examples instead.

        sum over bins b of |sum over i in b of 1[y_i = argmax p_i] - max p_i| / N

    Args:
        bins: the number of bins, 1 to 2^16.
        name: the name of the metric.
        kwargs: arguments of `ProbabilityMetric` but `multi_label`, such as `from_logits=True` for the outputs of a
            head.
    Source: Naeini, Cooper and Hauskrecht 2015; Guo, Pleiss, Sun and Weinberger 2017, Eq. 3.

    Example:
        >>> metric = ExpectedCalibrationError()
        >>> round(float(metric([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.8, 0.2]])), 4)  # (.1 + |.2 - .8|) / 3
        0.2333
    """

    def __init__(self, bins: int = 15, name: str | None = "ece", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        check_exclusive(self)
        self.bins = check_integer("bins", bins, 1, MAX_BINS)
        self._weight, self._gaps = self.sum_of("weight"), self.sum_of("gaps", (self.bins,))

    def add(self, examples: Examples) -> None:
        confidence, success = confidence_and_success(examples)
        gaps = ops.where(examples.weights == 0, 0.0, examples.weights * (success - confidence))
        self._gaps.add(sum_by(place_in(self.bins, confidence), gaps, self.bins))
        self._weight.add(ops.sum(examples.weights))

    def result(self) -> Any:
        """The error, in [0, 1]."""
        return ops.divide_no_nan(ops.sum(ops.abs(self._gaps.value())), self._weight.value())

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins}


@keras.saving.register_keras_serializable("keras_het")
class EqualMassCalibrationError(TableMetric):
    """The expected calibration error over bins that hold equally many examples each.

    Examples of equal confidence may be divided between bins, in proportion, so their order does not matter.

    Args:
        bins: the number of bins, 1 to 2^16.
        capacity: the number of examples that it can hold, 1 to 2^26; with more, the result is nan.
        name: the name of the metric.
        kwargs: arguments of `ProbabilityMetric` but `multi_label`, such as `from_logits=True` for the outputs of a
            head.
    Source: Nixon, Dusenberry, Zhang, Jerfel and Tran 2019, "Measuring calibration in deep learning".

    Example:
        >>> metric = EqualMassCalibrationError(bins=2, capacity=4)
        >>> p = [[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [0.7, 0.3]]
        >>> # (|.4 + .3 - 1 + .6 - .5 - .1|...) of the bins {.6, .7} and {.8, .9}
        >>> round(float(metric([0, 1, 0, 0], p)), 4)
        0.15
    """

    def __init__(self, bins: int = 15, capacity: int = 1 << 17, name: str | None = "equal_mass_ece", **kwargs: Any):
        super().__init__(capacity=capacity, name=name, **kwargs)
        check_exclusive(self)
        self.bins = check_integer("bins", bins, 1, MAX_BINS)

    def add(self, examples: Examples) -> None:
        confidence, success = confidence_and_success(examples)
        self.store(confidence, success - confidence, examples.weights)

    def figure(self, rows: Rows) -> Any:
        """The error, in [0, 1]."""
        weight, gap = rows.weights, ops.where(rows.weights == 0, 0.0, rows.weights * rows.values)
        weight_above, gap_above = (rows.above(x, rows.after) for x in (weight, gap))
        of_score = rows.above(weight, rows.before) - weight_above, rows.above(gap, rows.before) - gap_above
        # Within a score the gap grows evenly with the weight: else the order of equal scores would matter.
        total = ops.sum(weight)
        ends = total * ops.convert_to_tensor(np.arange(self.bins + 1, dtype="float32") / self.bins)
        # Ascending, as `searchsorted` needs it: the weight from the top to the end of each score.
        last = rows.scores.shape[0] - 1
        down = ops.flip(weight_above + of_score[0])
        places = last - ops.minimum(ops.searchsorted(down, ends, side="left"), last)
        inside = ops.divide_no_nan(ends - ops.take(weight_above, places), ops.take(of_score[0], places))
        reached = ops.take(gap_above, places) + inside * ops.take(of_score[1], places)
        return ops.divide_no_nan(ops.sum(ops.abs(reached[1:] - reached[:-1])), total)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "bins": self.bins}


def check_exclusive(metric: ProbabilityMetric) -> None:
    """Raises a ValueError for labels that are not exclusive: none of them is the predicted one."""
    if metric.multi_label:
        raise ValueError(
            f"`multi_label` must be False for {type(metric).__name__}, which needs one predicted class. Received: True"
        )
