"""Reads inputs of `fit` and `predict`, arrays or a data set with its own labels, batch by batch in one pass."""

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.refusal import refusal, refuse_if

NO_WEIGHTS_RULE = "be (x, y), for weights do not count"
BLOCK_ROWS = 8192  # of a block of rows


class Arrays(NamedTuple):
    """Examples, labels and weights; weights are None if there are none."""

    x: Any
    y: Any
    sample_weight: Any


def is_data_set(x: Any) -> bool:
    """Returns whether `x` gives batches by itself: a `PyDataset`, a `tf.data.Dataset`, a `DataLoader`, a generator."""
    iterable = hasattr(x, "__iter__") and not hasattr(x, "shape") and not isinstance(x, list | tuple | dict)
    return isinstance(x, keras.utils.PyDataset) or iterable


def check_rereadable(name: str, x: Any) -> None:
    """Raises a ValueError if `x` can be read only once, as a generator can."""
    if is_data_set(x) and hasattr(x, "__next__"):
        raise refusal(name, "be readable more than once", kind=x)


def examples_and_labels(name: str, data: Any) -> tuple[Any, Any]:
    """Returns `(x, y)` of validation data, given as such or as a data set; y is None for a data set.

    Raises:
        ValueError: for anything else, weights among them, and for a data set that can be read only once.
    """
    check_rereadable(name, data)
    if data is not None and is_data_set(data):
        return data, None
    if not isinstance(data, list | tuple) or len(data) not in (2, 3):
        found = (
            None
            if data is None
            else f"a {type(data).__name__}" + (f" of {len(data)}" if isinstance(data, list | tuple) else "")
        )
        raise refusal(name, "be (x, y) or a data set", f"{name}={found}")
    if len(data) == 3 and data[2] is not None:
        raise refusal(name, NO_WEIGHTS_RULE, "three parts")
    return data[0], data[1]


def check_same_index(**given: Any) -> None:
    """Raises ValueError unless all pandas arguments have the same index, in the same order.

    Rows are paired by position, while pandas pairs them by index: a column that was shuffled or sorted by itself would
    give examples the labels of other examples.
    """
    indices = [(name, part.index) for name, value in given.items() for part in _parts(value) if hasattr(part, "iloc")]
    for name, index in indices[1:]:
        first, expected = indices[0]
        if len(index) == len(expected) and not index.equals(expected):
            differ = (
                (place, *pair) for place, pair in enumerate(zip(index, expected, strict=True)) if pair[0] != pair[1]
            )
            place, found, other = next(differ, (0, index[0], expected[0]))
            rule = f"have the index of `{first}` ({name}.loc[{first}.index]; to_numpy() of both pairs them by place)"
            raise refusal(name, rule, f"{found!r} at [{place}], where `{first}` has {other!r}")


def read_index(**given: Any) -> Any:
    """Returns the pandas index that names the rows, of the first argument that has one; None for row numbers.

    Raises:
        ValueError: as `check_same_index`, and for an index that names several rows alike.
    """
    check_same_index(**given)
    name, index = next(((name, part.index) for name, part in given.items() if hasattr(part, "iloc")), ("", None))
    if index is not None and not index.is_unique:
        rule = f"have an index that names each row once ({name}.reset_index(drop=True) numbers the rows)"
        raise refusal(name, rule, f"{index[index.duplicated()].tolist()[0]!r} again")
    return index


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else [value]


def _as_given(x: Any) -> Any:
    """Converts a list of strings to an array; returns anything else unchanged."""
    is_texts = isinstance(x, list) and x and all(isinstance(part, str) for part in x)
    return np.array(x, object) if is_texts else x


def check_dense(name: str, part: Any) -> Any:
    """`part`, if it is not a sparse matrix of SciPy, which NumPy takes for a single object."""
    refuse_if(hasattr(part, "toarray"), name, f"be dense: {name}.toarray()", kind=part)
    return part


