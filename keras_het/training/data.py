"""The data of a call that trains: labels as integers, verified ones in their place, weights, and what is held out."""

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_het.base.batches import (
    Arrays,
    as_arrays,
    check_same_index,
    count_examples,
    examples_and_labels,
    is_data_set,
    select_rows,
)
from keras_het.base.classes import encode_among, named
from keras_het.base.validation import check_weights
from keras_het.base.verified import read_verified
from keras_het.labels.votes import Votes
from keras_het.training.labels import Labels, is_votes, read_labels
from keras_het.training.task import Task

LEAST_TRUST = 0.1  # in a noisy label beside a verified one, so that few verified labels do not decide alone


def read(
    x: Any,
    y: Any,
    sample_weight: Any = None,
    verified_labels: Any = None,
    class_names: Any = None,
    *,
    arrays: Callable[[Any, Any, str], Arrays] = as_arrays,
) -> Task:
    """The examples and labels that a user gives, as a task.

    Args:
        x: argument of `choose`.
        y: argument of `choose`.
        sample_weight: argument of `clean_labels`.
        verified_labels: argument of `choose`.
        class_names: argument of `choose`.
        arrays: function that makes arrays of examples and labels.
    Raises:
        ValueError: for labels or weights that do not belong to the examples, or are out of range.
    """
    check_same_index(x=x, y=y, sample_weight=sample_weight)
    _check_tasks(x, y)
    index, columns = index_of(x, y), getattr(x, "columns", None)
    x, y, own_weight = arrays(as_table(x), y, "y")
    found = read_labels(y, count := count_examples(x))
    names, places = named(found.classes, class_names)
    found = found if class_names is None else found.renumbered(places)
    if sample_weight is not None and own_weight is not None:
        raise ValueError("`sample_weight` must be None for a data set with weights of its own. Received: weights")
    classes = own_classes = found.classes
    verified = read_verified(verified_labels, count, classes, index, None if class_names is None else np.asarray(names))
    weights = check_weights(own_weight if sample_weight is None else sample_weight, count)
    has_label = np.full(count, True) if found.labelled is None else found.labelled
    labelled = None if found.labelled is None else found.labelled | (verified >= 0)
    if labelled is not None:
        rows = np.flatnonzero(labelled)
        x, verified, weights = select_rows(x, rows), verified[rows], None if weights is None else weights[rows]
        has_label = has_label[rows]
        index, found = (np.arange(count) if index is None else index)[rows], found.take(rows)
    if class_names is not None:
        classes = np.asarray(names)
    is_known, given = verified >= 0, np.where(has_label, found.y, -1)
    return Task(
        x,
        np.where(is_known, verified, found.y),
        classes,
        weights,
        _trust(found, verified, len(classes)),
        is_known if is_known.any() else None,
        index,
        columns,
        own_classes,
        votes=found.votes,
        soft=found.soft,
        annotators=found.annotators,
        labelled=labelled,
        given=given,
    )


def read_validation(
    data: Any,
    task: Task,
    columns: Any = None,
    name: str = "validation_data",
    arrays: Callable[[Any, Any, str], Arrays] = as_arrays,
) -> Task:
    """Validation examples and their labels, of at least two of the classes of a task.

    Args:
        data: `(x, y)`, `(x, y, weights)` or a data set.
        task: the examples to train on.
        columns: columns of their pandas frame; None for none.
        name: name of the argument, for errors.
        arrays: function that makes arrays of examples and labels.
    """
    given = data[2] if isinstance(data, list | tuple) and len(data) == 3 else None
    pair = examples_and_labels(name, data if given is None else data[:2])
    check_same_index(**{f"{name}[0]": pair[0], f"{name}[1]": pair[1], f"{name}[2]": given})
    found = getattr(pair[0], "columns", None)
    if columns is not None and found is not None and list(found) != list(columns):
        rule = f"have the columns of `x`, in their order ({name}[0][x.columns])"
        raise ValueError(f"`{name}` must {rule}. Received: {', '.join(map(str, found))}")
    index = index_of(*pair)
    x, y, weights = arrays(as_table(pair[0]), pair[1], name)
    if is_votes(y):
        raise ValueError(f"`{name}` must have one label for each example, and no votes. Received: votes")
    labels = encode_among(y, task.classes if task.own_classes is None else task.own_classes, name)
    if len(np.unique(labels)) < 2:
        raise ValueError(f"`{name}` must have labels of at least two classes. Received: 1")
    if count_examples(x) != len(labels):
        rule = "have a label for each example"
        raise ValueError(f"`{name}` must {rule}. Received: {len(labels)} labels of {count_examples(x)}")
    weights = check_weights(weights if given is None else given, len(labels), f"{name}[2]")
    trust = np.ones(len(labels)) if weights is None else weights.astype("float64")
    return Task(x, labels, task.classes, trust=trust, index=index, columns=found)


def index_of(x: Any, y: Any) -> Any:
    """The index of a pandas frame or series, of x or else of y; None if there is none."""
    found = [part.index for part in (x, y) if hasattr(part, "iloc")]
    return found[0] if found else None


def as_table(x: Any) -> Any:
    """The inputs, a pandas frame as an array of float32, and a column of texts as an array of them."""
    if is_data_set(x) or not hasattr(x, "iloc"):
        return x
    if not hasattr(x, "columns") and np.asarray(x).dtype.kind in "OSUT":
        return x.to_numpy(object)
    try:
        return x.to_numpy("float32")
    except (TypeError, ValueError) as error:
        found = f"columns of {sorted(map(str, getattr(x, 'dtypes', [])))}"
        raise ValueError(f"`x` must be a frame of numbers. Received: {found}") from error


def _trust(found: Labels, verified: np.ndarray, units: int) -> np.ndarray:
    """Weights of labels in a measure: 1 for verified ones, and for others the share that a flip leaves of a signal.

    A difference in accuracy of delta on true labels is a delta on noisy ones, a = (r - 1/K) / (1 - 1/K) for uniform
    flips that keep a share r of the labels. The weight a then gives the estimate of least variance. Votes count each,
    and a verified label as much as the most votes of an example.
    """
    known, count = verified >= 0, np.ones(len(verified))
    right = (found.y == verified).astype(float)
    if found.votes is not None:
        count = (found.votes >= 0).sum(axis=1).astype(float)
        right = (found.votes == verified[:, None]).sum(axis=1) / np.maximum(count, 1.0)
    if not known.any():
        return count
    judged = known & (count > 0)
    kept = right[judged].mean() if judged.any() else 1.0
    trust = count * max(LEAST_TRUST, (kept - 1.0 / units) / (1.0 - 1.0 / units))
    return np.where(known, count.max(), trust)


def _check_tasks(x: Any, y: Any) -> None:
    """Raises a ValueError for votes of other examples than those of a frame x, or in another order."""
    if isinstance(y, Votes) and hasattr(x, "iloc") and not np.array_equal(x.index, y.tasks):
        rule = "have the examples of `x` in their order: votes_from_table(..., tasks=x.index)"
        raise ValueError(f"`y` must {rule}. Received: tasks that begin with {y.tasks[0]!r}")
