"""Chooses the method for noisy labels by these labels alone."""

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np

from keras_het.base.progress import Progress
from keras_het.base.result_files import ResultFiles
from keras_het.base.validation import check_integer
from keras_het.labels.diagnosis import diagnose
from keras_het.training.candidates import DEFAULTS, OF_VOTES, PLAIN, SAFEST, Candidate, file_name
from keras_het.training.compare import CLEAR, WIDTH, check_learned, choose_one, class_means, class_means_of
from keras_het.training.fit import TAKEN, Trainer, check_fit_arguments
from keras_het.training.folds import MOST_SEED, stratified_folds
from keras_het.training.race import Entry, Race
from keras_het.training.result import Result, finished
from keras_het.training.table import Score
from keras_het.training.together import Part, parts_of

OF_RULES = (
    " If rules or another model made the labels, what predicts most of them has learned their errors, too: a linear "
    "discriminant follows them least, `clean_labels(None, x, y)`."
)


def choose(
    make_model: Callable[[], keras.Model] | keras.Model | None,
    x: Any,
    y: Any = None,
    *,
    epochs: int,
    candidates: Iterable[Candidate] | None = None,
    criterion: str = "accuracy",
    validation_data: Any = None,
    verified_labels: Mapping | None = None,
    class_names: Any = None,
    optimizer: Any = None,
    batch_size: int = 128,
    folds: int = 5,
    trainings: int = 30,
    report_path: str | os.PathLike | None = None,
    resume_path: str | os.PathLike | None = None,
    seed: int = 0,
    verbose: int = 1,
    **fit_arguments: Any,
) -> Result:
    """Chooses a method, and the number of epochs, by noisy labels alone, and returns a model trained by it.

    Every candidate is trained on all folds but one, and predicts the labels of the one left out, for each fold:

        d_ab = mean_n (s_an - s_bn)

    where the score s_an says whether candidate a predicts the label of example n (or is log p_a(label) with
    `criterion="loss"`), at the epoch of its best mean over neighbouring epochs. The candidate of the largest mean score
    is chosen if it is above the safest one by a paired standard error of d. Else the safest one is chosen,
    early-learning regularisation, unless the plain training, crossentropy with early stopping, is above it by a
    standard error. On features the safest one is linear discriminant analysis, in closed form; three standard errors
    count there, and two for a candidate with a model of the noise, `models_noise`. A candidate that falls two standard
    errors behind the best one is not trained on.

    Noisy labels rank predictions of the true classes as true labels do, as long as every class keeps most of its
    labels, and wrong labels cannot be predicted. Where they can, since they name what an example looks like, candidates
    predict as many labels whether they learn the wrong ones or not: therefore the safest one. Weights are averaged over
    the epochs, for all candidates alike. In the end the model is trained anew on all examples for the best number of
    epochs. Whatever acts only in training, such as a transition matrix, is left out of it.

    `keras.utils.set_random_seed` is called before each training, with a number that depends on `seed` and the fold. So
    a run that goes on from `resume_path` gives the same as an uninterrupted one. Afterwards the global random states
    are as they were before; but TensorFlow keeps the last seed.

    Args:
        make_model: a function without arguments that returns a new compiled model, functional or Sequential, of the K
            classes; each candidate puts its own head in the place of the last layer, and its own loss in the place of
            the loss, which take integers and the K classes, too; optimizer and learning-rate schedule are those of the
            model. Or a model that was trained on other data (one that has seen these labels knows the wrong ones, too),
            which stays as it is: its features, the inputs of its last Dense layer, are computed once, and a training
            takes seconds; a KerasHub task takes raw images and strings. The result shares its layers. None if `x` are
            features, `(N, D)`, whatever their units: layers that the result has scale them, and then a Dense layer
            begins at zero, whose first step already leads from class to class, so that few examples are enough.
        x: examples: arrays, memory maps among them, a pandas frame of numbers, or a data set of batches (x, y), which
            is read once and kept in memory; for a trained model only its features are, or, with a `resume_path`, they
            are in a file there, of which blocks are read by closed forms and by what trains side by side.
        y: their labels, `(N,)`: integers from 0 on, or names; None for a data set. A Series of pandas must have the
            index of a frame x. Or votes of several annotators, `(N, M)`, integers or names, with -1, nan or None where
            one gave none, or what `label_noise.votes_from_table` returns; or distributions or counts, `(N, K)` floats.
            Votes are compared by how many held-out ones are predicted. Examples without a vote are left out.
        epochs: the number of epochs of each training; the best epoch decides.
        candidates: objects of `training.Candidate`, beside the plain training; None for `training.DEFAULTS`, and
            beside these, of votes, `training.MajorityVote` and `training.AnnotatorTransitions`.
        criterion: "accuracy" or "loss", -log p(label). The likelihood compares what predicts the labels as they are,
            and no methods that correct them: see the page "Train".
        validation_data: `(x, y)`, `(x, y, weights of the labels in the measure)`, or a data set of either, to measure
            the candidates by, instead of folds of the data.
        verified_labels: labels that somebody has verified, as a dict from the indices of examples to labels; the
            indices of a pandas frame where the examples have one. They replace the given ones, and count more in the
            measure.
        class_names: names of the K classes, for integer labels; of labels that are names, these in the order that the
            model's outputs shall have. None for numbers, or the names that the labels are, in sorted order.
        optimizer: optimizer of models on features: a name, a Keras optimizer, of which each training gets a new one;
            None for Adam with a learning rate of min(.05, .5 / D), by which a step changes a logit by about .5; and
            beside a function, whose models bring theirs.
        batch_size: size of the batches of training and prediction.
        folds: the parts of the data, at least 2.
        trainings: the most trainings, with the last one, from `folds + 1` on. The plain training is measured on all
            folds, whose probabilities the result has. If the others are too few for the candidates on all folds, these
            are measured on fewer; if they are too few for one fold, the last candidates of the list are left out.
        report_path: the folder for a page and a table of the labels (`report`), with the suspects where x are images,
            texts or a frame; None for none. Of a data set for a trained model it has them by
            `found.report(path, images=...)` alone.
        resume_path: a folder that keeps each finished training, those side by side when all are, and the features of a
            trained model, batch by batch; a later call goes on from there. It refuses other data, a data set in another
            order among them, and other arguments and candidates. Of `make_model` it knows the layers, the optimizer and
            the loss of a model that it makes, and not how the layers are joined, nor pretrained weights: take another
            folder when those change. Callbacks count by their attributes, which a training may change: make them anew
            for each call.
        seed: seed of the split and of the trainings.
        verbose: 1 for the plan, a progress bar and the result; 2 for the lines of `fit`, too; 0 for nothing.
        fit_arguments: arguments `callbacks` and `steps_per_epoch` of `fit`, which all trainings share.
    Returns:
        `Result`; print it.
    Raises:
        ValueError: for labels or arguments out of range, labels that begin with 1, an id or -1 among them, one class,
            fewer examples than folds, weights of the examples, a model without a head,
            a loss that takes no integers, a plain training that predicts held-out labels no better than the largest
            class does, or a folder of other data.
    Warns: if the plain training is clearly behind the class means of its features, or a trained model looks untrained.
    Source: the rule, the list and their constants are those that did best on digits of the arena
        (`benchmarks/labels/choice.py`, which has data that had no say, too), and on features with labels of people and
        rules (`benchmarks/real/choose.py`, the same); the candidates' own sources are in `losses` and `layers`.

    Example:
        >>> x, y = np.eye(3, dtype="float32").repeat(20, axis=0), np.arange(3).repeat(20)
        >>> def make_model():
        ...     dense = keras.layers.Dense
        ...     model = keras.Sequential([keras.Input((3,)), dense(8, "relu"), dense(3, "softmax")])
        ...     model.compile(keras.optimizers.Adam(0.05), "sparse_categorical_crossentropy")
        ...     return model
        >>> found = choose(make_model, x, y, epochs=20, folds=2, verbose=0)
        >>> found.model.predict(x[::20], verbose=0).argmax(-1).tolist()
        [0, 1, 2]
    """
    start, folds = time.perf_counter(), check_integer("folds", folds, 2)
    folds = folds if validation_data is None else 1
    check_integer("seed", seed, 0, MOST_SEED)
    check_fit_arguments(fit_arguments, TAKEN, choose)
    trainer = Trainer(
        make_model, optimizer, check_integer("epochs", epochs, 1), batch_size, criterion, verbose, fit_arguments
    )
    most, chosen_from = _most_entries(trainings, folds), None if candidates is None else list(candidates)
    _entries(chosen_from or [], most, trainer.on_features)  # whose errors come before the features of a data set
    given = trainer.read(x, y, None, verified_labels, class_names, path=resume_path)
    if chosen_from is None:
        chosen_from = [*DEFAULTS, *(() if given.votes is None else OF_VOTES)]
    entries = _entries(chosen_from, most, trainer.on_features)
    if given.sample_weight is not None:
        rule = "give (x, y) alone: candidates use the weights themselves (`clean_labels` takes yours)"
        raise ValueError(f"`x` must {rule}. Received: a data set with weights")
    columns, shown = getattr(x, "columns", None), given
    if validation_data is not None:
        shown = trainer.read_validation(validation_data, given, columns, resume_path)
    task = trainer.task(given, resume_path)
    held_out = None if shown is given else trainer.task(shown, resume_path, "validation_data")
    fold_of = stratified_folds(task.y, folds, seed) if held_out is None else np.zeros(len(shown.y), int)
    parts = parts_of(fold_of) if held_out is None else [Part(np.arange(len(task.y)), None, held_out)]
    compared = {entry.name: [entry.candidate, entry.strength] for entry in entries}
    settings = {"data": task, "validation_data": held_out, "folds": folds, "seed": seed, "candidates": compared}
    files = ResultFiles(resume_path, lambda: settings | trainer.settings(task), "training")
    base, *others = (entry for entry in entries if not entry.candidate.on_features)
    solved = [entry for entry in entries if entry.candidate.on_features]
    count = min(folds, (trainings - folds - 1) // max(1, len(others)))
    known = dataclasses.replace(task, transition=np.eye(task.units))  # T itself is not known yet
    able = functools.partial(trainer.can_be_together, task=known, folds=len(parts))
    trained = [(base, folds), *((entry, count) for entry in others)] if trainer.on_features else []
    alone = [entry.name for entry, own in trained if not able(entry.candidate, entry.strength, count=own)]
    trainer.bar = _progress(trainer.epochs, len(others), folds, count, alone, verbose)
    race = Race(trainer, parts, fold_of if held_out is None else np.zeros(len(task.y), int), seed, files)

    def train(labels: np.ndarray, rows: np.ndarray) -> keras.Model:
        """The chosen candidate on some of the examples, for its best number of epochs."""
        part, best = task.corrected(labels), race.epoch(chosen) + 1
        part = part if len(rows) == len(part.y) else part.take(rows)
        return trainer.whole(trainer.candidate(chosen.candidate, chosen.strength, part, None, seed + folds, best)[0])

    with trainer.bar, files.interrupted():
        race.run([base, *solved], task, folds)
        safest, clear = _safest([base, *solved])
        p = _probabilities(fold_of, choose_one([base, *solved], race.difference, safest, clear))
        means = class_means(task.x, task.y, fold_of) if held_out is None else class_means_of(task, held_out)
        check_learned(p, shown.y, means)
        diagnosis = diagnose(p, shown.y, class_names=task.classes.tolist())
        task = dataclasses.replace(task, transition=diagnosis.transition)
        race.run(others, task, count, base)
        possible = [entry for entry in entries if not entry.is_dropped]
        safest, clear = _safest(possible)
        chosen = choose_one(possible, race.difference, safest, clear)
        model = train(task.y, np.arange(len(task.y)))
    table = [_score(race, entry, base, criterion) for entry in entries]
    best = table[entries.index(chosen)]
    reason = _reason(table, best, table[entries.index(safest)], clear(chosen), criterion) + _advice(
        race, chosen, trainer.epochs
    )
    reason += OF_RULES if solved and chosen not in solved else ""
    found = Result(
        model,
        best,
        table,
        criterion,
        reason,
        diagnosis,
        p,
        task.classes,
        sum(len(entry.fits) for entry in (base, *others)) + 1,
        time.perf_counter() - start,
        shown,
        train=train if held_out is None else None,
    )
    return finished(found, report_path, verbose)


def _progress(epochs: int, others: int, folds: int, count: int, alone: list[str], verbose: int) -> Progress:
    """Prints the plan; returns the bar of all epochs."""
    most = folds + others * count + 1
    if verbose:
        methods = f"{PLAIN.name} on {folds} parts of the data, {others} other methods on {count} of them"
        print(f"At most {most} trainings of up to {epochs} epochs: {methods}, and the last one.")
        if alone:
            print(f"Not side by side with the others, which takes longer: {', '.join(alone)}.")
    return Progress(most * epochs, "epoch", verbose, after=0.0)


def _safest(entries: list[Entry]) -> tuple[Entry, Callable[[Entry], float]]:
    """The entry for a doubt, and the standard errors by which each other one must be above it.

    Args:
        entries: the plain training first; it is the safest one if there is no other.
    """
    of_class = ((entry, SAFEST[kind]) for kind in SAFEST for entry in entries if isinstance(entry.candidate, kind))
    safest, errors = next(of_class, (entries[0], (CLEAR, CLEAR)))
    return safest, lambda entry: errors[entry.candidate.models_noise]


def _most_entries(trainings: int, folds: int) -> int:
    """How many entries there may be if the plain training is measured on all folds, and others on one."""
    if check_integer("trainings", trainings, 2) <= folds:
        rule = f"be at least {folds + 1}, for {PLAIN.name} on each of {folds} parts of the data, and the last training"
        raise ValueError(f"`trainings` must {rule}; with fewer `folds`, fewer do. Received: trainings={trainings}")
    return trainings - folds


def _entries(candidates: Iterable[Candidate], most: int, on_features: bool) -> list[Entry]:
    """The plain training, and the candidates at each of their strengths, as many as there are trainings for."""
    given = list(candidates)
    wrong = [candidate for candidate in given if not isinstance(candidate, Candidate) or not candidate.name]
    if wrong:
        rule = "be a list of objects of `Candidate`, each with a name"
        raise ValueError(f"`candidates` must {rule}. Received: {wrong[0]!r}")
    empty = [candidate.name for candidate in given if not len(candidate.strengths)]
    if empty:
        rule = "have at least one strength each, (None,) if there is nothing to choose"
        raise ValueError(f"`candidates` must {rule}. Received: {empty[0]!r} without one")
    given = [candidate for candidate in given if on_features or not candidate.on_features]
    others = [candidate for candidate in given if type(candidate) is not type(PLAIN)]
    entries = [Entry(candidate, strength) for candidate in (PLAIN, *others) for strength in candidate.strengths]
    names = [file_name(entry.name).casefold() for entry in entries]  # some file systems take "A" for "a"
    twice = [entry.name for entry, name in zip(entries, names, strict=True) if names.count(name) > 1]
    if twice:
        raise ValueError(f"`candidates` must have different names and strengths. Received: {twice[0]!r} twice")
    return entries[:most]


def _probabilities(fold_of: np.ndarray, base: Entry) -> np.ndarray:
    """The probabilities of all held-out examples in the order of the data, `(N, K)`."""
    p = np.empty((len(fold_of), base.fits[0]["probabilities"].shape[1]), "float32")
    for fold, fit in enumerate(base.fits):
        p[fold_of == fold] = fit["probabilities"]
    return p


def _score(race: Race, entry: Entry, base: Entry, criterion: str) -> Score:
    """The line of the table of an entry; a loss is printed as what it is, the mean of -log p(label)."""
    seconds, (mean, error) = float(sum(fit["seconds"] for fit in entry.fits)), race.difference(entry, base)
    sign = 1.0 if criterion == "accuracy" else -1.0
    found = sign * race.score(entry), mean, error, race.epoch(entry) + 1, len(entry.fits), seconds, entry.is_dropped
    return Score(entry.name, entry.strength, *found)


def _advice(race: Race, chosen: Entry, epochs: int) -> str:
    """A sentence if the best epoch is the last of which the moving mean is whole, or a later one."""
    late = race.epoch(chosen) + 1 >= epochs - WIDTH // 2
    return " Its best epoch is among the last: more epochs, or a higher learning rate, may be better." if late else ""


def _reason(table: list[Score], own: Score, safest: Score, clear: float, criterion: str) -> str:
    """The reason of a choice, in a sentence."""
    plain, *others = table
    if not others:
        return f"{plain.name}: there is no other candidate."
    best = max(others, key=lambda score: (not score.dropped, score.difference))
    more = "predicts clearly more of the held-out labels" if criterion == "accuracy" else "is clearly more likely"
    if own is plain:
        return f"{own.name}: no candidate {more}; the nearest is {best.name} with {_points(best, criterion)}."
    if own is safest and (own is not best or own.difference <= clear * own.error):
        return f"{own.name}: no candidate {more}, and it is the safest ({_points(own, criterion)})."
    most = "predicts most of the held-out labels" if criterion == "accuracy" else "makes the held-out labels likeliest"
    return f"{own.name}: it {most}, {_points(own, criterion)} over {plain.name} on the same examples."


def _points(score: Score, criterion: str) -> str:
    """A difference with its error, in words."""
    if criterion == "accuracy":
        return f"{100 * score.difference:+.1f} points (standard error {100 * score.error:.1f})"
    return f"{score.difference:+.3f} of log p (standard error {score.error:.3f})"