def as_array(name: str, part: Any) -> np.ndarray:
    """Returns an array, a tensor, a column of pandas or lists as NumPy, if lists have equal lengths.

    Example:
        >>> as_array("y", [[0], [0, 1]])
        Traceback (most recent call last):
        ...
        ValueError: `y` must have rows of equal length. Received: 1 in row 0, 2 in row 1
    """
    check_dense(name, part)
    try:
        array = np.asarray(as_numpy(part))
        if array.dtype.kind not in "SU" or not isinstance(part, list | tuple):
            return array
        values = np.array(part, object)  # else nan and numbers beside texts would be texts
        return array if all(isinstance(value, str) for value in values.ravel()) else values
    except ValueError as error:
        sizes = [np.size(np.array(row, object)) for row in part]
        row = next((row for row, size in enumerate(sizes) if size != sizes[0]), 0)
        received = f"{sizes[0]} in row 0, {sizes[row]} in row {row}" if row else str(error)
        raise refusal(name, "have rows of equal length", received) from error


def count_examples(x: Any) -> int:
    """Returns the number of examples of arrays, which may be in a list, a tuple or a dict.

    Raises:
        ValueError: for anything but arrays, such as nested lists of numbers, or sparse matrices.
    """
    arrays = [check_dense("x", part) for part in keras.tree.flatten(_as_given(x))]
    wrong = [part for part in arrays if not len(getattr(part, "shape", ()))]
    if wrong or not arrays:
        found = f"a {type(x).__name__} of {type(wrong[0]).__name__}" if wrong else f"an empty {type(x).__name__}"
        raise refusal("x", "be an array, a list or dict of them, or a data set; make lists arrays", found)
    return len(arrays[0])


def select_rows(x: Any, indices: np.ndarray) -> Any:
    """Returns the examples with these indices, as NumPy, of arrays, which may be in a list, a tuple or a dict."""
    return keras.tree.map_structure(lambda part: np.asarray(as_numpy(part))[indices], _as_given(x))


def row_blocks(count: int) -> list[slice]:
    """Returns slices that cover `count` rows in blocks, to bound the memory of temporaries.

    Example:
        >>> row_blocks(10000)
        [slice(0, 8192, None), slice(8192, 10000, None)]
    """
    return [slice(start, min(count, start + BLOCK_ROWS)) for start in range(0, count, BLOCK_ROWS)]


def argmax_rows(p: np.ndarray) -> np.ndarray:
    """Returns the argmax of each row, block by block: NumPy copies a read-only array as a whole."""
    return np.concatenate([p[rows].argmax(axis=1) for rows in row_blocks(len(p))] or [np.zeros(0, int)])


def batches(x: Any, batch_size: int) -> Iterator[tuple[Any, Any]]:
    """Yields pairs of inputs and labels, batch by batch; labels are None if `x` has none.

    Raises:
        ValueError: for a data set without an end.
    """
    return ((inputs, labels) for inputs, labels, _ in batches_with_weights(x, batch_size))


