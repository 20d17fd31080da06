"""A mentor: a small network that tells wrong labels from right ones by how a model learns them, and its examples."""

from typing import Any, Self

import keras
import numpy as np
from keras import ops

from benchmarks.baselines.selecting import SelfPacedCrossentropy
from keras_het.base.validation import check_integer, check_labels
from keras_het.reading.probabilities import predict_probabilities


def mentor_net(num_classes: int, hidden: int = 20) -> keras.Model:
    """A learned mentor does harm on digits: 90.1% accuracy, and 93.9% with the rule that it replaces.

    A plain network has 91.3% (`benchmarks/results/co_teaching.md`: 45% wrong labels, 100 examples for the mentor). The
    function returns a small network that weighs examples by their losses: the learned curriculum of
    `MentoredCrossentropy`.

    Train it on examples whose labels are known to be right or wrong, which `baselines.MentorExamples` collects while
    another model learns. Its features are losses, so it also serves another model of the same data, or of similar data.

    Args:
        num_classes: K >= 2.
        hidden: the width of its hidden layer, at least 1.
    Input shape: `[features, labels]`. The features `(B, 3)` are the loss, the loss minus the threshold of
        `MentoredCrossentropy`, and the share of the training that is done. The labels are vectors, `(B, K)`, which
        become two numbers, as in an embedding.
    Output shape: `(B, 1)`: the probability that the label is right.
    Returns:
        a compiled model: `mentor.fit(examples.inputs, examples.is_right)`.
    Raises:
        ValueError: for numbers out of range.
    Source: Jiang et al., ICML 2018, section 4, but for their LSTM over the losses of an example in several epochs.

    Example:
        >>> import numpy as np
        >>> mentor = mentor_net(num_classes=3)
        >>> mentor.predict([np.zeros((4, 3)), np.eye(3)[[0, 1, 2, 0]]], verbose=0).shape
        (4, 1)
    """
    check_integer("num_classes", num_classes, 2)
    check_integer("hidden", hidden, 1)
    features, labels = keras.Input((3,), name="features"), keras.Input((num_classes,), name="labels")
    embedded = keras.layers.Dense(2, use_bias=False, name="embedding")(labels)
    joined = keras.layers.Concatenate()([features, embedded])
    right = keras.layers.Dense(1, "sigmoid", name="is_right")(keras.layers.Dense(hidden, "relu", name="hidden")(joined))
    mentor = keras.Model([features, labels], right, name="mentor_net")
    mentor.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
    return mentor


@keras.saving.register_keras_serializable("benchmarks")
class MentoredCrossentropy(SelfPacedCrossentropy):
    """A learned mentor does harm on digits: 90.1% accuracy, and 93.9% with the rule that it replaces.

    The loss is that of `SelfPacedCrossentropy`, but a mentor g says how much an example counts:

        mean of v_n l_n over all examples,   v_n = g(l_n, l_n - a, epoch / epochs, y_n)       (Jiang et al. 2018)

    Two things differ from the paper. The mentor sees the current loss of an example, and not its history through an
    LSTM. It is trained once, before the model that it guides. A class that it mistrusts before the model has learned it
    is never learned: use `KeptShare(num_epochs=0, burn_in=10)` with it, and look at the examples that it keeps.

    Args:
        kept_share: see `SelfPacedCrossentropy`.
        mentor: a trained model, such as a `mentor_net`, whose docstring gives its inputs, or None: the plain loss, of a
            model from which `MentorExamples` are taken. It is not trained here. The config keeps its weights as they
            are when the config is made.
        name: the name of the loss in logs.
        kwargs: other arguments of `SelfPacedCrossentropy`.
    Raises:
        ValueError: for arguments outside these ranges, or a mentor that is no model.
    """

    def __init__(
        self, kept_share: float, mentor: keras.Model | None = None, name: str = "mentored_crossentropy", **kwargs: Any
    ) -> None:
        super().__init__(kept_share, name=name, **kwargs)
        if mentor is not None and not isinstance(mentor, keras.Model):
            raise ValueError(f"`mentor` must be a keras.Model or None. Received: a {type(mentor).__name__}")
        self.mentor: Any = mentor
        self.progress = self.state.remember("progress", (), "zeros")

    def set_epoch(self, share: float, progress: float) -> None:
        """See `SelectingCrossentropy`; a mentor sees the progress."""
        super().set_epoch(share, progress)
        self.progress.assign(progress)

    def selected(self, targets: Any, log_probs: Any, counts: Any) -> tuple[Any, Any]:
        """See above."""
        losses, kept = super().selected(targets, log_probs, counts)
        if self.mentor is None:
            return losses, kept
        seen = ops.cast(ops.stop_gradient(losses), "float32")
        weights = ops.cast(self.mentor_weights(seen, self.threshold * 1.0, targets), losses.dtype)
        return losses * ops.where(self.kept_share < 1.0, weights, 1.0), counts

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
        config = {**super().get_config(), "mentor": None}
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


