"""Two networks that are trained together, on one loss of both."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_het.models.ensemble import DeepEnsemble
from keras_het.models.members import check_different_noise, equal_members, symbolic_inputs


@keras.saving.register_keras_serializable("benchmarks")
class PeerNetworks(DeepEnsemble):
    """A model of two networks, for the losses `CoTeaching` and `JoCoR`, which choose the examples to learn from.

    In training it returns the predictions of both, `(B, 2, K)`, for the loss. Everything else gets the log of the mean
    of their probabilities, `(B, K)`: metrics (also in training), `predict`, `evaluate` and any other call of the model.
    `val_loss` is the crossentropy of that mean. One network is `pair.members[0]`, which shares its weights with the
    pair. `predict_members` gives the predictions of each network. The loss takes logits:
    `CoTeaching(0.6, from_logits=True)`.

    Args:
        members: two built models with one output of one shape, `(B, K)`, that share no layer, and start with different
            weights.
        link: the link of members that do not end in a head of this package or in an activation: "softmax", or another
            link of its kind.
        from_logits: for members whose last layer is unknown: True if they return logits or log-probabilities, False for
            probabilities.
        kwargs: arguments of `keras.Model`, such as `name`.
    Input shape: as of the members.
    Output shape: `(B, K)`: log-probabilities; in training `(B, 2, K)`.
    Raises:
        ValueError: for fewer or more than two members, a sigmoid, whose classes are not exclusive, heads with equal
            seeds, or equal weights, and as for `DeepEnsemble`.
    Source: Han et al., NeurIPS 2018; Wei et al., CVPR 2020.

    Example:
        >>> import numpy as np
        >>> from benchmarks.baselines import CoTeaching
        >>> from keras_het.layers import HeteroscedasticDense
        >>> pair = PeerNetworks([keras.Sequential([keras.Input((4,)), HeteroscedasticDense(3)]) for _ in range(2)])
        >>> pair.compile("adam", CoTeaching(0.6, from_logits=True).attach(pair), metrics=["accuracy"])
        >>> history = pair.fit(np.eye(4), np.arange(4) % 3, verbose=0)
        >>> pair.predict(np.eye(4), verbose=0).shape, pair.predict_members(np.eye(4)).shape
        ((4, 3), (2, 4, 3))
    """

    fit = keras.Model.fit  # at once, unlike an ensemble

    def __init__(
        self, members: Sequence[keras.Model], link: Any = None, from_logits: bool | None = None, **kwargs: Any
    ):
        super().__init__(members, link, from_logits, **kwargs)
        self.compiled = False  # an ensemble's loss is of the mean
        if len(self.members) != 2:
            raise ValueError(f"`members` must be two models. Received: {len(self.members)}")
        if self.link.activation != "softmax":
            raise ValueError(f"`members` must return probabilities of exclusive classes. Received: link={self.link!r}")
        shape = tuple(
            keras.tree.flatten(self.members[0].compute_output_spec(symbolic_inputs(self.members[0])))[0].shape
        )
        if len(shape) != 2:
            raise ValueError(f"`members` must return outputs of shape (B, K). Received: shape {shape}")
        check_different_noise(self.members)
        if equal_members(self.members) is not None:
            raise ValueError("`members` must start with different weights. Received: two models with equal ones")

    def call(self, inputs: Any, training: bool = False) -> Any:
        """The mean of both, `(B, K)`, or in training both, `(B, 2, K)`."""
        outputs = [self._as_head(member(inputs, training=training)) for member in self.members]
        return ops.stack(outputs, axis=1) if training else self.link.average(outputs)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """See `keras.Model`; the loss gets predictions `(B, K)` as `(B, 1, K)`.

        Raises a ValueError for a loss of probabilities.
        """
        if not getattr(self.loss, "from_logits", True):
            raise ValueError(f"`loss` must take log-probabilities: from_logits=True. Received: {self.loss!r}")
        y_pred = y_pred if len(y_pred.shape) == 3 else ops.expand_dims(y_pred, 1)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> dict[str, Any]:
        """See `keras.Model`; they get the mean of both."""
        mean = self.link.average(y_pred, axis=1) if len(y_pred.shape) == 3 else y_pred
        return super().compute_metrics(x, y, mean, sample_weight)
