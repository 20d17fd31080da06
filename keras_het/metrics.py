"""Metrics of probabilities and of their calibration, as `keras.metrics`."""

import abc
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.internals import mask_of
from keras_het.base.refusal import refusal
from keras_het.base.replicas import check_in_scope
from keras_het.base.tensor import Tensor
from keras_het.base.validation import check_boolean, check_ignore_class, check_integer
from keras_het.ops.labels import for_each_label, integer_labels, weight_each_label

__all__ = ["AnnotatorsMetric", "BrierScore", "ExpectedCalibrationError"]

ROUNDING = 1e-2  # how far outside [0, 1] a probability in half precision might be
MAX_BINS = 1 << 16  # a file could request any number


class ProbabilityMetric(keras.metrics.Metric, abc.ABC):
    """Base class of the metrics of probabilities: a sum over the examples, divided by the sum of their weights.

    `update_state` accepts integer labels `(...)` or `(..., 1)`, or label vectors `(..., K)`. Predictions are
    probabilities or logits `(..., K)`; sample weights and Keras masks are `(...)`. A label that is no integer in [0, K)
    makes the result nan, on every backend, and so does a prediction that is no probability. Neither counts if its
    weight is zero or a mask leaves it out. A head without an activation returns log-probabilities or logits, so its
    metrics need `from_logits=True`.

    A weight of each example, `(N,)` or `(N, 1)`, counts for all its labels, `(N, T)`.

    Args:
        from_logits: boolean, whether predictions are logits or log-probabilities rather than probabilities.
        multi_label: boolean, whether labels are not exclusive: vectors of zeros and ones, with logits of sigmoids.
        ignore_class: a label that does not count, or None.
        name: the name of the metric.
        dtype: dtype of the result; None for Keras' default.
    """

    def __init__(
        self,
        from_logits: bool = False,
        multi_label: bool = False,
        ignore_class: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.from_logits = check_boolean("from_logits", from_logits)
        self.multi_label = check_boolean("multi_label", multi_label)
        self.ignore_class = check_ignore_class(ignore_class)
        self._weight = self._new_sum("weight")

    def _new_sum(self, name: str, shape: tuple[int, ...] = ()) -> Any:
        return self.add_weight(shape=shape, initializer="zeros", dtype="float32", name=name)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch."""
        check_in_scope(f"The metric {self.name!r}", self.variables)
        mask, y_pred = mask_of(y_pred), ops.cast(y_pred, "float32")
        weights = ops.ones_like(y_pred[..., 0])
        for factor in (sample_weight, mask):
            if factor is not None:
                weights = weights * weight_each_label(ops.cast(factor, "float32"), weights)
        targets, weights = self._targets(y_true if ops.is_tensor(y_true) else np.asarray(y_true), y_pred, weights)
        p = self._probabilities(y_pred)
        is_probability = ops.all(ops.logical_and(p >= -ROUNDING, p <= 1.0 + ROUNDING), axis=-1)
        weights = ops.where(ops.logical_or(is_probability, weights == 0), weights, np.nan)
        p, targets = (ops.reshape(x, (-1, y_pred.shape[-1])) for x in (p, targets))
        weights = ops.reshape(weights, (-1,))
        self._weight.assign_add(ops.sum(weights))
        self.add(p, targets, weights)

    @abc.abstractmethod
    def add(self, p: Tensor, targets: Tensor, weights: Tensor) -> None:
        """Adds a batch: probabilities and label vectors, `(N, K)`, and weights, `(N,)`, 0 where a label is ignored."""

    def _targets(self, y_true: Tensor, y_pred: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Returns label vectors, and weights that are 0 for an ignored label and nan for one that is no class."""
        same_shape = len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] == y_pred.shape[-1]
        if self.multi_label and not same_shape:
            rule = "have the shape of `y_pred` for `multi_label=True`"
            raise refusal("y_true", rule, f"{tuple(y_true.shape)} and {tuple(y_pred.shape)}")
        if self.multi_label or (len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] != 1):
            return ops.cast(y_true, "float32"), weights
        labels, units = integer_labels(y_true), y_pred.shape[-1]
        labels = ops.squeeze(labels, -1) if len(labels.shape) == len(y_pred.shape) else labels
        is_class = ops.logical_and(labels >= 0, labels < units)
        weights = ops.where(ops.logical_or(is_class, weights == 0), weights, np.nan)  # padding may have any label
        if self.ignore_class is not None:
            weights = ops.where(ops.equal(labels, self.ignore_class), 0.0, weights)
        return ops.one_hot(ops.where(is_class, labels, 0), units, dtype="float32"), weights

    def _probabilities(self, y_pred: Tensor) -> Tensor:
        if not self.from_logits:
            return y_pred
        return ops.sigmoid(y_pred) if self.multi_label else ops.softmax(y_pred, axis=-1)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        own = {"from_logits": self.from_logits, "multi_label": self.multi_label, "ignore_class": self.ignore_class}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("keras_het")
