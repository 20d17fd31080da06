"""Reads the inputs of `fit` and `predict`, arrays or data sets, batch by batch in one pass."""

import contextlib
import copy
import hashlib
import itertools
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.refusal import outside_level, refusal, refuse_if
from keras_het.base.seeds import preserve_random_states

BLOCK_ROWS = 8192
COMPARED_BATCHES = 4  # of a data set that is read again; the first can be fixed
SHUFFLED = (
    "`x` yields other batches if it is read again, so row numbers of this reading fit no other. Build it without "
    "shuffling: `shuffle=False` in `image_dataset_from_directory` or a `DataLoader`, no `shuffle` of tf.data, and a "
    "fixed order in `on_epoch_end` of a `PyDataset`. Put random augmentation into the model."
)


class Arrays(NamedTuple):
    """Examples, labels and weights; weights are None if there are none."""

    x: Any
    y: Any
    sample_weight: Any


def is_data_set(x: Any) -> bool:
    """True if `x` yields batches: a `PyDataset`, a `tf.data.Dataset`, a `DataLoader`, a generator."""
    is_iterable = hasattr(x, "__iter__") and not hasattr(x, "shape") and not isinstance(x, list | tuple | dict)
    return isinstance(x, keras.utils.PyDataset) or is_iterable


def check_rereadable(name: str, x: Any) -> None:
    """Raises a ValueError if `x` can be read only once, like a generator."""
    if is_data_set(x) and hasattr(x, "__next__"):
        raise refusal(name, "be readable more than once: use arrays, a PyDataset or a tf.data.Dataset", kind=x)


def check_same_index(**arguments: Any) -> None:
    """Checks that pandas arguments share one index in one order, because this package pairs their rows by position."""
    parts = ((name, part) for name, value in arguments.items() for part in _parts(value))
    indices = [(name, part.index) for name, part in parts if hasattr(part, "iloc")]
    for name, index in indices[1:]:
        first, expected = indices[0]
        if len(index) == len(expected) and not index.equals(expected):
            pairs = enumerate(zip(index, expected, strict=True))
            row, (key, other) = next((pair for pair in pairs if pair[1][0] != pair[1][1]), (0, (index[0], expected[0])))
            rule = f"have the index of `{first}`: use {name}.loc[{first}.index], or to_numpy() of both to pair by row"
            raise refusal(name, rule, f"{key!r} at [{row}], but {other!r} in `{first}`")


def read_index(**arguments: Any) -> Any:
    """Returns the pandas index of the first argument that has one, or None; refuses an index with duplicates."""
    check_same_index(**arguments)
    name, index = next(((name, part.index) for name, part in arguments.items() if hasattr(part, "iloc")), ("", None))
    if index is not None and not index.is_unique:
        rule = f"have an index without duplicates: {name}.reset_index(drop=True) numbers the rows"
        raise refusal(name, rule, f"{index[index.duplicated()].tolist()[0]!r} again")
    return index


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else [value]


def _strings_as_array(x: Any) -> Any:
    has_only_strings = isinstance(x, list) and x and all(isinstance(part, str) for part in x)
    return np.array(x, object) if has_only_strings else x


def check_dense(name: str, part: Any) -> Any:
    """Returns `part`; raises a ValueError for a SciPy sparse matrix, which NumPy would read as one object."""
    refuse_if(hasattr(part, "toarray"), name, f"be dense: {name}.toarray()", kind=part)
    return part


def as_array(name: str, part: Any) -> np.ndarray:
    """Converts an array, a tensor, a pandas column or nested lists of equal lengths to NumPy."""
    check_dense(name, part)
    try:
        array = np.asarray(as_numpy(part))
        if array.dtype.kind not in "SU" or not isinstance(part, list | tuple):
            return array
        values = np.array(part, object)  # otherwise nan and numbers among strings would become strings
        return array if all(isinstance(value, str) for value in values.ravel()) else values
    except ValueError as error:
        sizes = [np.size(np.array(row, object)) for row in part]
        row = next((row for row, size in enumerate(sizes) if size != sizes[0]), 0)  # 0: another error of NumPy
        received = f"{sizes[0]} in row 0, {sizes[row]} in row {row}" if row else str(error)
        raise refusal(name, "have rows of equal length", received) from error


