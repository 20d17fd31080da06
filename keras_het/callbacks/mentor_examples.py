"""A callback that collects what a mentor learns from: how a model learns examples whose labels are known to be right or
wrong.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.validation import check_labels
from keras_het.losses import SelfPacedCrossentropy
from keras_het.predictions import predict_probabilities

SMALLEST = np.finfo("float32").tiny  # a smaller probability would give an infinite loss


class MentorExamples(keras.callbacks.Callback):
    """Collects, after every epoch, the features of examples whose true labels are known, for `models.mentor_net`.

    The model learns by a `SelfPacedCrossentropy` without a mentor, and these examples must be among those that it
    learns from: losses of others would say nothing of what is memorised. Epochs that keep all examples have no
    threshold, and are left out.

    Args:
        x: the examples, an array, `(N, ...)`.
        noisy_labels: their labels in training, integers, `(N,)`.
        true_labels: the true ones, `(N,)`.
    Raises:
        ValueError: for other labels, or a model with another loss.

    Example:
        >>> from keras_het import callbacks, models
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> model.compile("adam", SelfPacedCrossentropy(kept_share=0.5, from_logits=True).attach(model))
        >>> x, noisy, true = np.eye(2), np.array([0, 1]), np.array([0, 2])
        >>> examples = MentorExamples(x, noisy, true)
        >>> share = callbacks.KeptShare(num_epochs=1)
        >>> history = model.fit(x, noisy, epochs=3, callbacks=[share, examples], verbose=0)
        >>> [part.shape for part in examples.inputs], examples.is_right.tolist()
        ([(4, 3), (4, 3)], [1.0, 0.0, 1.0, 0.0])
        >>> mentor = models.mentor_net(num_classes=3)
        >>> history = mentor.fit(examples.inputs, examples.is_right, epochs=2, verbose=0)
        >>> SelfPacedCrossentropy(kept_share=0.5, mentor=mentor, from_logits=True).mentor.name  # for the next model
        'mentor_net'
    """

    def __init__(self, x: Any, noisy_labels: Any, true_labels: Any):
        super().__init__()
        self.x = np.asarray(x)
        self.noisy_labels = check_labels(noisy_labels, np.inf, len(self.x), "noisy_labels")
        self.true_labels = check_labels(true_labels, np.inf, len(self.x), "true_labels")

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        loss = getattr(self.model, "loss", None)
        if not isinstance(loss, SelfPacedCrossentropy):
            raise ValueError(
                f"The model must have the loss SelfPacedCrossentropy. Received: model={self.model.name!r}, "
                f"loss={loss!r}"
            )
        self.features: list[np.ndarray] = []
        self.num_classes = 0

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        threshold = float(ops.convert_to_numpy(self.model.loss.threshold))
        if np.isinf(threshold):
            return
        p = predict_probabilities(self.model, self.x)
        self.num_classes = p.shape[1]
        losses = -np.log(np.maximum(p[np.arange(len(p)), self.noisy_labels], SMALLEST))
        progress = np.full(len(p), float(ops.convert_to_numpy(self.model.loss.progress)))
        self.features.append(np.stack([losses, losses - threshold, progress], axis=1).astype("float32"))

    @property
    def inputs(self) -> list[np.ndarray]:
        """Features, `(E N, 3)`, and labels as vectors, `(E N, K)`, of E epochs, as `models.mentor_net` takes them."""
        if not self.features:
            raise ValueError(
                "Training must have an epoch that keeps not all examples: callbacks.KeptShare. Received: none"
            )
        vectors = np.eye(self.num_classes, dtype="float32")[self.noisy_labels]
        return [np.concatenate(self.features), np.tile(vectors, (len(self.features), 1))]

    @property
    def is_right(self) -> np.ndarray:
        """1 where a label is right, `(E N,)`, float32."""
        return np.tile((self.noisy_labels == self.true_labels).astype("float32"), len(self.features))
