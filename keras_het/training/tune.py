"""Chooses hyperparameters of any model without clean labels."""

import numbers
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import (
    Arrays,
    as_arrays,
    as_numpy,
    check_again,
    check_same_index,
    count_examples,
    is_data_set,
    select_rows,
)
from keras_het.base.new_models import models_of
from keras_het.base.progress import Progress
from keras_het.base.refusal import refusal
from keras_het.base.seeds import random_generator, unchanged_states
from keras_het.base.validation import check_boolean, check_choice, check_integer, check_maker
from keras_het.labels.votes import Votes
from keras_het.reading.check import judge, spelled
from keras_het.reading.matching import activation_for, of_annotators
from keras_het.training.data import as_table
from keras_het.training.fit import TAKEN, check_fit_arguments, lines_of_fit
from keras_het.training.folds import stratified_folds
from keras_het.training.held_out import HeldOut, KeepBest
from keras_het.training.labels import check_rows, is_votes
from keras_het.training.result import Result, finished
from keras_het.training.table import Score, are_positive, text

MOST_BEYOND = 6  # values that are tried beyond the ends of a list
LATE = 0.9  # of all epochs: a best epoch beyond it may be too early
HELD_OUT = 5  # one of so many examples is held out where there is no validation data


def tune(
    make_model: Callable[[Any], keras.Model],
    values: Iterable,
    x: Any,
    y: Any = None,
    *,
    epochs: int,
    validation_data: Any = None,
    criterion: str | Callable[[Any, Any], Any] = "loss",
    mode: str = "auto",
    epoch: str = "best",
    extend: bool = True,
    batch_size: int = 128,
    seed: int = 0,
    verbose: int = 1,
    **fit_arguments: Any,
) -> Result:
    """Chooses a hyperparameter, and the epoch to stop at, by held-out labels, which may be as noisy as training labels.

        the value and the epoch of the least mean of -log p(y | x)
        (criterion="loss", after training by a crossentropy)

    A heteroscedastic head learns more slowly than a Dense layer, and the likelihood may stop it before its accuracy is
    best: a warning names a later epoch that is clearly more accurate, and the result says whether the best epoch is
    among the last. The page "Likelihood or accuracy" says when which criterion is right.

    The penalty of a `NoiseTransition` is chosen by the likelihood of the noisy labels under p(true | x) T. T stays at
    the identity if the penalty is too weak; the base model then fits the noise, which costs likelihood on new examples.
    T claims more noise than there is if the penalty is too strong. Let one of the strengths be so small that T stays at
    the identity, for data without noise.

    Args:
        make_model: function of a value that returns a new compiled model, which shares no layer with earlier ones.
        values: temperatures, strengths, or other arguments of `make_model`.
        x: training inputs: arrays, a pandas frame of numbers, or a data set of batches (x, y) as for `fit`, that can be
            read more than once.
        y: labels, integers `(N,)` or whatever else the loss takes, such as votes for `losses.AnnotatorsLoss`; None for
            a data set.
        epochs: the number of epochs of each training.
        validation_data: `(x, y)`, or a data set; `fit` does not see it. Weights and masks do not count, and
            neither do labels of the loss' `ignore_class`. Callbacks see
            `val_<criterion>` of every epoch and the metrics of the training, but no other `val_`. None holds out a
            fifth of the arrays, with its share of every class.
        criterion: "loss", the model's own loss without penalties, which is the negative log-likelihood for a
            crossentropy, for losses that remember examples, such as `EarlyLearningRegularizedCrossentropy`, and for
            those of a `DistributionModel`, which get its distributions;
            "accuracy"; or a function `(labels, predictions)` that returns a number for each example, or
            their mean, as the functions of `keras.losses` do. Behind a `NoiseTransition` the predictions are
            log-probabilities of the noisy labels, which must be integers.
        mode: "min" or "max", the direction of better scores; "auto" is "max" if the name of the criterion has
            "accuracy" in it, else "min".
        epoch: "best" scores after every epoch and keeps the best weights; "last" scores once, and after every
            epoch if there are callbacks.
        extend: boolean: if the best of at least two positive numbers is the largest or the smallest, go on beyond it by
            the ratio of the last step of the list, until it is not, for at most six more values. An error at one of
            these ends the search, with a warning.
        batch_size: size of the batches of training and prediction from arrays.
        seed: seed of the examples that are held out.
        verbose: argument of `choose`.
        fit_arguments: `callbacks`, `steps_per_epoch`, `shuffle`, `class_weight` and `sample_weight` of `fit`.
    Returns:
        `Result`; its `value` is the best one, its `model` has the weights of the epoch that was chosen. Its reason has
            a sentence on the epochs if the best one is among the last tenth.
    Raises:
        ValueError: for no value, arguments out of range, no validation data for a data set, a model that is not new, or
            was compiled with a wrong loss, no finite score, or a generator, which would be empty for the second value;
            for a best model of exclusive classes that predicts held-out labels no better than the largest class does.
    Warns: if a later epoch of the same training predicts clearly more of the held-out labels, by over two paired
        standard errors, for models of exclusive classes, where every epoch is scored; else, if the best model is
        clearly behind the class means of its features.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> def make_model(temperature):
        ...     keras.utils.set_random_seed(0)
        ...     model = keras.Sequential([keras.Input((2,)), HeteroscedasticDense(3, temperature=temperature)])
        ...     loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        ...     model.compile(keras.optimizers.Adam(0.1), loss)
        ...     return model
        >>> x, y = np.eye(3)[:, :2].repeat(20, axis=0), np.arange(3).repeat(20)
        >>> found = tune(make_model, (1.5, 5.0), x, y, epochs=30, extend=False, verbose=0)
        >>> [score.value for score in found.table], found.value in (1.5, 5.0)
        ([1.5, 5.0], True)
    """
    check_maker(make_model)
    check_fit_arguments(fit_arguments, (*TAKEN, "shuffle", "class_weight", "sample_weight"), tune)
    given = _values(values)
    if validation_data is None and fit_arguments.get("sample_weight") is not None:
        rule = "be given beside `sample_weight`, for the weights are those of the examples in `fit` alone"
        raise ValueError(f"`validation_data` must {rule}. Received: validation_data=None")
    y = y.votes if isinstance(y, Votes) else y
    train, validation_data = _divided(x, y, validation_data, seed)
    held_out = HeldOut(validation_data, criterion, mode, check_integer("batch_size", batch_size, 1))
    check_choice("epoch", epoch, ("best", "last"))
    check_boolean("extend", extend)
    shown, count = lines_of_fit(verbose), check_integer("epochs", epochs, 1)
    arguments = {**train, **fit_arguments, "epochs": count, "verbose": shown}
    if not is_data_set(train["x"]):
        arguments["batch_size"] = batch_size
    search = Search(make_model, held_out, epoch == "best", arguments)
    search.bar = Progress(len(given) * count, "epoch", verbose, after=0.0)
    with unchanged_states(), search.bar:
        _search(search, given, extend)
    return finished(search.result(), None, verbose)


