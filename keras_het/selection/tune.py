"""Chooses hyperparameters of any model without clean labels."""

import dataclasses
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import keras

from keras_het.base.batches import check_again, is_data_set
from keras_het.base.validation import check_boolean, check_choice, check_integer, check_maker
from keras_het.selection.held_out import HeldOut
from keras_het.selection.search import Search, Trial, are_positive, text

MOST_BEYOND = 6  # values that are tried beyond the ends of a list


@dataclasses.dataclass(frozen=True)
class TuningResult:
    """The result of `tune`; `print` shows it as a table.

    Attributes:
        best: the `Trial` of the best value.
        model: its fitted model, with the weights of the epoch that was chosen.
        trials: all trials; positive numbers are sorted.
        criterion: its name.
        advice: a sentence if more epochs may be better, else an empty text.
    """

    best: Trial
    model: Any
    trials: list[Trial]
    criterion: str
    advice: str = ""

    @property
    def value(self) -> Any:
        """The best value."""
        return self.best.value

    @property
    def scores(self) -> dict[Any, float]:
        """The score of each value, for values that can be keys of a dict."""
        return {trial.value: trial.score for trial in self.trials}

    def __str__(self) -> str:
        lines = [("value", self.criterion, "epoch", "seconds", "")]
        for trial in self.trials:
            mark = "<- chosen" if trial is self.best else ""
            lines.append((text(trial.value), f"{trial.score:.4f}", str(trial.epoch), f"{trial.seconds:.1f}", mark))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*table, *filter(None, [self.advice])])

    def plot(self) -> Any:
        """The scores over the values, as a `matplotlib.figure.Figure`: `.plot().savefig("scores.png")`.

        Raises:
            ImportError: without matplotlib, which comes with the extra `demo`.
        """
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        numeric = are_positive([trial.value for trial in self.trials])
        places = [trial.value if numeric else place for place, trial in enumerate(self.trials)]
        axes.plot(places, [trial.score for trial in self.trials], "o-" if numeric else "o", color="#1f5f99")
        place, label = places[self.trials.index(self.best)], f"chosen: {text(self.value)}"
        axes.plot(place, self.best.score, "o", color="#d1495b", markersize=10, label=label)
        axes.set_xscale("log" if numeric else "linear")
        axes.set_xticks(places, [text(trial.value) for trial in self.trials])
        axes.minorticks_off()
        axes.set(xlabel="value", ylabel=f"{self.criterion} of the validation labels")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        return figure


