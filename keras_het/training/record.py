"""What is recorded of a training: the average of the weights, and how well it predicts held-out examples."""

from typing import Any

import keras
import numpy as np
from scipy.special import softmax

from keras_het.base.batches import batches
from keras_het.training.compare import SMALLEST
from keras_het.training.task import Task

MOMENTUM = 0.8  # of the average of weights, for an epoch


class Average:
    """The average of arrays over the epochs, of which the last ones count most.

    a_e = (sum_{k <= e} m^(e - k) w_k) / (sum_{k <= e} m^(e - k)),      m = 0.8
    """

    def __init__(self):
        self._sums: list[Any] = []
        self._count = 0.0

    def add(self, arrays: list[np.ndarray]) -> None:
        """Adds those of an epoch."""
        sums = self._sums or [0.0] * len(arrays)
        self._sums = [MOMENTUM * total + _at_least_float32(w) for total, w in zip(sums, arrays, strict=True)]
        self._count = MOMENTUM * self._count + 1.0

    def of(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        """The averages, in the dtypes of these arrays; what is no fraction, such as a counter, is as it is there."""
        return [
            (total / self._count).astype(own.dtype) if _is_fraction(own) else own
            for total, own in zip(self._sums, arrays, strict=True)
        ]


class Measured:
    """The scores of held-out examples epoch after epoch, and their probabilities at the best of these epochs.

    Probabilities of all epochs would fill the memory.

    Args:
        labels: labels of the held-out examples, `(n,)`, or distributions, `(n, K)`.
        criterion: "accuracy" scores an example by whether its label is predicted, "loss" by log p(label).
    """

    def __init__(self, labels: np.ndarray, criterion: str):
        self.labels, self.criterion = labels, criterion
        self.scores: list[np.ndarray] = []
        self.probabilities = np.zeros((0, 0), "float32")

    def add(self, p: np.ndarray) -> None:
        """Adds the probabilities of an epoch, `(n, K)`."""
        scores = scored(p, self.labels, self.criterion)
        if not self.scores or scores.sum() > max(map(np.sum, self.scores)):
            self.probabilities = p
        self.scores.append(scores)

    def arrays(self, epochs: int) -> dict[str, np.ndarray]:
        """Scores and probabilities of a training that was to have so many epochs."""
        rows = self.scores + self.scores[-1:] * (epochs - len(self.scores))  # a callback may have stopped it
        return {"scores": np.stack(rows) if rows else np.zeros((0, 0), bool), "probabilities": self.probabilities}


class Record(keras.callbacks.Callback):
    """Averages the weights over the epochs, and predicts held-out examples by the averages after every epoch.

    Training goes on from the weights themselves.

    Args:
        predictor: the model that predicts the true classes.
        held_out: examples and labels; None for none.
        batch_size: size of the batches of the predictions.
        criterion: argument of `Measured`.
    """

    def __init__(self, predictor: keras.Model, held_out: Task | None, batch_size: int, criterion: str):
        super().__init__()
        self.predictor, self.held_out, self.batch_size = predictor, held_out, batch_size
        self.found = Measured(np.zeros(0, int) if held_out is None else held_out.evidence, criterion)
        self.average = Average()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras calls it."""
        current = self.predictor.get_weights()
        self.average.add(current)
        if self.held_out is None:
            return
        self.use_averages()
        self.found.add(probabilities(self.predictor, self.held_out.x, self.batch_size))
        self.predictor.set_weights(current)

    def use_averages(self) -> None:
        """Gives the predictor the averages."""
        self.predictor.set_weights(self.average.of(self.predictor.get_weights()))

    def measured(self, epochs: int) -> dict[str, np.ndarray]:
        """Scores and probabilities of a training that was to have so many epochs; gives the predictor the averages."""
        self.use_averages()
        return self.found.arrays(epochs)


def scored(p: np.ndarray, labels: np.ndarray, criterion: str) -> np.ndarray:
    """The score of each example, `(N,)`: whether its label is predicted, or log p(label), float32.

    Of a distribution over the labels, `(N, K)`, it is the mean.
    """
    rows = np.arange(len(labels))
    if criterion == "accuracy":
        predicted = p.argmax(-1)
        return predicted == labels if labels.ndim == 1 else labels[rows, predicted].astype("float32")
    log_p = np.log(np.maximum(p, np.float32(SMALLEST)))
    return log_p[rows, labels] if labels.ndim == 1 else np.einsum("nk,nk->n", labels, log_p).astype("float32")


def probabilities(model: keras.Model, x: Any, batch_size: int) -> np.ndarray:
    """The softmax of the outputs of a model that predicts logits or log-probabilities, `(N, K)`, float32."""
    parts = [keras.ops.convert_to_numpy(model.predict_on_batch(part)) for part, _ in batches(x, batch_size)]
    return of_logits(np.concatenate(parts).astype("float32"))


def of_logits(logits: np.ndarray) -> np.ndarray:
    """The softmax of logits, `(N, K)`; uniform where they are of a training that diverged."""
    p = softmax(logits, axis=-1)
    return np.where(np.isfinite(p).all(-1, keepdims=True), p, np.float32(1 / p.shape[-1]))


def _is_fraction(weight: np.ndarray) -> bool:
    """Whether an array is of floats, also of bfloat16, which is of no kind that NumPy knows."""
    return "float" in weight.dtype.name


def _at_least_float32(weight: np.ndarray) -> np.ndarray:
    """Floats of half precision as float32: sums of them would lose what an epoch changes."""
    return weight.astype("float32") if _is_fraction(weight) and weight.dtype.itemsize < 4 else weight
