"""Checks of arguments. Every error names the argument, the rule, and the value received."""

import math
import numbers
from collections.abc import Mapping, Sequence, Set
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import as_array, as_numpy
from keras_het.base.refusal import refusal, refuse_first, refuse_if

MAX_FEATURES = 1 << 32  # more, of a single class, exceed any bound of weights
MOST_LETTERS = 200  # of another error, in the text of one
MAX_CLASSES = 1 << 24  # labels are float32 in losses, which would round larger ones to others
_LARGEST, _SMALLEST = float(np.finfo("float32").max), float(np.finfo("float32").tiny)


def check_integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Returns `value` as an int, if it is an integer in [low, high]."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        rule = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise refusal(name, f"be an integer {rule}", value=value)
    return int(value)


def check_number(name: str, value: Any, above: float = -math.inf, low: float | None = None) -> float:
    """Returns `value` as a float, if it is greater than `above`, or at least `low`, finite, and not lost in float32."""
    whole_or_float = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    value_or_float = float(value) if isinstance(value, np.floating) else value  # a bound is infinite in float16
    number = float(value) if whole_or_float and -_LARGEST < value_or_float < _LARGEST else math.nan
    in_range = number > above if low is None else number >= low
    if not in_range or (number and abs(number) < _SMALLEST):
        rule = f"greater than {above:g}" if low is None else f"at least {low:g}"
        raise refusal(name, f"be a finite float32 number {rule}", value=value)
    return number


def check_open_fraction(name: str, value: Any) -> float:
    """Returns `value` as a float, if it is a number in (0, 1)."""
    number = float(value) if isinstance(value, float | np.floating) else math.nan
    refuse_if(not 0.0 < number < 1.0, name, "be a number in (0, 1)", value=value)
    return number


def check_boolean(name: str, value: Any) -> bool:
    """Returns `value` if it is True or False."""
    refuse_if(not isinstance(value, bool), name, "be True or False", value=value)
    return value


def check_choice(name: str, value: Any, choices: Any) -> Any:
    """Returns `value` if it is one of `choices`."""
    refuse_if(value not in choices, name, f"be one of {', '.join(map(repr, choices))}", value=value)
    return value


def check_ignore_class(ignore_class: Any) -> int | None:
    """`ignore_class`, if it is None or an integer that float32 holds."""
    return None if ignore_class is None else check_integer("ignore_class", ignore_class, -(2**24), 2**24)


def check_maker(make_model: Any, others: str = "") -> None:
    """Raises a ValueError if `make_model` is not a function; `others` says what else it may be, but for a function."""
    if not callable(make_model) or isinstance(make_model, keras.layers.Layer):
        raise refusal("make_model", f"be a function that makes a new compiled model{others}", kind=make_model)


def check_one_transition(transition: Any, name: str = "transition") -> np.ndarray:
    """Returns `transition`, `(K, K)` as NumPy float64, if it is square, not negative, and its rows sum to one.

    Raises:
        ValueError: if not; it says which row is wrong, and its sum.
    """
    return check_rows(check_square(name, transition), name)


def check_transitions(transitions: Any, name: str = "transition") -> np.ndarray:
    """Returns `transitions`, `(K, K)` or `(M, K, K)` as NumPy float64, if each is a transition matrix.

    Errors say which one is not.
    """
    array = check_numbers(name, transitions)
    if array.ndim != 3:
        return check_one_transition(array, name)
    return (
        np.stack([check_one_transition(each, f"{name}[{m}]") for m, each in enumerate(array)]) if len(array) else array
    )


def check_annotations(
    labels: Any, num_classes: float, num_annotators: int | None = None, name: str = "labels"
) -> np.ndarray:
    """`labels` of several annotators `(N, M)`, as an array, if they are integers in [0, num_classes), or -1 if missing.

    M is `num_annotators` unless that is None.

    Raises:
        ValueError: if not; it says which one is wrong.
    """
    labels = as_array(name, labels)
    width = "M" if num_annotators is None else num_annotators
    right = (
        labels.ndim == 2 and labels.size and width in ("M", labels.shape[1]) and np.issubdtype(labels.dtype, np.integer)
    )
    refuse_if(not right, name, f"be integers of shape (N, {width})", f"shape {labels.shape}, dtype {labels.dtype}")
    wrong = (labels < -1) | (labels >= num_classes)
    refuse_first(wrong, name, f"be in [0, {num_classes}), or -1 where missing", labels)
    return labels


def check_rows(rows: Any, name: str = "transition") -> np.ndarray:
    """Returns `rows`, `(N, K)` as NumPy float64, if they are probability vectors.

    Raises:
        ValueError: if not; it says which row is wrong, and its sum or its entry.
    """
    rows = check_not_negative(name, check_numbers(name, rows))
    sums = rows.sum(axis=1)
    wrong = np.flatnonzero(~(np.abs(sums - 1.0) < 1e-4))
    if len(wrong):
        raise refusal(name, "have rows that sum to one", f"row {wrong[0]} sums to {sums[wrong[0]]:.6g}")
    return rows