def batches_with_weights(x: Any, batch_size: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yields inputs, labels and weights, batch by batch; labels and weights are None if `x` has none."""
    x = _as_given(x)
    if not is_data_set(x):
        for start in range(0, count_examples(x), batch_size):
            yield (
                keras.tree.map_structure(
                    lambda part, start=start: _of_this_backend(part[start : start + batch_size]), x
                ),
                None,
                None,
            )
        return
    cardinality = x.cardinality() if hasattr(x, "cardinality") else 0
    if (isinstance(x, keras.utils.PyDataset) and x.num_batches is None) or int(
        cardinality
    ) == -1:  # tf.data.INFINITE_CARDINALITY
        raise refusal("x", "be a data set with an end", "one without")
    yield from _of_data_set(x)


def first_batches(x: Any, count: int) -> Iterator[tuple[Any, Any]]:
    """Yields the first pairs of inputs and labels of a data set, which may be without an end."""
    return itertools.islice(((inputs, labels) for inputs, labels, _ in _of_data_set(x)), count)


def _of_data_set(x: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the inputs, labels and weights of a data set, batch by batch; labels and weights are None without any."""
    numbers = itertools.count() if getattr(x, "num_batches", None) is None else range(x.num_batches)
    for batch in (x[i] for i in numbers) if isinstance(x, keras.utils.PyDataset) else x:
        inputs, *others = keras.utils.unpack_x_y_sample_weight(tuple(batch) if isinstance(batch, list) else batch)
        yield keras.tree.map_structure(_of_this_backend, inputs), *others


def as_numpy(part: Any) -> Any:
    """Returns a tensor as NumPy; strings and other objects unchanged."""
    return (
        ops.convert_to_numpy(part)
        if ops.is_tensor(part) and _name_of_dtype(part) != "string"
        else _of_this_backend(part)
    )


def _name_of_dtype(part: Any) -> str:
    return getattr(getattr(part, "dtype", None), "name", "")


def _of_this_backend(part: Any) -> Any:
    """Returns a tensor of another library as an array, which every backend takes; all else stays as it is."""
    if ops.is_tensor(part) or isinstance(part, np.ndarray) or _name_of_dtype(part) == "string":
        return part
    if hasattr(part, "to_numpy"):  # first: else a table with a column "detach" would pass for a tensor
        return part.to_numpy()
    if hasattr(part, "detach"):
        part = part.detach().cpu()
        part = part.float() if "bfloat16" in str(part.dtype) else part  # NumPy has no bfloat16, and would raise
    return part.numpy() if hasattr(part, "numpy") else part


def labelled_batches(x: Any, y: Any, batch_size: int, name: str = "y") -> Iterator[tuple[Any, np.ndarray]]:
    """Yields pairs of inputs and NumPy labels, batch by batch.

    `y` is None for a data set, which brings its own labels; one pass reads both, so that they match if it is shuffled.

    Raises:
        ValueError: for labels that are missing or given twice, or not as many as the examples; for weights in a data
            set, or another index of pandas.
    """
    if is_data_set(x) != (y is None):
        rule = "be given for arrays, and None for a data set, which has its own"
        raise refusal(name, rule, f"{name}={'None' if y is None else 'labels'}, x a {type(x).__name__}")
    check_same_index(**{"x": x, name: y})
    given, start = None if y is None else np.asarray(ops.convert_to_numpy(y)), 0
    if given is not None and len(given) != (count := count_examples(x)):
        raise refusal(name, f"have an entry for each of the {count} examples", len(given))
    for inputs, labels, weights in batches_with_weights(x, batch_size):
        if weights is not None and np.any(np.asarray(as_numpy(weights)) != 1):
            raise refusal("x" if name == "y" else name, NO_WEIGHTS_RULE, "a data set with weights")
        if labels is None and given is None:
            raise refusal("x", "be a data set of pairs of inputs and labels, in batches", "one without labels")
        part = ops.convert_to_numpy(labels) if given is None else given[start : start + batch_size]
        start += batch_size
        yield inputs, np.asarray(part)


def as_arrays(x: Any, y: Any, name: str = "y") -> Arrays:
    """Examples and labels as arrays; those of a data set, and its weights, are read once, batch by batch.

    Raises:
        ValueError: for labels that are missing, or given beside a data set, or of another index of pandas.
    """
    if not is_data_set(x):
        count_examples(x)
        refuse_if(y is None, name, "be given for arrays", f"{name}=None")
        check_same_index(**{"x": x, name: y})
        return Arrays(keras.tree.map_structure(lambda part: np.asarray(as_numpy(part)), _as_given(x)), y, None)
    refuse_if(y is not None, name, "be None for a data set, which has its own", "labels")
    parts = list(batches_with_weights(x, 1))
    if not parts or any(labels is None for _, labels, _ in parts):
        rule = "give pairs of inputs and labels, in batches"
        raise refusal("x", rule, "no batch" if not parts else "one without labels")
    inputs = keras.tree.map_structure(
        lambda *given: np.concatenate([as_numpy(part) for part in given]), *[inputs for inputs, _, _ in parts]
    )
    labels = np.concatenate([np.asarray(as_numpy(labels)) for _, labels, _ in parts])
    if all(weights is None for _, _, weights in parts):
        return Arrays(inputs, labels, None)
    weights = [np.ones(len(y)) if weights is None else np.asarray(as_numpy(weights)) for _, y, weights in parts]
    return Arrays(inputs, labels, np.concatenate(weights))
