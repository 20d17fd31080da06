"""The trainings of all candidates, split by split, without those that fall clearly behind."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.result_files import ResultFiles
from keras_het.base.validation import check_rows
from keras_het.choice.candidate import Arm, Task
from keras_het.choice.rule import BEHIND, Difference, best_epoch, compare
from keras_het.choice.training import Fitted, Trainer

ARRAYS = ("right", "probabilities", "seconds")  # of a finished training, in its file


class Split(NamedTuple):
    """One way to divide the data.

    Attributes:
        train: the indices of the examples to train on.
        x: held-out examples.
        y: their labels, `(n,)`.
        weights: of the held-out labels in the measure, `(n,)`.
    """

    train: np.ndarray
    x: Any
    y: np.ndarray
    weights: np.ndarray


@dataclasses.dataclass
class Entry:
    """An arm in the race, with its finished trainings.

    Attributes:
        arm: a candidate and its strength.
        fits: a training for each split that was measured, in order.
        is_dropped: whether it fell behind.
    """

    arm: Arm
    fits: list[Fitted] = dataclasses.field(default_factory=list)
    is_dropped: bool = False

    def right(self, splits: int) -> np.ndarray:
        """Whether held-out labels of the first splits are predicted, `(epochs, n)`, split after split."""
        return np.concatenate([fit.right for fit in self.fits[:splits]], axis=1)


class Race:
    """Trains arms on splits of the data.

    Args:
        trainer: of a training.
        splits: of the examples of the tasks.
        seed: of all trainings; those of a split have the same seed, so that arms differ by little else than the method.
        files: for finished trainings.
        done: a function that is called after each training.
    """

    def __init__(self, trainer: Trainer, splits: list[Split], seed: int, files: ResultFiles, done: Callable[[], None]):
        self._trainer, self.splits, self._seed, self._files, self._done = trainer, splits, seed, files, done

    def run(self, entries: list[Entry], task: Task, count: int, base: Entry | None = None) -> None:
        """Trains arms on the first splits, or until one falls behind.

        Args:
            entries: the arms, which get their trainings.
            task: all examples, and the evidence.
            count: the number of splits.
            base: the plain training, which is measured already.
        """
        for number, split in enumerate(self.splits[:count]):
            part = task.take(split.train)
            for entry in entries:
                if not entry.is_dropped:
                    entry.fits.append(self._fit(entry.arm, part, split, number))
                    self._done()
            if base is not None and number + 1 < count:
                self._drop([base, *entries], number + 1)

    def difference(self, entry: Entry, other: Entry) -> Difference:
        """The paired difference on the splits that both have."""
        count = min(len(entry.fits), len(other.fits))
        one, second = (each.right(count)[self.epoch(each, count)] for each in (entry, other))
        return compare(one, second, self._weights(count))

    def epoch(self, entry: Entry, count: int | None = None) -> int:
        """The best epoch of an arm, from 0, by the first splits, or by all that it has."""
        count = len(entry.fits) if count is None else count
        return best_epoch(entry.right(count), self._weights(count))

    def accuracy(self, entry: Entry, count: int | None = None) -> float:
        """The weighted share of held-out labels that are predicted at the best epoch, of the first splits or of all."""
        count = len(entry.fits) if count is None else count
        weights = self._weights(count)
        return float(entry.right(count)[self.epoch(entry, count)] @ weights / weights.sum())

    def _weights(self, count: int) -> np.ndarray:
        """The weights of the held-out labels of the first splits."""
        return np.concatenate([split.weights for split in self.splits[:count]])

    def _fit(self, arm: Arm, part: Task, split: Split, number: int) -> Fitted:
        name = f"{arm.file_name}_{number}"
        stored = self._files.read(name, ARRAYS)
        if stored is not None:
            return self._checked(name, stored, part, len(split.y))
        fitted = self._trainer(arm, part, (split.x, split.y), self._seed + number, self._trainer.epochs)
        arrays = {key: np.asarray(getattr(fitted, key)) for key in ARRAYS}
        self._files.write(name, **arrays)
        return dataclasses.replace(fitted, model=None)

    def _checked(self, name: str, stored: dict[str, np.ndarray], part: Task, count: int) -> Fitted:
        right, p, seconds = (stored[key] for key in ARRAYS)
        forms = {
            "right": (right, (self._trainer.epochs, count), "bool"),
            "probabilities": (p, (count, part.units), "float32"),
            "seconds": (seconds, (), "float64"),
        }
        for key, (array, shape, dtype) in forms.items():
            if array.shape != shape or array.dtype != dtype:
                found = f"shape {array.shape}, {array.dtype}"
                self._files.refuse(name, f"`{key}` must have shape {shape} and be {dtype}. Received: {found}")
        try:
            check_rows(p, "probabilities")
        except ValueError as error:
            self._files.refuse(name, str(error))
        return Fitted(None, right, p, float(seconds))

    def _drop(self, entries: list[Entry], count: int) -> None:
        """Drops the arms that are clearly behind the best one that is still there."""
        alive = [entry for entry in entries if not entry.is_dropped]
        best = max(alive, key=lambda entry: self.accuracy(entry, count))
        for entry in alive[1:]:
            if entry is not best and self.difference(best, entry).is_above(BEHIND):
                entry.is_dropped = True
