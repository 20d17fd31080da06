"""The base class of the metrics of probabilities: the same inputs, and sums that lose nothing to rounding."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.internals import mask_of
from keras_het.base.refusal import refusal
from keras_het.base.replicas import check_in_scope
from keras_het.base.validation import check_boolean, check_ignore_class
from keras_het.ops.labels import integer_labels

SMALLEST = float(np.finfo("float32").tiny)
ROUNDING = 1e-2  # how far outside [0, 1] a probability in half precision may be
MAX_BINS = 1 << 16  # a file may ask for any number
LOWEST = -3e38  # the score of an empty place, below all others


class Examples(NamedTuple):
    """A batch of examples.

    Attributes:
        p: probabilities, `(N, K)`.
        log_p: their logs, `(N, K)`.
        targets: label vectors, `(N, K)`.
        weights: `(N,)`; zero for examples that do not count.
        log_complements: logs of 1 - p where labels are not exclusive, else None.
    """

    p: Any
    log_p: Any
    targets: Any
    weights: Any
    log_complements: Any = None


class ProbabilityMetric(keras.metrics.Metric):
    """Base class of the metrics of probabilities.

    `update_state` takes integer labels `(...)` or `(..., 1)`, or label vectors `(..., K)`. Predictions are
    probabilities or logits `(..., K)`; sample weights and Keras masks are `(...)`. A label that is no integer in [0, K)
    makes the result nan, on every backend, and so does a prediction that is no probability. A head returns
    log-probabilities or logits, so its metrics need `from_logits=True`.

    Args:
        from_logits: boolean, whether predictions are logits or log-probabilities, as a head returns them, rather than
            probabilities.
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
    ):
        super().__init__(name=name, dtype=dtype)
        self.from_logits = check_boolean("from_logits", from_logits)
        self.multi_label = check_boolean("multi_label", multi_label)
        self.ignore_class = check_ignore_class(ignore_class)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch."""
        check_in_scope(f"The metric {self.name!r}", self.variables)
        self.add(self._examples(y_true, y_pred, sample_weight))

    def add(self, examples: Examples) -> None:
        """Adds a batch; every subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} must define add(examples)")

    def merge_state(self, metrics: Any) -> None:
        """Adds the states of other metrics of the same configuration, such as the metrics of other workers."""
        for metric in metrics:
            if type(metric) is not type(self) or metric.get_config() != {**self.get_config(), "name": metric.name}:
                raise refusal("metrics", "be of the configuration of this one", f"{metric!r}")
            self.merge(metric)

    def merge(self, metric: Any) -> None:
        """Adds the state of one other metric."""
        for own, other in zip(self.variables, metric.variables, strict=True):
            own.assign_add(other)

    def sum_of(self, name: str, shape: tuple[int, ...] = ()) -> "Sum":
        """A new sum that keeps the digits that float32 would round away."""
        return Sum(
            *(
                self.add_weight(shape=shape, initializer="zeros", dtype="float32", name=f"{name}{part}")
                for part in ("", "_rest")
            )
        )

    def _examples(self, y_true, y_pred, sample_weight):
        mask = mask_of(y_pred)
        y_pred, y_true = ops.cast(y_pred, "float32"), y_true if ops.is_tensor(y_true) else np.asarray(y_true)
        units = y_pred.shape[-1]
        weights = ops.ones_like(y_pred[..., 0])
        for factor in (sample_weight, mask):
            if factor is not None:
                weights = weights * ops.reshape(ops.cast(factor, "float32"), ops.shape(weights))
        if self._are_vectors(y_true, y_pred):
            targets = ops.cast(y_true, "float32")
        else:
            labels = integer_labels(y_true)
            labels = ops.squeeze(labels, -1) if len(labels.shape) == len(y_pred.shape) else labels
            counts = (
                ops.ones_like(labels, dtype="bool")
                if self.ignore_class is None
                else ops.not_equal(labels, self.ignore_class)
            )
            inside = ops.logical_and(labels >= 0, labels < units)
            weights = ops.where(counts, ops.where(inside, weights, np.nan), 0.0)
            targets = ops.one_hot(ops.where(inside, labels, 0), units, dtype="float32")
        if not self.from_logits:
            are_probabilities = ops.all(ops.logical_and(y_pred >= -ROUNDING, y_pred <= 1.0 + ROUNDING), axis=-1)
            weights = ops.where(ops.logical_or(are_probabilities, weights == 0), weights, np.nan)
        p, log_p, log_complements = (
            None if x is None else ops.reshape(x, (-1, units)) for x in self._probabilities(y_pred)
        )
        return Examples(p, log_p, ops.reshape(targets, (-1, units)), ops.reshape(weights, (-1,)), log_complements)

    def _are_vectors(self, y_true, y_pred):
        if self.multi_label:
            if y_true.shape[-1] != y_pred.shape[-1] or len(y_true.shape) != len(y_pred.shape):
                rule = "have the shape of `y_pred` for `multi_label=True`"
                raise refusal("y_true", rule, f"{tuple(y_true.shape)} and {tuple(y_pred.shape)}")
            return True
        return len(y_true.shape) == len(y_pred.shape) and y_true.shape[-1] != 1

    def _probabilities(self, y_pred):
        """p, log p, and log (1 - p) for labels that are not exclusive, else None."""
        if self.from_logits and self.multi_label:
            return ops.sigmoid(y_pred), ops.log_sigmoid(y_pred), ops.log_sigmoid(-y_pred)
        if self.from_logits:
            log_p = ops.log_softmax(y_pred, axis=-1)
            return ops.exp(log_p), log_p, None
        log_p, log_complement = (ops.log(ops.maximum(p, SMALLEST)) for p in (y_pred, 1.0 - y_pred))
        return y_pred, log_p, log_complement if self.multi_label else None

    def get_config(self) -> dict[str, Any]:
        own = {"from_logits": self.from_logits, "multi_label": self.multi_label, "ignore_class": self.ignore_class}
        return {**super().get_config(), **own}


class Sum(NamedTuple):
    """A sum in two variables (Knuth's two-sum).

    Attributes:
        total: the rounded sum.
        rest: the part of the sum that rounding has left out of `total`.
    """

    total: Any
    rest: Any

    def add(self, value: Any) -> None:
        """Adds a tensor of its shape."""
        old = ops.convert_to_tensor(self.total)
        new = old + value
        part = new - old
        self.rest.assign_add((old - (new - part)) + (value - part))
        self.total.assign(new)

    def value(self) -> Any:
        """The sum."""
        return ops.convert_to_tensor(self.total) + ops.convert_to_tensor(self.rest)


def confidence_and_success(examples: Examples) -> tuple[Any, Any]:
    """The largest probability, and whether its class is the label, `(N,)` each."""
    predicted = ops.argmax(examples.p, axis=-1)
    success = ops.take_along_axis(examples.targets, predicted[:, None], axis=-1)[:, 0]
    return ops.max(examples.p, axis=-1), success


def bin_of(bins: int, p: Any) -> Any:
    """The bin of equal width of every probability, integers of the shape of p; p = 1 is in the last bin."""
    places = ops.cast(p * bins, "int32")
    return ops.where(places < bins, places, bins - 1)


def sum_by(places: Any, values: Any, count: int) -> Any:
    """Sums of values by their place, `(count,)`; both of one shape."""
    return ops.segment_sum(ops.reshape(values, (-1,)), ops.reshape(places, (-1,)), num_segments=count)
