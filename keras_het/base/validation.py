"""Checks of arguments. Every error names the argument, the rule and the value."""

import math
import numbers
from collections.abc import Mapping, Sequence, Set
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import as_array, as_numpy
from keras_het.base.refusal import refusal, refuse_first, refuse_if

MAX_FEATURES = 1 << 32  # more features exceed the bound of weights even with a single class
MAX_QUOTED_ERROR = 200  # characters
MAX_CLASSES = 1 << 24  # losses hold labels in float32, which would round larger labels to other classes
_LARGEST, _SMALLEST = float(np.finfo("float32").max), float(np.finfo("float32").tiny)


def check_integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Checks that `value` is an integer in [low, high], and returns it as an int."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or value < low or (high is not None and value > high):
        rule = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise refusal(name, f"be an integer {rule}", value=value)
    return int(value)


def check_number(name: str, value: Any, above: float = -math.inf, low: float | None = None) -> float:
    """Checks that `value` is a finite float32 number above `above` (or at least `low`), and returns it as a float."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    comparable = float(value) if isinstance(value, np.floating) else value  # the bound would be infinite in float16
    number = float(value) if is_number and -_LARGEST < comparable < _LARGEST else math.nan
    in_range = number > above if low is None else number >= low
    if not in_range or (number and abs(number) < _SMALLEST):
        rule = f"greater than {above:g}" if low is None else f"at least {low:g}"
        raise refusal(name, f"be a finite float32 number {rule}", value=value)
    return number


def check_open_fraction(name: str, value: Any) -> float:
    """Checks that `value` is a number in (0, 1), and returns it as a float."""
    number = float(value) if isinstance(value, float | np.floating) else math.nan
    refuse_if(not 0.0 < number < 1.0, name, "be a number in (0, 1)", value=value)
    return number


def check_boolean(name: str, value: Any) -> bool:
    """Checks that `value` is True or False, and returns it."""
    refuse_if(not isinstance(value, bool), name, "be True or False", value=value)
    return value


def check_choice(name: str, value: Any, choices: Any) -> Any:
    """Checks that `value` is one of `choices`, and returns it."""
    refuse_if(value not in choices, name, f"be one of {', '.join(map(repr, choices))}", value=value)
    return value


def check_ignore_class(ignore_class: Any) -> int | None:
    """Checks that `ignore_class` is None or an integer that float32 holds exactly, and returns it."""
    return None if ignore_class is None else check_integer("ignore_class", ignore_class, -(2**24), 2**24)


def check_maker(make_model: Any, alternatives: str = "") -> None:
    """Checks that `make_model` is a function; `alternatives` continues the error message."""
    if not callable(make_model) or isinstance(make_model, keras.layers.Layer):
        raise refusal("make_model", f"be a function that makes a new compiled model{alternatives}", kind=make_model)


def check_one_transition(transition: Any, name: str = "transition") -> np.ndarray:
    """Checks that the rows of `transition`, `(K, K)`, are probability vectors, and returns it as NumPy float64."""
    return check_rows(check_square(name, transition), name)


def check_transitions(transitions: Any, name: str = "transition") -> np.ndarray:
    """Checks one or M transition matrices, `(K, K)` or `(M, K, K)`, and returns them as NumPy float64."""
    array = check_numbers(name, transitions)
    if array.ndim != 3:
        return check_one_transition(array, name)
    matrices = [check_one_transition(matrix, f"{name}[{m}]") for m, matrix in enumerate(array)]
    return np.stack(matrices) if matrices else array


def check_annotations(
    labels: Any, num_classes: float, num_annotators: int | None = None, name: str = "labels"
) -> np.ndarray:
    """Checks that annotators' labels, `(N, M)` for any or this M, are in [0, num_classes) or -1; returns an array."""
    labels = as_array(name, labels)
    width = "M" if num_annotators is None else num_annotators
    has_shape = labels.ndim == 2 and labels.size and width in ("M", labels.shape[1])
    fits = has_shape and np.issubdtype(labels.dtype, np.integer)
    refuse_if(not fits, name, f"be integers of shape (N, {width})", f"shape {labels.shape}, dtype {labels.dtype}")
    wrong = (labels < -1) | (labels >= num_classes)
    refuse_first(wrong, name, f"be in [0, {num_classes}), or -1 if missing", labels)
    return labels


def check_rows(rows: Any, name: str = "transition") -> np.ndarray:
    """Checks that `rows`, `(N, K)`, are probability vectors, and returns them as NumPy float64."""
    rows = check_not_negative(name, check_numbers(name, rows))
    sums = rows.sum(axis=1)
    wrong = np.flatnonzero(~(np.abs(sums - 1.0) < 1e-4))
    if len(wrong):
        raise refusal(name, "have rows that sum to one", f"row {wrong[0]} sums to {sums[wrong[0]]:.6g}")
    return rows


