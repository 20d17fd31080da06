"""A callback that stops training by the changes of predictions of training examples, without validation data."""

import warnings
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_het.base.validation import check_integer
from keras_het.callbacks.training_dynamics import TrainingDynamics
from keras_het.reading.training_record import TrainingRecord


class LabelWave(keras.callbacks.Callback):
    """Level with early stopping by noisy labels on digits: on no noise better, without wrong labels half a point worse.

    It stops training before it learns wrong labels by heart, by no labels at all, and restores the best weights
    (`benchmarks/results/arena_additions.md`; `dynamics_stopping.md` has other widths and patiences).
    The number of training examples whose prediction changed since the last epoch falls while the classes are learned,
    and rises, or falls no more, when wrong labels begin to be learned one by one. The mean of the last `width` numbers
    is followed; training stops when it has had no new minimum for `patience` epochs, and the model gets the weights of
    the epoch of the minimum, also if `fit` ends before.

    It uses the predictions of a `TrainingDynamics`, which must stand before it in the list of callbacks. In a `fit`
    that goes on (`initial_epoch`) with the same two callbacks, the numbers and the weights are those of the whole run.
    In one that was resumed in a new process (`BackupAndRestore`, and the dynamics with a path) the numbers are, too,
    but weights of an epoch before the interruption are not restored.

    Args:
        dynamics: the other callback.
        width: how many numbers a mean is of, at least 1. The first mean comes after `width` + 1 epochs.
        patience: epochs without a new minimum after which training stops, at least 1.
    Raises:
        ValueError: for other arguments; when an epoch begins, if the epochs before it have stopped training; when it
            ends, if `dynamics` has not seen it.
    Warns: if the weights of the minimum are not there, for the run was interrupted after it.
    Source: Yuan, Feng and Liu 2024, "Early stopping against label noise without validation data" (Label Wave). They
        predict in training, while the weights change, and here all predictions are of one model.

    Example:
        >>> x, y = np.eye(6, 3, dtype="float32"), np.array([0, 1, 2, 0, 0, 0])
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
        >>> model.compile("sgd", "sparse_categorical_crossentropy")
        >>> dynamics = TrainingDynamics(x, y)
        >>> history = model.fit(x, y, epochs=4, verbose=0, callbacks=[dynamics, LabelWave(dynamics, width=2)])
        >>> LabelWave.best_epoch([50, 30, 10, 14, 8, 30, 40, 50], width=2, patience=3)
        (5, 8)
    """

    def __init__(self, dynamics: TrainingDynamics, *, width: int = 3, patience: int = 5):
        super().__init__()
        if not isinstance(dynamics, TrainingDynamics):
            raise ValueError(f"`dynamics` must be a TrainingDynamics. Received: a {type(dynamics).__name__}")
        self.dynamics = dynamics
        self.width, self.patience = check_integer("width", width, 1), check_integer("patience", patience, 1)
        self._kept: tuple[TrainingRecord, int, list[np.ndarray]] | None = None

    @staticmethod
    def best_epoch(changes: Sequence[int], width: int, patience: int) -> tuple[int | None, int | None]:
        """The epoch of the minimum, and that after which training stops, counted from 0; None for what is not there.

        Args:
            changes: as `TrainingDynamics.changes`: the first is of the epochs 0 and 1.
            width: of the means.
            patience: epochs without a new minimum.
        """
        best: int | None = None
        sums = {end: sum(changes[end - width : end]) for end in range(width, len(changes) + 1)}
        for epoch, value in sums.items():
            if best is None or value < sums[best]:
                best = epoch
            elif epoch - best >= patience:
                return best, epoch
        return best, None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        record = self.dynamics.record
        if record is None or record.first + record.epochs != epoch:
            return
        best, stop = self.best_epoch(record.changes, self.width, self.patience)
        if best is not None and stop is not None:  # else it would stop again after one epoch, which nobody wants
            rule = "be new for a `fit` that trains on after it has stopped"
            found = (
                f"one that stopped training after epoch {record.first + stop}, for the best epoch {record.first + best}"
            )
            raise ValueError(f"`dynamics` must {rule}. Received: {found}")

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        record = self.dynamics.record
        if record is None or record.first + record.epochs != epoch + 1:
            rule = "stand before LabelWave in the list of callbacks"
            raise ValueError(f"`dynamics` must {rule}. Received: one that has not seen epoch {epoch}")
        best, stop = self.best_epoch(record.changes, self.width, self.patience)
        if best == record.epochs - 1:
            self._kept = (record, best, self.model.get_weights())
        if stop is not None:
            self.model.stop_training = True

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        record = self.dynamics.record
        if record is None or not record.epochs:  # no epoch was left to train
            return
        best, _ = self.best_epoch(record.changes, self.width, self.patience)
        if self._kept is not None and self._kept[0] is record and self._kept[1] == best:
            self.model.set_weights(self._kept[2])
        elif best is not None:
            warnings.warn(
                f"LabelWave has not the weights of epoch {record.first + best}, which was before this call of `fit`: "
                "the model keeps those of the last epoch. Save the weights of each epoch by "
                "keras.callbacks.ModelCheckpoint.",
                stacklevel=2,
            )
