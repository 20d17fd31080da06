"""Data parameters: a temperature for each example and each class of the training data, learned with the model."""

import math
from typing import Any

import keras
from keras import ops

from keras_het.base.validation import MAX_CLASSES, check_integer, check_number
from keras_het.losses.indexed import IndexedCrossentropy
from keras_het.ops.log_space import weighted_logs


@keras.saving.register_keras_serializable("benchmarks")
class DataParametersCrossentropy(IndexedCrossentropy):
    """Better than early stopping for 2 of 7 noises on digits: symmetric flips, +2.7 points, and weak raters, +1.3.

    It is level for the others (`benchmarks/results/arena_digits.md`). The loss is crossentropy with learned
    temperatures of examples and classes, so that the model attends less to labels that it cannot fit:

        -sum_k y_k log softmax(z / sigma)_k,   sigma = sigma_n + sum_k y_k sigma_k
        (Saxena, Tuzel and DeCoste 2019, joint form)
        s <- s - rate (d loss / d s + penalty s),   |s| <= log(largest),
        sigma_n = start exp(s_n), sigma_k = start exp(s_k)

    A wrong label raises sigma of its example, so that example moves the model less. Both parts start at 1/2, so
    training starts as with the plain crossentropy. A part whose rate is 0 is left out, and the other one starts at 1.
    Examples without an index, such as validation examples, have temperature 1. The temperatures are not in the model,
    so `predict` does not use them. They take N + K numbers.

    The loss itself updates s, by plain gradient descent on the rows of the batch only: an optimizer with momentum would
    also move examples outside the batch. s_n takes the gradient of its example's own loss, and s_k the mean of these
    gradients over its class in the batch. The authors use momentum and the gradient of the mean loss, which is B times
    smaller. Sample weights do not change the steps of s. `with_index` brings the index of an example to the loss.

    Args:
        num_examples: N, the number of training examples; at most 2^24.
        num_classes: K, 2 to 2^24.
        instance_rate: the step size of s_n, at least 0.
        class_rate: the step size of s_k, at least 0; one of the two is larger than 0.
        penalty: the strength of L2, which draws s to its start, 0; at least 0.
        largest: the largest factor by which a part may move from its start; greater than 1.
        from_logits: whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: as for any Keras loss.
        dtype: as for any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges.

    Example:
        >>> from keras_het.losses import with_index
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> loss = DataParametersCrossentropy(num_examples=8, num_classes=3, from_logits=True)
        >>> model.compile("adam", loss.attach(model), metrics=["accuracy"])
        >>> history = model.fit(ops.ones((8, 2)), ops.arange(8) % 3, sample_weight=with_index(8), verbose=0)
        >>> tuple(loss.instance_temperatures.shape), tuple(loss.class_temperatures.shape)
        ((8,), (3,))
    """

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        instance_rate: float = 0.3,
        class_rate: float = 0.01,
        penalty: float = 0.0,
        largest: float = 20.0,
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "data_parameters_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(num_examples, from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.num_classes = check_integer("num_classes", num_classes, 2, MAX_CLASSES)
        self.instance_rate = check_number("instance_rate", instance_rate, low=0.0)
        self.class_rate = check_number("class_rate", class_rate, low=0.0)
        if not self.instance_rate + self.class_rate:
            raise ValueError(
                "`instance_rate` or `class_rate` must be greater than 0. Received: instance_rate=0, class_rate=0"
            )
        self.penalty = check_number("penalty", penalty, low=0.0)
        self.largest = check_number("largest", largest, above=1.0)
        learned = [float(rate > 0) for rate in (self.instance_rate, self.class_rate)]
        self._instance_start, self._class_start = (part / sum(learned) for part in learned)
        # The last row is for examples without an index, which would otherwise update another example.
        self._instances = self.state.remember("instances", (self.num_examples + 1,), "zeros")
        self._classes = self.state.remember("classes", (self.num_classes,), "zeros")

    def indexed_crossentropy(self, targets: Any, log_probs: Any, index: Any, known: Any) -> Any:
        """The loss above: `(B, K)`, `(B, K)`, `(B,)`, `(B,)` to `(B,)`."""
        if log_probs.shape[-1] != self.num_classes:
            raise ValueError(
                f"`y_pred` must have shape (B, {self.num_classes}). Received: shape {tuple(log_probs.shape)}"
            )
        of_instances, of_classes = ops.take(self._instances.value, index), ops.cast(self._classes.value, targets.dtype)
        instance = self._instance_start * ops.exp(ops.cast(of_instances, targets.dtype))
        class_ = self._class_start * ops.exp(of_classes)
        # A label that is no class has targets of nan, which would stay in the temperatures.
        counts = ops.logical_and(known, ops.all(ops.isfinite(targets), axis=-1))
        sigma = ops.where(counts, instance + ops.matmul(ops.where(targets > 0, targets, 0.0), class_), 1.0)
        at_sigma = ops.log_softmax(log_probs / sigma[:, None], axis=-1)
        slope = ops.stop_gradient(ops.where(counts, _slope(targets, log_probs, at_sigma, sigma), 0.0))
        self._step_of_instances(index, counts, slope * instance)
        self._step_of_classes(ops.where(counts[:, None], targets, 0.0), slope, class_)
        return -weighted_logs(targets, at_sigma)

    def _step_of_instances(self, index, counts, slope):
        before = ops.take(self._instances.value, index)
        after = self._stepped(before, ops.cast(slope, before.dtype), self.instance_rate)
        self._instances.assign(
            ops.scatter_update(self._instances.value, index[:, None], ops.where(counts, after, before))
        )

    def _step_of_classes(self, targets, slope, class_):
        before, present = self._classes.value, ops.sum(targets, axis=0)
        mean = ops.sum(targets * slope[:, None], axis=0) / ops.where(present > 0, present, 1.0)
        after = self._stepped(before, ops.cast(mean * class_, before.dtype), self.class_rate)
        self._classes.assign(ops.where(present > 0, after, before))

    def _stepped(self, s, slope, rate):
        limit = math.log(self.largest)
        return ops.clip(s - rate * (slope + self.penalty * s), -limit, limit)

    @property
    def instance_temperatures(self) -> Any:
        """sigma_n, `(N,)`; zeros if `instance_rate` is 0."""
        return self._instance_start * ops.exp(self._instances[:-1])

    @property
    def class_temperatures(self) -> Any:
        """sigma_k, `(K,)`; zeros if `class_rate` is 0."""
        return self._class_start * ops.exp(self._classes.value)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        rates = {"instance_rate": self.instance_rate, "class_rate": self.class_rate}
        own = {"num_classes": self.num_classes, "penalty": self.penalty, "largest": self.largest}
        return {**super().get_config(), **rates, **own}


def _slope(targets, log_probs, at_sigma, sigma):
    """The derivative of the loss with respect to sigma.

    (sum_k y_k z_k - (sum_k y_k) sum_k p_k z_k) / sigma^2,   p = softmax(z / sigma)
    """
    mean = weighted_logs(ops.exp(at_sigma), log_probs)
    return (weighted_logs(targets, log_probs) - ops.sum(targets, axis=-1) * mean) / ops.square(sigma)