SMALLEST = np.finfo("float32").tiny  # a smaller probability would give an infinite loss


class MentorExamples(keras.callbacks.Callback):
    """A learned mentor does harm on digits: 90.1% accuracy, and 93.9% with the rule that it replaces.

    The callback collects the data to train the mentor, a `baselines.mentor_net`: after every epoch, the features of
    examples whose true labels are known. The model learns by a `MentoredCrossentropy` without a mentor. The examples
    must be among its training examples: the losses of other examples do not show which labels it has memorised. Epochs
    that keep all examples have no threshold, and are left out.

    Args:
        x: the examples, an array, `(N, ...)`.
        noisy_labels: their labels in training, integers, `(N,)`.
        true_labels: their true labels, integers, `(N,)`.
    Raises:
        ValueError: for other labels, or a model with another loss.

    Example:
        >>> from benchmarks.baselines import KeptShare
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
        >>> model.compile("adam", MentoredCrossentropy(kept_share=0.5, from_logits=True).attach(model))
        >>> x, noisy, true = np.eye(2), np.array([0, 1]), np.array([0, 2])
        >>> examples = MentorExamples(x, noisy, true)
        >>> share = KeptShare(num_epochs=1)
        >>> history = model.fit(x, noisy, epochs=3, callbacks=[share, examples], verbose=0)
        >>> [part.shape for part in examples.inputs], examples.is_right.tolist()
        ([(4, 3), (4, 3)], [1.0, 0.0, 1.0, 0.0])
        >>> mentor = mentor_net(num_classes=3)
        >>> history = mentor.fit(examples.inputs, examples.is_right, epochs=2, verbose=0)
        >>> MentoredCrossentropy(kept_share=0.5, mentor=mentor, from_logits=True).mentor.name  # for the next model
        'mentor_net'
    """

    def __init__(self, x: Any, noisy_labels: Any, true_labels: Any):
        super().__init__()
        self.x = np.asarray(x)
        self.noisy_labels = check_labels(noisy_labels, np.inf, len(self.x), "noisy_labels")
        self.true_labels = check_labels(true_labels, np.inf, len(self.x), "true_labels")

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        loss = getattr(self.model, "loss", None)
        if not isinstance(loss, MentoredCrossentropy):
            raise ValueError(
                f"The model must have the loss MentoredCrossentropy. Received: model={self.model.name!r}, loss={loss!r}"
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
        """Features, `(E N, 3)`, and labels as vectors, `(E N, K)`, of E epochs, as `mentor_net` takes them."""
        if not self.features:
            raise ValueError(
                "Training must have an epoch that keeps not all examples: baselines.KeptShare. Received: none"
            )
        vectors = np.eye(self.num_classes, dtype="float32")[self.noisy_labels]
        return [np.concatenate(self.features), np.tile(vectors, (len(self.features), 1))]

    @property
    def is_right(self) -> np.ndarray:
        """1 where a label is right, `(E N,)`, float32."""
        return np.tile((self.noisy_labels == self.true_labels).astype("float32"), len(self.features))