def check_labels(labels: Any, num_classes: float, count: int | None = None, name: str = "labels") -> np.ndarray:
    """Returns `labels` as integers of 64 bits, if they are in [0, num_classes), of shape `(N,)`.

    N is `count` unless that is None. Of fewer bits, i * num_classes + j would overflow.

    Raises:
        ValueError: if not; it says which one is wrong.
    """
    labels = as_array(name, labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        made = f", as {name}.argmax(-1) of label vectors" if labels.ndim == 2 and labels.shape[1] > 1 else ""
        if labels.dtype.kind in "OSU":
            made = f", as np.unique({name}, return_inverse=True)[1] of names"
        raise refusal(name, f"be integers of shape (N,){made}", f"shape {labels.shape}, dtype {labels.dtype}")
    wrong = np.flatnonzero((labels < 0) | (labels >= num_classes))
    if len(wrong):
        found = labels[wrong[0]]
        raise refusal(name, f"be in [0, {num_classes})", f"{found} at [{wrong[0]}]{no_label(found, name)}")
    if count is not None and len(labels) != count:
        raise refusal(name, f"have an entry for each of the {count} examples", len(labels))
    return labels.astype("int64", copy=False)


def no_label(label: Any, name: str) -> str:
    """What an error adds for a -1: it means everywhere that there is no label."""
    return f", no label: leave such examples out (keep those of {name} != -1)" if label == -1 else ""


def check_weights(weights: Any, count: int, name: str = "sample_weight") -> np.ndarray | None:
    """Weights of examples, `(N,)`, as an array, if they are finite, not negative, and not all 0; None if not given.

    Raises:
        ValueError: if not; it says which one is wrong.
    """
    if weights is None:
        return None
    array = np.asarray(as_numpy(weights))
    refuse_if(array.shape != (count,), name, f"have shape ({count},)", shape=array)
    numbers = check_numbers(name, array)
    refuse_first(~(np.isfinite(numbers) & (numbers >= 0)), name, "be finite and not negative", array)
    refuse_if(not numbers.any(), name, "have a weight above zero", "only zeros")
    return array


def check_label_vectors(labels: Any, shapes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Label vectors as an array of one of some shapes, if they are 0, 1, or -1 for a label that is not known."""
    y = as_array("labels", labels)
    refuse_if(y.shape not in shapes, "labels", f"have shape {' or '.join(map(str, shapes))}", shape=y)
    refuse_first(~np.isin(y, (-1, 0, 1)), "labels", "be 0, 1, or -1 if not known", y)
    return y


def check_every_class(labels: Any, num_classes: int) -> None:
    """Raises a ValueError that names the first class of which `labels`, `(N,)`, have no example."""
    missing = np.setdiff1d(np.arange(num_classes), labels)
    if len(missing):
        raise refusal("labels", "have an example of every class", f"none of class {missing[0]}")


def check_class_names(class_names: Any, num_classes: int) -> list:
    """`class_names`, a sequence or a dict {class: name}, as a list of a name for each class; numbers if it is None."""
    if isinstance(class_names, Mapping):
        return _in_order(class_names, num_classes)
    names = list(range(num_classes) if class_names is None else class_names)
    if len(names) != num_classes or isinstance(class_names, Set | str):
        rule = f"be a sequence with a name for each of the {num_classes} classes"
        raise refusal("class_names", rule, f"a {type(class_names).__name__} of {len(names)}")
    return names


def _in_order(class_names: Mapping, num_classes: int) -> list:
    """Returns the names of a dict, by number, if its keys are the numbers of all classes."""
    wrong = set(class_names) ^ set(range(num_classes))
    if wrong:
        key = min(wrong, key=repr)
        rule = f"be a dict with the keys 0 to {num_classes - 1}, the numbers of the classes"
        fault = f"{'with' if key in class_names else 'without'} {key!r}"
        raise ValueError(f"`class_names` must {rule}. Received: a dict of {len(class_names)}, {fault}")
    return [class_names[label] for label in range(num_classes)]


def check_last_axis(input_shape: Any) -> int | None:
    """Returns the size of the last axis of a shape, which `build` gets from a file, too; None if it is not known."""
    if not isinstance(input_shape, tuple | list) or not input_shape:
        raise refusal("input_shape", "be a tuple of at least one size", value=input_shape)
    return None if input_shape[-1] is None else check_integer("input_shape[-1]", input_shape[-1], 0, MAX_FEATURES)


def check_fraction(name: str, value: Any) -> None:
    """Raises a ValueError if `value` is not a number in [0, 1]."""
    whole_or_float = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    refuse_if(not whole_or_float or not 0.0 <= value <= 1.0, name, "be in [0, 1]", value=value)


def check_square(name: str, matrix: Any) -> np.ndarray:
    """Returns `matrix`, `(K, K)` as NumPy float64, if it is square; entries may be nan, as in a T that has diverged."""
    matrix = check_numbers(name, matrix)
    refuse_if(matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1], name, "be a square matrix", shape=matrix)
    return matrix


def check_not_negative(name: str, matrix: np.ndarray) -> np.ndarray:
    """`matrix`, `(N, K)`, if no entry is negative or nan."""
    refuse_first(~(matrix >= 0), name, "not be negative", matrix, ".6g")
    return matrix


def check_numbers(name: str, x: Any) -> np.ndarray:
    """Returns `x` as NumPy float64, if it is an array of numbers, or lists of them of equal lengths."""
    try:
        return as_float64(x)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:  # the latter two of PyTorch's own conversion
        if isinstance(x, list | tuple):
            as_array(name, x)
        text = f"`{name}` must be an array of numbers. Received: a {type(x).__name__}; {str(error)[:MOST_LETTERS]}"
        raise ValueError(text) from error


def as_float64(x: Any) -> np.ndarray:
    """Returns `x` as NumPy float64; also a PyTorch tensor with a gradient, which NumPy itself refuses."""
    return np.asarray(x if isinstance(x, np.ndarray) else ops.convert_to_numpy(x), "float64")
