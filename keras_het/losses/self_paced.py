"""Crossentropy of the easy examples: those with a loss below a moving threshold, or those that a mentor trusts."""

from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_het.base.validation import check_number
from keras_het.losses.selecting import SelectingCrossentropy
from keras_het.ops.log_space import largest


@keras.saving.register_keras_serializable("keras_het")
class SelfPacedCrossentropy(SelectingCrossentropy):
    """Crossentropy of the examples whose loss is at most a moving average of a percentile of the losses of batches.

        a <- d a + (1 - d) q_R(l_1 ... l_B)
        v_n = [l_n <= a]        (the predefined curriculum of Jiang et al. 2018, section 3, with their moving average)
        v_n = g(l_n, l_n - a, epoch / epochs, y_n)                                      (a learned one, with `mentor`)

    The loss is the mean of l_n over the examples with v_n = 1. With a mentor it is the mean of v_n l_n over all
    examples. q_R is the largest of the R B smallest losses of a batch, with R B rounded to a whole number; a starts at
    the first q_R. a and v take no gradient. At R = 1 the loss is the plain crossentropy, and a stays as it is;
    `callbacks.KeptShare` sets R = 1 at the start of training and in validation.

    Three things differ from the paper. No further example is dropped at random. The mentor sees the current loss of an
    example, and not its history through an LSTM. It is trained once, before the model that it guides.

    A mentor can do harm: a class that it mistrusts before the model has learned it is never learned. Use
    `KeptShare(num_epochs=0, burn_in=10)` with it, and look at what it keeps.

    Args:
        kept_share: R, in [0, 1], about the share of right labels; `callbacks.KeptShare` slowly lowers the share to it.
            Without that callback examples are left out of validation, too.
        decay: d, in [0, 1).
        mentor: a trained model, such as from `models.mentor_net`, whose docstring gives its inputs. It is not trained
            here. The config keeps its weights as they are when the config is made.
        from_logits: whether y_pred are logits or log-probabilities instead of probabilities.
        ignore_class: integer label to leave out.
        name: the name of the loss in logs.
        reduction: "sum_over_batch_size" is the mean over what is kept, or, with a mentor, over all examples.
        dtype: as for any Keras loss.
    Raises:
        ValueError: for arguments outside these ranges, or a mentor that is no model.

    Example:
        >>> from keras_het.callbacks import KeptShare
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> model.compile("adam", SelfPacedCrossentropy(kept_share=0.5, from_logits=True).attach(model))
        >>> share = KeptShare(num_epochs=1)
        >>> history = model.fit(np.ones((8, 2)), np.arange(8) % 3, epochs=2, callbacks=[share], verbose=0)
        >>> 0.0 < float(ops.convert_to_numpy(model.loss.threshold)) < 5.0
        True
    """

    def __init__(
        self,
        kept_share: float,
        decay: float = 0.95,
        mentor: keras.Model | None = None,
        name: str = "self_paced_crossentropy",
        **kwargs: Any,
    ):
        super().__init__(kept_share, name=name, **kwargs)
        self.decay = check_number("decay", decay, low=0.0)
        if self.decay >= 1.0:
            raise ValueError(f"`decay` must be in [0, 1). Received: decay={decay}")
        if mentor is not None and not isinstance(mentor, keras.Model):
            raise ValueError(f"`mentor` must be a keras.Model or None. Received: a {type(mentor).__name__}")
        self.mentor: Any = mentor
        self.threshold = self.state.add_variable((), keras.initializers.Constant(np.inf), name="threshold")
        self.progress = self.state.add_variable((), "zeros", name="progress")

    def set_epoch(self, share: float, progress: float) -> None:
        """See `SelectingCrossentropy`; a mentor sees the progress."""
        super().set_epoch(share, progress)
        self.progress.assign(progress)

    def selected(self, targets: Any, log_probs: Any, counts: Any) -> tuple[Any, Any]:
        """See above."""
        losses = -ops.sum(targets * log_probs, axis=-1)
        seen = ops.cast(ops.stop_gradient(losses), "float32")
        selects = self.kept_share < 1.0
        threshold = self._moved(seen, counts, selects)
        if self.mentor is None:
            return losses, ops.logical_or(seen <= threshold, ops.logical_not(selects))
        weights = ops.cast(self.mentor_weights(seen, threshold, targets), losses.dtype)
        return losses * ops.where(selects, weights, 1.0), counts

    def _moved(self, losses, counts, selects):
        """Returns the threshold, updated by this batch."""
        percentile = largest(ops.where(self.smallest(losses, counts), losses, -np.inf), -np.inf, axis=0)[0]
        before = self.threshold * 1.0
        moved = ops.where(ops.isinf(before), percentile, self.decay * before + (1.0 - self.decay) * percentile)
        now = ops.where(ops.logical_and(selects, ops.isfinite(percentile)), moved, before)
        self.threshold.assign(now)
        return now

    def mentor_weights(self, losses: Any, threshold: Any, targets: Any) -> Any:
        """The weights that the mentor gives, without a gradient.

        Args:
            losses: crossentropies, float32, `(B,)`.
            threshold: a, a number.
            targets: label vectors, `(B, K)`.
        Returns:
            v, `(B,)`.
        """
        # The threshold is infinite until examples are selected: the mentor would get infinite features.
        threshold = ops.where(ops.isinf(threshold), 0.0, threshold)
        features = ops.stack([losses, losses - threshold, ops.ones_like(losses) * self.progress], axis=-1)
        return ops.stop_gradient(self.mentor([features, ops.cast(targets, "float32")], training=False)[:, 0])

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor, and the weights of a mentor."""
        config = {**super().get_config(), "decay": self.decay, "mentor": None}
        if self.mentor is not None:
            config["mentor"] = keras.saving.serialize_keras_object(self.mentor)
            config["mentor_weights"] = [weight.tolist() for weight in self.mentor.get_weights()]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """A new loss, with a mentor of the same weights."""
        config = dict(config)
        weights = config.pop("mentor_weights", None)
        if weights is not None:
            config["mentor"] = keras.saving.deserialize_keras_object(config["mentor"])
            config["mentor"].set_weights([np.asarray(weight, "float32") for weight in weights])
        return cls(**config)
