"""A metric for the labels of several annotators."""

from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refusal
from keras_het.ops.labels import for_each_label, weight_each_label


@keras.saving.register_keras_serializable("keras_het")
class AnnotatorsMetric(keras.metrics.Metric):
    """Applies another metric to the labels of several annotators; alone, it would take missing labels for wrong ones.

    Labels are integers `(N, M)`, with -1 where an annotator gave none; a missing label has no weight. On clean labels
    `(N, 1)` or `(N,)`, such as validation labels, it is the metric itself. Predictions have the shapes that
    `losses.AnnotatorsLoss` takes.

    Args:
        metric: a metric that takes integer labels and weights; None is `keras.metrics.SparseCategoricalAccuracy()`.
        name: the name of the metric in logs; None takes the name of `metric`.
        dtype: dtype of the result; None for Keras' default.
    Raises:
        ValueError: if `metric` is no metric, such as the name of one.

    Example:
        >>> metric = AnnotatorsMetric(name="accuracy")
        >>> float(metric([[0, -1, 1]], [[0.75, 0.25]]))  # one of two labels
        0.5
    """

    def __init__(self, metric: Any = None, name: str | None = None, dtype: Any = None):
        metric = keras.metrics.SparseCategoricalAccuracy() if metric is None else metric
        metric = keras.metrics.deserialize(metric) if isinstance(metric, dict) else metric
        if not isinstance(metric, keras.metrics.Metric):
            raise refusal("metric", "be a metric, such as keras.metrics.SparseCategoricalAccuracy()", value=metric)
        super().__init__(name=metric.name if name is None else name, dtype=dtype)
        self.metric = metric

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch."""
        labels, predictions = for_each_label(ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred))
        given = ops.not_equal(labels, -1)
        weights = 1.0 if sample_weight is None else ops.cast(weight_each_label(sample_weight, labels), "float32")
        self.metric.update_state(ops.where(given, labels, 0), predictions, ops.cast(given, "float32") * weights)

    def result(self) -> Any:
        """The metric's result."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Starts again."""
        self.metric.reset_state()

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "metric": keras.metrics.serialize(self.metric)}
