"""The whole way from labels that may be wrong to a model without them."""

import dataclasses
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import check_same_index
from keras_het.base.progress import Progress
from keras_het.base.validation import as_float64, check_choice
from keras_het.label_noise.estimation import check_distributions
from keras_het.labels.diagnosis import diagnose
from keras_het.training.compare import check_learned
from keras_het.training.fit import TAKEN, Trainer, check_fit_arguments
from keras_het.training.folds import held_out_probabilities
from keras_het.training.result import ACTIONS, MANY, TOO_MANY, Result, finished
from keras_het.training.table import Score
from keras_het.training.task import Task


def clean_labels(
    make_model: Callable[[], keras.Model] | keras.Model | None,
    x: Any,
    y: Any = None,
    *,
    epochs: int | None = None,
    probabilities: Any = None,
    action: str = "drop",
    verified_labels: Mapping | None = None,
    sample_weight: Any = None,
    class_names: Any = None,
    optimizer: Any = None,
    batch_size: int = 128,
    folds: int = 5,
    report_path: str | os.PathLike | None = None,
    resume_path: str | os.PathLike | None = None,
    seed: int = 0,
    verbose: int = 1,
    **fit_arguments: Any,
) -> Result:
    """Finds wrong labels, says which kind of noise they are, and trains a model without them.

    The steps: `training.cross_val_probabilities`; the class of each example, by `labels.diagnose`; then a new
    model is trained. cleanlab calls the whole `CleanLearning`.

    A label is an issue if it is not the class found. `analysis.find_label_issues` finds fewer, which are surer. A model
    is trained without all issues where whole classes are swapped, or any class is named at random: there it is much
    better (`benchmarks/results/cleaning.md`). Else it is trained without the surer ones alone (`found.surest`), for the
    others are right labels of hard examples (`benchmarks/results/real_choose.md`). If the kind of noise is "none", the
    issues are the few.

    Labels may be names, or integers from 0 on. The model sees the integers, or the indices of the names in the result's
    `classes`; `found.issues.to_frame()` has the names.

    Args:
        make_model: argument of `choose`; what a function makes is trained as it is.
        x: examples: see `choose`.
        y: their labels: see `choose`; every class needs as many examples as there are folds.
        epochs: argument of `cross_val_probabilities`: None on features alone, for a linear discriminant, which needs no
            training, and hardly follows wrong labels.
        probabilities: out of sample, `(N, K)`, each row of sum 1, in the order of the classes; None trains models for
            them.
        action: remedy for the surest issues: "drop" trains without their examples, "correct" with the classes found.
        verified_labels: argument of `choose`; they are no issues.
        sample_weight: weights of the examples in `fit`, shape `(N,)`, not negative; None for those of a data set.
        class_names: argument of `choose`.
        optimizer: argument of `choose`.
        batch_size: size of the batches of training and prediction.
        folds: the number of parts, and of models, from 2 to N.
        report_path: argument of `choose`.
        resume_path: argument of `choose`.
        seed: seed of the split and of the models.
        verbose: argument of `choose`.
        fit_arguments: argument of `choose`.
    Returns:
        `Result`; print it.
    Raises:
        ValueError: for one class, missing labels, -1 among them, a Series with another index than x, a class of fewer
            examples than folds, other lengths, models of other classes or of a loss of label vectors, or models that
            predict held-out labels no better than the largest class does.
        ImportError: for a report without Matplotlib or Jinja.
    Warns: if no example of a class is left to train on; if the model is clearly behind the class means of its features.

    Example:
        >>> def make_model():
        ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, "softmax")])
        ...     model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
        ...     return model
        >>> x = np.eye(2).repeat(50, axis=0)
        >>> y = ["dog"] * 3 + ["cat"] * 47 + ["dog"] * 50
        >>> found = clean_labels(make_model, x, y, epochs=10, folds=2, verbose=0)
        >>> sorted(found.issues.index[:3].tolist()), found.classes[found.issues.suggested[:3]].tolist()
        ([0, 1, 2], ['cat', 'cat', 'cat'])
    """
    check_choice("action", action, ACTIONS)
    start = time.perf_counter()
    check_fit_arguments(fit_arguments, TAKEN, clean_labels)
    trainer = Trainer(make_model, optimizer, epochs, batch_size, "accuracy", verbose, fit_arguments)
    check_same_index(x=x, y=y, probabilities=probabilities)
    given = trainer.read(x, y, sample_weight, verified_labels, class_names, path=resume_path)
    _check_counts(given, folds if probabilities is None else 1)
    task = trainer.task(given, resume_path)
    if probabilities is None:
        p = held_out_probabilities(trainer, task, folds, seed, resume_path, verbose)
    else:
        p = _given(probabilities, task)
        check_learned(p, task.y)
    diagnosis = diagnose(p, task.y, class_names=task.classes.tolist())

    def train(labels: np.ndarray, rows: np.ndarray) -> keras.Model:
        """A new model on some of the examples."""
        part = task.corrected(labels)
        return trainer.whole(trainer.own(part if len(rows) == len(part.y) else part.take(rows), seed + folds))

    right = float(np.mean(p.argmax(axis=1) == task.y))
    count = folds if probabilities is None else 0
    row = Score("model", None, right, epoch=trainer.epochs, trainings=count, seconds=time.perf_counter() - start)
    judged: dict[str, Any] = {"diagnosis": diagnosis, "classes": task.classes, "data": given}
    judged["probabilities"] = np.asarray(p, "float32")
    found = Result(None, row, [row], "accuracy", "", trainings=count + 1, train=train, **judged)
    _warn_of_lost(task, found, action)
    trainer.bar = Progress(trainer.epochs, "epoch", verbose)
    with trainer.bar:
        model = found.retrain(action)
    seconds = time.perf_counter() - start
    found = dataclasses.replace(found, model=model, reason=_reason(found, action), seconds=seconds)
    return finished(found, report_path, verbose)


