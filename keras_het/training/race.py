"""The trainings of all candidates, fold by fold, without those that fall clearly behind."""

import dataclasses
import functools
from typing import Any

import numpy as np

from keras_het.base.result_files import ResultFiles
from keras_het.training.candidates import Candidate, file_name, name_of
from keras_het.training.compare import BEHIND, Difference, best_epoch, compare
from keras_het.training.fit import Trainer
from keras_het.training.task import Task
from keras_het.training.together import MOST, Part, size_of


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
        parts: parts of the data to train on and to measure by, one for each fold.
        fold_of: fold of each example, `(N,)`.
        seed: seed of all trainings; those of a fold have the same seed, so that candidates differ by little else than
            the method.
        files: files for finished trainings.
    """

    def __init__(
        self,
        trainer: Trainer,
        parts: list[Part],
        fold_of: np.ndarray,
        seed: int,
        files: ResultFiles,
    ):
        self._trainer, self._parts, self._fold_of, self._seed = trainer, parts, fold_of, seed
        self._files = files
        self._trust: list[Any] = []
        self._trained: dict[str, dict[str, np.ndarray]] = {}  # side by side, and not yet in an entry

    def run(self, entries: list[Entry], task: Task, count: int, base: Entry | None = None) -> None:
        """Trains entries on the first folds, or until one falls behind.

        Args:
            entries: they get their trainings.
            task: all examples, and the evidence.
            count: number of folds.
            base: the plain training, which is measured already.
        """
        self._run_together(entries, task, count)
        for number in range(count):
            self._trust[number : number + 1] = [self._trust_of(task, number)]
            for entry in entries:
                if not entry.is_dropped:
                    entry.fits.append(self._fit(entry, task, number))
            if base is not None and number + 1 < count:
                self._drop([base, *entries], number + 1)

    def _run_together(self, entries: list[Entry], task: Task, count: int) -> None:
        """Trains those entries side by side that can be, on the first folds, unless all their files are there."""
        parts, trainer, folds = self._parts[:count], self._trainer, len(self._parts)
        for entry in entries:
            if entry.candidate.on_features and count == folds and not self._are_stored([entry], task, count):
                found = trainer.solved_together(entry.candidate, entry.strength, task, parts, self._fold_of)
                self._keep([] if found is None else [entry], count, found or [])
        can = functools.partial(trainer.can_be_together, task=task, count=count, folds=folds)
        dense = [entry for entry in entries if can(entry.candidate, entry.strength)]
        size = max(1, MOST // max(1, size_of(task, count)))
        for group in (dense[start : start + size] for start in range(0, len(dense), size)):
            if not self._are_stored(group, task, count):
                pairs = [(entry.candidate, entry.strength) for entry in group]
                self._keep(group, count, trainer.together(pairs, task, parts, self._fold_of, self._seed))

    def _are_stored(self, entries: list[Entry], task: Task, count: int) -> bool:
        """Whether the files of entries are there, of the first folds."""
        pairs = [(entry, number) for entry in entries for number in range(count)]
        return all(self._files.read(_name(*pair), self._forms(task, pair[1])) is not None for pair in pairs)

    def _keep(self, entries: list[Entry], count: int, found: list[dict[str, np.ndarray]]) -> None:
        """Keeps what was found of entries on the first folds, entry by entry."""
        names = [_name(entry, number) for entry in entries for number in range(count)]
        for name, arrays in zip(names, found, strict=True):
            self._files.write(name, **arrays)
            self._trained[name] = arrays

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

    def _forms(self, task: Task, number: int) -> dict[str, Any]:
        """Shapes and types of what is found of a training."""
        count = len(self._trust_of(task, number))
        return {
            "scores": ((self._trainer.epochs, count), ("bool", "float32")),
            "probabilities": ((count, task.units), ("float32",)),
            "seconds": ((), ("float64",)),
        }

    def _fit(self, entry: Entry, task: Task, number: int) -> dict[str, np.ndarray]:
        if (name := _name(entry, number)) in self._trained:
            return self._trained.pop(name)
        arrays = self._files.read(name, self._forms(task, number))
        if arrays is None:
            part, seed, epochs = self._parts[number], self._seed + number, self._trainer.epochs
            held_out = part.measure(task)
            _, arrays = self._trainer.candidate(
                entry.candidate, entry.strength, part.train(task), held_out, seed, epochs
            )
            self._files.write(name, **arrays)
        elif not entry.candidate.on_features:
            self._trainer.bar.add(self._trainer.epochs)
        return arrays

    def _trust_of(self, task: Task, number: int) -> Any:
        """The weights of the held-out labels of a fold."""
        return self._parts[number].measure(dataclasses.replace(task, x=None)).trust

    def _drop(self, entries: list[Entry], count: int) -> None:
        """Drops the entries that are clearly behind the best one that is still there."""
        alive = [entry for entry in entries if not entry.is_dropped]
        best = max(alive, key=lambda entry: self.score(entry, count))
        for entry in alive[1:]:
            if entry is not best and self.difference(best, entry).is_above(BEHIND):
                entry.is_dropped = True


def _name(entry: Entry, number: int) -> str:
    """The name of the file of a training."""
    return f"{file_name(entry.name)}_{number}"
