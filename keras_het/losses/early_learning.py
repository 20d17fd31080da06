"""Early-learning regularisation: earlier predictions of an example keep the model from learning a wrong label."""

from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import MAX_CLASSES, check_choice, check_integer, check_number
from keras_het.losses.indexed import IndexedCrossentropy
from keras_het.ops.log_space import largest, weighted_logs

MAX_BYTES = 2 << 30  # of the remembered predictions
# The rounding error of a remembered number near one.
ROUNDING = {
    "float32": 2.0**-24,
    "float16": 2.0**-11,
}


@keras.saving.register_keras_serializable("keras_het")
class EarlyLearningRegularizedCrossentropy(IndexedCrossentropy):
    """Crossentropy plus a term that keeps predictions as they were before wrong labels are memorised (ELR).

        t_n <- beta t_n + (1 - beta) p(x_n)                                                 (Liu et al. 2020, Section 4)
        -sum_k y_k log p_k + lambda log(1 - sum_k t_nk p_k)                                 (Liu et al. 2020, Section 4)

    t_n starts at zero, is remembered for each example n of the training data, and takes no gradient. lambda = 0 gives
    the plain crossentropy. Where 1 - max_k t_nk is below its rounding error, 6e-8, or 5e-4 in half precision, that
    error replaces it. So the second term, which has no lower bound in the paper, and its gradient stay finite.

    `with_index` brings the index of an example to the loss. Every batch that has indices is remembered, also in
    `evaluate`. If an index is twice in a batch, one of the two predictions is remembered.

    t takes N K numbers, in checkpoints as well; more than 2 GiB is refused. A million examples of a thousand classes
    fit in half precision, where t stops moving once it is within 0.0005 / (1 - beta) of p. On TensorFlow and PyTorch
    every step copies all of t.

    Args:
        num_examples: N, the number of training examples; at most 2^24.
        num_classes: K, 2 to 2^24.
        strength: lambda >= 0; the paper takes 3 for ten classes and 7 for a hundred.
        momentum: beta, in [0, 1); the paper takes 0.7 for ten classes and 0.9 for a hundred.
        memory_dtype: the dtype of t, "float32" or "float16".
        from_logits: boolean, whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: argument of any Keras loss.
        dtype: argument of any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges, or a t of more than 2 GiB.

    Example:
        >>> from keras_het.losses import with_index
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> loss = EarlyLearningRegularizedCrossentropy(num_examples=8, num_classes=3, from_logits=True)
        >>> model.compile("adam", loss.attach(model), metrics=["accuracy"])
        >>> history = model.fit(ops.ones((8, 2)), ops.arange(8) % 3, sample_weight=with_index(8), verbose=0)
        >>> tuple(loss.memory.shape)
        (8, 3)
    """

    def __init__(
        self,
        num_examples: int,
        num_classes: int,
        strength: float = 3.0,
        momentum: float = 0.7,
        memory_dtype: str = "float32",
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "early_learning_regularized_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(num_examples, from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self.num_classes = check_integer("num_classes", num_classes, 2, MAX_CLASSES)
        self.strength = check_number("strength", strength, low=0.0)
        self.momentum = check_number("momentum", momentum, low=0.0)
        refuse_if(self.momentum >= 1.0, "momentum", "be in [0, 1)", f"momentum={momentum}")
        self.memory_dtype = check_choice("memory_dtype", memory_dtype, ("float32", "float16"))
        self._check_memory()
        # The last row is for examples without an index, which would otherwise update another example.
        shape = (self.num_examples + 1, self.num_classes)
        self.rows = self.state.remember("memory", shape, "zeros", self.memory_dtype)

    def _check_memory(self):
        size = (4 if self.memory_dtype == "float32" else 2) * (self.num_examples + 1) * self.num_classes
        if size > MAX_BYTES:
            rule = f"keep within {MAX_BYTES >> 30} GiB, and has {size / 2**30:.3g}"
            raise ValueError(
                f'The memory must {rule}; memory_dtype="float16" takes half of what "float32" does. Received: '
                f"num_examples={self.num_examples}, num_classes={self.num_classes}, memory_dtype={self.memory_dtype!r}"
            )

    def indexed_crossentropy(self, targets: Any, log_probs: Any, index: Any, known: Any) -> Any:
        """The loss above: `(B, K)`, `(B, K)`, `(B,)`, `(B,)` to `(B,)`. Raises a ValueError for another K."""
        if log_probs.shape[-1] != self.num_classes:
            raise refusal("y_pred", f"have num_classes={self.num_classes} classes", shape=log_probs)
        plain = -weighted_logs(targets, log_probs)
        before = ops.take(self.rows.value, index, axis=0)
        p = ops.exp(log_probs)
        memory = self.momentum * ops.cast(before, p.dtype) + (1.0 - self.momentum) * ops.stop_gradient(p)
        memory = ops.where(known[:, None], memory, 0.0)  # else all examples without an index share a memory
        self.rows.assign(ops.scatter_update(self.rows.value, index[:, None], ops.cast(memory, before.dtype)))
        # 1 - sum t p as a sum of positive terms: the rounding of a plain difference, divided by a rest near zero, would
        # disturb a trained model.
        most = largest(memory, 0.0, axis=-1)
        rest = ops.maximum(1.0 - most[:, 0], ROUNDING[self.memory_dtype]) + ops.sum(p * (most - memory), axis=-1)
        return plain + self.strength * ops.log(rest)

    @property
    def memory(self) -> Any:
        """t, a tensor of shape `(N, K)`."""
        return self.rows[:-1]

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        own = {"num_classes": self.num_classes, "strength": self.strength, "momentum": self.momentum}
        return {**super().get_config(), **own, "memory_dtype": self.memory_dtype}
