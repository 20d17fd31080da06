"""From noisy labels to a model trained without the likely label errors."""

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import check_same_index
from keras_het.base.refusal import outside_level
from keras_het.base.validation import check_choice, check_integer
from keras_het.labels.choice import MAX_SEED
from keras_het.labels.classes import joined_names
from keras_het.labels.comparison import check_learned, warn_if_weak
from keras_het.labels.data import Data, stratified_folds
from keras_het.labels.diagnosis import diagnose
from keras_het.labels.estimation import check_distributions
from keras_het.labels.methods import LinearDiscriminant, Method
from keras_het.labels.progress import Progress
from keras_het.labels.result import ACTIONS, Result, write_and_print
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
    """Finds likely label errors, tells the kind of label noise, and trains a new model without the errors.

    `clean` cross-validates a model, diagnoses the noise from its predictions (see `diagnose`), and trains a new model
    without the confident issues, `result.confident_issues`. Other issues stay: most are correct labels of hard
    examples. `result.issues.to_frame()` has all labels with the names of the classes.

    A linear discriminant hardly memorises labels, and without the issues it lost up to 2.7 points on labels of people.
    So it is trained on all labels, unless held-out labels prove class-dependent noise.

    Args:
        make_model: argument of `choose`, but no list. A function's models keep their head and loss.
        x: argument of `choose`.
        y: argument of `choose`. The model is trained on integers, indices into `result.classes`.
        epochs: number of epochs of each training; None on features, for a linear discriminant in closed form.
        probabilities: out-of-sample probabilities, `(N, K)`, each row of sum 1, with columns in the order of the
            classes, sorted or `class_names`; None computes them by cross-validation.
        action: "drop" trains without the confident issues, "correct" trains on their suggested classes. None drops
            them, but for a linear discriminant only if the noise is class-dependent.
        folds: number of folds, from 2 to N.
        sample_weight: weights of the examples in training, `(N,)`; None for equal ones or the data set's weights.
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
        ValueError: for labels that `choose` refuses, or models that predict held-out labels no better than the majority
            class.
    Warns: if a data set shuffles itself; if a class has fewer examples than folds, or loses all of them; if the model
        is clearly worse than the nearest class mean of its features.

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
    source, data, folder = examples(trainer, *read, seed=seed, folds=folds, methods=[method])
    trainings = 0 if method.is_closed_form else 1 + folds * (probabilities is None)
    bar = Progress(trainings * trainer.epochs, verbose)
    trainer = dataclasses.replace(trainer, bar=bar)
    trainer.check(data)
    with bar, folder.interruptible():
        if probabilities is None:
            fold_of = stratified_folds(data.labels, folds, seed, data.classes)
            trial = cross_validate(trainer, method, data, fold_of, seed, folder)
            check_learned(trial.probabilities, data.labels)
            warn_if_weak(trial.probabilities, data, fold_of)
        else:
            p = check_distributions(probabilities, classes=data.classes, count=len(data))
            order = joined_names(data.classes.tolist())
            remedy = f"check that their columns are in the order {order} (or pass `class_names`), or use a better model"
            check_learned(p, data.labels, "probabilities", remedy)
            trial = Trial(method, trainer.epochs, scores_of(p, data.y, "accuracy"), p)
        diagnosis = diagnose(trial.probabilities, data.labels, class_names=data.classes.tolist())
        parts = (diagnosis, trial.probabilities, source, trainer, seed + folds)
        result = Result(None, [trial], trial, "", *parts, training_data=data)
        is_proven = result._decoded.is_proven
        is_class_dependent = is_proven and len(result.confident_issues) == _count_disagreements(result)
        if action is None and (is_class_dependent or not method.is_closed_form):
            action = "drop"
        kept = data if action is None else result.clean_data(action)
        _warn_of_lost_classes(data, kept, action)
        model = trainer.final(trial.method, kept, seed=result.seed, epochs=trial.epoch)
    seconds, reason = time.perf_counter() - start, _reason(result, action, is_proven, is_class_dependent)
    result = dataclasses.replace(result, model=model, reason=reason, seconds=seconds)
    return write_and_print(result, report_path, verbose, x)


def _reason(result: Result, action: str | None, is_proven: bool, is_class_dependent: bool) -> str:
    """Returns the number of disagreements and the action, in sentences."""
    count, confident = _count_disagreements(result), len(result.confident_issues)
    text = f"The model disagrees with {count:,} of {len(result.data):,} labels."
    if action is None:
        show = "too few disagreements are confident issues to prove" if is_proven else "held-out labels do not prove"
        show += " that one class is often labelled as another"
        text += f" The final linear discriminant uses all labels, because {show}."
        return text + ' If you expect this, compare action="drop".'
    text += " Held-out labels show that one class is often labelled as another." * is_class_dependent
    if not confident:
        return f"{text} The final model is trained on all labels, because none is a confident issue."
    issues = f"the {confident:,} confident issues" if confident > 1 else "the confident issue"
    if confident == count:
        issues = "these labels" if count > 1 else "this label"
    how = {"drop": "without", "correct": "with the suggested classes of"}[action]
    return f"{text} The final model is trained {how} {issues}."


def _count_disagreements(result: Result) -> int:
    return int(np.sum(result.issues.suggested != result.issues.label))


def _warn_of_lost_classes(data: Data, kept: Data, action: str | None) -> None:
    """Warns of classes that have no example left."""
    lost = [str(data.classes[label]) for label in np.setdiff1d(data.labels, kept.labels)]
    if lost:
        is_drop = action == "drop"
        change = "dropped" if is_drop else "corrected to other classes"
        text = f"All examples labelled {', '.join(lost)} were {change}, perhaps because the class is too rare for "
        text += "cross-validation. Look at `issues`" + ', or keep the examples with action="correct"' * is_drop + "."
        warnings.warn(text, stacklevel=outside_level())
