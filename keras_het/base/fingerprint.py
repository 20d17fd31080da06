"""Hashes of data and settings, to tell whether they are the same as those of an earlier run."""

import hashlib
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import as_numpy


def fingerprint(value: Any) -> str:
    """A hash of numbers, texts, None, arrays and tensors, also inside dicts, sets and sequences.

    A dict counts by its keys and values, in any order; an optimizer or a loss by its class and its config, without the
    names, which Keras counts up with every object that is made. Of a function only the name counts, of any other
    object, such as a callback, only the class.

    Example:
        >>> fingerprint({"a": 1, "b": [2.0]}) == fingerprint({"b": [2.0], "a": 1})
        True
        >>> fingerprint({"a": 1}) == fingerprint({"b": 1})
        False
    """
    if isinstance(value, dict):
        return _hash("dict", *sorted(fingerprint(key) + fingerprint(part) for key, part in value.items()))
    if isinstance(value, set | frozenset):
        return _hash("set", *sorted(map(fingerprint, value)))
    if isinstance(value, list | tuple | range):
        return _hash("sequence", *map(fingerprint, value))
    value = value.item() if isinstance(value, np.number | np.bool_ | np.character) else value
    if value is None or isinstance(value, int | float | complex | str | bytes):
        return _hash(type(value).__name__, repr(value))
    if isinstance(value, keras.optimizers.Optimizer | keras.losses.Loss):
        return _hash(type(value).__qualname__, fingerprint(_without_names(value.get_config())))
    found = as_numpy(value)
    return _of_array(np.asarray(found)) if hasattr(found, "__array__") else _hash("object", _name_of(value))


def _name_of(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def _without_names(config: Any) -> Any:
    if isinstance(config, dict):
        return {key: _without_names(value) for key, value in config.items() if key != "name"}
    return [_without_names(value) for value in config] if isinstance(config, list | tuple) else config


def _of_array(array: np.ndarray) -> str:
    kind = f"{array.dtype} {array.shape}"
    if array.dtype.kind in "OT":  # the bytes of objects and of texts of any length are addresses
        return _hash(kind, fingerprint(array.ravel().tolist()))
    return _hash(kind, array.tobytes())


def _hash(*parts: str | bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        found.update(f"{len(content)} ".encode())
        found.update(content)
    return found.hexdigest()
