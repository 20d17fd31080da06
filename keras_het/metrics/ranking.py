"""Metrics of the order of predictions by their confidence."""

from typing import Any

import keras
from keras import ops

from keras_het.metrics.calibration import check_exclusive
from keras_het.metrics.metric import Examples, confidence_and_success
from keras_het.metrics.table import Rows, TableMetric


@keras.saving.register_keras_serializable("keras_het")
class GlobalAveragePrecision(TableMetric):
    """The average precision of all pairs of an example and a class, in one list, ordered by their probability.

        gAP = sum over thresholds of (recall - recall before) * precision

    It compares probabilities across classes and examples, unlike the mean over the classes. So it rewards probabilities
    that mean the same everywhere.

    Args:
        capacity: the number of pairs that it can hold, K for each example, 1 to 2^26; with more, the result is nan.
        name: the name of the metric.
        kwargs: arguments of `ProbabilityMetric`, such as `from_logits=True` for the outputs of a head.
    Source: Collier et al. 2021, section 4.1 (ImageNet-21k, JFT); equals
        `sklearn.metrics.average_precision_score(average="micro")`.

    Example:
        >>> metric = GlobalAveragePrecision(capacity=100)
        >>> round(float(metric([0, 1], [[0.9, 0.1], [0.6, 0.4]])), 4)  # .9 right, .6 wrong, .4 right: (1 + 2/3) / 2
        0.8333
    """

    def __init__(self, capacity: int = 1 << 20, name: str | None = "gap", **kwargs: Any):
        super().__init__(capacity=capacity, name=name, **kwargs)

    def add(self, examples: Examples) -> None:
        weights = ops.broadcast_to(examples.weights[:, None], ops.shape(examples.p))
        self.store(*(ops.reshape(x, (-1,)) for x in (examples.p, examples.targets, weights)))

    def figure(self, rows: Rows) -> Any:
        """The average precision, in [0, 1]."""
        positive = ops.where(rows.weights == 0, 0.0, rows.weights * rows.values)
        precision = ops.divide_no_nan(rows.above(positive, rows.before), rows.above(rows.weights, rows.before))
        return ops.divide_no_nan(ops.sum(positive * precision), ops.sum(positive))


@keras.saving.register_keras_serializable("keras_het")
class AreaUnderRiskCoverage(TableMetric):
    """The mean share of errors among the most confident predictions, over every share of examples that is kept.

    0 is best; a random order gives the error rate of all predictions. Predictions of equal confidence count by the mean
    over their orders.

    Args:
        capacity: the number of examples that it can hold, 1 to 2^26; with more, the result is nan.
        name: the name of the metric.
        kwargs: arguments of `ProbabilityMetric` but `multi_label`, such as `from_logits=True` for the outputs of a
            head.
    Source: Geifman, Uziel and El-Yaniv 2019, "Bias-reduced uncertainty estimation for deep neural classifiers".

    Example:
        >>> metric = AreaUnderRiskCoverage(capacity=4)
        >>> round(float(metric([0, 1], [[0.9, 0.1], [0.6, 0.4]])), 4)  # (0 + 1/2) / 2
        0.25
    """

    def __init__(self, capacity: int = 1 << 17, name: str | None = "aurc", **kwargs: Any):
        super().__init__(capacity=capacity, name=name, **kwargs)
        check_exclusive(self)

    def add(self, examples: Examples) -> None:
        confidence, success = confidence_and_success(examples)
        self.store(confidence, 1.0 - success, examples.weights)

    def figure(self, rows: Rows) -> Any:
        """The area, in [0, 1]."""
        errors = ops.where(rows.weights == 0, 0.0, rows.weights * rows.values)
        kept, wrong = rows.above(rows.weights, rows.after), rows.above(errors, rows.after)
        of_score, wrong_of_score = (rows.above(x, rows.before) - y for x, y in ((rows.weights, kept), (errors, wrong)))
        reached = rows.above(rows.weights, ops.arange(rows.scores.shape[0]))  # including this row
        risk = ops.divide_no_nan(wrong + ops.divide_no_nan(wrong_of_score * (reached - kept), of_score), reached)
        return ops.divide_no_nan(ops.sum(rows.weights * risk), ops.sum(rows.weights))
