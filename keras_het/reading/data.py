"""Checks that data fit a compiled model, before training."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.base.batches import as_array, as_numpy, check_rereadable, first_batches, is_data_set
from keras_het.base.graph import has_graph, model_inputs
from keras_het.base.internals import compile_arguments
from keras_het.base.refusal import refusal, refuse_first, refuse_if
from keras_het.base.validation import as_float64, numbering
from keras_het.criteria.criterion import Criterion
from keras_het.reading.ending import Ending

NUM_BATCHES = 4  # batches of a data set that are checked
MAX_NAMES = 5  # classes that a warning lists
CHUNK_ELEMENTS = 1 << 22  # numbers of x that are checked at once
SUM_TOLERANCE = 1e-2  # half precision rounds the sum of a label vector


class LabelTask(NamedTuple):
    """Labels of an output, and the form that its loss needs; see `Criterion.label_form` and `Ending`.

    The shape of the output is `(..., K)`, None where a size is unknown, and () if all are. `classes` is K, or 0 if
    unknown. The loss ignores the label `ignored`. `metrics` has its criteria by argument of `compile`.
    """

    labels: np.ndarray
    form: str
    shape: tuple
    classes: int
    annotators: int
    ignored: int | None
    metrics: Any = None


def check_data(model: keras.Model, data: tuple, outputs: list[Ending], criteria: dict[str, list]) -> list[str]:
    """Raises an error for inputs, labels or weights that a model cannot learn from; returns texts of warnings.

    Data sets are checked by their first batches. `criteria` has losses and metrics of each output by argument.
    """
    x, *others = data
    for name, kind, part in zip(("y", "sample_weight"), ("labels", "weights"), others, strict=True):
        is_double = is_data_set(x) and part is not None
        refuse_if(is_double, name, f"be None for a data set, which has its own {kind}", kind)
    check_rereadable("x", x)
    texts, label_texts = [], []
    for number, batch in enumerate(first_batches(x, NUM_BATCHES) if is_data_set(x) else [data]):
        inputs, labels, weights = batch
        _check_lengths(*batch)
        _check_inputs(model, inputs)
        texts += _check_weights(model, weights, is_whole=not is_data_set(x))
        for task in _tasks(model, inputs, labels, outputs, criteria):
            label_texts += _check_labels(task)
            texts += _warn_counted(task, weights)
        texts += _warn_not_finite(inputs, f" of batch {number}" * is_data_set(x))
        remedy = "yield pairs (x, y)" if is_data_set(x) else "pass `y`"
        texts += [f"There are no labels to check: {remedy}."] * (inputs is not None and labels is None)
    # The first batches of a data set need not have every class.
    return list(dict.fromkeys(texts)) if is_data_set(x) else label_texts + texts


def _arrays(data: Any) -> list[Any]:
    return [part for part in keras.tree.flatten(data) if len(getattr(part, "shape", None) or ())]


def _check_lengths(x: Any, y: Any, sample_weight: Any) -> None:
    data = {"x": x, "y": y, "sample_weight": sample_weight}
    for name, part in list(data.items())[1:]:
        data[name] = as_array(name, part) if isinstance(part, list | tuple) and not _arrays(part) else part
    lengths = {name: {int(part.shape[0]) for part in _arrays(data[name]) if part.shape[0]} for name in data}
    for name, values in lengths.items():
        if len(values) > 1:
            first, second, *_ = sorted(values)
            raise refusal(name, "be arrays of one length", f"{first} and {second} examples")
    for name in ("y", "sample_weight"):
        if lengths["x"] and lengths[name] and lengths["x"] != lengths[name]:
            raise refusal(name, f"have an entry for each of the {lengths['x'].pop()} examples", lengths[name].pop())


def _check_weights(model: keras.Model, sample_weight: Any, is_whole: bool) -> list[str]:
    """Raises an error for impossible weights; warns if they differ, and no metric uses them."""
    weights = _as_weights(sample_weight)
    for part in weights:
        refuse_first(~(np.isfinite(part) & (part >= 0)), "sample_weight", "be finite and not negative", part, "g")
        refuse_if(is_whole and part.size and not part.any(), "sample_weight", "have a weight above 0", "only zeros")
    arguments = compile_arguments(model)
    if (
        not arguments.get("metrics")
        or arguments.get("weighted_metrics") is not None
        or all(np.all(part == part.flat[:1]) for part in weights)
    ):
        return []
    text = "`metrics` do not use the sample weights. Move them to `weighted_metrics`, or pass weighted_metrics=[] to "
    return [f"{text}`compile` if they count all examples equally."]


def _as_weights(sample_weight: Any) -> list[np.ndarray]:
    parts = _arrays(sample_weight) or [sample_weight] * (sample_weight is not None)
    return [as_float64(as_numpy(part)) for part in parts]


def _warn_counted(task: LabelTask, sample_weight: Any) -> list[str]:
    """Returns the warnings about metrics that count examples which the loss ignores."""
    is_ignored = task.labels == task.ignored
    if task.ignored is None or not is_ignored.any():
        return []
    metrics = task.metrics["metrics"] + task.metrics["weighted_metrics"] * (not _excludes(sample_weight, is_ignored))
    remedies: dict[str, list[str]] = {}
    for metric in metrics:
        if remedy := metric.remedy(task.ignored):
            remedies.setdefault(remedy, []).append(repr(metric.name))
    text = f"The loss ignores labels of {task.ignored}, but metrics count them: "
    return [f"{text}{', '.join(names)}. {remedy}." for remedy, names in remedies.items()]


def _excludes(sample_weight: Any, is_ignored: np.ndarray) -> bool:
    """True if weights exclude ignored labels; weights of several outputs are not compared."""
    weights, rows = _as_weights(sample_weight), is_ignored.reshape(len(is_ignored), -1).any(axis=1)
    if len(weights) != 1:
        return bool(weights)
    if weights[0].size == is_ignored.size:  # Keras adds or drops a last axis of 1
        return not weights[0].reshape(is_ignored.shape)[is_ignored].any()
    return not weights[0][rows].any()


def _check_inputs(model: keras.Model, x: Any) -> None:
    """Raises an error unless examples have an entry for each input of the model, in its shape, as far as known."""
    if not _arrays(x) or not has_graph(model) or hasattr(model, "preprocess_samples"):
        return
    inputs = model_inputs(model)
    symbols, is_named = keras.tree.flatten(inputs), isinstance(inputs, dict)
    names = list(inputs) if is_named else [symbol.name for symbol in symbols]
    if isinstance(x, dict):
        # With named inputs, Keras computes with an extra entry instead of the next one.
        is_wrong = set(names) != set(x) if is_named else not set(names) <= set(x)
        refuse_if(is_wrong, "x", f"have the entries {names}", f"entries {list(x)}")
        x = x if is_named else [x[name] for name in names]
    parts = keras.tree.flatten(x)
    refuse_if(len(parts) != len(symbols), "x", f"have an array for each of the inputs {names}", len(parts))
    for part, symbol in zip(parts, symbols, strict=True):
        if not _fits(getattr(part, "shape", symbol.shape), symbol.shape):
            raise refusal("x", f"have the shape {_spell_shape(symbol.shape)}", shape=part)


def _fits(shape: Any, expected: Any) -> bool:
    """True if shapes agree after the first axis; Keras adds or drops a last axis of 1."""
    shape, expected = list(shape[1:]), list(expected[1:])
    if abs(len(shape) - len(expected)) == 1 and max(shape, expected, key=len)[-1] == 1:
        max(shape, expected, key=len).pop()
    pairs = zip(shape, expected, strict=False)
    return len(shape) == len(expected) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _spell_shape(shape: Any) -> str:
    """Returns the text of a shape, with N for its first axis."""
    sizes = ["N", *("..." if size is None else str(size) for size in shape[1:])]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def _warn_not_finite(x: Any, batch: str) -> list[str]:
    """Returns the warning about nan or infinity in examples; no error, because a model can replace them."""
    rows = [row for part in _arrays(x) if (row := first_not_finite(part)) is not None]
    return [f"`x` has nan or infinity in example {min(rows)}{batch}."] if rows else []


def first_not_finite(part: Any) -> int | None:
    """Returns the index of the first row with nan or infinity, or None; only floats are checked."""
    if not hasattr(part, "__getitem__"):
        return None
    rows = max(1, CHUNK_ELEMENTS // max(1, int(np.prod([size or 1 for size in part.shape[1:]]))))
    for start in range(0, part.shape[0] or 0, rows):
        numbers = as_numpy(part[start : start + rows])
        if not isinstance(numbers, np.ndarray) or numbers.dtype.kind != "f":
            return None
        finite = np.isfinite(numbers)
        if not finite.all():
            return start + int(np.flatnonzero(~finite.reshape(len(finite), -1).all(axis=1))[0])
    return None


def _tasks(model: keras.Model, x: Any, y: Any, outputs: list, criteria: dict[str, list]) -> Iterator[LabelTask]:
    if y is None or not outputs:
        return
    for index, (output, labels) in enumerate(zip(outputs, _split_labels(y, outputs, criteria["loss"]), strict=True)):
        labels, shape = np.asarray(as_numpy(labels)), output.shape or _shape_without_graph(model, x)
        labels = labels.astype("int8") if labels.dtype == bool else labels
        rows = {argument: rows[index] for argument, rows in criteria.items()}
        for loss in rows["loss"]:
            if task := _make_task(labels, loss, output._replace(shape=shape)):
                yield task._replace(metrics=rows)


def _make_task(labels: Any, loss: Criterion, output: Ending) -> LabelTask | None:
    """Returns the task of an output and a loss, or None for an unknown loss."""
    shape = output.shape
    if output.returns == "distributions" and shape:
        shape = (*shape[:-1], output.units)
    classes = (shape[-1] if shape else output.units) or 0
    form = loss.label_form(classes)
    form = "annotations" if form and output.annotators else form
    if not form:
        return None
    return LabelTask(labels, form, shape, classes, output.annotators, loss.ignored_label)


def check_label_shape(labels: Any, loss: Criterion, output: Ending) -> None:
    """Raises an error for labels of a shape that a loss does not accept, as far as a compiled step knows it."""
    if task := _make_task(labels, loss, output):
        SHAPE_CHECKS[_find_form(task)](tuple(labels.shape), task)


def _split_labels(y: Any, outputs: list[Ending], losses: list[list]) -> list[Any]:
    """Returns the labels of each output, or None; raises an error unless they fit the outputs that have a loss."""
    has_loss, names = [bool(part) for part in losses], [output.names for output in outputs]
    if isinstance(y, dict):
        rule = f"be an array, because the output is no dict: {' or '.join(f'y[{name!r}]' for name in y)}"
        refuse_if(names == [frozenset()], "y", rule, f"a dict with the entries {list(y)}")
        parts = [next((y[name] for name in y if name in each), None) for each in names]
        is_wrong, received = bool(set(y) - frozenset().union(*names)), f"entries {list(y)}"
    else:
        parts = list(y) if isinstance(y, list | tuple) and _arrays(y) else [y]
        received = f"{len(parts)} arrays"
        if len(parts) == sum(has_loss):  # Keras also accepts labels for these outputs alone
            parts = [parts.pop(0) if wanted else None for wanted in has_loss]
        is_wrong = len(parts) != len(outputs)
    is_wrong = is_wrong or any(part is None for part, wanted in zip(parts, has_loss, strict=True) if wanted)
    labels = [" or ".join(sorted(each)) or str(number) for number, each in enumerate(names)]
    refuse_if(is_wrong, "y", f"have labels for each of the outputs {labels}", received)
    return parts


def _shape_without_graph(model: keras.Model, x: Any) -> tuple:
    """Returns the output shape of a Sequential model that is not built, or ()."""
    if not isinstance(model, keras.Sequential) or len(_arrays(x)) != 1:
        return ()
    try:
        return tuple(model.compute_output_shape((None, *_arrays(x)[0].shape[1:])))
    except Exception:  # the caller's layers can raise anything
        return ()


def _check_labels(task: LabelTask) -> list[str]:
    """Raises an error for labels that the loss does not accept; returns the texts of warnings."""
    labels = task.labels
    if labels.dtype.kind in "OSUT":
        raise refusal("y", f"be numbers: {numbering('y')}", f"dtype {labels.dtype}")
    refuse_if(labels.dtype.kind == "c", "y", "be real numbers", f"dtype {labels.dtype}")
    refuse_first(~np.isfinite(labels), "y", "be finite", labels, "g")
    form = _find_form(task)
    SHAPE_CHECKS[form](labels.shape, task)
    return VALUE_CHECKS[form](task)


def _find_form(task: LabelTask) -> str:
    if task.form != "either":
        return task.form
    shape = task.labels.shape
    if len(shape) == 1 or shape[-1] == 1 or len(shape) < len(task.shape):
        return "integers"
    return "vectors"


def _check_integer_shape(shape: tuple, task: LabelTask) -> None:
    if task.shape and not _fits(shape, task.shape[:-1]):
        hint = ". For label vectors use y.argmax(-1)" if _fits(shape, task.shape) else ""
        raise refusal("y", f"be integers of shape {_spell_shape(task.shape[:-1])}{hint}", f"shape {shape}")


def _check_annotation_shape(shape: tuple, task: LabelTask) -> None:
    if len(shape) > 1 and task.annotators and shape[1] not in (1, task.annotators):
        raise refusal("y", f"have shape (N, {task.annotators}), with -1 for missing", f"shape {shape}")


def _check_vector_shape(shape: tuple, task: LabelTask) -> None:
    expected = _expected_shape(shape, task)
    if len(shape) == len(expected) and _fits(shape, expected):
        return
    hint = ""
    if _fits(shape, expected[:-1]):
        hint = (
            f". For integers use keras.utils.to_categorical(y, {task.classes or 'K'}), or SparseCategoricalCrossentropy"
        )
    raise refusal("y", f"be label vectors of shape {_spell_shape(expected)}{hint}", f"shape {shape}")


def _check_output_shape(shape: tuple, task: LabelTask) -> None:
    expected = _expected_shape(shape, task)
    if (task.shape or task.classes > 1) and not _fits(shape, expected):
        values = "" if task.form == "targets" else ", with 0 or 1 for each class"
        raise refusal("y", f"have shape {_spell_shape(expected)}{values}", f"shape {shape}")


def _expected_shape(shape: tuple, task: LabelTask) -> tuple:
    """Returns the shape of the output; for a model that is not built, K classes after any axes."""
    return task.shape or (*(None,) * max(1, len(shape) - 1), task.classes or None)


def _check_classes(task: LabelTask) -> list[str]:
    labels, classes = task.labels, task.classes
    refuse_first(labels != np.floor(labels), "y", "be integers", labels, "g")
    used = labels[labels != task.ignored]
    if classes:
        hint = ""
        if used.size and used.min() == 1 and used.max() == classes:
            hint = " (use y - 1 if your labels start at 1)"
        elif (used == -1).any():
            hint = " (use ignore_class=-1 in the loss if -1 is a missing label)"
        is_wrong = ((labels < 0) | (labels >= classes)) & (labels != task.ignored)
        refuse_first(is_wrong, "y", f"be in [0, {classes}), the classes of the model{hint}", labels, "g")
    return _warn_single_class(used) or _warn_missing_classes(np.isin(np.arange(classes), used))


def _warn_single_class(labels: np.ndarray) -> list[str]:
    first = labels.reshape(-1)[:1].tolist()
    if labels.size and not np.all(labels == first[0]):
        return []
    text = f"only the class {first[0]:g}" if first else "no label"
    return [f"`y` has {text}, so there is nothing to learn."]


def _warn_missing_classes(is_present: np.ndarray) -> list[str]:
    missing = np.flatnonzero(~is_present)
    if not missing.size:
        return []
    names = ", ".join(map(str, missing[:MAX_NAMES])) + (", ..." if missing.size > MAX_NAMES else "")
    return [f"`y` has no label for {missing.size} of the {is_present.size} classes of the model: {names}."]


def _check_vectors(task: LabelTask) -> list[str]:
    """Checks that each vector is a distribution over classes, or zero for no label."""
    sums = task.labels.sum(axis=-1, dtype="float64")
    rule = "have rows that sum to 1. For several labels per example, use a sigmoid and BinaryCrossentropy"
    refuse_first((np.abs(sums - 1.0) > SUM_TOLERANCE) & task.labels.any(axis=-1), "y", rule, sums, "g")
    return _warn_missing_columns(task)


def _warn_missing_columns(task: LabelTask) -> list[str]:
    return _warn_missing_classes(np.any(task.labels.reshape(-1, task.labels.shape[-1]) > 0, axis=0))


def _check_binary(task: LabelTask) -> list[str]:
    labels = task.labels
    refuse_first((labels < 0) | (labels > 1), "y", "be in [0, 1]", labels, "g")
    return _warn_single_class(labels) if task.classes == 1 else _warn_missing_columns(task)


def _check_binary_or_missing(task: LabelTask) -> list[str]:
    is_wrong = ~np.isin(task.labels, (-1, 0, 1))
    refuse_first(is_wrong, "y", "be 0 or 1, or -1 for missing", task.labels, "g")
    texts = _check_binary(task._replace(labels=np.maximum(task.labels, 0)))
    if np.any(task.labels == -1):
        texts.append("`y` has labels of -1. The loss ignores them, but metrics of Keras count them as errors.")
    return texts


def _check_targets(task: LabelTask) -> list[str]:
    labels = task.labels
    units = (task.shape or (1, *labels.shape[1:]))[-1]  # the shape of a model that is not built is unknown
    columns = labels.reshape(-1, units).T if labels.size else ()
    constant = [index for index, column in enumerate(columns) if np.ptp(column) == 0]
    return [f"`y` has constant targets, {constant}, which have no noise to learn."] if constant else []


SHAPE_CHECKS: dict[str, Callable[[tuple, LabelTask], None]] = {
    "integers": _check_integer_shape,
    "vectors": _check_vector_shape,
    "each": _check_output_shape,
    "each or missing": _check_output_shape,
    "annotations": _check_annotation_shape,
    "targets": _check_output_shape,
    "numbers": lambda shape, task: None,
}
VALUE_CHECKS: dict[str, Callable[[LabelTask], list[str]]] = {
    "integers": _check_classes,
    "vectors": _check_vectors,
    "each": _check_binary,
    "each or missing": _check_binary_or_missing,
    "annotations": lambda task: _check_classes(task._replace(ignored=-1)),
    "targets": _check_targets,
    "numbers": lambda task: [],
}