def _values(values: Any) -> list:
    if isinstance(values, str | dict) or not isinstance(values, Iterable):
        rule = "be a list of what `make_model` takes, such as [0.1, 1.0]"
        raise ValueError(f"`values` must {rule}. Received: values={values!r}")
    given = list(values)
    if not given:
        raise ValueError("`values` must have at least one. Received: none")
    return given


def _divided(x: Any, y: Any, validation_data: Any, seed: int) -> tuple[dict[str, Any], Any]:
    """The training data as arguments of `fit`, and the validation data, which may be held out from them."""
    check_again("x", x)
    check_same_index(x=x, y=y)
    if is_data_set(x):
        return {"x": x, "y": y}, validation_data
    if y is None:
        raise ValueError("`y` must be given for arrays. Received: y=None")
    x = as_table(x)
    if validation_data is not None:
        if isinstance(validation_data, list | tuple) and len(validation_data) == 2:
            validation_data = (as_table(validation_data[0]), validation_data[1])
        return {"x": x, "y": y}, validation_data
    x, y, _ = as_arrays(x, y)
    y = np.asarray(as_numpy(y))
    check_rows(y, count_examples(x))
    if y.ndim == 1 and y.dtype.kind in "iu" and y.min(initial=0) >= 0:
        is_held_out = stratified_folds(y, HELD_OUT, seed) == 0
    else:
        is_held_out = random_generator(seed).permutation(count_examples(x)) % HELD_OUT == 0
    parts = [(select_rows(x, rows), y[rows]) for rows in (np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out))]
    return dict(zip("xy", parts[0], strict=True)), parts[1]


