"""Losses for noisy labels, for models without a layer of their own for the noise.

They take integer labels of shape `(...)` or `(..., 1)`, or label vectors `(..., K)`, and probabilities or logits `(..., K)`. Labels
with the value `ignore_class` are left out of the loss and of the mean; another label outside [0, K) makes the loss nan, on every backend.
Logits without `from_logits=True` are taken for probabilities: the loss hardly moves.
"""

import keras
import numpy as np
from keras import ops

from keras_het.label_noise import condition_number
from keras_het.ops.transition import SMALLEST, apply_transition
from keras_het.validation import check_boolean, check_integer, check_number, check_transition

__all__ = [
    "BackwardCorrectedCrossentropy",
    "BootstrappedCrossentropy",
    "ForwardCorrectedCrossentropy",
]


class _WithMask(keras.layers.Layer):
    """The first of two tensors, with the second as its Keras mask, which only layers can set; both of one shape `(...)`."""

    def __init__(self):
        super().__init__(dtype="float32", autocast=False)
        self.supports_masking = self.built = True

    def call(self, inputs):
        return inputs[0]

    def compute_mask(self, inputs, previous_mask):
        return inputs[1]


_WITH_MASK = _WithMask()  # without state, so that every loss can share it


def _with_mask(values, mask):
    """`values` with a Keras mask. A layer keeps every call that is symbolic, so each of those has a layer of its own."""
    return (_WithMask() if keras.utils.is_keras_tensor(values) else _WITH_MASK)((values, mask))


class _Crossentropy(keras.losses.Loss):
    """Base class: -sum_k t_k l_k of targets t and logs l, which the subclass makes from one-hot labels and log-probabilities."""

    def __init__(self, from_logits=False, ignore_class=None, reduction="sum_over_batch_size", name=None, dtype=None):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        self.from_logits = check_boolean("from_logits", from_logits)
        self.ignore_class = None if ignore_class is None else check_integer("ignore_class", ignore_class, -(2**24), 2**24)

    @property
    def dtype(self):
        """What the loss is computed in: float32 instead of half precision, in which Keras would round labels to other classes."""
        return "float32" if self._result_dtype in ("float16", "bfloat16") else self._result_dtype

    @property
    def _result_dtype(self):
        return self._dtype_policy.compute_dtype

    def __call__(self, y_true, y_pred, sample_weight=None):
        """As for any Keras loss: a tensor of the dtype that the loss was given."""
        return ops.cast(super().__call__(y_true, y_pred, sample_weight), self._result_dtype)

    @staticmethod
    def _integers(y_true, y_pred):
        """Labels of shape `(...)`, or None if they are vectors."""
        if len(y_true.shape) < len(y_pred.shape):
            return y_true
        if y_true.shape[-1] == 1:
            return ops.squeeze(y_true, -1)
        return None

    def call(self, y_true, y_pred):
        """The loss of every example, `(...)`, with a mask that leaves the ignored ones out of its mean."""
        y_true, y_pred = ops.convert_to_tensor(y_true, self.dtype), ops.convert_to_tensor(y_pred, self.dtype)
        labels = self._integers(y_true, y_pred)
        if labels is None:
            if self.ignore_class is not None:
                raise ValueError(f"`ignore_class` must be None for label vectors. Received: ignore_class={self.ignore_class}")
            return self.crossentropy(y_true, self._log_probs(y_pred))
        valid = None if self.ignore_class is None else ops.not_equal(labels, self.ignore_class)
        labels = labels if valid is None else ops.where(valid, labels, 0.0)
        targets = ops.cast(ops.equal(ops.expand_dims(labels, -1), ops.arange(y_pred.shape[-1], dtype=self.dtype)), self.dtype)
        targets = ops.where(ops.any(targets > 0, axis=-1, keepdims=True), targets, np.nan)
        losses = self.crossentropy(targets, self._log_probs(y_pred))
        return losses if valid is None else _with_mask(ops.where(valid, losses, 0.0), valid)

    def _log_probs(self, y_pred):
        if self.from_logits:
            return ops.log_softmax(y_pred, axis=-1)
        return ops.log_softmax(ops.log(ops.maximum(y_pred, SMALLEST)), axis=-1)

    def crossentropy(self, targets, log_probs):
        """The loss of every example, `(...)`, from targets and log-probabilities, `(..., K)`."""
        raise NotImplementedError(f"{type(self).__name__} must define crossentropy(targets, log_probs)")

    def get_config(self):
        dtype = keras.saving.serialize_keras_object(self._dtype_policy)
        return {**super().get_config(), "from_logits": self.from_logits, "ignore_class": self.ignore_class, "dtype": dtype}


class _Corrected(_Crossentropy):
    """Base class of the losses that are given T."""

    def __init__(self, transition, **kwargs):
        super().__init__(**kwargs)
        self.transition = check_transition(transition)

    def _log_probs(self, y_pred):
        if y_pred.shape[-1] != len(self.transition):
            raise ValueError(f"`transition` must have shape {(y_pred.shape[-1],) * 2}. Received: shape {self.transition.shape}")
        return super()._log_probs(y_pred)

    def get_config(self):
        return {**super().get_config(), "transition": self.transition.tolist()}


