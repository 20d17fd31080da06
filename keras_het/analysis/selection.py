"""Choice of hyperparameters, of any model, without clean labels."""

import math
import numbers
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.analysis.held_out import HeldOut
from keras_het.batches import check_again
from keras_het.compilation import check
from keras_het.validation import check_boolean, check_choice

MOST_BEYOND = 6  # values that are tried beyond the ends of a list


class Trial(NamedTuple):
    """One value that was tried.

    value: what `make_model` got.
    score: of the held-out labels, by the criterion.
    epoch: the one whose weights were scored, counted from 1.
    seconds: of `fit` and scoring.
    """

    value: Any
    score: float
    epoch: int
    seconds: float


class Selection(NamedTuple):
    """What `select` found; `print` shows it as a table.

    value: the best one.
    model: its fitted model, with the weights of the epoch that was chosen.
    trials: a `Trial` for each value, numbers in their order.
    criterion: its name.
    """

    value: Any
    model: Any
    trials: list[Trial]
    criterion: str

    @property
    def scores(self) -> dict[Any, float]:
        """The score of each value, for values that can be keys of a dict."""
        return {trial.value: trial.score for trial in self.trials}

    @property
    def best(self) -> Trial:
        """The trial of the best value."""
        return next(trial for trial in self.trials if trial.value is self.value)

    def __str__(self) -> str:
        lines = [("value", self.criterion, "epoch", "seconds", "")]
        for trial in self.trials:
            mark = "<- chosen" if trial is self.best else ""
            lines.append((_text(trial.value), f"{trial.score:.4f}", str(trial.epoch), f"{trial.seconds:.1f}", mark))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def plot(self) -> Any:
        """The scores over the values, as a `matplotlib.figure.Figure`: `.plot().savefig("scores.png")`.

        Raises: ImportError without matplotlib, which comes with the extra `demo`.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        numeric = _are_positive([trial.value for trial in self.trials])
        places = [trial.value if numeric else place for place, trial in enumerate(self.trials)]
        axes.plot(places, [trial.score for trial in self.trials], "o-" if numeric else "o", color="#1f5f99")
        place, label = places[self.trials.index(self.best)], f"chosen: {_text(self.value)}"
        axes.plot(place, self.best.score, "o", color="#d1495b", markersize=10, label=label)
        axes.set_xscale("log" if numeric else "linear")
        axes.set_xticks(places, [_text(trial.value) for trial in self.trials])
        axes.minorticks_off()
        axes.set(xlabel="value", ylabel=f"{self.criterion} of the validation labels")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        return figure


def select(
    make_model: Callable[[Any], Any],
    values: Iterable,
    x: Any,
    y: Any = None,
    validation_data: Any = None,
    *,
    criterion: str | Callable[[Any, Any], Any] = "loss",
    mode: str = "auto",
    epoch: str = "best",
    extend: bool = True,
    verbose: int = 1,
    **fit_arguments: Any,
) -> Selection:
    """Chooses a hyperparameter, and the epoch to stop at, by held-out labels, which may be as noisy as those of the training.

        the value and the epoch of the least mean of -log p(y | x)        (criterion="loss", after training by a crossentropy)

    The likelihood of noisy labels is the safer criterion: it sees when a model begins to learn wrong labels by heart, also where these
    can be predicted, so that its accuracy on noisy labels goes on rising. Where flips are random within groups of classes, the accuracy
    of noisy labels orders models as that of clean ones does, and the likelihood prefers models that are less sure (`benchmarks/README.md`
    has both on nine tasks).

    For the strength of the penalty of a `NoiseTransition` the criterion is the likelihood of the noisy labels under p(true | x) T. Too
    weak, and T stays at the identity while the base model fits the noise, which costs likelihood on new examples; too strong, and T
    claims more noise than there is. Let one of the strengths be so small that T stays, for data without noise.

    Args:
        make_model: function of a value that returns a new compiled model.
        values: temperatures, strengths, or whatever else `make_model` takes.
        x: what to fit to: arrays, or a data set of batches (x, y) as for `fit`, that can be read more than once.
        y: labels; None for a data set.
        validation_data: `(x, y)`, or a data set; `fit` does not see it.
        criterion: "loss", the model's own without penalties, so the negative log-likelihood for a crossentropy; "accuracy"; or a function
            `(labels, predictions)` that returns a number for each example, or their mean, as those in `keras.losses` do. Behind a
            `NoiseTransition` the predictions are log-probabilities of the noisy labels.
        mode: what is better, "min" or "max"; "auto" is "max" for "accuracy" and "min" for all else.
        epoch: "best" scores after every epoch and keeps the best weights; "last" scores once.
        extend: if the best of at least two positive numbers is the largest or the smallest, go on beyond it in the last step of the
            list until it is not, for at most six more values.
        verbose: 1 for a progress bar and the table, 0 for neither; 2 shows the lines of `fit`, too.
        fit_arguments: for `fit`, such as epochs, batch_size, callbacks.
    Returns: `Selection`.
    Raises: ValueError for no value, arguments out of range, no validation data, a model that is not new, or was compiled with a wrong
        loss, no finite score, or a generator, of which the second value would get nothing.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> def make_model(temperature):
        ...     keras.utils.set_random_seed(0)
        ...     model = keras.Sequential([keras.Input((2,)), HeteroscedasticDense(3, temperature=temperature)])
        ...     model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        ...     return model
        >>> x, y = np.eye(3)[:, :2].repeat(4, axis=0), np.arange(3).repeat(4)
        >>> found = select(make_model, (1.5, 5.0), x, y, (x, y), epochs=3, extend=False, verbose=0)
        >>> sorted(found.scores), found.value in (1.5, 5.0)
        ([1.5, 5.0], True)
    """
    waiting = list(values)
    if not waiting:
        raise ValueError("`values` must have at least one. Received: none")
    check_again("x", x)
    held_out = HeldOut(validation_data, criterion, mode, fit_arguments.get("batch_size") or 32)
    check_choice("epoch", epoch, ("best", "last"))
    check_boolean("extend", extend)
    fit_arguments["verbose"] = 2 if check_choice("verbose", verbose, (0, 1, 2)) == 2 else 0
    bar = keras.utils.Progbar(len(waiting), verbose=min(verbose, 1), unit_name="model")
    most = len(waiting) + (MOST_BEYOND if extend else 0)
    found, model = Selection(None, None, [], held_out.name), None
    while waiting:
        last, model = model, make_model(waiting[0])
        if model is last:
            raise ValueError("`make_model` must make a new model at every call. Received: the same one twice")
        check(model)
        trial = _try(waiting.pop(0), model, x, y, held_out, epoch, fit_arguments)
        found.trials.append(trial)
        if np.isfinite(trial.score) and (found.model is None or held_out.better(trial.score, found.best.score)):
            found = found._replace(value=trial.value, model=model)
        if not waiting and found.model is not None and len(found.trials) < most:
            waiting = _beyond(found)
            bar.target += len(waiting)
        bar.update(len(found.trials), finalize=not waiting)
    if found.model is None:
        scores = ", ".join(f"{trial.score:g} of {_text(trial.value)}" for trial in found.trials)
        raise ValueError(f"`values` must have one with a finite {found.criterion}. Received: {scores}")
    if _are_positive([trial.value for trial in found.trials]):
        found.trials.sort(key=lambda trial: trial.value)
    if verbose:
        print(found)
    return found


class _KeepBest(keras.callbacks.Callback):
    """Scores every epoch, and gives the model the weights of the best one at the end."""

    def __init__(self, held_out):
        super().__init__()
        self.held_out, self.score, self.epoch, self.weights = held_out, math.nan, 0, None

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        score = self.held_out(self.model)
        if np.isfinite(score) and (self.weights is None or self.held_out.better(score, self.score)):
            self.score, self.epoch, self.weights = score, epoch + 1, self.model.get_weights()

    def on_train_end(self, logs=None):
        """Keras calls it."""
        if self.weights is not None:
            self.model.set_weights(self.weights)


def _try(value, model, x, y, held_out, epoch, fit_arguments):
    """The `Trial` of a model, which is fitted."""
    start, keep = time.perf_counter(), _KeepBest(held_out)
    callbacks = [*keras.tree.flatten(fit_arguments.get("callbacks") or []), *([keep] if epoch == "best" else [])]
    history = model.fit(x, y, **{**fit_arguments, "callbacks": callbacks})
    score, at = (keep.score, keep.epoch) if epoch == "best" else (held_out(model), len(history.epoch))
    return Trial(value, score, at, time.perf_counter() - start)


def _are_positive(values):
    return all(isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < math.inf for value in values)


def _beyond(found):
    """The next value beyond the end of the list where the best is, in a list; nothing if it is not at an end."""
    values = sorted({trial.value for trial in found.trials}) if _are_positive([trial.value for trial in found.trials]) else []
    if len(values) < 2 or found.value not in (values[0], values[-1]):
        return []
    neighbour = values[1] if found.value == values[0] else values[-2]
    value = found.value * (found.value / neighbour)
    if all(isinstance(known, numbers.Integral) for known in values):
        value = round(value)
    return [value] if value > 0 and value not in values else []


def _text(value):
    return f"{value:.4g}" if isinstance(value, numbers.Real) and not isinstance(value, bool) else str(value)
