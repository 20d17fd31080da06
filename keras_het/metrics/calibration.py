"""Calibration errors: how far probabilities are from the shares of right predictions."""

from typing import Any

import keras
from keras import ops

from keras_het.base.validation import check_integer
from keras_het.metrics.metric import MAX_BINS, Examples, ProbabilityMetric, confidence_and_success, place_in, sum_by


@keras.saving.register_keras_serializable("keras_het")
class ExpectedCalibrationError(ProbabilityMetric):
    """The mean distance of the confidence from the share of right predictions, over bins of equal width.

    Confidence is the probability of the predicted class.

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


def check_exclusive(metric: ProbabilityMetric) -> None:
    """Raises a ValueError for labels that are not exclusive: none of them is the predicted one."""
    if metric.multi_label:
        raise ValueError(
            f"`multi_label` must be False for {type(metric).__name__}, which needs one predicted class. Received: True"
        )
