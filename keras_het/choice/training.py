"""One training of a candidate, with the predictions of held-out examples after every epoch."""

import dataclasses
import time
from typing import Any

import keras
import numpy as np
from scipy.special import softmax

from keras_het.base.batches import batches
from keras_het.base.internals import not_decayed
from keras_het.base.new_models import NewModels
from keras_het.choice.candidate import Arm, Task
from keras_het.choice.networks import LayersBelow
from keras_het.inspection.check import judge
from keras_het.inspection.counterparts import remade
from keras_het.losses.state import StatefulCrossentropy

MOMENTUM = 0.8  # of the average of weights, for an epoch


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A training.

    Attributes:
        model: predicts logits or log-probabilities of the true classes; None for one that was read from a file.
        right: whether the prediction of a held-out example is its label, `(epochs, n)`.
        probabilities: of the held-out examples at the epoch of the most such, `(n, K)`, float32.
        seconds: of the training.
    """

    model: keras.Model | None
    right: np.ndarray
    probabilities: np.ndarray
    seconds: float


class Trainer:
    """Trains arms, all with the same layers below the head, optimizer, and arguments of `fit`.

    Args:
        below: the layers below the head.
        optimizer: a name, an optimizer, of which each training gets a new one, or a function of a model.
        epochs: the number of epochs.
        batch_size: of training and prediction.
        fit_arguments: further arguments of `fit`.
    """

    def __init__(self, below: LayersBelow, optimizer: Any, epochs: int, batch_size: int, fit_arguments: dict[str, Any]):
        self._below, self._optimizer, self.epochs = below, optimizer, epochs
        self._batch_size, self._fit_arguments = batch_size, dict(fit_arguments)
        self._models = NewModels("make_body")
        self._callbacks = keras.tree.flatten(self._fit_arguments.pop("callbacks", None) or [])

    def __call__(self, arm: Arm, task: Task, held_out: tuple[Any, np.ndarray] | None, seed: int, epochs: int) -> Fitted:
        """Trains one arm.

        Args:
            arm: a candidate and its strength.
            task: the examples to train on.
            held_out: examples and their labels, at least one; None for a training that is not measured.
            seed: of the weights, the order of the batches, and all that is drawn.
            epochs: how many.
        """
        keras.utils.set_random_seed(seed)
        candidate, strength = arm
        tail = candidate.tail(task, strength)
        network = self._below.network(task.x, task.units, candidate.head(task, strength), tail)
        loss, start = candidate.loss(task, strength), time.perf_counter()
        network.trained.compile(self._optimizer_of(network.trained, tail), loss)
        if isinstance(loss, StatefulCrossentropy):
            loss.attach(network.trained)
        labels = candidate.labels(task, strength)
        judge(network.trained, task.x, labels)
        self._models.check(network.trained)
        record = _Record(network.predictor, held_out, self._batch_size)
        network.trained.fit(
            task.x,
            labels,
            sample_weight=candidate.sample_weight(task, strength),
            batch_size=self._batch_size,
            epochs=epochs,
            verbose=0,
            callbacks=[*self._callbacks, *candidate.callbacks(task, strength), record],
            **self._fit_arguments,
        )
        self._models.add(network.trained)
        return record.fitted(time.perf_counter() - start, epochs)

    def compile(self, model: keras.Model) -> None:
        """Compiles a fitted model for `evaluate`, and for further training by crossentropy."""
        optimizer = self._new_optimizer(model)
        optimizer.build(model.trainable_variables)  # else a saved model could not be loaded without a warning
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])

    def _new_optimizer(self, model: keras.Model) -> Any:
        given = self._optimizer
        if isinstance(given, str | dict):
            return keras.optimizers.get(given)
        return remade(given) if isinstance(given, keras.optimizers.Optimizer) else given(model)

    def _optimizer_of(self, model: keras.Model, tail: list[keras.layers.Layer]) -> Any:
        """A new optimizer, which lets no layer decay that stands behind the head."""
        found = self._new_optimizer(model)
        variables, _, pattern = not_decayed(found, model.variables)
        own = [variable for layer in tail for variable in layer.variables]
        if own:
            found.exclude_from_weight_decay([*variables, *own], pattern)
        return found


class _Record(keras.callbacks.Callback):
    """Averages the weights over the epochs, and predicts held-out examples by them after every epoch.

        a_e = (sum_{k <= e} m^(e - k) w_k) / (sum_{k <= e} m^(e - k)),      m = 0.8

    Of the best epoch it keeps the probabilities; training goes on from the weights themselves.
    """

    def __init__(self, predictor: keras.Model, held_out: tuple[Any, np.ndarray] | None, batch_size: int):
        super().__init__()
        self.predictor, self.held_out, self.batch_size = predictor, held_out, batch_size
        self.right: list[np.ndarray] = []
        self.probabilities = np.zeros((0, 0), "float32")
        self.sums: list[Any] = []
        self.count = 0.0

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras calls it."""
        current = self.predictor.get_weights()
        sums = self.sums or [0.0] * len(current)
        self.sums = [MOMENTUM * total + _at_least_float32(w) for total, w in zip(sums, current, strict=True)]
        self.count = MOMENTUM * self.count + 1.0
        if self.held_out is None:
            return
        self.use_averages()
        x, y = self.held_out
        p = probabilities(self.predictor, x, self.batch_size)
        self.predictor.set_weights(current)
        p = np.where(
            np.isfinite(p).all(-1, keepdims=True), p, np.float32(1 / p.shape[-1])
        )  # of a training that diverged
        right = p.argmax(-1) == y
        if not self.right or right.sum() > max(map(np.sum, self.right)):
            self.probabilities = p
        self.right.append(right)

    def use_averages(self) -> None:
        """Gives the predictor the averages; what is no fraction, such as a counter, stays as it is."""
        current = self.predictor.get_weights()
        averages = [
            (total / self.count).astype(weight.dtype) if _is_fraction(weight) else weight
            for total, weight in zip(self.sums, current, strict=True)
        ]
        self.predictor.set_weights(averages)

    def fitted(self, seconds: float, epochs: int) -> Fitted:
        """The result of the training, which was to have so many epochs."""
        self.use_averages()
        rows = self.right + self.right[-1:] * (epochs - len(self.right))  # a callback may have stopped it
        right = np.stack(rows) if self.right else np.zeros((0, 0), bool)
        return Fitted(self.predictor, right, self.probabilities, seconds)


def _is_fraction(weight: np.ndarray) -> bool:
    """Whether an array is of floats, also of bfloat16, which is of no kind that NumPy knows."""
    return "float" in weight.dtype.name


def _at_least_float32(weight: np.ndarray) -> np.ndarray:
    """Floats of half precision as float32: sums of them would lose what an epoch changes."""
    return weight.astype("float32") if _is_fraction(weight) and weight.dtype.itemsize < 4 else weight


def probabilities(model: keras.Model, x: Any, batch_size: int) -> np.ndarray:
    """The softmax of the outputs of a model that predicts logits or log-probabilities, `(N, K)`, float32."""
    parts = [keras.ops.convert_to_numpy(model.predict_on_batch(part)) for part, _ in batches(x, batch_size)]
    return softmax(np.concatenate(parts).astype("float32"), axis=-1)
