"""Choice of hyperparameters, of any model, without clean labels."""

import math
import numbers
import time
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.analysis.held_out import HeldOut
from keras_het.batches import check_again
from keras_het.compilation import check
from keras_het.validation import check_boolean, check_choice, check_integer

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

    best: the `Trial` of the best value.
    model: its fitted model, with the weights of the epoch that was chosen.
    trials: all of them, numbers in their order.
    criterion: its name.
    """

    best: Trial
    model: Any
    trials: list[Trial]
    criterion: str

    @property
    def value(self) -> Any:
        """The best one."""
        return self.best.value

    @property
    def scores(self) -> dict[Any, float]:
        """The score of each value, for values that can be keys of a dict."""
        return {trial.value: trial.score for trial in self.trials}

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
        make_model: function of a value that returns a new compiled model, which shares no layer with those before.
        values: temperatures, strengths, or whatever else `make_model` takes.
        x: what to fit to: arrays, or a data set of batches (x, y) as for `fit`, that can be read more than once.
        y: labels, integers `(N,)` or whatever else the loss takes; None for a data set.
        validation_data: `(x, y)`, or a data set; `fit` does not see it, but callbacks do see `val_<criterion>` of every epoch. Weights
            and masks do not count.
        criterion: "loss", the model's own without penalties, so the negative log-likelihood for a crossentropy; "accuracy"; or a function
            `(labels, predictions)` that returns a number for each example, or their mean, as those in `keras.losses` do. Behind a
            `NoiseTransition` the predictions are log-probabilities of the noisy labels, which must be integers.
        mode: what is better, "min" or "max"; "auto" is "max" for "accuracy" and "min" for all else, functions among it.
        epoch: "best" scores after every epoch and keeps the best weights; "last" scores once.
        extend: if the best of at least two positive numbers is the largest or the smallest, go on beyond it in the last step of the
            list until it is not, for at most six more values; an error at one of these ends the list, with a warning.
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
    check_integer("epochs", fit_arguments.get("epochs", 1), 1)
    check_boolean("extend", extend)
    fit_arguments["verbose"] = 2 if check_choice("verbose", verbose, (0, 1, 2)) == 2 else 0
    bar = keras.utils.Progbar(len(waiting), verbose=min(verbose, 1), unit_name="model")
    most = len(waiting) + (MOST_BEYOND if extend else 0)
    trials: list[Trial] = []
    best: tuple[Trial, Any] | None = None
    known: dict[int, weakref.ref] = {}
    given = len(waiting)
    while waiting:
        value = waiting.pop(0)
        try:
            model = make_model(value)
            _check_new(model, known)
            check(model)
            trial = _try(value, model, x, y, held_out, epoch, fit_arguments)
        except Exception as error:
            if best is None or len(trials) < given:
                raise
            warnings.warn(f"`select` stays at {_text(best[0].value)}: {_text(value)}, beyond the list, failed with: {error}", stacklevel=2)
            break
        trials.append(trial)
        if np.isfinite(trial.score) and (best is None or held_out.better(trial.score, best[0].score)):
            best = trial, model
        if not waiting and best is not None and len(trials) < most:
            waiting = _beyond([trial.value for trial in trials], best[0].value)
            bar.target += len(waiting)
        bar.update(len(trials), finalize=not waiting)
    if best is None:
        scores = ", ".join(f"{trial.score:g} of {_text(trial.value)}" for trial in trials)
        raise ValueError(f"`values` must have one with a finite {held_out.name}. Received: {scores}")
    if _are_positive([trial.value for trial in trials]):
        trials.sort(key=lambda trial: trial.value)
    found = Selection(*best, trials, held_out.name)
    if verbose:
        print(found)
    return found


def _check_new(model, known):
    """Refuses a model that shares variables with those before, which are `known` by their id: its training would change theirs."""
    for variable in model.variables:
        if id(variable) in known and known[id(variable)]() is variable:
            rule = "make a new model at every call, which shares no layer with another (`clone=True` in `keras_het.heteroscedastic`)"
            raise ValueError(f"`make_model` must {rule}. Received: the variable {variable.path!r} twice")
    known.update({id(variable): weakref.ref(variable) for variable in model.variables})


class _KeepBest(keras.callbacks.Callback):
    """Scores every epoch, writes the score into the logs, and keeps the weights of the best one."""

    def __init__(self, held_out):
        super().__init__()
        self.held_out, self.score, self.epoch, self.weights = held_out, math.nan, 0, None

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        score = self.held_out(self.model)
        if logs is not None:
            logs[f"val_{self.held_out.name}"] = score
        if np.isfinite(score) and (self.weights is None or self.held_out.better(score, self.score)):
            self.score, self.epoch, self.weights = score, epoch + 1, self.model.get_weights()


def _try(value, model, x, y, held_out, epoch, fit_arguments):
    """The `Trial` of a model, which is fitted."""
    start, keep = time.perf_counter(), _KeepBest(held_out)
    given = keras.tree.flatten(fit_arguments.get("callbacks") or [])
    history = model.fit(x, y, **{**fit_arguments, "callbacks": [keep, *given] if epoch == "best" else given})
    if epoch == "last":
        return Trial(value, held_out(model), history.epoch[-1] + 1, time.perf_counter() - start)
    if keep.weights is not None:
        model.set_weights(keep.weights)  # after callbacks that restore others
    return Trial(value, keep.score, keep.epoch, time.perf_counter() - start)


def _are_positive(values):
    return all(isinstance(value, numbers.Real) and not isinstance(value, bool) and 0 < float(value) < math.inf for value in values)


def _beyond(tried, best):
    """The next value beyond the end of the list where the best is, in a list; nothing if it is not at an end."""
    values = sorted(set(tried)) if _are_positive(tried) else []
    if len(values) < 2 or best not in (values[0], values[-1]):
        return []
    neighbour = values[1] if best == values[0] else values[-2]
    value = best * (best / neighbour)
    if all(isinstance(known, numbers.Integral) for known in values):
        value = round(value)
    return [value] if value > 0 and value not in values else []


def _text(value):
    return f"{value:.4g}" if isinstance(value, numbers.Real) and not isinstance(value, bool) else str(value)