def check_labels(labels: Any, num_classes: float, count: int | None = None, name: str = "labels") -> np.ndarray:
    """Checks that `labels`, `(N,)`, are integers in [0, num_classes); returns int64, because products can be large."""
    labels = as_array(name, labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        remedy = f": use {name}.argmax(-1) for label vectors" if labels.ndim == 2 and labels.shape[1] > 1 else ""
        if labels.dtype.kind in "OSU":
            remedy = f": {numbering(name)}"
        raise refusal(name, f"be integers of shape (N,){remedy}", f"shape {labels.shape}, dtype {labels.dtype}")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        label = labels[wrong[0]]
        raise refusal(name, f"be in [0, {num_classes})", f"{label} at [{wrong[0]}]{missing_label_hint(label, name)}")
    if count is not None and len(labels) != count:
        raise refusal(name, f"have an entry for each of the {count} examples", len(labels))
    return labels.astype("int64", copy=False)


def numbering(name: str) -> str:
    """Returns the remedy for labels that are names."""
    return f"number names in the order of the model's classes, [class_names.index(label) for label in {name}]"


def missing_label_hint(label: Any, name: str) -> str:
    """Returns the remedy for a -1, which always marks a missing label; an empty string for other labels."""
    return f", a missing label: keep only the examples with {name} != -1" if label == -1 else ""


def check_weights(weights: Any, count: int, name: str = "sample_weight") -> np.ndarray | None:
    """Checks that weights, `(N,)`, are finite, not negative and not all 0, and returns floats; None for None."""
    if weights is None:
        return None
    array = np.asarray(as_numpy(weights))
    refuse_if(array.shape != (count,), name, f"have shape ({count},)", shape=array)
    numbers = check_numbers(name, array)
    refuse_first(~(np.isfinite(numbers) & (numbers >= 0)), name, "be finite and not negative", array)
    refuse_if(not numbers.any(), name, "have a weight above zero", "only zeros")
    return array if array.dtype.name in ("float32", "float64") else numbers


def check_label_vectors(labels: Any, shapes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Checks that label vectors of one of the shapes hold 0, 1, or -1 if missing, and returns an array."""
    y = as_array("labels", labels)
    refuse_if(y.shape not in shapes, "labels", f"have shape {' or '.join(map(str, shapes))}", shape=y)
    refuse_first(~np.isin(y, (-1, 0, 1)), "labels", "be 0, 1, or -1 for a missing label", y)
    return y


def check_every_class(labels: Any, num_classes: int) -> None:
    """Checks that `labels`, `(N,)`, have an example of every class."""
    missing = np.setdiff1d(np.arange(num_classes), labels)
    if len(missing):
        raise refusal("labels", "have an example of every class", f"none of class {missing[0]}")


def check_class_names(class_names: Any, num_classes: int) -> list:
    """Checks names of all classes, a sequence or a dict {class: name}, and returns a list; numbers for None."""
    if isinstance(class_names, Mapping):
        return _names_in_order(class_names, num_classes)
    names = list(range(num_classes) if class_names is None else class_names)
    if len(names) != num_classes or isinstance(class_names, Set | str):
        rule = f"be a sequence with a name for each of the {num_classes} classes"
        raise refusal("class_names", rule, f"a {type(class_names).__name__} of {len(names)}")
    return names


def _names_in_order(class_names: Mapping, num_classes: int) -> list:
    wrong = set(class_names) ^ set(range(num_classes))
    if wrong:
        key = min(wrong, key=repr)
        problem = f"{'with' if key in class_names else 'without'} {key!r}"
        rule = f"be a dict with the keys 0 to {num_classes - 1}, the class numbers"
        raise refusal("class_names", rule, f"a dict of {len(class_names)}, {problem}")
    return [class_names[label] for label in range(num_classes)]


def check_last_axis(input_shape: Any) -> int | None:
    """Checks the last axis of a shape, which might come from a file, and returns its size; None if unknown."""
    if not isinstance(input_shape, tuple | list) or not input_shape:
        raise refusal("input_shape", "be a tuple of at least one size", value=input_shape)
    return None if input_shape[-1] is None else check_integer("input_shape[-1]", input_shape[-1], 0, MAX_FEATURES)


def check_even_split(units: int, devices: int) -> None:
    """Checks that devices can share K `units` evenly."""
    more = -(-units // devices) * devices
    rule = f"be divisible by the {devices} devices that share the classes: use {more}, with some unused classes"
    refuse_if(units % devices, "units", rule, f"units={units}")


def check_fraction(name: str, value: Any) -> None:
    """Checks that `value` is a number in [0, 1]."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    refuse_if(not is_number or not 0.0 <= value <= 1.0, name, "be in [0, 1]", value=value)


def check_square(name: str, matrix: Any) -> np.ndarray:
    """Checks that `matrix` is square, and returns it as NumPy float64; nan passes, because T might have diverged."""
    matrix = check_numbers(name, matrix)
    refuse_if(matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1], name, "be a square matrix", shape=matrix)
    return matrix


def check_not_negative(name: str, matrix: np.ndarray) -> np.ndarray:
    """Checks that no entry of `matrix`, `(N, K)`, is negative or nan, and returns it."""
    refuse_first(~(matrix >= 0), name, "not be negative", matrix, ".6g")
    return matrix


def check_numbers(name: str, x: Any) -> np.ndarray:
    """Converts numbers, in an array or in nested lists of equal lengths, to NumPy float64; else raises a ValueError."""
    try:
        return as_float64(x)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # PyTorch's conversion raises the last two
        if isinstance(x, list | tuple):
            as_array(name, x)
        text = f"`{name}` must be an array of numbers. Received: a {type(x).__name__}; {str(error)[:MAX_QUOTED_ERROR]}"
        raise ValueError(text) from error


def as_float64(x: Any) -> np.ndarray:
    """Returns `x` as NumPy float64, even a PyTorch tensor with a gradient, which NumPy refuses."""
    return np.asarray(x if isinstance(x, np.ndarray) else ops.convert_to_numpy(x), "float64")