class ExpectedCalibrationError(ProbabilityMetric):
    """The mean distance of the confidence from the fraction of correct predictions, over bins of equal width.

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

    def __init__(self, bins: int = 15, name: str | None = "ece", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        if self.multi_label:
            rule = "be False for ExpectedCalibrationError, which needs one predicted class"
            raise refusal("multi_label", rule, "True")
        self.bins = check_integer("bins", bins, 1, MAX_BINS)
        self._gaps = self._new_sum("gaps", (self.bins,))

    def add(self, p: Tensor, targets: Tensor, weights: Tensor) -> None:
        """Adds the distance in each bin."""
        confidence, predicted = ops.max(p, axis=-1), ops.argmax(p, axis=-1)
        correct = ops.take_along_axis(targets, predicted[:, None], axis=-1)[:, 0]
        gaps = ops.where(weights == 0, 0.0, weights * (correct - confidence))
        bins = ops.minimum(ops.cast(confidence * self.bins, "int32"), self.bins - 1)  # p = 1 is in the last bin
        self._gaps.assign_add(ops.segment_sum(gaps, bins, num_segments=self.bins))

    def result(self) -> Any:
        """The error, in [0, 1]."""
        return ops.divide_no_nan(ops.sum(ops.abs(self._gaps)), self._weight)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "bins": self.bins}


@keras.saving.register_keras_serializable("keras_het")
class BrierScore(ProbabilityMetric):
    """The mean squared distance of the probabilities from the labels.

        mean over n of sum over k of (p_nk - y_nk)^2

    It is from 0 (best) to 2 if classes are exclusive, else to K.

    Args:
        name: the name of the metric.
        kwargs: arguments of `ProbabilityMetric`, such as `from_logits=True` for the outputs of a head.
    Source: Brier 1950.

    Example:
        >>> round(float(BrierScore()([0, 1], [[0.9, 0.1], [0.4, 0.6]])), 4)  # (.01 + .01 + .16 + .16) / 2
        0.17
    """

    def __init__(self, name: str | None = "brier_score", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self._distance = self._new_sum("distance")

    def add(self, p: Tensor, targets: Tensor, weights: Tensor) -> None:
        """Adds the squared distances."""
        distances = ops.sum(ops.square(p - targets), axis=-1)
        self._distance.assign_add(ops.sum(ops.where(weights == 0, 0.0, weights * distances)))

    def result(self) -> Any:
        """The mean."""
        return ops.divide_no_nan(self._distance, self._weight)


@keras.saving.register_keras_serializable("keras_het")
class AnnotatorsMetric(keras.metrics.Metric):
    """Applies another metric to the labels of several annotators, and leaves missing labels out.

    Labels are integers `(N, M)`, with -1 where an annotator gave none; a missing label has no weight. On clean labels
    `(N, 1)` or `(N,)`, such as validation labels, it is the metric itself. Predictions have the shapes that
    `losses.AnnotatorsLoss` accepts.

    Args:
        metric: a metric of integer labels and weights; None is `keras.metrics.SparseCategoricalAccuracy()`.
        name: the name of the metric in logs; None is the name of `metric`.
        dtype: dtype of the result; None for Keras' default.
    Raises:
        ValueError: if `metric` is no metric, such as the name of one.

    Example:
        >>> metric = AnnotatorsMetric(name="accuracy")
        >>> float(metric([[0, -1, 1]], [[0.75, 0.25]]))  # one of two labels
        0.5
    """

    def __init__(self, metric: Any = None, name: str | None = None, dtype: Any = None) -> None:
        metric = keras.metrics.SparseCategoricalAccuracy() if metric is None else metric
        metric = keras.metrics.deserialize(metric) if isinstance(metric, dict) else metric
        if not isinstance(metric, keras.metrics.Metric):
            raise refusal("metric", "be a metric, such as keras.metrics.SparseCategoricalAccuracy()", value=metric)
        super().__init__(name=metric.name if name is None else name, dtype=dtype)
        self.metric = metric

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch."""
        labels, predictions = for_each_label(ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred))
        is_given = ops.not_equal(labels, -1)
        weights = 1.0 if sample_weight is None else ops.cast(weight_each_label(sample_weight, labels), "float32")
        self.metric.update_state(ops.where(is_given, labels, 0), predictions, ops.cast(is_given, "float32") * weights)

    def result(self) -> Any:
        """The metric's result."""
        return self.metric.result()

    def reset_state(self) -> None:
        """Starts again."""
        self.metric.reset_state()

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "metric": keras.metrics.serialize(self.metric)}
