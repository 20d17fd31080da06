"""Losses that learn from the examples of a batch with the smallest losses: by one network, or by two together."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.replicas import check_in_scope
from keras_het.base.validation import check_fraction, check_number
from keras_het.losses.state import StatefulCrossentropy
from keras_het.ops.log_space import largest, weighted_logs


class SelectingCrossentropy(StatefulCrossentropy):
    """Base class of losses that keep a share of the examples of a batch; a subclass defines `selected`.

    The loss is the mean over the examples that are kept, as in the papers. `reduction="sum"` gives their sum, and
    "none" gives zeros for the others. Ignored examples and examples of weight zero are never kept; the share is taken
    of all other examples. A label that is no class counts as kept: it makes the loss nan, as in every loss here.

    Args:
        kept_share: in [0, 1]; `baselines.KeptShare` gradually lowers the weight `loss.kept_share` to it.
        kwargs: see `Crossentropy`.
    """

    def __init__(self, kept_share: float, **kwargs: Any):
        super().__init__(**kwargs)
        check_fraction("kept_share", kept_share)
        self.final_share = float(kept_share)
        self.kept_share = self.state.remember("kept_share", (), keras.initializers.Constant(self.final_share))

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """As for any Keras loss.

        Args:
            y_true: integer labels, `(B,)` or `(B, 1)`, or label vectors, `(B, K)`.
            y_pred: logits or probabilities, of the shape that the class takes.
            sample_weight: `(B,)` or `(B, 1)`.
        Raises:
            ValueError: for predictions or weights of another shape.
        """
        y_pred = ops.convert_to_tensor(y_pred)
        self.check_shape(tuple(y_pred.shape))
        if self.selects(tuple(y_pred.shape)):
            self.check_attached()
            check_in_scope(f"The loss {self.name!r}", self.state.variables)
        # One weight for each loss: on PyTorch Keras multiplies weights by the mask in place, which cannot widen them.
        shape = self.loss_shape(tuple(y_pred.shape))
        weight = ops.reshape(self._weight(y_pred, sample_weight), (-1, *(1,) * len(shape)))
        weight = weight * ops.ones((1, *shape), weight.dtype)
        return super().__call__((y_true, weight), y_pred, weight)

    def set_epoch(self, share: float, progress: float) -> None:
        """Sets the share that is kept from now on; a callback calls it at the beginning of an epoch.

        Args:
            share: in [0, 1].
            progress: the share of the training that is done, in [0, 1].
        """
        self.kept_share.assign(share)

    @staticmethod
    def _weight(y_pred, sample_weight):
        if sample_weight is None:
            return ops.ones_like(y_pred[(slice(None), *(0,) * (len(y_pred.shape) - 1))])
        shape = tuple(sample_weight.shape if hasattr(sample_weight, "shape") else np.shape(sample_weight))
        if shape[1:] not in ((), (1,)):
            raise ValueError(f"`sample_weight` must have shape (B,) or (B, 1). Received: shape {shape}")
        return ops.convert_to_tensor(sample_weight)

    def check_shape(self, shape: tuple) -> None:
        """Raises a ValueError for predictions of another shape than `(B, K)`."""
        if len(shape) != 2:
            raise ValueError(f"`y_pred` must have shape (B, K). Received: shape {shape}")

    def selects(self, shape: tuple) -> bool:
        """Whether the loss leaves out examples of large loss for predictions of this shape; if not, it keeps all."""
        return True

    def loss_shape(self, shape: tuple) -> tuple[int, ...]:
        """The shape of an example's losses, `()` or `(M,)`, for predictions of this shape."""
        return ()

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """The losses of every example, with a mask; an example that is not kept has loss zero, and is left out.

        Args:
            y_true: labels and weights.
            y_pred: logits or probabilities.
        """
        y_true, weight = y_true
        y_pred = ops.convert_to_tensor(y_pred, self.dtype)
        targets, valid = self.targets(
            ops.convert_to_tensor(y_true, self.dtype), y_pred if len(y_pred.shape) == 2 else y_pred[:, 0]
        )
        counts = ops.not_equal(weight, 0.0)
        if valid is not None:
            counts = ops.logical_and(counts, ops.reshape(valid, (-1, *(1,) * (len(counts.shape) - 1))))
        losses, kept = self.selected(targets, self.log_probs(y_pred), counts)
        return self.without_ignored(losses, ops.logical_and(counts, ops.logical_or(kept, ops.isnan(losses))))

    def selected(self, targets: Any, log_probs: Any, counts: Any) -> tuple[Any, Any]:
        """The losses of every example, and whether each is kept.

        Args:
            targets: label vectors, `(B, K)`.
            log_probs: of the shape of y_pred.
            counts: which examples may be kept, of the shape of the losses.
        Returns:
            losses, and whether each is kept, both `(B,)` or `(B, M)`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define selected(targets, log_probs, counts)")

    def smallest(self, losses: Any, counts: Any) -> Any:
        """Which examples have the smallest losses of their column: the share that is kept, rounded to a whole number.

        Of equal losses the first in the batch is kept. No gradient passes.

        Args:
            losses: `(B,)` or `(B, M)`.
            counts: which of them count, of the same shape, and the same in every column.
        """
        ranks = ops.argsort(ops.argsort(ops.where(counts, losses, np.inf), axis=0), axis=0)
        return ops.logical_and(counts, ops.cast(ranks, "float32") < self.number_kept(counts))

    def number_kept(self, counts: Any) -> Any:
        """The number of examples to keep in every column: the share of the examples that count, rounded, as float32."""
        return ops.floor(self.kept_share * ops.sum(ops.cast(counts, "float32"), axis=0) + 0.5)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "kept_share": self.final_share}


@keras.saving.register_keras_serializable("benchmarks")
class SelfPacedCrossentropy(SelectingCrossentropy):
    """Better than early stopping on digits for symmetric flips, pairs and weak raters, +2.8 to +14.7 points.

    It is 3.2 points worse where no label is wrong, nowhere better with a head: `benchmarks/results/arena_digits.md`.
    The loss is the crossentropy of the examples whose own is at most a moving average of a percentile of batches:

        a <- d a + (1 - d) q_R(l_1 ... l_B)
        v_n = [l_n <= a]        (the predefined curriculum of Jiang et al. 2018, section 3, with their moving average)

    The loss is the mean of l_n over the examples with v_n = 1. q_R is the largest of the R B smallest losses of a
    batch, with R B rounded to a whole number; a starts at the first q_R. a and v take no gradient. At R = 1 the loss is
    the plain crossentropy, and a stays as it is; `baselines.KeptShare` sets R = 1 at the start of training and in
    validation. In the paper some further examples are dropped at random.

    Args:
        kept_share: R, in [0, 1], about the share of right labels; `baselines.KeptShare` slowly lowers the share to it.
            Without that callback examples are left out of validation, too.
        decay: d, in [0, 1).
        from_logits: whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out.
        name: the name of the loss in logs.
        reduction: "sum_over_batch_size" is the mean over the kept examples.
        dtype: as for any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges.

    Example:
        >>> from benchmarks.baselines import KeptShare
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> model.compile("adam", SelfPacedCrossentropy(kept_share=0.5, from_logits=True).attach(model))
        >>> share = KeptShare(num_epochs=1)
        >>> history = model.fit(np.ones((8, 2)), np.arange(8) % 3, epochs=2, callbacks=[share], verbose=0)
        >>> 0.0 < float(ops.convert_to_numpy(model.loss.threshold)) < 5.0
        True
    """

    def __init__(
        self, kept_share: float, decay: float = 0.95, name: str = "self_paced_crossentropy", **kwargs: Any
    ) -> None:
        super().__init__(kept_share, name=name, **kwargs)
        self.decay = check_number("decay", decay, low=0.0)
        if self.decay >= 1.0:
            raise ValueError(f"`decay` must be in [0, 1). Received: decay={decay}")
        self.threshold = self.state.remember("threshold", (), keras.initializers.Constant(np.inf))

    def selected(self, targets: Any, log_probs: Any, counts: Any) -> tuple[Any, Any]:
        """See above."""
        losses = -weighted_logs(targets, log_probs)
        seen = ops.cast(ops.stop_gradient(losses), "float32")
        selects = self.kept_share < 1.0
        threshold = self._moved(seen, counts, selects)
        return losses, ops.logical_or(seen <= threshold, ops.logical_not(selects))

    def _moved(self, losses, counts, selects):
        """Returns the threshold, updated by this batch."""
        percentile = largest(ops.where(self.smallest(losses, counts), losses, -np.inf), -np.inf, axis=0)[0]
        before = self.threshold * 1.0
        moved = ops.where(ops.isinf(before), percentile, self.decay * before + (1.0 - self.decay) * percentile)
        now = ops.where(ops.logical_and(selects, ops.isfinite(percentile)), moved, before)
        self.threshold.assign(now)
        return now

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().get_config(), "decay": self.decay}


class PairCrossentropy(SelectingCrossentropy):
    """Base class of losses of two networks; a subclass defines `of_pair`.

    Predictions `(B, 1, K)` give the plain crossentropy: in validation, a `baselines.PeerNetworks` passes the mean of
    both networks in this shape.
    """

    def check_shape(self, shape: tuple) -> None:
        """Raises a ValueError for predictions of another shape than `(B, 2, K)`, or `(B, 1, K)`."""
        if len(shape) != 3 or shape[1] not in (1, 2):
            rule = "have shape (B, 2, K), those of two networks, as of benchmarks.baselines.PeerNetworks"
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


@keras.saving.register_keras_serializable("benchmarks")
class CoTeaching(PairCrossentropy):
    """Better than early stopping on digits for pairs, +13.9 points, and weak raters, +2.2; worse without wrong labels.

    It is 3.9 points worse there, and level for the four other noises: `benchmarks/results/arena_digits.md`. The loss is
    the crossentropy of two networks, where each learns from the examples that have the smallest losses under the other:

        mean of -log p1(y) over the R n examples of the smallest -log p2(y), and the same of 2 and 1
        (Han et al. 2018, Algorithm 1)

    n is the number of examples in a batch, R the share that is kept; R n is rounded to a whole number. Networks learn
    examples with right labels first, so labels of small loss are mostly right. An example that one network keeps by
    mistake must still pass the other one. The loss is the mean of the two networks' losses, so each gets half of the
    gradient that it would have alone. In comparison, the penalty of a `kernel_regularizer` counts twice. R = 1 gives
    the mean of two crossentropies.

    Args:
        kept_share: R, in [0, 1], about the share of right labels; `baselines.KeptShare` slowly lowers the share to it.
        from_logits: whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out.
        name: the name of the loss in logs.
        reduction: "sum_over_batch_size" is the mean over the kept examples; "none" gives `(B, 2)`, zero for the others.
        dtype: as for any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges; when called, for y_pred of another shape than `(B, 2, K)`.

    Example:
        >>> import numpy as np
        >>> from benchmarks.baselines import KeptShare, PeerNetworks
        >>> members = [keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]) for _ in range(2)]
        >>> pair = PeerNetworks(members, link="softmax", from_logits=True)
        >>> pair.compile("adam", CoTeaching(kept_share=0.6, from_logits=True).attach(pair), metrics=["accuracy"])
        >>> share = KeptShare(num_epochs=2)
        >>> history = pair.fit(np.ones((8, 2)), np.arange(8) % 3, epochs=3, callbacks=[share], verbose=0)
        >>> [round(share, 2) for share in history.history["kept_share"]]
        [1.0, 0.8, 0.6]
    """

    def __init__(self, kept_share: float, name: str = "co_teaching", **kwargs: Any):
        super().__init__(kept_share, name=name, **kwargs)

    def of_pair(self, losses: Any, log_probs: Any, counts: Any) -> tuple[Any, Any]:
        """See above."""
        return losses, ops.flip(self.smallest(losses, counts), axis=1)
