"""The whole way from labels that may be wrong to a model without them."""

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import check_same_index
from keras_het.base.classes import order_columns
from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.validation import as_float64, check_choice, check_integer
from keras_het.labels.choose import MAX_SEED
from keras_het.labels.comparison import check_learned, warn_if_weak
from keras_het.labels.data import Data, stratified_folds
from keras_het.labels.diagnosis import diagnose
from keras_het.labels.estimation import check_distributions
from keras_het.labels.methods import LinearDiscriminant, Method
from keras_het.labels.progress import Progress
from keras_het.labels.result import ACTIONS, Result, finished
from keras_het.labels.training import PLAIN, Trainer, Trial, Unchanged, cross_validate, examples, scores_of


def clean(
    make_model: Callable[[], keras.Model] | keras.Model | None,
    x: Any,
    y: Any = None,
    *,
    epochs: int | None = None,
    probabilities: Any = None,
    action: str | None = None,
    folds: int = 5,
    sample_weight: Any = None,
    class_names: Any = None,
    optimizer: Any = None,
    batch_size: int = 128,
    resume_path: str | os.PathLike | None = None,
    report_path: str | os.PathLike | None = None,
    seed: int = 0,
    verbose: int = 1,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    steps_per_epoch: int | None = None,
) -> Result:
    """Finds labels that a model disagrees with, says which kind of noise there is, and trains a new model.

    The steps: probabilities by models that have not seen the example; the kind of noise, by `diagnose`; then a new
    model is trained without the most confident issues, `result.surest`. The other issues are mostly correct labels of
    hard examples.

    A linear discriminant does not memorise labels, and without the issues it lost up to 2.7 points on labels of people.
    So it is trained on all labels, unless held-out labels prove that whole classes are swapped.

    The model gets integers, or the indices of the names in `result.classes`; `result.issues.to_frame()` has the names.

    Args:
        make_model: argument of `choose`, but no list; a function's models are trained as they are.
        x: argument of `choose`.
        y: argument of `choose`.
        epochs: number of epochs of each training. None on features alone, for a linear discriminant in closed form.
        probabilities: out of sample, `(N, K)`, each row of sum 1, in the order of the classes; None trains models for
            them.
        action: remedy for the most confident issues: "drop" trains without their examples, "correct" with the
            suggested classes. None drops them, but for a linear discriminant only if classes are swapped.
        folds: number of parts, and of models, from 2 to N.
        sample_weight: weights of the examples in training, `(N,)`; None for equal ones, or those of a data set.
        class_names: argument of `choose`.
        optimizer: argument of `choose`.
        batch_size: argument of `choose`.
        resume_path: argument of `choose`.
        report_path: argument of `choose`.
        seed: argument of `choose`.
        verbose: argument of `choose`.
        callbacks: argument of `choose`.
        steps_per_epoch: argument of `choose`.
    Returns:
        `Result`; print it.
    Raises:
        ValueError: for labels that `choose` refuses, or models that predict held-out labels no better than the largest
            class does.
    Warns: if a class has fewer examples than there are folds, or none that is left to train on; if the model is clearly
        behind the class means of its features.

    Example:
        >>> def make_model():
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, "softmax")])
        ...     model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
        ...     return model
        >>> x = np.eye(2).repeat(50, axis=0)
        >>> y = ["dog"] * 3 + ["cat"] * 47 + ["dog"] * 50
        >>> result = clean(make_model, x, y, epochs=10, folds=2, verbose=0)
        >>> sorted(result.issues.index[:3].tolist()), result.classes[result.issues.suggested[:3]].tolist()
        ([0, 1, 2], ['cat', 'cat', 'cat'])
    """
    start = time.perf_counter()
    if action is not None:
        check_choice("action", action, ACTIONS)
    check_integer("seed", seed, 0, MAX_SEED)
    is_function = make_model is not None and not isinstance(make_model, keras.Model)
    method: Method = Unchanged() if is_function else PLAIN if epochs is not None else LinearDiscriminant()
    trainer = Trainer(
        make_model,
        1 if method.is_closed_form else epochs,  # type: ignore[arg-type]
        optimizer,
        batch_size,
        callbacks=keras.tree.flatten(callbacks or []),
        steps_per_epoch=steps_per_epoch,
        measures_every_epoch=False,
        verbose=verbose,
    )
    check_same_index(x=x, y=y, probabilities=probabilities)
    read = (x, y, sample_weight, class_names, resume_path)
    given, data, folder = examples(trainer, *read, seed=seed, folds=folds, methods=[method])
    trainings = 0 if method.is_closed_form else 1 + folds * (probabilities is None)
    bar = Progress(trainings * trainer.epochs, verbose)
    trainer = dataclasses.replace(trainer, bar=bar)
    trainer.check(data)
    with bar, folder.interrupted():
        if probabilities is None:
            fold_of = stratified_folds(data.labels, folds, seed)
            trial = cross_validate(trainer, method, data, fold_of, seed, folder)
        else:
            p, fold_of = _checked(probabilities, data), None
            trial = Trial(method, trainer.epochs, scores_of(p, data.y, "accuracy"), p)
        check_learned(trial.probabilities, data.labels)
        if fold_of is not None:
            warn_if_weak(trial.probabilities, data, fold_of)
        diagnosis = diagnose(trial.probabilities, data.labels, class_names=data.classes.tolist())
        judged = (diagnosis, trial.probabilities, given, trainer, seed + folds)
        result = Result(None, [trial], trial, "", *judged, training_data=data)
        is_proven = result._decoded.is_proven
        is_swapped = is_proven and len(result.surest) == _count_disagreements(result)
        if action is None and (is_swapped or not method.is_closed_form):
            action = "drop"
        kept = data if action is None else result.cleaned(action)
        _warn_of_lost(data, kept)
        model = trainer.final(trial.method, kept, seed=result.seed, epochs=trial.epoch)
    seconds, reason = time.perf_counter() - start, _reason(result, action, is_proven, is_swapped)
    result = dataclasses.replace(result, model=model, reason=reason, seconds=seconds)
    return finished(result, report_path, verbose, x)


