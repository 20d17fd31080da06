"""Chooses the method for noisy labels by these labels alone."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras

from keras_het.base.fingerprint import fingerprint
from keras_het.base.result_files import ResultFiles
from keras_het.base.validation import check_choice, check_integer
from keras_het.choice.candidate import Arm, Candidate
from keras_het.choice.candidates import OTHERS, PLAIN
from keras_het.choice.choice import Choice
from keras_het.choice.data import Prepared, prepared
from keras_het.choice.networks import layers_below
from keras_het.choice.search import Search
from keras_het.choice.training import Trainer

REFUSED = ("class_weight", "sample_weight", "shuffle", "validation_split", "initial_epoch")


def choose(
    make_body: Callable[[], Any] | keras.Model | None,
    x: Any,
    y: Any = None,
    *,
    validation_data: Any = None,
    verified_labels: Mapping | None = None,
    candidates: Iterable[Candidate] | None = None,
    optimizer: Any = "adam",
    epochs: int = 50,
    batch_size: int = 128,
    folds: int = 5,
    trainings: int = 30,
    path: str | os.PathLike | None = None,
    seed: int = 0,
    verbose: int = 1,
    **fit_arguments: Any,
) -> Choice:
    """Chooses a method, and the number of epochs, by noisy labels alone, and returns a model trained by it.

    Every candidate is trained on all folds but one, and predicts the labels of the one left out, for each fold:

        d_ab = mean_n (right_an - right_bn)

    where right_an says whether candidate a predicts the label of example n, at the epoch of its best mean over
    neighbouring epochs. The candidate that predicts most labels is chosen if it is above the safest one by a paired
    standard error of d. Else the safest one is chosen, early-learning regularisation, unless the plain training,
    crossentropy with early stopping, is above it by a standard error. A candidate that falls two standard errors behind
    the best one is not trained on.

    Noisy labels rank predictions of the true classes as true labels do, as long as every class keeps most of its
    labels, and wrong labels cannot be predicted. Where they can, since they name what an example looks like, candidates
    predict as many labels whether they learn the wrong ones or not: therefore the safest one. Weights are averaged over
    the epochs, for all candidates alike. In the end the model is trained anew on all examples for the best number of
    epochs. Whatever acts only in training, such as a transition matrix, is left out of it.

    `keras.utils.set_random_seed` is called before each training, with a number that depends on `seed` and the fold. So
    a run that goes on from `path` gives the same as an uninterrupted one.

    Args:
        make_body: a function without arguments that makes the layers below the head: a list of new layers, or a new
            functional model that returns features, `(N, D)`; layers that are the same at every call must be frozen. Or
            a trained model, which stays as it is: its features, the inputs of its last Dense layer, are computed once,
            and a training takes seconds; a KerasHub task takes raw images and strings. The result shares its layers.
            None if `x` are features.
        x: examples: arrays, or a data set of batches (x, y), which is read once and kept in memory.
        y: their labels, `(N,)`: integers from 0 on; None for a data set.
        validation_data: `(x, y)`, or a data set, to measure the candidates by, instead of folds of the data.
        verified_labels: labels that somebody has verified, as a dict from the indices of examples to labels. They
            replace the given ones, and count more in the measure.
        candidates: objects of `Candidate`, beside the plain training; None for early-learning regularisation, forward
            correction and label smoothing.
        optimizer: a name, a Keras optimizer, of which each training gets a new one, or a function that makes one of a
            model, for example to exclude weights from decay.
        epochs: the number of epochs of each training; the best epoch decides.
        batch_size: of training and prediction.
        folds: the parts of the data, at least 2.
        trainings: the most trainings, with the last one, from `folds + 1` on. The plain training is measured on all
            folds, whose probabilities the result has. If the others are too few for the candidates on all folds, these
            are measured on fewer; if they are too few for one fold, the last candidates of the list are left out.
        path: a folder that keeps each finished training; a later call goes on from there. It refuses other data, a data
            set in another order among them, other arguments and candidates, and what cannot be compared, such as an
            open file in a callback. Callbacks and candidates count by their attributes, which a training may change:
            make them anew for each call; functions by their code. Of `make_body`, and of the methods of classes, the
            code is not compared: take another folder when it changes.
        seed: of the split and of the trainings.
        verbose: 1 for the plan, a progress bar and the table, 0 for nothing.
        fit_arguments: for `fit`, such as callbacks, which all trainings share; no weights, for candidates use them.
    Returns:
        `Choice`.
    Raises:
        ValueError: for labels or arguments out of range, one class, fewer examples than folds, layers that make no
            features, layers that several trainings train, a folder of other data, or an argument beside `path` that
            cannot be compared.
    Warns: if the layers below the head end in what looks like a head: a Dense layer of K units without an activation.
    Source: the rule, the list and their constants are those that did best on digits of the arena
        (`benchmarks/labels/choice.py`, which has data that had no say, too); the candidates' own sources are in
        `losses` and `layers`.

    Example:
        >>> import numpy as np
        >>> x, y = np.eye(3, dtype="float32").repeat(20, axis=0), np.arange(3).repeat(20)
        >>> make_body = lambda: [keras.layers.Dense(8, "relu")]
        >>> found = choose(make_body, x, y, optimizer=keras.optimizers.Adam(0.05), epochs=6, folds=2, verbose=0)
        >>> found.model.predict(x[::20], verbose=0).argmax(-1).tolist()
        [0, 1, 2]
    """
    check_choice("verbose", verbose, (0, 1))
    below = layers_below(make_body, check_integer("batch_size", batch_size, 1))
    refused = [name for name in fit_arguments if name in REFUSED]
    if refused:
        raise ValueError(f"`fit_arguments` must be without {', '.join(REFUSED)}. Received: {refused[0]}")
    epochs, folds = check_integer("epochs", epochs, 1), check_integer("folds", folds, 2)
    arms = _arms(candidates, _most_arms(trainings, folds if validation_data is None else 1))
    data = prepared(below, x, y, validation_data, verified_labels, folds, seed, epochs)
    settings = {"seed": seed, "batch_size": batch_size, "epochs": epochs, "optimizer": optimizer, **fit_arguments}
    compared = {**_of_data(data), **settings, "candidates": {arm.name: arm for arm in arms}}
    checksum = "" if path is None else fingerprint(compared)
    trainer = Trainer(below, optimizer, epochs, batch_size, fit_arguments)
    search = Search(trainer, data, arms, trainings, seed, ResultFiles(path, checksum, "training"), verbose)
    found = search.run(below)
    if verbose:
        print(found)
    return found


def _most_arms(trainings: int, parts: int) -> int:
    """How many arms there may be if the plain training is measured on all parts of the data, and others on one."""
    if check_integer("trainings", trainings, 2) <= parts:
        rule = f"be at least {parts + 1}, for early stopping on {parts} parts of the data, and the last training"
        raise ValueError(f"`trainings` must {rule}; with fewer `folds`, fewer do. Received: trainings={trainings}")
    return trainings - parts


def _arms(candidates: Iterable[Candidate] | None, most: int) -> list[Arm]:
    """The plain training, and the candidates at each of their strengths, as many as there are trainings for."""
    given = [make() for make in OTHERS] if candidates is None else list(candidates)
    wrong = [candidate for candidate in given if not isinstance(candidate, Candidate) or not candidate.name]
    if wrong:
        rule = "be a list of objects of `Candidate`, each with a name"
        raise ValueError(f"`candidates` must {rule}. Received: {wrong[0]!r}")
    empty = [candidate.name for candidate in given if not len(candidate.strengths)]
    if empty:
        rule = "have at least one strength each, (None,) if there is nothing to choose"
        raise ValueError(f"`candidates` must {rule}. Received: {empty[0]!r} without one")
    arms = [Arm(candidate, strength) for candidate in (PLAIN(), *given) for strength in candidate.strengths]
    names = [arm.file_name.casefold() for arm in arms]  # some file systems take "A" for "a"
    twice = [arm.name for arm, name in zip(arms, names, strict=True) if names.count(name) > 1]
    if twice:
        raise ValueError(f"`candidates` must have different names and strengths. Received: {twice[0]!r} twice")
    return arms[:most]


def _of_data(data: Prepared) -> dict[str, Any]:
    """What tells data from other data: the examples that folds hold out are among the others."""
    validation = None if data.has_folds else data.splits[0].x
    splits = [(split.train, split.y, split.weights) for split in data.splits]
    task = {"x": data.task.x, "y": data.task.y, "classes": data.classes}
    return {**task, "validation_data": validation, "splits": splits}
