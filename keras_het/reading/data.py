"""Checks that data fit a model and the losses that it was compiled with, before it is trained on them."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.base.batches import as_numpy, check_rereadable, first_batches, is_data_set
from keras_het.base.graph import has_graph, model_inputs
from keras_het.base.refusal import refusal, refuse_first, refuse_if
from keras_het.reading.ending import Ending
from keras_het.reading.matching import ignored_by, labels_for

NUM_BATCHES = 4  # of a data set that are looked at
MAX_NAMES = 5  # classes that a warning names
CHUNK = 1 << 22  # numbers of x that are looked at together


class LabelTask(NamedTuple):
    """What an output of a model learns from labels.

    Attributes:
        labels: the labels, an array.
        form: the form that the loss takes, as by `labels_for`.
        shape: shape of the output, `(..., K)`, None where a size is not known; () if nothing is known.
        classes: K, or 0 if it is not known.
        annotators: number of annotators, as of the `Ending`.
        ignored: the label that the loss leaves out, or None.
        has_other_losses: boolean, whether another loss may take labels of another form.
    """

    labels: np.ndarray
    form: str
    shape: tuple
    classes: int
    annotators: int
    ignored: int | None
    has_other_losses: bool = True


def check_data(model: keras.Model, x: Any, y: Any, outputs: list[Ending], losses: list[list]) -> list[str]:
    """Raises an error for data that a model cannot learn from, and returns what else is odd, in sentences.

    All labels and examples of arrays are looked at, and the first batches of a data set.

    Args:
        model: the model.
        x: examples: arrays, or a data set with its own labels; None if they are not to be checked.
        y: labels, or None.
        outputs: outputs of the model.
        losses: losses of each output.
    """
    refuse_if(is_data_set(x) and y is not None, "y", "be None for a data set, which has its own labels", "labels")
    check_rereadable("x", x)
    odd: list[str] = []
    for inputs, labels in first_batches(x, NUM_BATCHES) if is_data_set(x) else [(x, y)]:
        _check_lengths(inputs, labels)
        _check_shapes(model, inputs)
        for task in _tasks(model, inputs, labels, outputs, losses):
            odd += _check_labels(task)
        odd += _warnings_of(inputs)
    return [] if is_data_set(x) else odd


def _arrays(data: Any) -> list[Any]:
    return [part for part in keras.tree.flatten(data) if len(getattr(part, "shape", None) or ())]


def _check_lengths(x: Any, y: Any) -> None:
    """Raises an error for arrays of several lengths."""
    sizes = {name: {int(part.shape[0]) for part in _arrays(data) if part.shape[0]} for name, data in _named(x, y)}
    for name, found in sizes.items():
        if len(found) > 1:
            first, second, *_ = sorted(found)
            raise refusal(name, "be arrays of one length", f"{first} and {second} examples")
    if all(sizes.values()) and sizes["x"] != sizes["y"]:
        raise refusal("y", f"have an entry for each of the {sizes['x'].pop()} examples", sizes["y"].pop())


def _named(x: Any, y: Any) -> list[tuple[str, Any]]:
    """Data by name; labels in a Python list as an array."""
    lists = isinstance(y, list | tuple) and not _arrays(y)
    return [("x", x), ("y", np.asarray(y) if lists else y)]


def _check_shapes(model: keras.Model, x: Any) -> None:
    """Raises an error for examples of another shape than the inputs of the model, where both are known."""
    if not has_graph(model) or hasattr(model, "preprocess_samples"):
        return
    expected = model_inputs(model)
    if _form_of(x) != _form_of(expected):
        return
    for part, symbol in zip(_arrays(x), keras.tree.flatten(expected), strict=False):
        if not _fits(part.shape, symbol.shape):
            raise refusal("x", f"have the shape {_text(symbol.shape)}", shape=part)


def _form_of(data: Any) -> Any:
    """The names in a dict, or the number of arrays."""
    return sorted(data) if isinstance(data, dict) else len(_arrays(data))


def _fits(shape: Any, expected: Any) -> bool:
    """Whether a shape is as expected beyond its first axis; Keras adds or drops a last axis of 1."""
    sizes, others = list(shape[1:]), list(expected[1:])
    if abs(len(sizes) - len(others)) == 1 and max(sizes, others, key=len)[-1] == 1:
        max(sizes, others, key=len).pop()
    pairs = zip(sizes, others, strict=False)
    return len(sizes) == len(others) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _text(shape: Any) -> str:
    """A shape in words, with N for its first axis."""
    sizes = ["N", *("..." if size is None else str(size) for size in shape[1:])]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _warnings_of(x: Any) -> list[str]:
    """Warnings for nan or infinity in examples; a model might replace them before it learns."""
    rows = [row for part in _arrays(x) if (row := first_not_finite(part)) is not None]
    return [f"`x` has nan or infinity in example {min(rows)}."] if rows else []


def first_not_finite(part: Any) -> int | None:
    """Returns the first row of an array with nan or infinity; None if there is none, or if it holds no floats."""
    if not hasattr(part, "__getitem__"):
        return None
    rows = max(1, CHUNK // max(1, int(np.prod([size or 1 for size in part.shape[1:]]))))
    for start in range(0, part.shape[0] or 0, rows):
        numbers = as_numpy(part[start : start + rows])
        if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "f":
            return None
        finite = np.isfinite(numbers)
        if not finite.all():
            return start + int(np.flatnonzero(~finite.reshape(len(finite), -1).all(axis=1))[0])
    return None


def _tasks(model: keras.Model, x: Any, y: Any, outputs: list, losses: list[list]) -> Iterator[LabelTask]:
    """Yields the labels of each output with each loss that is known."""
    if y is None:
        return
    for index, (output, own) in enumerate(zip(outputs, losses, strict=True)):
        if (labels := _part(y, output.names, index, len(outputs))) is None:
            continue
        output = output._replace(shape=output.shape or _shape_without_graph(model, x))
        for loss in own:
            if task := _task(labels, loss, output):
                yield task


def _task(labels: Any, loss: Any, output: Ending) -> LabelTask | None:
    """What an output learns from labels by a loss, or None for a loss that is not known."""
    shape = output.shape
    if output.returns == "distributions" and shape:
        shape = (*shape[:-1], output.units)
    classes = (shape[-1] if shape else output.units) or 0
    form = labels_for(loss, classes)
    form = "annotations" if form and output.annotators else form
    has_others = not (output.of_distribution or output.returns == "distributions")
    return LabelTask(labels, form, shape, classes, output.annotators, ignored_by(loss), has_others) if form else None


def check_label_shape(labels: Any, loss: Any, output: Ending) -> None:
    """Raises an error for labels of a shape that a loss does not take, as far as both are known.

    Args:
        labels: an array or a tensor, of which a step that is compiled knows no more than the shape.
        loss: any identifier of a loss.
        output: the output that learns from the labels, with its shape.
    """
    if task := _task(labels, loss, output):
        SHAPES[_form(task)](tuple(labels.shape), task)


def _part(y: Any, names: frozenset, index: int, count: int) -> np.ndarray | None:
    """The labels of one of `count` outputs, or None if they cannot be told from the others."""
    if isinstance(y, dict):
        y = next((labels for name, labels in y.items() if name in names or count == 1), None)
    elif isinstance(y, list | tuple) and _arrays(y):
        y = y[index] if len(y) == count else None
    elif count > 1:
        y = None
    labels = None if y is None else np.asarray(as_numpy(y))
    return labels.astype("int8") if labels is not None and labels.dtype == bool else labels


def _shape_without_graph(model: keras.Model, x: Any) -> tuple:
    """The shape of the output of a Sequential model that is not built, or ()."""
    if not isinstance(model, keras.Sequential) or len(_arrays(x)) != 1:
        return ()
    try:
        return tuple(model.compute_output_shape((None, *_arrays(x)[0].shape[1:])))
    except Exception:  # a layer of the caller's own may raise anything
        return ()


def _check_labels(task: LabelTask) -> list[str]:
    """Raises an error for labels that the loss cannot take; returns what else is odd."""
    labels = task.labels
    if labels.dtype.kind in "OSUT":
        raise refusal("y", "be numbers, as np.unique(y, return_inverse=True)[1] of names", f"dtype {labels.dtype}")
    refuse_if(labels.dtype.kind == "c", "y", "be real numbers", f"dtype {labels.dtype}")
    refuse_first(~np.isfinite(labels), "y", "be finite", labels, "g")
    form = _form(task)
    SHAPES[form](labels.shape, task)
    return VALUES[form](task)


def _form(task: LabelTask) -> str:
    """The form of the labels, where the loss takes integers and vectors."""
    if task.form != "either":
        return task.form
    shape = task.labels.shape
    if len(shape) == 1 or shape[-1] == 1 or len(shape) < len(task.shape):
        return "integers"
    return "vectors"


def _shape_of_integers(found: tuple, task: LabelTask) -> None:
    shape = task.shape
    if shape and not _fits(found, shape[:-1]):
        made = ""
        if _fits(found, shape):
            other = " (or take a loss for those, as CategoricalCrossentropy)" if task.has_other_losses else ""
            made = f", as y.argmax(-1) of label vectors{other}"
        raise refusal("y", f"be integers of shape {_text(shape[:-1])}{made}", f"shape {found}")


def _shape_of_annotations(found: tuple, task: LabelTask) -> None:
    if len(found) > 1 and task.annotators and found[1] not in (1, task.annotators):
        raise refusal("y", f"have shape (N, {task.annotators}), with -1 for missing", f"shape {found}")


def _shape_of_vectors(found: tuple, task: LabelTask) -> None:
    shape = task.shape
    if not shape or (len(found) == len(shape) and _fits(found, shape)):
        return
    made = ""
    if _fits(found, shape[:-1]):
        made = f", as keras.utils.to_categorical(y, {task.classes}) (or take SparseCategoricalCrossentropy)"
    raise refusal("y", f"be label vectors of shape {_text(shape)}{made}", f"shape {found}")


def _shape_of_outputs(found: tuple, task: LabelTask) -> None:
    if task.shape and not _fits(found, task.shape):
        values = "" if task.form == "targets" else ", 0 or 1 for each class"
        raise refusal("y", f"have shape {_text(task.shape)}{values}", f"shape {found}")


def _check_classes(task: LabelTask) -> list[str]:
    """Checks that integers are classes."""
    labels, classes = task.labels, task.classes
    refuse_first(labels != np.floor(labels), "y", "be integers", labels, "g")
    counted = labels[labels != task.ignored]
    if classes:
        hint = ""
        if counted.size and counted.min() == 1 and counted.max() == classes:
            hint = " (y - 1, for labels that begin with 1)"
        elif (counted == -1).any():
            hint = " (ignore_class=-1 of the loss leaves out missing labels)"
        wrong = ((labels < 0) | (labels >= classes)) & (labels != task.ignored)
        refuse_first(wrong, "y", f"be in [0, {classes}), the classes of the model{hint}", labels, "g")
    return _check_several(counted) or _check_present(np.isin(np.arange(classes), counted))


def _check_several(labels: np.ndarray) -> list[str]:
    found = labels.reshape(-1)[:1].tolist()
    if labels.size and not np.all(labels == found[0]):
        return []
    return [f"`y` has no more than one class{f', {found[0]:g}' if found else ''}: there is nothing to learn from it."]


def _check_present(present: np.ndarray) -> list[str]:
    """Returns the warning about classes without a label."""
    missing = np.flatnonzero(~present)
    if not missing.size:
        return []
    names = ", ".join(map(str, missing[:MAX_NAMES])) + (", ..." if missing.size > MAX_NAMES else "")
    return [f"`y` has no label of {missing.size} of the {present.size} classes of the model: {names}."]


def _check_vectors(task: LabelTask) -> list[str]:
    return _check_present(np.any(task.labels.reshape(-1, task.labels.shape[-1]) > 0, axis=0))


def _check_each(task: LabelTask) -> list[str]:
    labels = task.labels
    refuse_first((labels < 0) | (labels > 1), "y", "be in [0, 1]", labels, "g")
    return _check_several(labels) if task.classes == 1 else _check_vectors(task)


def _check_each_or_missing(task: LabelTask) -> list[str]:
    wrong = ~np.isin(task.labels, (-1, 0, 1))
    refuse_first(wrong, "y", "be 0 or 1, or -1 for a label that is not known", task.labels, "g")
    odd = _check_each(task._replace(labels=np.maximum(task.labels, 0)))
    if np.any(task.labels == -1):
        odd.append("`y` has labels of -1: the loss leaves them out, but metrics of Keras count them as wrong.")
    return odd


def _check_targets(task: LabelTask) -> list[str]:
    labels, units = task.labels, task.shape[-1]
    columns = labels.reshape(-1, units).T if labels.size else ()
    constant = [index for index, column in enumerate(columns) if np.ptp(column) == 0]
    return [f"`y` has targets that are constant, {constant}: there is no noise to learn from them."] if constant else []


SHAPES: dict[str, Callable[[tuple, LabelTask], None]] = {
    "integers": _shape_of_integers,
    "vectors": _shape_of_vectors,
    "each": _shape_of_outputs,
    "each or missing": _shape_of_outputs,
    "annotations": _shape_of_annotations,
    "targets": _shape_of_outputs,
    "numbers": lambda found, task: None,
}
VALUES: dict[str, Callable[[LabelTask], list[str]]] = {
    "integers": _check_classes,
    "vectors": _check_vectors,
    "each": _check_each,
    "each or missing": _check_each_or_missing,
    "annotations": lambda task: _check_classes(task._replace(ignored=-1)),
    "targets": _check_targets,
    "numbers": lambda task: [],
}
