"""Base classes of losses: config, precision, labels of any form, log-probabilities, ignored labels and masks."""

import re
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.internals import policy_of
from keras_het.base.masks import with_mask
from keras_het.base.refusal import refusal
from keras_het.base.serializable import Serializable
from keras_het.base.validation import check_boolean, check_ignore_class
from keras_het.ops.transition import MIN_PROBABILITY


class ConfiguredLoss(Serializable, keras.losses.Loss):
    """Base class of losses whose config is the constructor's arguments, each an attribute of the same name."""

    def __init__(
        self, reduction: str | None = "sum_over_batch_size", name: str | None = None, dtype: Any = None
    ) -> None:
        name = name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()
        super().__init__(name=name, reduction=reduction, dtype=dtype)

    @property
    def dtype(self) -> str:
        """Dtype of the computation; float32 for half precision, which would round labels to other classes."""
        dtype = policy_of(self).compute_dtype
        return "float32" if dtype in ("float16", "bfloat16") else dtype

    def get_config(self) -> dict[str, Any]:
        arrays = {name: value.tolist() for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return {**super().get_config(), **arrays, "dtype": keras.saving.serialize_keras_object(policy_of(self))}


class Crossentropy(ConfiguredLoss):
    """Base class of losses; a subclass computes its loss from targets and log-probabilities in `crossentropy`.

    Args:
        from_logits: boolean, whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label that counts neither in the loss nor in the mean; None if all labels count.
        kwargs: `reduction`, `name` and `dtype`, as for any Keras loss.
    """

    def __init__(self, from_logits: bool = False, ignore_class: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.from_logits = check_boolean("from_logits", from_logits)
        self.ignore_class = check_ignore_class(ignore_class)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Computes the loss in its dtype; raises a ValueError for weights with an index."""
        if sample_weight is not None and tuple(np.shape(sample_weight))[1:] == (2,) and len(y_pred.shape) == 2:
            rule = "have shape (B,): only models.EarlyLearning accepts weights with an index"
            raise refusal("sample_weight", rule, f"shape {tuple(np.shape(sample_weight))}, loss={self.name!r}")
        return ops.cast(super().__call__(y_true, y_pred, sample_weight), policy_of(self).compute_dtype)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """Returns the loss of every example, `(...)`, with a mask that excludes ignored examples from the mean."""
        y_true, y_pred = ops.convert_to_tensor(y_true, self.dtype), ops.convert_to_tensor(y_pred, self.dtype)
        targets, valid = self.targets(y_true, y_pred)
        return self.mask_ignored(self.crossentropy(targets, self.log_probs(y_pred)), valid)

    def targets(self, y_true: Any, y_pred: Any) -> tuple[Any, Any]:
        """Returns label vectors, `(..., K)`, nan if a label is no class, and which examples count, or None for all."""
        labels = _integers(y_true, y_pred)
        if labels is None:
            if self.ignore_class is not None:
                raise refusal("ignore_class", "be None for label vectors", f"ignore_class={self.ignore_class}")
            return y_true, None
        valid = None if self.ignore_class is None else ops.not_equal(labels, self.ignore_class)
        labels = labels if valid is None else ops.where(valid, labels, 0.0)
        targets = ops.cast(
            ops.equal(ops.expand_dims(labels, -1), ops.arange(y_pred.shape[-1], dtype=self.dtype)), self.dtype
        )
        return ops.where(ops.any(targets > 0, axis=-1, keepdims=True), targets, np.nan), valid

    def log_probs(self, y_pred: Any) -> Any:
        """Returns log-probabilities, `(..., K)`, from logits, or from probabilities that need not sum to one."""
        if self.from_logits:
            return ops.log_softmax(y_pred, axis=-1)
        return ops.log_softmax(ops.log(ops.maximum(y_pred, MIN_PROBABILITY)), axis=-1)

    @staticmethod
    def mask_ignored(losses: Any, valid: Any) -> Any:
        """Returns losses `(...)` with a mask of the losses that count; `valid` is the mask that `targets` returns."""
        return losses if valid is None else with_mask(ops.where(valid, losses, 0.0), valid)

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """Computes the loss of every example, `(...)`, from label vectors and log-probabilities, `(..., K)`."""
        raise NotImplementedError(f"{type(self).__name__} must define crossentropy(targets, log_probs)")


def _integers(y_true, y_pred):
    """Returns labels of shape `(...)`, or None for label vectors."""
    if len(y_true.shape) < len(y_pred.shape):
        return y_true
    return ops.squeeze(y_true, -1) if y_true.shape[-1] == 1 else None
