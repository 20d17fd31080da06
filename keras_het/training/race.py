"""The trainings of all candidates, fold by fold, without those that fall clearly behind."""

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_het.base.result_files import ResultFiles
from keras_het.training.candidates import Candidate, file_name, name_of
from keras_het.training.compare import BEHIND, Difference, best_epoch, compare
from keras_het.training.fit import Trainer
from keras_het.training.task import Task


class Entry:
    """A candidate at one strength in the race, with its finished trainings.

    Attributes:
        candidate: the method.
        strength: one of its strengths.
        name: title in the table.
        fits: arrays of a training for each fold that was measured, in order.
        is_dropped: boolean, whether it fell behind.
    """

    def __init__(self, candidate: Candidate, strength: Any):
        self.candidate, self.strength, self.name = candidate, strength, name_of(candidate, strength)
        self.fits: list[dict[str, np.ndarray]] = []
        self.is_dropped = False

    def scores(self, folds: int) -> np.ndarray:
        """Scores of the held-out examples of the first folds, `(epochs, n)`, fold after fold."""
        return np.concatenate([fit["scores"] for fit in self.fits[:folds]], axis=1)


class Race:
    """Trains candidates on parts of the data, and compares them by the examples that are held out.

    Args:
        trainer: trainer of each candidate.
        parts: function for each fold that returns the tasks to train on and to measure by; or of validation data.
        seed: seed of all trainings; those of a fold have the same seed, so that candidates differ by little else than
            the method.
        files: files for finished trainings.
        done: a function that is called after each training, not after a solution in closed form.
    """

    def __init__(
        self,
        trainer: Trainer,
        parts: list[Callable[[Task], tuple[Task, Task]]],
        seed: int,
        files: ResultFiles,
        done: Callable[[], None],
    ):
        self._trainer, self._parts, self._seed, self._files, self._done = trainer, parts, seed, files, done
        self._trust: list[Any] = []

    def run(self, entries: list[Entry], task: Task, count: int, base: Entry | None = None) -> None:
        """Trains entries on the first folds, or until one falls behind.

        Args:
            entries: they get their trainings.
            task: all examples, and the evidence.
            count: number of folds.
            base: the plain training, which is measured already.
        """
        for number, part in enumerate(self._parts[:count]):
            train, held_out = part(task)
            self._trust[number : number + 1] = [held_out.trust]
            for entry in entries:
                if not entry.is_dropped:
                    entry.fits.append(self._fit(entry, train, held_out, number))
                    if not entry.candidate.on_features:
                        self._done()
            if base is not None and number + 1 < count:
                self._drop([base, *entries], number + 1)

    def difference(self, entry: Entry, other: Entry) -> Difference:
        """The paired difference on the folds that both have."""
        count = min(len(entry.fits), len(other.fits))
        one, second = (each.scores(count)[self.epoch(each, count)] for each in (entry, other))
        return compare(one, second, self._weights(count))

    def epoch(self, entry: Entry, count: int | None = None) -> int:
        """The best epoch of an entry, from 0, by the first folds, or by all that it has."""
        count = len(entry.fits) if count is None else count
        return best_epoch(entry.scores(count), self._weights(count))

    def score(self, entry: Entry, count: int | None = None) -> float:
        """The weighted mean score of held-out labels at the best epoch, of the first folds or of all."""
        count = len(entry.fits) if count is None else count
        weights = self._weights(count)
        return float(entry.scores(count)[self.epoch(entry, count)] @ weights / weights.sum())

    def _weights(self, count: int) -> np.ndarray:
        """The weights of the held-out labels of the first folds."""
        return np.concatenate(self._trust[:count])

    def _fit(self, entry: Entry, train: Task, held_out: Task, number: int) -> dict[str, np.ndarray]:
        name, count = f"{file_name(entry.name)}_{number}", len(held_out.y)
        forms = {
            "scores": ((self._trainer.epochs, count), ("bool", "float32")),
            "probabilities": ((count, held_out.units), ("float32",)),
            "seconds": ((), ("float64",)),
        }
        arrays = self._files.read(name, forms)
        if arrays is None:
            seed, epochs = self._seed + number, self._trainer.epochs
            _, arrays = self._trainer.candidate(entry.candidate, entry.strength, train, held_out, seed, epochs)
            self._files.write(name, **arrays)
        return arrays

    def _drop(self, entries: list[Entry], count: int) -> None:
        """Drops the entries that are clearly behind the best one that is still there."""
        alive = [entry for entry in entries if not entry.is_dropped]
        best = max(alive, key=lambda entry: self.score(entry, count))
        for entry in alive[1:]:
            if entry is not best and self.difference(best, entry).is_above(BEHIND):
                entry.is_dropped = True
