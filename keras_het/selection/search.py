"""A search over the values of one hyperparameter: a new model for each, and its score by held-out labels."""

import dataclasses
import math
import numbers
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_het.base.new_models import NewModels
from keras_het.inspection.check import judge
from keras_het.selection.held_out import HeldOut

LATE = 0.9  # of all epochs: a best epoch beyond it may be too early


@dataclasses.dataclass(frozen=True)
class Trial:
    """One value that was tried.

    Attributes:
        value: the argument of `make_model`.
        score: of the held-out labels, by the criterion.
        epoch: the epoch whose weights were scored, counted from 1.
        seconds: of `fit` and scoring.
        epochs: how many were trained.
        missed: a sentence if a later epoch is clearly more accurate, else an empty text.
    """

    value: Any
    score: float
    epoch: int
    seconds: float
    epochs: int
    missed: str = ""


class Search:
    """The trials so far, and the best of them with its model.

    Args:
        make_model: function of a value that returns a new compiled model.
        held_out: the held-out data, which score a model.
        keeps_best: True: every epoch is scored, and the weights of the best one are kept. False: the last is scored.
        fit_arguments: all arguments of `fit`.
    """

    def __init__(
        self, make_model: Callable[[Any], Any], held_out: HeldOut, keeps_best: bool, fit_arguments: dict[str, Any]
    ):
        self.trials: list[Trial] = []
        self.best: Trial | None = None
        self.model: Any = None
        self._make_model, self._held_out, self._keeps_best, self._fit_arguments = (
            make_model,
            held_out,
            keeps_best,
            fit_arguments,
        )
        self._models = NewModels("make_model")

    def add(self, value: Any) -> None:
        """Fits a new model for a value, and keeps its trial.

        Raises:
            ValueError: for a model that is not new, or was compiled with a wrong loss, or for data that do not fit it.
        """
        model = self._make_model(value)
        if not isinstance(model, keras.Model):
            raise ValueError(f"`make_model` must return a compiled model. Received: a {type(model).__name__}")
        self._models.check(model)
        judge(model, self._fit_arguments.get("x"), self._fit_arguments.get("y"))
        trial = self._fit(value, model)
        self._models.add(model)
        self.trials.append(trial)
        if np.isfinite(trial.score) and (self.best is None or self._held_out.better(trial.score, self.best.score)):
            self.best, self.model = trial, model

    def in_order(self) -> list[Trial]:
        """The trials; positive numbers are sorted."""
        numbers_alone = are_positive([trial.value for trial in self.trials])
        return sorted(self.trials, key=lambda trial: trial.value) if numbers_alone else self.trials

    def advice(self) -> str:
        """A sentence if the best epoch is among the last tenth of all, else an empty text."""
        if not (self._keeps_best and self.best and self.best.epoch > LATE * self.best.epochs):
            return ""
        return f"The best epoch is {self.best.epoch} of {self.best.epochs}: more epochs may be better."

    def beyond(self) -> Any:
        """The next value beyond the end of the list where the best is; None if it is not at an end."""
        values = (
            sorted({trial.value for trial in self.trials})
            if are_positive([trial.value for trial in self.trials])
            else []
        )
        best = self.best.value if self.best else None
        if len(values) < 2 or best not in (values[0], values[-1]):
            return None
        neighbour = values[1] if best == values[0] else values[-2]
        value = best * (best / neighbour)
        value = round(value) if all(isinstance(known, numbers.Integral) for known in values) else float(f"{value:.6g}")
        return value if value > 0 and value not in values else None

    def _fit(self, value, model):
        """Fits a model, and returns its `Trial`."""
        start, keep = time.perf_counter(), _KeepBest(self._held_out)
        given = keras.tree.flatten(self._fit_arguments.get("callbacks") or [])
        history = model.fit(
            **{**self._fit_arguments, "callbacks": [keep, *given] if self._keeps_best or given else None}
        )
        epochs = history.epoch[-1] + 1
        if not self._keeps_best:
            return Trial(value, self._held_out(model), epochs, time.perf_counter() - start, epochs)
        if keep.weights is not None:
            model.set_weights(keep.weights)  # after `fit`: a callback may have restored others
        return Trial(value, keep.score, keep.epoch, time.perf_counter() - start, epochs, keep.missed())


class _KeepBest(keras.callbacks.Callback):
    """Scores every epoch, writes the score into the logs, and keeps the weights of the best one.

    Of the later epochs it keeps the most accurate one of those that are clearly more accurate.
    """

    def __init__(self, held_out):
        super().__init__()
        self.held_out, self.score, self.epoch, self.weights = held_out, math.nan, 0, None
        self.right: Any = None
        self.later: tuple[int, float] | None = None  # the epoch, and its accuracy

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        score, right = self.held_out.scores(self.model)
        if logs is not None:
            logs[f"val_{self.held_out.name}"] = score
        if np.isfinite(score) and (self.weights is None or self.held_out.better(score, self.score)):
            self.score, self.epoch, self.weights = score, epoch + 1, self.model.get_weights()
            self.right, self.later = right, None
        elif clearly_larger(right, self.right) and (self.later is None or right.mean() > self.later[1]):
            self.later = epoch + 1, right.mean()

    def missed(self) -> str:
        """A sentence if a later epoch than the best one is clearly more accurate, else an empty text."""
        if self.later is None:
            return ""
        epoch, accuracy = self.later
        return (
            f"Epoch {self.epoch}, the best by {self.held_out.name}, has an accuracy of {self.right.mean():.3f} on the "
            f"validation labels, and epoch {epoch} {accuracy:.3f}, more by over two standard errors"
        )


def clearly_larger(values: np.ndarray | None, others: np.ndarray | None) -> bool:
    """Whether the mean of values is larger than that of others of the same examples by two paired standard errors."""
    if values is None or others is None or len(values) < 2:
        return False
    above = values - others
    return bool(above.mean() > 2 * above.std(ddof=1) / math.sqrt(len(above)))


def are_positive(values: list[Any]) -> bool:
    """Whether all are positive finite numbers, which a logarithmic scale can show."""
    return all(
        isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < math.inf
        for value in values
    )


def text(value: Any) -> str:
    """A value as short text."""
    return f"{value:.4g}" if isinstance(value, numbers.Real) and not isinstance(value, bool) else str(value)