@keras.saving.register_keras_serializable("keras_het")
class ForwardCorrectedCrossentropy(_Corrected):
    """Crossentropy of the noisy labels under the noisy prediction: the minimum is that of clean labels.

        -log sum_i p(true i) T[i, y]                                                          (Patrini et al. 2017, Theorem 2)

    The same as a `NoiseTransition` with a fixed T and crossentropy, for a model that is to stay as it is.

    Args:
        transition: T, `(K, K)`, T[i, j] = p(noisy label j | true class i).    from_logits: y_pred are logits, or log-probabilities.
        ignore_class: integer label to leave out.    reduction, name, dtype: as for any Keras loss.
    Raises: ValueError if T is not square and row-stochastic, or of another size than y_pred.

    Example:
        >>> loss = ForwardCorrectedCrossentropy([[0.75, 0.25], [0.0, 1.0]])
        >>> round(float(loss([1], [[0.5, 0.5]])), 4)  # -log(0.5 * 0.25 + 0.5)
        0.47
    """

    def __init__(self, transition, from_logits=False, ignore_class=None, name="forward_corrected_crossentropy", **kwargs):
        super().__init__(transition, from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)

    def crossentropy(self, targets, log_probs):
        """As above: `(..., K)`, `(..., K)` to `(...)`."""
        return -ops.sum(targets * apply_transition(log_probs, self.transition), axis=-1)


@keras.saving.register_keras_serializable("keras_het")
class BackwardCorrectedCrossentropy(_Corrected):
    """Crossentropy of the noisy labels, corrected so that its mean over the noise is the crossentropy of the true ones.

        -sum_k inv(T)[y, k] log p(true k)                                                     (Patrini et al. 2017, Theorem 1)

    Unbiased, but it may be negative, without a lower bound, and its variance grows with the condition number of T: prefer the forward
    correction.

    Args: as `ForwardCorrectedCrossentropy`, and max_condition: the largest condition number of T to accept, at least 1.
    Raises: ValueError if T is not square and row-stochastic, or its condition number is larger.

    Example:
        >>> loss = BackwardCorrectedCrossentropy([[0.75, 0.25], [0.0, 1.0]])
        >>> round(float(loss([0], [[0.8, 0.2]])), 4)  # (-log(0.8) + 0.25 log(0.2)) / 0.75
        -0.239
    """

    def __init__(
        self,
        transition,
        from_logits=False,
        ignore_class=None,
        max_condition=100.0,
        name="backward_corrected_crossentropy",
        **kwargs,
    ):
        super().__init__(transition, from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.max_condition = check_number("max_condition", max_condition, low=1.0)
        condition = condition_number(self.transition)
        if condition > self.max_condition:
            raise ValueError(
                f"`transition` must have a condition number of at most {self.max_condition:g} to be inverted. Received: {condition:.4g}; "
                "use ForwardCorrectedCrossentropy, which does not invert it"
            )
        self.inverse = np.linalg.inv(self.transition)

    def crossentropy(self, targets, log_probs):
        """As above: `(..., K)`, `(..., K)` to `(...)`."""
        inverse = ops.convert_to_tensor(self.inverse, log_probs.dtype)
        return -ops.sum(ops.matmul(targets, inverse) * log_probs, axis=-1)

    def get_config(self):
        """Arguments of the constructor."""
        return {**super().get_config(), "max_condition": self.max_condition}


@keras.saving.register_keras_serializable("keras_het")
class BootstrappedCrossentropy(_Crossentropy):
    """Crossentropy with labels that are mixed with what the model itself predicts.

        soft: -sum_k (beta t_k + (1 - beta) p_k) log p_k                                      (Reed et al. 2014, Eq. 6)
        hard: -sum_k (beta t_k + (1 - beta) [k = argmax p]) log p_k                           (Reed et al. 2014, Eq. 7)

    The gradient passes through p_k in both places. beta = 1 is the plain crossentropy.

    Args:
        beta: weight of the labels, in [0, 1]; None is the paper's: 0.95 for soft, 0.8 for hard.    hard: see above.
        from_logits, ignore_class, reduction, name, dtype: as for `ForwardCorrectedCrossentropy`.
    Raises: ValueError for arguments outside these ranges.

    Example:
        >>> loss = BootstrappedCrossentropy(beta=0.5, hard=True)
        >>> round(float(loss([0], [[0.25, 0.75]])), 4)  # -(log(0.25) + log(0.75)) / 2
        0.837
    """

    def __init__(self, beta=None, hard=False, from_logits=False, ignore_class=None, name="bootstrapped_crossentropy", **kwargs):
        super().__init__(from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.hard = check_boolean("hard", hard)
        self.beta = check_number("beta", (0.8 if hard else 0.95) if beta is None else beta, low=0.0)
        if self.beta > 1.0:
            raise ValueError(f"`beta` must be in [0, 1]. Received: beta={beta}")

    def crossentropy(self, targets, log_probs):
        """As above: `(..., K)`, `(..., K)` to `(...)`."""
        own = ops.one_hot(ops.argmax(log_probs, axis=-1), log_probs.shape[-1], dtype=log_probs.dtype) if self.hard else ops.exp(log_probs)
        return -ops.sum((self.beta * targets + (1.0 - self.beta) * own) * log_probs, axis=-1)

    def get_config(self):
        """Arguments of the constructor."""
        return {**super().get_config(), "beta": self.beta, "hard": self.hard}
