"""Losses of two networks that are trained together and choose which examples of a batch to learn from."""

from typing import Any

import keras
from keras import ops

from keras_het.losses.selecting import SelectingCrossentropy
from keras_het.ops.log_space import weighted_logs


class PairCrossentropy(SelectingCrossentropy):
    """Base class of losses of two networks; a subclass defines `of_pair`.

    Predictions `(B, 1, K)` give the plain crossentropy: in validation, a `models.PeerNetworks` passes the mean of both
    networks in this shape.
    """

    def check_shape(self, shape: tuple) -> None:
        """Raises a ValueError for predictions of another shape than `(B, 2, K)`, or `(B, 1, K)`."""
        if len(shape) != 3 or shape[1] not in (1, 2):
            rule = "have shape (B, 2, K), those of two networks, as of keras_het.models.PeerNetworks"
            raise ValueError(f"`y_pred` must {rule}. Received: shape {shape}")

    def selects(self, shape: tuple) -> bool:
        """See `SelectingCrossentropy`; False for `(B, 1, K)`."""
        return shape[1] == 2

    def loss_shape(self, shape: tuple) -> tuple[int, ...]:
        """See `SelectingCrossentropy`; one loss for each network."""
        return (shape[1],)

    def selected(self, targets: Any, log_probs: Any, counts: Any) -> tuple[Any, Any]:
        """See `SelectingCrossentropy`."""
        losses = -weighted_logs(targets[:, None], log_probs)
        return (losses, counts) if log_probs.shape[1] == 1 else self.of_pair(losses, log_probs, counts)

    def of_pair(self, losses: Any, log_probs: Any, counts: Any) -> tuple[Any, Any]:
        """The losses of every example, and which are kept, `(B, 2)`, or `(B, 1)` for both networks.

        Args:
            losses: crossentropies, `(B, 2)`.
            log_probs: `(B, 2, K)`.
            counts: which examples may be kept, of the shape of the returned losses.
        """
        raise NotImplementedError(f"{type(self).__name__} must define of_pair(losses, log_probs, counts)")


@keras.saving.register_keras_serializable("keras_het")
class CoTeaching(PairCrossentropy):
    """Crossentropy of two networks; each learns from the examples that have the smallest losses under the other.

        mean of -log p1(y) over the R n examples of the smallest -log p2(y), and the same of 2 and 1
        (Han et al. 2018, Algorithm 1)

    n is the number of examples in a batch, R the share that is kept; R n is rounded to a whole number. Networks learn
    examples with right labels first, so labels of small loss are mostly right. An example that one network keeps by
    mistake must still pass the other one. The loss is the mean of the two networks' losses, so each gets half of the
    gradient that it would have alone. In comparison, the penalty of a `kernel_regularizer` counts twice. R = 1 gives
    the mean of two crossentropies.

    Args:
        kept_share: R, in [0, 1], about the share of right labels; `callbacks.KeptShare` slowly lowers the share to it.
        from_logits: whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out.
        name: the name of the loss in logs.
        reduction: "sum_over_batch_size" is the mean over the kept examples; "none" gives `(B, 2)`, zero for the others.
        dtype: as for any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges; when called, for y_pred of another shape than `(B, 2, K)`.

    Example:
        >>> import numpy as np
        >>> from keras_het import callbacks, models
        >>> members = [keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]) for _ in range(2)]
        >>> pair = models.PeerNetworks(members, link="softmax", from_logits=True)
        >>> pair.compile("adam", CoTeaching(kept_share=0.6, from_logits=True).attach(pair), metrics=["accuracy"])
        >>> share = callbacks.KeptShare(num_epochs=2)
        >>> history = pair.fit(np.ones((8, 2)), np.arange(8) % 3, epochs=3, callbacks=[share], verbose=0)
        >>> [round(share, 2) for share in history.history["kept_share"]]
        [1.0, 0.8, 0.6]
    """

    def __init__(self, kept_share: float, name: str = "co_teaching", **kwargs: Any):
        super().__init__(kept_share, name=name, **kwargs)

    def of_pair(self, losses: Any, log_probs: Any, counts: Any) -> tuple[Any, Any]:
        """See above."""
        return losses, ops.flip(self.smallest(losses, counts), axis=1)