class Search:
    """The table so far, and the best of it with its model.

    Args:
        make_model: function of a value that returns a new compiled model.
        held_out: the held-out data, which score a model.
        keeps_best: True: every epoch is scored, and the weights of the best one are kept. False: the last is scored.
        fit_arguments: all arguments of `fit`.
    """

    def __init__(self, make_model: Callable, held_out: HeldOut, keeps_best: bool, fit_arguments: dict[str, Any]):
        self.table: list[Score] = []
        self.best: Score | None = None
        self._make_model, self._held_out, self._keeps_best = make_model, held_out, keeps_best
        self._fit_arguments, self._start = fit_arguments, time.perf_counter()
        self._known = models_of(make_model)
        self._model: Any = None
        self.bar, self.epochs = Progress(1, "epoch", 0), fit_arguments["epochs"]
        self._advice, self._missed = "", ""

    def add(self, value: Any) -> None:
        """Fits a new model for a value, and keeps its score.

        Raises:
            ValueError: for a model that is not new, or was compiled with a wrong loss, or for data that do not fit it.
        """
        model = self._make_model(value)
        if not isinstance(model, keras.Model):
            raise ValueError(f"`make_model` must return a compiled model. Received: a {type(model).__name__}")
        self._known.check(model)
        _check_loss_of_votes(model, self._fit_arguments.get("y"))
        judge(model, self._fit_arguments.get("x"), self._fit_arguments.get("y"))
        score, epochs, missed = self._fit(value, model)
        self.table.append(score)
        if np.isfinite(score.score) and (self.best is None or self._held_out.better(score.score, self.best.score)):
            self.best, self._model, self._missed = score, model, missed
            late = self._keeps_best and score.epoch > LATE * epochs
            self._advice = f"The best epoch is {score.epoch} of {epochs}: more epochs may be better." if late else ""

    def result(self) -> Result:
        """The result, whose table is sorted if all values are positive numbers.

        Raises:
            ValueError: if no score is finite.
        Warns: if a later epoch is clearly more accurate.
        """
        if self.best is None:
            scores = ", ".join(f"{score.score:g} of {score.name}" for score in self.table)
            raise ValueError(f"`values` must have one with a finite {self._held_out.name}. Received: {scores}")
        if self._missed:
            warnings.warn(f'{self._missed}: try criterion="accuracy", and more epochs.', stacklevel=3)
        else:
            self._held_out.check_learned(self._model, Arrays(self._fit_arguments["x"], self._fit_arguments["y"], None))
        sortable = are_positive([score.value for score in self.table])
        table = sorted(self.table, key=lambda score: score.value) if sortable else self.table
        seconds, criterion = time.perf_counter() - self._start, self._held_out.name
        return Result(self._model, self.best, table, criterion, self._advice, trainings=len(table), seconds=seconds)

    def beyond(self) -> Any:
        """The next value beyond the end of the list where the best is; None if it is not at an end."""
        values = [score.value for score in self.table]
        values = sorted(set(values)) if are_positive(values) else []
        best = self.best.value if self.best else None
        if len(values) < 2 or best not in (values[0], values[-1]):
            return None
        neighbour = values[1] if best == values[0] else values[-2]
        value = best * (best / neighbour)
        value = round(value) if all(isinstance(known, numbers.Integral) for known in values) else float(f"{value:.6g}")
        return value if value > 0 and value not in values else None

    def _fit(self, value: Any, model: keras.Model) -> tuple[Score, int, str]:
        """Fits a model; returns its score, the number of its epochs, and what a later epoch is better in."""
        start, keep = time.perf_counter(), KeepBest(self._held_out)
        given = keras.tree.flatten(self._fit_arguments.get("callbacks") or [])
        done = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: self.bar.add())
        callbacks = [keep, *given, done] if self._keeps_best or given else [done]
        epochs = model.fit(**{**self._fit_arguments, "callbacks": callbacks}).epoch[-1] + 1
        self._known.add(model)
        if self._keeps_best and keep.weights is not None:
            model.set_weights(keep.weights)  # after `fit`: a callback may have restored others
        score = keep.score if self._keeps_best else self._held_out(model)
        epoch, seconds = keep.epoch if self._keeps_best else epochs, time.perf_counter() - start
        missed = keep.missed() if self._keeps_best else ""
        return Score(text(value), value, score, epoch=epoch, seconds=seconds), epochs, missed


def _check_loss_of_votes(model: keras.Model, y: Any) -> None:
    """Raises a ValueError for labels of several annotators beside a loss of one label for each example."""
    loss, shape = getattr(model, "loss", None), getattr(model, "output_shape", ())
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "iuOSU" or not is_votes(y):
        return
    may_be_vectors = y.shape[1:] == shape[1:] and y.dtype.kind in "iu" and y.min() >= 0
    if len(shape) == 2 and not may_be_vectors and of_annotators(loss) is None and activation_for(loss) == "softmax":
        rule = "compile models of labels of several annotators with `losses.AnnotatorsLoss`, behind a "
        rule += f"`NoiseTransition` with num_annotators={y.shape[1]} (or tune on `labels.aggregate(y).labels`)"
        raise refusal("make_model", rule, f"loss={spelled(loss)}")


def _search(search: Search, given: list, extend: bool) -> None:
    """Tries all values; Ctrl-C keeps those that are finished.

    Warns: if it was interrupted.
    """
    try:
        for value in given:
            search.add(value)
        if extend:
            _extend(search)
    except KeyboardInterrupt:
        if search.best is None:
            raise
        rest = f"the best of the {len(search.table)} values that were finished is returned"
        warnings.warn(f"`tune` was interrupted: {rest}.", stacklevel=3)


def _extend(search: Search) -> None:
    """Tries values beyond the ends of the list."""
    for _ in range(MOST_BEYOND):
        value = search.beyond()
        if value is None:
            return
        search.bar.grow(search.epochs)
        try:
            search.add(value)
        except Exception as error:
            stays = f"`tune` stays at {search.best.name if search.best else None}"
            warnings.warn(f"{stays}: {text(value)}, beyond the list, failed with: {error}", stacklevel=3)
            return