def tune(
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
) -> TuningResult:
    """Chooses a hyperparameter, and the epoch to stop at, by held-out labels, which may be as noisy as training labels.

        the value and the epoch of the least mean of -log p(y | x)
        (criterion="loss", after training by a crossentropy)

    The likelihood of noisy labels is the safer criterion. It sees when a model begins to learn wrong labels by heart.
    It sees this also if wrong labels can be predicted, so that the accuracy on noisy labels goes on rising. If flips
    are random within groups of classes, accuracy on noisy labels ranks models as accuracy on clean ones does, and the
    likelihood prefers models that are less sure (`benchmarks/results/recipe.md` has both on nine tasks).

    A heteroscedastic head learns more slowly than a Dense layer, and the likelihood may stop it before its accuracy is
    best. No other rule is better on tasks that had no say in its choice (`benchmarks/results/epochs.md`), so look: a
    warning names a later epoch that is clearly more accurate, and the table says whether the best epoch is among the
    last. Twice as many epochs may then pay for a head. Elsewhere they change nothing, for the best epoch stays.

    The penalty of a `NoiseTransition` is chosen by the likelihood of the noisy labels under p(true | x) T. T stays at
    the identity if the penalty is too weak; the base model then fits the noise, which costs likelihood on new examples.
    T claims more noise than there is if the penalty is too strong. Let one of the strengths be so small that T stays at
    the identity, for data without noise.

    Args:
        make_model: function of a value that returns a new compiled model, which shares no layer with earlier ones.
        values: temperatures, strengths, or other arguments of `make_model`.
        x: training inputs: arrays, or a data set of batches (x, y) as for `fit`, that can be read more than once.
        y: labels, integers `(N,)` or whatever else the loss takes; None for a data set.
        validation_data: `(x, y)`, or a data set; `fit` does not see it. Weights and masks do not count, and
            neither do labels of the loss' `ignore_class`. Callbacks see
            `val_<criterion>` of every epoch and the metrics of the training, but no other `val_`.
        criterion: "loss", the model's own loss without penalties, which is the negative log-likelihood for a
            crossentropy, for losses that leave out or remember examples, such as `SelfPacedCrossentropy`, and for
            those of a `DistributionModel`, which get its distributions;
            "accuracy"; or a function `(labels, predictions)` that returns a number for each example, or
            their mean, as the functions of `keras.losses` do. Behind a `NoiseTransition` the predictions are
            log-probabilities of the noisy labels, which must be integers.
        mode: "min" or "max", the direction of better scores; "auto" is "max" if the name of the criterion has
            "accuracy" in it, else "min".
        epoch: "best" scores after every epoch and keeps the best weights; "last" scores once, and after every
            epoch if there are callbacks.
        extend: if the best of at least two positive numbers is the largest or the smallest, go on beyond it by the
            ratio of the last step of the list, until it is not, for at most six more values. An error at one of these
            ends the search, with a warning.
        verbose: 1 for a progress bar and the table, 0 for neither; 2 shows the lines of `fit`, too.
        fit_arguments: for `fit`, such as epochs, batch_size, callbacks.
    Returns:
        `TuningResult`. Its text has a sentence on the epochs if the best one is among the last tenth.
    Raises:
        ValueError: for no value, arguments out of range, no validation data, a model that is not new, or was compiled
            with a wrong loss, no finite score, or a generator, which would be empty for the second value.
    Warns: if a later epoch of the same training predicts clearly more of the held-out labels, by over two paired
        standard errors; for models of exclusive classes, where every epoch is scored.

    Example:
        >>> import numpy as np
        >>> from keras_het.layers import HeteroscedasticDense
        >>> def make_model(temperature):
        ...     keras.utils.set_random_seed(0)
        ...     model = keras.Sequential([keras.Input((2,)), HeteroscedasticDense(3, temperature=temperature)])
        ...     model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        ...     return model
        >>> x, y = np.eye(3)[:, :2].repeat(4, axis=0), np.arange(3).repeat(4)
        >>> found = tune(make_model, (1.5, 5.0), x, y, (x, y), epochs=3, extend=False, verbose=0)
        >>> sorted(found.scores), found.value in (1.5, 5.0)
        ([1.5, 5.0], True)
    """
    check_maker(make_model)
    if isinstance(values, str | dict) or not isinstance(values, Iterable):
        raise ValueError(
            f"`values` must be a list of what `make_model` takes, such as [0.1, 1.0]. Received: values={values!r}"
        )
    given = list(values)
    if not given:
        raise ValueError("`values` must have at least one. Received: none")
    if "validation_split" in fit_arguments:
        raise ValueError(
            "`validation_data` must be given, for there is no `validation_split` here. Received: validation_split"
        )
    if y is None and not is_data_set(x):
        raise ValueError("`y` must be given for arrays. Received: y=None")
    check_again("x", x)
    held_out = HeldOut(validation_data, criterion, mode, fit_arguments.get("batch_size") or 32)
    check_choice("epoch", epoch, ("best", "last"))
    check_integer("epochs", fit_arguments.get("epochs", 1), 1)
    check_boolean("extend", extend)
    fit_arguments["verbose"] = 2 if check_choice("verbose", verbose, (0, 1, 2)) == 2 else 0
    search = Search(make_model, held_out, epoch == "best", {"x": x, "y": y, **fit_arguments})
    bar = keras.utils.Progbar(len(given), verbose=min(verbose, 1), unit_name="model")
    for value in given:
        search.add(value)
        bar.update(len(search.trials), finalize=False)
    if extend:
        _extend(search, bar)
    bar.update(len(search.trials), finalize=True)
    if search.best is None:
        scores = ", ".join(f"{trial.score:g} of {text(trial.value)}" for trial in search.trials)
        raise ValueError(f"`values` must have one with a finite {held_out.name}. Received: {scores}")
    found = TuningResult(search.best, search.model, search.in_order(), held_out.name, search.advice())
    if search.best.missed:
        warnings.warn(f'{search.best.missed}: try criterion="accuracy", and more epochs.', stacklevel=2)
    if verbose:
        print(found)
    return found


def _extend(search, bar):
    """Tries values beyond the ends of the list."""
    for _ in range(MOST_BEYOND):
        value = search.beyond()
        if value is None:
            return
        bar.target += 1
        try:
            search.add(value)
        except Exception as error:
            rule = f"`tune` stays at {text(search.best.value)}"
            warnings.warn(f"{rule}: {text(value)}, beyond the list, failed with: {error}", stacklevel=3)
            return
        bar.update(len(search.trials), finalize=False)
