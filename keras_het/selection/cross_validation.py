"""Probabilities out of sample: each example's are predicted by a model that was not trained on it."""

import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.base.batches import as_numpy, count_examples, is_data_set, take
from keras_het.base.fingerprint import fingerprint
from keras_het.base.new_models import NewModels
from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_choice, check_integer, check_labels, check_maker
from keras_het.inspection.check import judge
from keras_het.inspection.probabilities import exclusive_probabilities
from keras_het.selection.fold_files import FoldFiles

REFUSED = ("x", "y", "validation_split", "shuffle", "verbose")


def cross_val_probabilities(
    make_model: Callable[[], keras.Model],
    x: Any,
    y: Any,
    folds: int = 5,
    *,
    sample_weight: Any = None,
    seed: int = 0,
    path: str | os.PathLike | None = None,
    verbose: int = 1,
    **fit_arguments: Any,
) -> np.ndarray:
    """Each example's probabilities by a model trained on the other folds, for `find_label_issues` and for cleanlab.

    A model predicts the labels that it was trained on, also wrong ones, with too much confidence. Only predictions out
    of sample can show that a label is wrong. The folds are stratified: each has its share of every label.

    `keras.utils.set_random_seed` is called before each model is made, with a number that depends on `seed` and the
    fold. So a run that was interrupted and goes on from `path` gives the same as an uninterrupted one.

    Args:
        make_model: function without arguments that returns a new compiled model of exclusive classes. Only frozen
            layers may be the same in all models, such as a backbone that was made once, with `trainable = False`:
            others would predict labels that they were trained on.
        x: examples: an array, or a list, tuple or dict of them.
        y: their labels, integers, shape `(N,)`.
        folds: the number of parts, and of models, from 2 to N.
        sample_weight: of the examples in `fit`, shape `(N,)`, or None.
        seed: of the split and of the models.
        path: a folder that keeps each finished fold, `fold_0.npz` and so on; a later call goes on from there. It
            refuses other data and other arguments of `fit`, and what cannot be compared, such as an open file in a
            callback. A callback counts by its attributes, which a training may change: make it anew for each call. Of
            `make_model`, and of the methods of classes, the code is not compared: take another folder when it changes.
        verbose: 1 for a progress bar, 0 for none.
        fit_arguments: for `fit`, such as epochs, batch_size, callbacks.
    Returns:
        shape `(N, K)`, float32, each row of sum 1.
    Raises:
        ValueError: for a data set instead of arrays, labels that are no integers, arguments out of range, models that
            share layers that they train, or return something else or other classes than the labels have, or a folder
            that has the folds of other data or settings, or damaged files, or is given with an argument that cannot be
            compared.
    Warns: if a class has fewer examples than there are folds, so that a model may see none of it.

    Example:
        >>> def make_model():
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, "softmax")])
        ...     model.compile("adam", "sparse_categorical_crossentropy")
        ...     return model
        >>> x, y = np.eye(3)[:, :2].repeat(4, axis=0), np.arange(3).repeat(4)
        >>> cross_val_probabilities(make_model, x, y, folds=2, epochs=2, verbose=0).shape
        (12, 3)
    """
    check_maker(make_model)
    if is_data_set(x):
        raise ValueError(f"`x` must be arrays, which can be split into folds. Received: a {type(x).__name__}")
    refused = [name for name in fit_arguments if name in REFUSED]
    if refused:
        raise ValueError(f"`fit_arguments` must be without {', '.join(REFUSED)}. Received: {refused[0]}")
    check_choice("verbose", verbose, (0, 1))
    data = _Data(x, check_labels(y, np.inf, count_examples(x), "y"), _weights(sample_weight, y))
    fold_of = stratified_folds(data.y, folds, seed)
    settings = {**data._asdict(), "folds": folds, "seed": seed, **fit_arguments}
    files = FoldFiles(path, "" if path is None else fingerprint(settings))
    models = NewModels("make_model")
    bar, found = keras.utils.Progbar(folds, verbose=verbose, unit_name="fold"), np.empty((len(data.y), 0), "float32")
    for fold in range(folds):
        p = files.read(fold, int(np.sum(fold_of == fold)))
        if p is None:
            keras.utils.set_random_seed(seed + fold)
            order = random_generator([seed, fold]).permutation(np.flatnonzero(fold_of != fold))
            p = _fitted(make_model(), models, data, order, fold_of == fold, fit_arguments)
            files.write(fold, p)
        if p.shape[1] <= data.y.max():
            raise ValueError(f"`y` must be in [0, {p.shape[1]}), the classes of the model. Received: {data.y.max()}")
        found = found if fold else np.empty((len(data.y), p.shape[1]), "float32")
        if p.shape[1] != found.shape[1]:
            rule = "make models of the same classes, also those whose folds are in `path`"
            raise ValueError(f"`make_model` must {rule}. Received: {found.shape[1]} classes, then {p.shape[1]}")
        found[fold_of == fold] = p
        bar.update(fold + 1)
    return found


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


class _Data(NamedTuple):
    """Examples, labels and weights in the same order; weights may be None."""

    x: Any
    y: np.ndarray
    sample_weight: Any

    def take(self, indices: np.ndarray) -> "_Data":
        """The data at these indices."""
        weight = None if self.sample_weight is None else self.sample_weight[indices]
        return _Data(take(self.x, indices), self.y[indices], weight)


def _check_model(model: keras.Model, data: _Data) -> None:
    """Raises a ValueError if a model is not compiled, has a wrong loss, is not new, or cannot learn from the data."""
    if not getattr(model, "compiled", False):
        raise ValueError(f"`make_model` must make compiled models. Received: a {type(model).__name__}, which is not")
    judge(model, data.x, data.y)
    if getattr(model.optimizer, "built", False) and int(model.optimizer.iterations) > 0:
        raise ValueError(
            "`make_model` must make a new model each time, or one would have seen what it predicts. Received: a "
            "trained one"
        )
    units = model.output_shape[-1] if getattr(model, "outputs", None) and len(model.outputs) == 1 else None
    if units is not None and data.y.max() >= units:
        raise ValueError(f"`y` must be in [0, {units}), the classes of the model. Received: {data.y.max()}")


def _weights(sample_weight: Any, y: Any) -> np.ndarray | None:
    weights = None if sample_weight is None else np.asarray(as_numpy(sample_weight))
    if weights is not None and weights.shape != np.shape(y):
        raise ValueError(f"`sample_weight` must have shape {np.shape(y)}. Received: shape {weights.shape}")
    return weights


def _fitted(
    model: keras.Model,
    models: NewModels,
    data: _Data,
    train: np.ndarray,
    others: np.ndarray,
    arguments: dict[str, Any],
) -> np.ndarray:
    """Trains a model on some examples, and predicts probabilities of others, `(N, K)`."""
    _check_model(model, data)
    models.check(model)
    part = data.take(train)
    model.fit(part.x, part.y, sample_weight=part.sample_weight, verbose=0, **arguments)
    models.add(model)
    return exclusive_probabilities(model, data.take(others).x, arguments.get("batch_size") or 128)