def _given(probabilities: Any, task: Task) -> np.ndarray:
    """Probabilities that a user gives, if they are of the classes."""
    p = as_float64(probabilities)
    p = p[task.labelled] if task.labelled is not None and len(p) == len(task.labelled) else p
    if p.ndim != 2 or p.shape[1] != task.units:
        rule = f"be of the {task.units} classes of `y`, shape (N, {task.units})"
        found = f"shape {p.shape}, and {task.classes[-1]!s} as the last class"
        raise ValueError(f"`probabilities` must {rule}, as what the models return. Received: {found}")
    if len(p) != len(task.y):
        rule = f"have a row for each of the {len(task.y)} examples"
        raise ValueError(f"`probabilities` must {rule}. Received: {len(p)}")
    return check_distributions(p)


def _reason(found: Result, action: str) -> str:
    """What was done, in a sentence or two."""
    count, surest, of_all = int(found.issues.is_issue.sum()), len(found.surest), len(found.issues.index)
    done = {"drop": "left out", "correct": "replaced by the suggested class"}[action]
    which = "and were" if surest == count else f"of which the surest, {surest}, were"
    said = f"done: {count} of {of_all} labels are issues, {which} {done}"
    return f"{said}\n{TOO_MANY}" if count > MANY * of_all else said


def _warn_of_lost(task: Task, found: Result, action: str) -> None:
    """Warns of classes of which no label is left."""
    labels, kept = found._cleaned(action)
    lost = [str(task.classes[label]) for label in np.setdiff1d(task.y, labels[kept])]
    if lost:
        warnings.warn(
            f"No example of {', '.join(lost)} is left to train on, for every label of it is an issue. It may be too "
            'rare for the folds: look at `issues`; action="correct" keeps the examples.',
            stacklevel=3,
        )


def _check_counts(task: Task, folds: int) -> None:
    """Raises a ValueError for a class of fewer examples than folds."""
    counts = np.bincount(task.y)
    rarest = np.where(counts > 0, counts, len(task.y)).argmin()
    if counts[rarest] < folds:
        rule = f"have an example of each class for each of the {folds} folds"
        raise ValueError(f"`y` must {rule}. Received: {counts[rarest]} of {task.classes[rarest]!s}")