def _checked(probabilities: Any, data: Data) -> np.ndarray:
    """Returns probabilities that a user gives, if they are of the classes."""
    p = as_float64(order_columns(data.classes, probabilities))
    rule = f"be of the {data.units} classes of `y`, shape (N, {data.units}), as what the models return"
    refuse_if(p.ndim != 2 or p.shape[1] != data.units, "probabilities", rule, shape=p)
    refuse_if(len(p) != len(data), "probabilities", f"have a row for each of the {len(data)} examples", len(p))
    return check_distributions(p)


def _reason(result: Result, action: str | None, is_proven: bool, is_swapped: bool) -> str:
    """Returns the number of disagreements and what was done, in sentences."""
    differs, surest = _count_disagreements(result), len(result.surest)
    text = f"The model disagrees with {differs} of {len(result.data)} labels."
    if action is None:
        show = "too few labels are flagged to prove" if is_proven else "held-out labels show no"
        text += f" The linear discriminant is trained on all: {show} swapped classes."
        return text + ' If classes may be swapped, compare action="drop".'
    why = "By held-out labels, classes are swapped. " * is_swapped
    done = {"drop": "left out", "correct": "replaced by the suggested class"}[action]
    which = "These labels were" if surest == differs else f"The {surest} surest ones were"
    return f"{text} {why}{which} {done}."


def _count_disagreements(result: Result) -> int:
    return int(np.sum(result.issues.suggested != result.issues.given))


def _warn_of_lost(data: Data, kept: Data) -> None:
    """Warns of classes of which no label is left."""
    lost = [str(data.classes[label]) for label in np.setdiff1d(data.labels, kept.labels)]
    if lost:
        warnings.warn(
            f"All examples labelled {', '.join(lost)} are issues, so none is left to train on; the class may be too "
            'rare for cross-validation. Look at `issues`; action="correct" keeps the examples.',
            stacklevel=outside_level(),
        )
