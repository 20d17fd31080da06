"""The index of an example, which reaches a loss beside its sample weight."""

from typing import Any

import numpy as np
from keras import ops

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.replicas import check_one_replica
from keras_het.base.validation import check_integer, check_weights
from keras_het.losses.state import StatefulCrossentropy

MAX_EXAMPLES = 1 << 24  # sample weights are float32, which would round larger indices to others


def with_index(num_examples: int, sample_weight: Any = None) -> np.ndarray:
    """Returns sample weights with the index of each example, for losses that remember something of each example.

    Keras shuffles and cuts sample weights together with the examples, so the loss gets the index of each example in any
    order: `model.fit(x, y, sample_weight=with_index(len(y)))`. Labels, metrics and validation data stay as they are.
    `weighted_metrics` do not take such weights. A `tf.data.Dataset` or a `PyDataset` must yield `(x, y, weights)`,
    where weights has rows `[weight, index]`; take these rows from this array before shuffling.

    Examples without an index, such as validation examples, give the plain crossentropy, and the loss remembers nothing
    of them. The index -1 has the same effect. The loss learns from every example that has an index. So give
    `validation_data`: `validation_split` would pass on the indices of validation examples; the loss would learn from
    them, and the validation loss would fall.

    Args:
        num_examples: N, an integer in [1, 2^24].
        sample_weight: `(N,)`, not negative; None weighs all examples alike.
    Returns:
        shape `(N, 2)`, float32: weight, index.
    Raises:
        ValueError: for other numbers or shapes.

    Example:
        >>> with_index(3, sample_weight=[1.0, 0.5, 1.0]).tolist()
        [[1.0, 0.0], [0.5, 1.0], [1.0, 2.0]]
    """
    check_integer("num_examples", num_examples, 1, MAX_EXAMPLES)
    given = check_weights(sample_weight, num_examples)
    weights = np.ones(num_examples) if given is None else given
    return np.stack([weights, np.arange(num_examples)], axis=1).astype("float32")


class IndexedCrossentropy(StatefulCrossentropy):
    """Base class of losses that remember something of each example; a subclass defines `indexed_crossentropy`.

    Args:
        num_examples: N, how many examples are trained on.
        kwargs: arguments of `Crossentropy`.
    """

    def __init__(self, num_examples: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_examples = check_integer("num_examples", num_examples, 1, MAX_EXAMPLES)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """As for any Keras loss.

        Args:
            y_true: integer labels, `(B,)` or `(B, 1)`, or label vectors, `(B, K)`.
            y_pred: logits or probabilities, `(B, K)`.
            sample_weight: result of `with_index`, `(B, 2)`; weights without an index, or None, where nothing is to be
                remembered.
        Raises:
            ValueError: if the first batch has no index, or for predictions of another rank.
        """
        refuse_if(len(y_pred.shape) != 2, "y_pred", "have shape (B, K): an example has one index", shape=y_pred)
        if sample_weight is None or len(sample_weight.shape) != 2 or sample_weight.shape[-1] != 2:
            return super().__call__((y_true, self._no_index(y_pred)), y_pred, sample_weight)
        check_one_replica(f"The loss {self.name!r}", "each would remember its own examples and overwrite the others")
        self.check_attached()
        self._check_precision(sample_weight)
        self.state.is_in_use = True
        return super().__call__((y_true, sample_weight[:, 1]), y_pred, sample_weight[:, 0])

    def _check_precision(self, sample_weight):
        """Raises a ValueError if half precision, such as by Keras' floatx, has rounded indices to others."""
        name = str(sample_weight.dtype)  # each backend has another text around the name
        largest = 1 << 8 if "bfloat16" in name else 1 << 11 if "float16" in name else MAX_EXAMPLES
        if self.num_examples > largest:
            rule = f"be float32 for more than {largest} examples: keras.config.set_floatx"
            raise refusal("sample_weight", rule, f"{sample_weight.dtype}, num_examples={self.num_examples}")

    def _no_index(self, y_pred):
        """Returns -1 for every example of a batch.

        Raises a ValueError if no batch had an index before: training would go on without any index.
        """
        if not self.state.is_in_use:
            rule = "have the index of every example: `fit(x, y, sample_weight=keras_het.losses.with_index(len(y)))`"
            raise ValueError(
                f"`sample_weight` must {rule}; data of validation need none, after training. Received: no index"
            )
        return ops.zeros_like(y_pred[:, 0]) - 1.0

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The loss of every example, `(B,)`.

        Args:
            y_true: labels and indices.
            y_pred: logits or probabilities.
        """
        y_true, index = y_true
        y_pred = ops.convert_to_tensor(y_pred, self.dtype)
        targets, valid = self.targets(ops.convert_to_tensor(y_true, self.dtype), y_pred)
        index = ops.cast(index, "int32")
        known = ops.logical_and(index >= 0, index < self.num_examples)
        known = known if valid is None else ops.logical_and(known, valid)  # nothing is learned from an ignored label
        losses = self.indexed_crossentropy(
            targets, self.log_probs(y_pred), ops.where(known, index, self.num_examples), known
        )
        losses = ops.where(index < self.num_examples, losses, np.nan)
        return self.without_ignored(losses, valid)

    def indexed_crossentropy(self, targets: Any, log_probs: Any, index: Any, known: Any) -> Any:
        """The loss of every example.

        Args:
            targets: `(B, K)`.
            log_probs: `(B, K)`.
            index: index of each example, int32, `(B,)`; N where it is unknown or the label is ignored.
            known: mask, whether the example has an index and its label counts, `(B,)`.
        Returns:
            shape `(B,)`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define indexed_crossentropy(targets, log_probs, index, known)"
        )

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "num_examples": self.num_examples}
