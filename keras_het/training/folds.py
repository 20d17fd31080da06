"""Probabilities out of sample: each example's are predicted by a model that was not trained on it."""

import os
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_het.base.progress import Progress
from keras_het.base.result_files import ResultFiles
from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_integer
from keras_het.label_noise.discriminant import discriminant
from keras_het.reading.probabilities import exclusive_probabilities
from keras_het.training.compare import check_learned, class_means
from keras_het.training.fit import TAKEN, Trainer, check_fit_arguments
from keras_het.training.task import Task

MOST_SEED = 2**31 - 1  # each fold has the next one, and Keras takes none above 2**32 - 1


def cross_val_probabilities(
    make_model: Callable[[], keras.Model] | keras.Model | None,
    x: Any,
    y: Any = None,
    *,
    epochs: int | None = None,
    folds: int = 5,
    optimizer: Any = None,
    batch_size: int = 128,
    sample_weight: Any = None,
    resume_path: str | os.PathLike | None = None,
    seed: int = 0,
    verbose: int = 1,
    **fit_arguments: Any,
) -> np.ndarray:
    """Each example's probabilities by a model trained on the other folds, for `find_issues` and for cleanlab.

    A model predicts the labels that it was trained on, also wrong ones, with too much confidence. Only predictions out
    of sample can show that a label is wrong. The folds are stratified: each has its share of every label.

    Seeds, and a run that goes on from `resume_path`, are as in `choose`.

    Args:
        make_model: argument of `choose`; what a function makes is trained as it is.
        x: examples: see `choose`.
        y: their labels, `(N,)`: see `choose`.
        epochs: the number of epochs of each training; None where `make_model` is None or a trained model: then nothing
            is trained, and the model is a linear discriminant of the features, in closed form
            (`training.LinearDiscriminant`).
        folds: the number of parts, and of models, from 2 to N.
        optimizer: argument of `choose`.
        batch_size: size of the batches of training and prediction.
        sample_weight: weights of the examples in `fit`, shape `(N,)`, or None.
        resume_path: argument of `choose`.
        seed: seed of the split and of the models.
        verbose: argument of `choose`.
        fit_arguments: argument of `choose`.
    Returns:
        shape `(N, K)`, float32, each row of sum 1; nan for examples without a vote.
    Raises:
        ValueError: for labels or arguments out of range, models that are not new, not compiled, or of other classes, or
            that predict held-out labels no better than the largest class does, or a folder that has the folds of other
            data or settings, or damaged files.
    Warns: if a class has fewer examples than there are folds, so that a model may see none of it; if the models are
        clearly behind the class means of their features.

    Example:
        >>> def make_model():
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, "softmax")])
        ...     model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
        ...     return model
        >>> x, y = np.eye(3)[:, :2].repeat(20, axis=0), np.arange(3).repeat(20)
        >>> cross_val_probabilities(make_model, x, y, folds=2, epochs=40, verbose=0).shape
        (60, 3)
    """
    check_fit_arguments(fit_arguments, TAKEN, cross_val_probabilities)
    trainer = Trainer(make_model, optimizer, epochs, batch_size, "accuracy", verbose, fit_arguments)
    task = trainer.task(trainer.read(x, y, sample_weight, path=resume_path), resume_path)
    found = held_out_probabilities(trainer, task, folds, seed, resume_path, verbose)
    if task.labelled is None:
        return found
    whole = np.full((len(task.labelled), task.units), np.nan, "float32")
    whole[task.labelled] = found
    return whole


def held_out_probabilities(
    trainer: Trainer, task: Task, folds: int, seed: int, resume_path: Any, verbose: int
) -> np.ndarray:
    """The probabilities of each example by a model that did not see it, `(N, K)`, if the models have learned something.

    Args:
        trainer: trainer of the models.
        task: the examples as the network takes them.
        folds: argument of `cross_val_probabilities`.
        seed: argument of `cross_val_probabilities`.
        resume_path: argument of `cross_val_probabilities`.
        verbose: argument of `cross_val_probabilities`.
    """
    check_integer("seed", seed, 0, MOST_SEED)
    fold_of = stratified_folds(task.y, folds, seed)
    if trainer.is_closed:
        return _by_discriminant(trainer, task, fold_of)
    settings = {"data": task, "folds": folds, "seed": seed}
    files = ResultFiles(resume_path, lambda: settings | trainer.settings(task), "fold")
    found = np.empty((len(task.y), task.units), "float32")
    trainer.bar = Progress(folds * trainer.epochs, "epoch", verbose, after=0.0)
    with trainer.bar, files.interrupted():
        for fold in range(folds):
            found[fold_of == fold] = _probabilities(trainer, task, fold_of, fold, seed, files)
    check_learned(found, task.y, class_means(task.x, task.y, fold_of))
    return found


def _by_discriminant(trainer: Trainer, task: Task, fold_of: np.ndarray) -> np.ndarray:
    """The probabilities of each example by the discriminant of the other folds, `(N, K)`."""
    trainer.own(task, 0)  # which raises the errors of x
    x = np.asarray(task.x)
    _, found = discriminant(x, task.target, task.units, fold_of, task.sample_weight, task.scale)
    check_learned(found, task.y)
    return found


def _probabilities(
    trainer: Trainer, task: Task, fold_of: np.ndarray, fold: int, seed: int, files: ResultFiles
) -> np.ndarray:
    """The probabilities of the examples of a fold, from its file or by a training."""
    held_out, name = np.flatnonzero(fold_of == fold), f"fold_{fold}"
    stored = files.read(name, {"probabilities": ((len(held_out), task.units), ("float32",))})
    if stored is not None:
        trainer.bar.add(trainer.epochs)
        return stored["probabilities"]
    order = random_generator([seed, fold]).permutation(np.flatnonzero(fold_of != fold))
    model = trainer.own(task.take(order), seed + fold)
    p = exclusive_probabilities(model, task.take(held_out).x, trainer.batch_size)
    files.write(name, probabilities=p)
    return p


def stratified_folds(labels: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """The fold of each label, `(N,)`: sizes of folds, and of each class in them, differ by one at most.

    Warns: if a class has fewer examples than there are folds.
    """
    check_integer("folds", folds, 2, len(labels))
    counts = np.bincount(labels)
    rare = np.flatnonzero((counts > 0) & (counts < folds))
    if len(rare):
        examples = f"class {rare[0]} has only {counts[rare[0]]} examples for {folds} folds"
        warnings.warn(
            f"A model may see no example of a class: {examples}, and {len(rare) - 1} other classes too few.",
            stacklevel=3,
        )
    shuffled = random_generator(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold_of = np.empty(len(labels), int)
    fold_of[by_class] = np.arange(len(labels)) % folds
    return fold_of
