"""Heteroskedastic adaptive regularisation: rare classes and classes with many wrong labels get smoother predictions."""

from collections.abc import Callable
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_het.base.validation import as_float64, check_every_class, check_fraction, check_labels, check_not_negative
from keras_het.losses.indexed import IndexedCrossentropy
from keras_het.ops.log_space import largest, weighted_logs
from keras_het.ops.transition import SMALLEST
from keras_het.reading.ending import ending_of


def adaptive_strengths(labels: Any, noise: Any) -> np.ndarray:
    """Strengths for a loss that is better than early stopping for 2 of 7 noises on digits, by 3.9 and 0.9 points.

    The loss is `AdaptivelyRegularizedCrossentropy`. The strength of an example depends on the noise and the frequency
    of its class; the largest is 1:

        strength_k = noise_k^0.6 / n_k^0.4,   divided by the largest of them        (the code of Cao et al. 2021)

    The authors train a model without regularisation, and estimate noise_k as the share of held-out examples of label k
    for which it predicts another class.

    Args:
        labels: noisy labels, integers in [0, K), `(N,)`; n_k of them are k.
        noise: noise_k of each class, in [0, 1], `(K,)`.
    Returns:
        shape `(N,)`, float64.
    Raises:
        ValueError: for arguments out of range, or a class without an example.

    Example:
        >>> adaptive_strengths(np.array([0, 0, 0, 1]), [0.1, 0.2]).round(3).tolist()
        [0.425, 0.425, 0.425, 1.0]
    """
    noise = as_float64(noise)
    if noise.ndim != 1 or not len(noise):
        raise ValueError(f"`noise` must have shape (K,). Received: shape {noise.shape}")
    for share in noise:
        check_fraction("noise", share)
    labels = check_labels(labels, len(noise))
    check_every_class(labels, len(noise))
    by_class = noise**0.6 / np.bincount(labels) ** 0.4
    return (by_class / (by_class.max() or 1.0))[labels]


@keras.saving.register_keras_serializable("benchmarks")
class AdaptivelyRegularizedCrossentropy(IndexedCrossentropy):
    """Better than early stopping for 2 of 7 noises on digits: pair flips, +3.9 points, and outliers, +0.9.

    It is level for the others (`benchmarks/results/arena_digits.md`). The loss is crossentropy plus the norm of its
    gradient for the input of the last layer, weighted for each example (HAR):

        l_n + strength_n |d l_n / d h_n|,   d l_n / d h_n = W (p - y)        (Cao et al. 2021, Algorithm 1)

    h is the input of the last layer, a `Dense` with kernel W, which `attach` finds in the model. Examples without an
    index, such as validation examples, are not regularised. Strengths of 0 give the plain crossentropy.

    The paper sums the norms over several hidden layers by a second backward pass. Here only the last layer counts,
    whose gradient has a formula, so a step costs one more product with W. The authors' code takes the gradient of the
    mean loss, so their weight is B times the one here, where B is the size of the batch.

    Args:
        strengths: lambda_n >= 0, `(N,)`, such as `weight * adaptive_strengths(labels, noise)`; N is at most 2^24.
        from_logits: whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out of the loss and of its mean.
        name: the name of the loss in logs.
        reduction: as for any Keras loss.
        dtype: as for any Keras loss.
    Raises:
        ValueError: for strengths that are negative or no numbers, or of another shape.

    Example:
        >>> from keras_het.losses import with_index
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> labels = np.arange(8) % 3
        >>> strengths = 0.1 * adaptive_strengths(labels, [0.1, 0.2, 0.4])
        >>> loss = AdaptivelyRegularizedCrossentropy(strengths, from_logits=True)
        >>> model.compile("adam", loss.attach(model))
        >>> history = model.fit(np.ones((8, 2)), labels, sample_weight=with_index(8), verbose=0)
    """

    def __init__(
        self,
        strengths: Any,
        from_logits: bool = False,
        ignore_class: int | None = None,
        name: str = "adaptively_regularized_crossentropy",
        **kwargs: Any,
    ):
        strengths = as_float64(strengths)
        if strengths.ndim != 1 or not np.isfinite(check_not_negative("strengths", strengths[None])).all():
            raise ValueError(f"`strengths` must be finite, of shape (N,). Received: shape {strengths.shape}")
        super().__init__(len(strengths), from_logits=from_logits, ignore_class=ignore_class, name=name, **kwargs)
        self._kernel: Callable | None = None  # None until the loss is attached
        # A weight, although it never changes: JAX would copy a constant of a million numbers into every program.
        self._strengths = self.state.remember("strengths", (len(strengths) + 1,), "zeros")
        self._strengths.assign(np.append(strengths, 0.0))

    def attach(self, model: keras.Model, layer: keras.layers.Dense | None = None) -> Self:
        """Attaches the loss to a model, and finds the kernel of its last layer.

        Args:
            model: the model to be trained; functional, or Sequential and built, unless the layer is given.
            layer: the last layer, for a model without a graph.
        Raises:
            ValueError: for a model that does not end in a `Dense` layer. Heads that average over noise have another
                gradient.
        """
        found = _last_layer(model) if layer is None else layer
        if not isinstance(found, keras.layers.Dense):
            raise ValueError(f"`layer` must be a Dense layer. Received: a {type(found).__name__}")
        # A function instead of the layer: Keras would save the layer as a part of the loss.
        self._kernel = lambda: found.kernel
        return super().attach(model)

    def indexed_crossentropy(self, targets: Any, log_probs: Any, index: Any, known: Any) -> Any:
        """The loss above: `(B, K)`, `(B, K)`, `(B,)`, `(B,)` to `(B,)`."""
        plain = -weighted_logs(targets, log_probs)
        if self._kernel is None:
            return plain
        strength = ops.cast(ops.take(self._strengths.value, index), log_probs.dtype)
        kernel = ops.cast(ops.convert_to_tensor(self._kernel()), log_probs.dtype)
        # p - y, where a plain difference of two numbers near one would lose its digits to rounding.
        residual = targets * ops.expm1(log_probs) + (1.0 - targets) * ops.exp(log_probs)
        penalty = strength * _norm(residual, kernel)
        return plain + ops.where(known, penalty, 0.0)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor; a million strengths take some 20 MB in a `.keras` file."""
        config = super().get_config()
        del config["num_examples"]
        return {**config, "strengths": self._strengths.numpy()[:-1].tolist()}


def _last_layer(model):
    try:
        return ending_of(model).head
    except ValueError as error:
        rule = "end in a Dense layer, whose gradient has a formula, or, without a graph, `layer` must be given"
        raise ValueError(f"`model` must {rule}. {error}") from error


def _norm(residual, kernel):
    """The norm |W r| of each row r, `(B, K)`; its squares do not underflow, and where it is 0 its gradient is 0."""
    scale = ops.stop_gradient(largest(ops.abs(residual), SMALLEST, axis=-1))
    squares = ops.sum(ops.square(ops.matmul(residual / scale, ops.transpose(kernel))), axis=-1)
    positive = squares > 0
    return ops.where(positive, scale[:, 0] * ops.sqrt(ops.where(positive, squares, 1.0)), 0.0)
