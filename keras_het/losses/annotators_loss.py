"""Loss for the labels of several annotators."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.internals import argument_of
from keras_het.base.refusal import refusal
from keras_het.ops.labels import broadcast_predictions, broadcast_weights, is_label


@keras.saving.register_keras_serializable("keras_het")
class AnnotatorsLoss(keras.losses.Loss):
    """Loss for the labels of several annotators, for a model with a `NoiseTransition(num_annotators=M)`.

        mean over the labels of -log p(label of annotator m | x)

    Labels are integers `(N, M)`, with -1 if an annotator gave no label. A missing label counts neither in the sum nor
    in the mean. Any other label that is no integer in [0, K) makes the whole loss nan, and
    `keras_het.check(model, x, y)` finds it. Do not use `class_weight` of `fit` with these labels.

    The predictions are `(N, M, K)` in training. At inference they are predictions of the true classes, `(N, K)`, which
    are compared with every label. Clean labels, `(N, 1)` or `(N,)`, also work, so you can validate on them. On
    TensorFlow, `evaluate` accepts labels of one rank only: use `(N, 1)` beside `(N, M)`.

    Before the first step on JAX and PyTorch, Keras calls a loss with inference predictions and training labels. Keras'
    own losses would raise an error.

    Args:
        loss: loss of Keras or of this package with `ignore_class=-1`; None is
            `keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)`.
        name: name of the loss.
    Raises:
        ValueError: for any other loss, and when called, for labels of another number of annotators.

    Example:
        >>> loss = AnnotatorsLoss()
        >>> # two examples, two annotators
        >>> log_p = ops.log(ops.array([[[0.5, 0.5], [0.25, 0.75]], [[0.5, 0.5], [0.25, 0.75]]]))
        >>> round(float(loss([[0, -1], [-1, 0]], log_p)), 4)  # (log 2 + log 4) / 2
        1.0397
    """

    def __init__(self, loss: Any = None, name: str = "annotators_loss"):
        default = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
        self.loss = default if loss is None else keras.losses.deserialize(loss) if isinstance(loss, dict) else loss
        ignore_class = argument_of(self.loss, "ignore_class")
        if not isinstance(self.loss, keras.losses.Loss) or ignore_class != -1:
            raise refusal("loss", "be a loss of Keras or of this package with ignore_class=-1", value=loss)
        super().__init__(name=name, reduction=self.loss.reduction, dtype=self.loss.dtype)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Computes the loss; weights are `(N,)`, per example, or `(N, M)`, per label."""
        labels, predictions = broadcast_predictions(ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred))
        if "uint" in str(labels.dtype):  # -1, a missing label, would become a class
            labels = ops.cast(labels, "float32")
        weights = None if sample_weight is None else broadcast_weights(sample_weight, labels)
        valid = is_label(labels, predictions.shape[-1])
        loss = self.loss(ops.where(valid, labels, -1), predictions, weights)
        # Keras' own losses would read a wrong number as a class, or give it no loss, depending on the backend.
        return ops.where(ops.all(valid), loss, np.nan)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.loss.call(*broadcast_predictions(y_true, y_pred))

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "loss": keras.losses.serialize(self.loss)}
