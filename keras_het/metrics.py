"""Keras metrics of calibration, and for the labels of several annotators."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.internals import mask_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.replicas import check_in_scope
from keras_het.base.serializable import Serializable
from keras_het.base.tensor import Tensor
from keras_het.base.validation import check_boolean, check_ignore_class, check_integer
from keras_het.ops.labels import broadcast_predictions, broadcast_weights, integer_labels

__all__ = ["AnnotatorsMetric", "ExpectedCalibrationError"]

MAX_ROUNDING = 1e-2  # of a probability in half precision
MAX_BINS = 1 << 16  # a file could request any number


@keras.saving.register_keras_serializable("keras_het")
class ExpectedCalibrationError(Serializable, keras.metrics.Metric):
    """Mean distance between confidence and accuracy, over bins of equal width.

    The confidence is the probability of the predicted class.

        sum over bins b of |sum over i in b of 1[y_i = argmax p_i] - max p_i| / N

    Labels are integers, `(...)` or `(..., 1)`, or label vectors, `(..., K)`. Predictions are probabilities or logits,
    `(..., K)`. Pass `from_logits=True` for logits and log-probabilities, which a head without an activation returns.

    Sample weights and Keras masks are `(...)`. A weight per example, `(N,)` or `(N, 1)`, counts for all its labels,
    `(N, T)`. N in the formula is the sum of the weights. The result is nan, on every backend, for a label that is no
    integer in [0, K) or a prediction that is no probability. Examples with weight zero, or under a mask, do not count.

    Args:
        num_bins: number of bins, 1 to 2^16.
        name: name of the metric.
        from_logits: boolean, whether predictions are logits or log-probabilities instead of probabilities.
        ignore_class: label that does not count, or None.
        dtype: dtype of the result; None for Keras' default.
    Source: Naeini, Cooper and Hauskrecht 2015; Guo, Pleiss, Sun and Weinberger 2017, Eq. 3.

    Example:
        >>> metric = ExpectedCalibrationError()
        >>> round(float(metric([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.8, 0.2]])), 4)  # (.1 + |.2 - .8|) / 3
        0.2333
    """

    def __init__(
        self,
        num_bins: int = 15,
        name: str | None = "ece",
        *,
        from_logits: bool = False,
        ignore_class: int | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.num_bins = check_integer("num_bins", num_bins, 1, MAX_BINS)
        self.from_logits = check_boolean("from_logits", from_logits)
        self.ignore_class = check_ignore_class(ignore_class)
        self._weight = self.add_weight(shape=(), initializer="zeros", dtype="float32", name="weight")
        self._gaps = self.add_weight(shape=(self.num_bins,), initializer="zeros", dtype="float32", name="gaps")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        check_in_scope(f"The metric {self.name!r}", self.variables)
        mask, y_pred = mask_of(y_pred), ops.cast(y_pred, "float32")
        rule = "have a probability for each class, (..., K). For one sigmoid, use [1 - p, p]"
        refuse_if(y_pred.shape[-1] == 1, "y_pred", rule, shape=y_pred)
        weights = ops.ones_like(y_pred[..., 0])
        for factor in (sample_weight, mask):
            if factor is not None:
                weights = weights * broadcast_weights(ops.cast(factor, "float32"), weights)
        p = ops.softmax(y_pred, axis=-1) if self.from_logits else y_pred
        labels, predicted = y_true if ops.is_tensor(y_true) else np.asarray(y_true), ops.argmax(p, axis=-1)
        correct, weights = self._compare(labels, p, predicted, weights)
        is_probability = ops.all(ops.logical_and(p >= -MAX_ROUNDING, p <= 1.0 + MAX_ROUNDING), axis=-1)
        weights = ops.where(ops.logical_or(is_probability, weights == 0), weights, np.nan)
        confidence = _entries(p, predicted)  # PyTorch and TensorFlow refuse the maximum of an empty batch
        gaps = ops.where(weights == 0, 0.0, weights * (correct - confidence))
        bins = ops.minimum(ops.cast(confidence * self.num_bins, "int32"), self.num_bins - 1)  # p = 1 is in the last bin
        gaps, bins = ops.reshape(gaps, (-1,)), ops.reshape(bins, (-1,))
        self._weight.assign_add(ops.sum(weights))
        self._gaps.assign_add(ops.segment_sum(gaps, bins, num_segments=self.num_bins))

    def _compare(self, y_true: Tensor, p: Tensor, predicted: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Returns ones for correct predictions, and weights: 0 for ignored labels, nan for labels that are no class.

        For a label vector, the first result is its entry of the predicted class.
        """
        units, has_axis = p.shape[-1], len(y_true.shape) == len(p.shape)
        if has_axis and y_true.shape[-1] != 1:
            has_units = y_true.shape[-1] in (None, units)  # None in a step that TensorFlow traces
            refuse_if(not has_units, "y_true", f"have an entry for each of the {units} classes", shape=y_true)
            return _entries(ops.cast(y_true, "float32"), predicted), weights
        labels = integer_labels(y_true)
        labels = ops.squeeze(labels, -1) if has_axis else labels
        is_class = ops.logical_and(labels >= 0, labels < units)
        weights = ops.where(ops.logical_or(is_class, weights == 0), weights, np.nan)  # padding can have any label
        if self.ignore_class is not None:
            weights = ops.where(ops.equal(labels, self.ignore_class), 0.0, weights)
        return ops.cast(ops.equal(labels, ops.cast(predicted, labels.dtype)), "float32"), weights

    def result(self) -> Any:
        return ops.divide_no_nan(ops.sum(ops.abs(self._gaps)), self._weight)


