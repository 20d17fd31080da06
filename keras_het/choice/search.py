"""The whole search of `choose`: the race, the choice, and the last training on all examples."""

import dataclasses
import time

import keras
import numpy as np

from keras_het.analysis import diagnose_noise
from keras_het.analysis.diagnosis import NoiseDiagnosis
from keras_het.base.result_files import ResultFiles
from keras_het.choice.candidate import Arm
from keras_het.choice.candidates import SAFEST
from keras_het.choice.choice import CandidateScore, Choice
from keras_het.choice.data import Prepared
from keras_het.choice.networks import LayersBelow
from keras_het.choice.race import Entry, Race
from keras_het.choice.rule import CLEAR, WIDTH, Difference, choose_one
from keras_het.choice.training import Trainer


class Search:
    """Measures arms, chooses one, and trains it on all examples.

    Args:
        trainer: of a training.
        data: examples, labels and splits.
        arms: the plain training first.
        trainings: the most trainings, with the last one; enough for the plain training on all splits.
        seed: of the trainings.
        files: for finished trainings.
        verbose: 1 for the plan and a progress bar, 0 for nothing.
    """

    def __init__(
        self,
        trainer: Trainer,
        data: Prepared,
        arms: list[Arm],
        trainings: int,
        seed: int,
        files: ResultFiles,
        verbose: int,
    ):
        self._trainer, self._data, self._seed = trainer, data, seed
        parts, others = len(data.splits), len(arms) - 1
        self._count = min(parts, (trainings - parts - 1) // max(1, others))
        self._most = parts + others * self._count + 1
        if verbose:
            measured = f"{arms[0].name} on {parts} parts of the data, {others} other methods on {self._count} of them"
            print(f"At most {self._most} trainings of up to {trainer.epochs} epochs: {measured}, and the last one.")
        self._bar = keras.utils.Progbar(self._most, verbose=verbose, unit_name="training")
        self._done = 0
        self._race = Race(trainer, data.splits, seed, files, self._step)
        self._entries = [Entry(arm) for arm in arms]

    def run(self, below: LayersBelow) -> Choice:
        """The search, with a model of the layers below."""
        start, (base, *others) = time.perf_counter(), self._entries
        self._race.run([base], self._data.task, len(self._data.splits))
        diagnosis = self._diagnosis(base)
        task = dataclasses.replace(self._data.task, transition=diagnosis.transition)
        self._race.run(others, task, self._count, base)
        differences = [self._race.difference(entry, base) for entry in self._entries]
        possible = [entry for entry in self._entries if not entry.is_dropped]
        safest = next((entry for entry in possible if isinstance(entry.arm.candidate, SAFEST)), base)
        chosen = choose_one(possible, self._race.difference, safest, CLEAR)
        last = self._trainer(chosen.arm, task, None, self._seed + len(self._data.splits), self._race.epoch(chosen) + 1)
        self._step(last=True)
        scores = [self._score(entry, d) for entry, d in zip(self._entries, differences, strict=True)]
        model = below.whole(last.model)
        self._trainer.compile(model)
        return Choice(
            model,
            chosen.arm.name,
            scores,
            _reason(scores, chosen.arm.name, safest.arm.name) + self._advice(chosen),
            diagnosis,
            self._probabilities(base),
            self._data.classes,
            self._done,
            time.perf_counter() - start,
        )

    def _probabilities(self, base: Entry) -> np.ndarray:
        """The probabilities of all held-out examples in the order of the data."""
        p = np.empty((len(self._data.labels()), self._data.task.units), "float32")
        for rows, fit in zip(self._data.held_out, base.fits, strict=True):
            p[rows] = fit.probabilities
        return p

    def _advice(self, chosen: Entry) -> str:
        """A sentence if the best epoch is the last of which the moving mean is whole, or a later one."""
        late = self._race.epoch(chosen) + 1 >= self._trainer.epochs - WIDTH // 2
        return (
            " Its best epoch is among the last: more epochs, or a higher learning rate, may be better." if late else ""
        )

    def _diagnosis(self, base: Entry) -> NoiseDiagnosis:
        """The kind of noise, by the plain training."""
        return diagnose_noise(self._probabilities(base), self._data.labels(), class_names=self._data.classes.tolist())

    def _score(self, entry: Entry, difference: Difference) -> CandidateScore:
        seconds = sum(fit.seconds for fit in entry.fits)
        accuracy, epoch = self._race.accuracy(entry), self._race.epoch(entry) + 1
        found = accuracy, difference.mean, difference.error, epoch, len(entry.fits), seconds, entry.is_dropped
        return CandidateScore(entry.arm.name, *found)

    def _step(self, last: bool = False) -> None:
        self._done += 1
        self._bar.update(self._most if last else self._done, finalize=last)


def _reason(scores: list[CandidateScore], name: str, safest: str) -> str:
    """The reason of a choice, in a sentence."""
    plain, *others = scores
    if not others:
        return f"{plain.name}: there is no other candidate."
    best = max(others, key=lambda score: (not score.dropped, score.difference))
    own = next(score for score in scores if score.name == name)
    over = f"{100 * own.difference:+.1f} points (standard error {100 * own.error:.1f})"
    if name == plain.name:
        near = f"{best.name} with {100 * best.difference:+.1f} points (standard error {100 * best.error:.1f})"
        return f"{name}: no candidate predicts clearly more of the held-out labels; the nearest is {near}."
    if name == safest and (own is not best or own.difference <= CLEAR * own.error):
        return f"{name}: no candidate predicts clearly more of the held-out labels, and it is the safest ({over})."
    return f"{name}: it predicts most of the held-out labels, {over} over {plain.name} on the same examples."