def count_examples(x: Any) -> int:
    """Returns the number of examples of an array, or of a list, tuple or dict of arrays; refuses other types."""
    arrays = [check_dense("x", part) for part in keras.tree.flatten(_strings_as_array(x))]
    wrong = [part for part in arrays if not len(getattr(part, "shape", ()))]
    if wrong or not arrays:
        kind = f"a {type(x).__name__} of {type(wrong[0]).__name__}" if wrong else f"an empty {type(x).__name__}"
        raise refusal("x", "be an array, a list or dict of arrays, or a data set: use np.asarray for lists", kind)
    return len(arrays[0])


def select_rows(x: Any, indices: np.ndarray) -> Any:
    """Returns the examples with these indices, as NumPy, from an array or a list, tuple or dict of arrays."""
    return keras.tree.map_structure(lambda part: np.asarray(as_numpy(part))[indices], _strings_as_array(x))


def row_blocks(count: int) -> list[slice]:
    """Returns slices that cover `count` rows in blocks, to bound the memory of temporaries."""
    return [slice(start, min(count, start + BLOCK_ROWS)) for start in range(0, count, BLOCK_ROWS)]


def argmax_rows(p: np.ndarray) -> np.ndarray:
    """Returns the argmax of each row, block by block, because NumPy copies a whole read-only array."""
    return np.concatenate([p[rows].argmax(axis=1) for rows in row_blocks(len(p))] or [np.zeros(0, int)])


def batches(x: Any, batch_size: int) -> Iterator[tuple[Any, Any]]:
    """Yields pairs of inputs and labels, or None without labels, batch by batch; see `batches_with_weights`."""
    return ((inputs, labels) for inputs, labels, _ in batches_with_weights(x, batch_size))


def batches_with_weights(x: Any, batch_size: int, *, keeps_order: bool = True) -> Iterator[tuple[Any, Any, Any]]:
    """Yields inputs, labels and weights, batch by batch; labels and weights are None if `x` has none.

    With `keeps_order`, results belong to row numbers. So the first batches of a data set are read again at the end, and
    a warning tells if they differ. Raises ValueError for an infinite data set.
    """
    x = _strings_as_array(x)
    if not is_data_set(x):
        for start in range(0, count_examples(x), batch_size):
            rows = slice(start, start + batch_size)
            yield keras.tree.map_structure(lambda part, rows=rows: _foreign_as_array(part[rows]), x), None, None
        return
    is_infinite = int(x.cardinality() if hasattr(x, "cardinality") else 0) == -1  # tf.data.INFINITE_CARDINALITY
    if is_infinite or (isinstance(x, keras.utils.PyDataset) and x.num_batches is None):
        raise refusal("x", "be a finite data set", "an infinite one")
    checksums: list[str] = []
    for batch in _read_data_set(x):
        if keeps_order and len(checksums) < COMPARED_BATCHES:
            checksums.append(checksum(batch))
        yield batch
    if checksums:
        _warn_if_shuffled(x, checksums)


def _warn_if_shuffled(x: Any, checksums: list[str]) -> None:
    """Warns if a data set yields other batches after an epoch; one that can be read only once yields none."""
    with preserve_random_states():
        again = [checksum(batch) for batch in first_batches(_after_epoch(x), len(checksums))]
    if again and again != checksums:
        warnings.warn(SHUFFLED, stacklevel=outside_level())


def _after_epoch(x: Any) -> Any:
    """Returns a copy of a `PyDataset` after an epoch of `fit` or `predict`; any other data set itself."""
    if not isinstance(x, keras.utils.PyDataset) or type(x).on_epoch_end is keras.utils.PyDataset.on_epoch_end:
        return x
    x, state = copy.copy(x), vars(x)
    memo = {id(part): part for part in keras.tree.flatten(state) if isinstance(part, np.memmap)}  # can exceed memory
    for name, value in state.items():
        with contextlib.suppress(Exception):  # an open file cannot be copied
            vars(x)[name] = copy.deepcopy(value, memo)
    x.on_epoch_end()
    return x


def checksum(*arrays: Any) -> str:
    """Returns a checksum of arrays, or of lists and dicts of arrays: equal for equal numbers, types and shapes."""
    total = hashlib.sha256()
    for part in keras.tree.flatten(arrays):
        array = np.ascontiguousarray(as_numpy(part))
        total.update(f"{array.dtype} {array.shape}".encode())
        total.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.reshape(-1).view("uint8").data)
    return total.hexdigest()


def first_batches(x: Any, count: int) -> Iterator[tuple[Any, Any, Any]]:
    """Yields inputs, labels and weights of the first batches of a data set, which can be infinite."""
    return itertools.islice(_read_data_set(x), count)