def _entries(vectors: Tensor, classes: Tensor) -> Tensor:
    """Returns the entry of each vector, `(..., K)`, at its class, `(...)`."""
    return ops.take_along_axis(vectors, classes[..., None], axis=-1)[..., 0]


@keras.saving.register_keras_serializable("keras_het")
class AnnotatorsMetric(Serializable, keras.metrics.Metric):
    """Metric for the labels of several annotators: another metric, without the missing labels.

    Labels are integers `(N, M)`, with -1 if an annotator gave no label; a missing label has no weight. On clean labels,
    `(N, 1)` or `(N,)`, it equals the other metric. Predictions have the shapes that `losses.AnnotatorsLoss` accepts.

    Args:
        metric: metric of integer labels and weights; None is `keras.metrics.SparseCategoricalAccuracy()`.
        name: name of the metric in logs; None is the name of `metric`.
        dtype: dtype of the result; None for Keras' default.
    Raises:
        ValueError: if `metric` is no metric, for example a name.

    Example:
        >>> metric = AnnotatorsMetric(name="accuracy")
        >>> float(metric([[0, -1, 1]], [[0.75, 0.25]]))  # one of two labels
        0.5
    """

    def __init__(self, metric: Any = None, name: str | None = None, dtype: Any = None) -> None:
        metric = keras.metrics.SparseCategoricalAccuracy() if metric is None else metric
        metric = keras.metrics.deserialize(metric) if isinstance(metric, dict) else metric
        if not isinstance(metric, keras.metrics.Metric):
            raise refusal(
                "metric", "be a metric object, such as keras.metrics.SparseCategoricalAccuracy()", value=metric
            )
        super().__init__(name=metric.name if name is None else name, dtype=dtype)
        self.metric = metric

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        labels, predictions = broadcast_predictions(ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred))
        is_known = ops.not_equal(labels, -1)
        weights = 1.0 if sample_weight is None else ops.cast(broadcast_weights(sample_weight, labels), "float32")
        self.metric.update_state(ops.where(is_known, labels, 0), predictions, ops.cast(is_known, "float32") * weights)

    def result(self) -> Any:
        return self.metric.result()

    def reset_state(self) -> None:
        self.metric.reset_state()