def _read_data_set(x: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields inputs, labels and weights, batch by batch; labels and weights are None if `x` has none."""
    numbers = itertools.count() if getattr(x, "num_batches", None) is None else range(x.num_batches)
    for batch in (x[i] for i in numbers) if isinstance(x, keras.utils.PyDataset) else x:
        inputs, *others = keras.utils.unpack_x_y_sample_weight(tuple(batch) if isinstance(batch, list) else batch)
        yield keras.tree.map_structure(_foreign_as_array, inputs), *others


def as_numpy(part: Any) -> Any:
    """Converts a tensor to NumPy; returns strings and other objects unchanged."""
    is_numeric = ops.is_tensor(part) and _dtype_name(part) != "string"
    return ops.convert_to_numpy(part) if is_numeric else _foreign_as_array(part)


def _dtype_name(part: Any) -> str:
    return getattr(getattr(part, "dtype", None), "name", "")


def _foreign_as_array(part: Any) -> Any:
    """Converts a tensor of another library to an array, which every backend accepts; returns the rest unchanged."""
    if ops.is_tensor(part) or isinstance(part, np.ndarray) or _dtype_name(part) == "string":
        return part
    if hasattr(part, "to_numpy"):  # first, because a table with a column "detach" would pass for a tensor
        return part.to_numpy()
    if hasattr(part, "detach"):
        part = part.detach().cpu()
        part = part.float() if "bfloat16" in str(part.dtype) else part  # NumPy has no bfloat16, and would raise
    return part.numpy() if hasattr(part, "numpy") else part


def labelled_batches(x: Any, y: Any, batch_size: int, name: str = "y") -> Iterator[tuple[Any, np.ndarray]]:
    """Yields pairs of inputs and NumPy labels, batch by batch; `y` is None for a data set.

    One pass reads inputs and labels, so they match even if the data set is shuffled. Raises ValueError for labels that
    are missing, doubled or not as many as the examples, for weights in a data set, and for different pandas indices.
    """
    if is_data_set(x) != (y is None):
        rule = "be labels for arrays, and None for a data set, which has its own labels"
        raise refusal(name, rule, f"{name}={'None' if y is None else 'labels'}, x a {type(x).__name__}")
    check_same_index(**{"x": x, name: y})
    all_labels, start = None if y is None else np.asarray(ops.convert_to_numpy(y)), 0
    if all_labels is not None and len(all_labels) != (count := count_examples(x)):
        raise refusal(name, f"have an entry for each of the {count} examples", len(all_labels))
    for inputs, labels, weights in batches_with_weights(x, batch_size, keeps_order=False):
        if weights is not None and np.any(np.asarray(as_numpy(weights)) != 1):
            raise refusal("x" if name == "y" else name, "be (x, y), without weights", "a data set with weights")
        if labels is None and all_labels is None:
            raise refusal("x", "yield pairs of inputs and labels, in batches", "a data set without labels")
        part = ops.convert_to_numpy(labels) if all_labels is None else all_labels[start : start + batch_size]
        start += batch_size
        yield inputs, np.asarray(part)


def as_arrays(x: Any, y: Any, name: str = "y") -> Arrays:
    """Converts examples and labels to arrays; reads a data set, with its weights, in one pass."""
    if not is_data_set(x):
        count_examples(x)
        refuse_if(y is None, name, "be labels for arrays", f"{name}=None")
        check_same_index(**{"x": x, name: y})
        return Arrays(keras.tree.map_structure(lambda part: np.asarray(as_numpy(part)), _strings_as_array(x)), y, None)
    refuse_if(y is not None, name, "be None for a data set, which has its own labels", "labels")
    parts = list(batches_with_weights(x, 1))
    if not parts or any(labels is None for _, labels, _ in parts):
        rule = "yield pairs of inputs and labels, in batches"
        raise refusal("x", rule, "no batch" if not parts else "a data set without labels")
    is_nested = any(keras.tree.is_nested(labels) for _, labels, _ in parts)
    refuse_if(is_nested, "x", "yield labels in one array, not in a dict or list", "nested labels")
    inputs = keras.tree.map_structure(
        lambda *chunks: np.concatenate([as_numpy(chunk) for chunk in chunks]), *[inputs for inputs, _, _ in parts]
    )
    labels = np.concatenate([np.asarray(as_numpy(labels)) for _, labels, _ in parts])
    if all(weights is None for _, _, weights in parts):
        return Arrays(inputs, labels, None)
    weights = [np.ones(len(y)) if weights is None else np.asarray(as_numpy(weights)) for _, y, weights in parts]
    return Arrays(inputs, labels, np.concatenate(weights))
