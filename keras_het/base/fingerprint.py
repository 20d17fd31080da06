"""Hashes of data and settings, to tell whether they are the same as those of an earlier run."""

import copyreg
import hashlib
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any, NoReturn

import keras
import numpy as np

from keras_het.base.batches import as_numpy, row_blocks

ATOMS = (type(None), bool, int, float, complex, str, bytes)
BY_KERAS = ("params", "_model")  # what `fit` writes into a callback
RULE = (
    "go with arguments that can be compared with those of a later run: data, functions, Keras objects, and objects "
    "that `pickle` can take apart"
)


def fingerprint(value: Any) -> str:
    """A hash of all that a value holds; equal for equal values, also in another process.

    * Numbers, texts, None, arrays and tensors count by what they are, and dicts, sets and sequences of them, too; dicts
      in any order.
    * Keras objects count by class and config, without the names, which Keras counts up with every object that is made.
    * Functions count by their code, their defaults, and what they close over.
    * All other objects, such as dataclasses, callbacks and candidates, count by what `pickle` would keep: all
      attributes as a rule.

    Of a user's classes the code of the methods counts, too; of the functions that a function calls it does not.

    Args:
        value: a dict of the arguments by their names, for the errors.
    Raises:
        ValueError: for anything else, such as an open file, a lock, a generator or a data set; it says where that is.

    Example:
        >>> fingerprint({"a": 1, "b": [2.0]}) == fingerprint({"b": [2.0], "a": 1})
        True
        >>> fingerprint({"a": lambda rate: 2 * rate}) == fingerprint({"a": lambda rate: 3 * rate})
        False
    """
    return _read(value, "", ())


def _read(value: Any, name: str, around: tuple[int, ...]) -> str:
    """The hash of a value, which has this name in errors, inside others of these ids: a value may hold itself."""
    value = value.item() if isinstance(value, np.number | np.bool_ | np.character) else value
    if type(value) in ATOMS:
        return _hash(type(value).__name__, repr(value))
    if id(value) in around:
        return _hash("around", str(len(around) - around.index(id(value))))
    around = (*around, id(value))

    def read(*parts: Any, name: str = name) -> list[str]:
        return [_read(part, name, around) for part in parts]

    if type(value) is dict:
        parts = ["".join(read(key) + read(part, name=_inside(name, key))) for key, part in value.items()]
        return _hash("dict", *sorted(parts))
    if type(value) in (set, frozenset):
        return _hash("set", *sorted(read(*value)))
    if type(value) in (list, tuple, range):
        return _hash("sequence", *(read(part, name=f"{name}[{index}]")[0] for index, part in enumerate(value)))
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType | np.ufunc):
        title = getattr(value, "__qualname__", value.__name__)
        own = [] if not isinstance(value, type) or _is_known(value) else _methods_of(value)
        return _hash("name", str(getattr(value, "__module__", "")), title, *read(*own))
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return _hash("function", *read(value.__code__, value.__defaults__, value.__kwdefaults__, cells))
    if isinstance(value, types.CodeType):
        return _hash("code", value.co_code, repr(value.co_names), *read(*value.co_consts))
    if isinstance(value, types.MethodType):
        return _hash("method", *read(value.__self__, value.__func__))
    if hasattr(type(value), "__array__") or keras.ops.is_tensor(value):
        return _of_array(_as_array(value, name), name, around)
    if hasattr(type(value), "get_config") and not isinstance(value, keras.Model):
        return _hash("config", *read(type(value), without_names(_config_of(value, name))))
    return _hash("object", *read(type(value)), *read(*_reduced(value, name), name=f"{name}."))


def _is_known(kind: type) -> bool:
    """Whether a class is of Python or of an installed package, whose code stays as it is, or one of tuples."""
    root = kind.__module__.partition(".")[0]
    file = str(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    return root in sys.stdlib_module_names - {"__main__"} or root == "keras_het" or "site-packages" in file


def _methods_of(kind: type) -> list[Any]:
    """The code of the methods of a user's class, by their names, without what they close over."""
    methods = {name: part for name, part in vars(kind).items() if isinstance(part, types.FunctionType)}
    return [{name: [part.__code__, part.__defaults__] for name, part in methods.items()}]


def _as_array(value: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(as_numpy(value))
    except Exception as error:
        _refuse(value, name, error)


def _of_array(array: np.ndarray, name: str, around: tuple[int, ...]) -> str:
    kind = f"{array.dtype} {array.shape}"
    if not array.ndim and hasattr(type(array.item()), "__array__"):  # a ragged tensor, a single object for NumPy
        _refuse(array.item(), name, "NumPy makes no array of it")
    if array.dtype.hasobject:  # the bytes of objects and of texts of any length are addresses
        return _hash(kind, _read(array.ravel().tolist(), name, around))
    return _hash(kind, array)


def _config_of(value: Any, name: str) -> Any:
    """The config of a Keras object, whose class must tell its own arguments."""
    made, told = (
        next(base for base in type(value).__mro__ if method in vars(base)) for method in ("__init__", "get_config")
    )
    if not made.__module__.startswith(("keras.", "keras_het.")) and not issubclass(told, made):
        _refuse(value, name, "its class has an `__init__`, and no `get_config` that tells its arguments")
    try:
        return value.get_config()
    except Exception as error:
        _refuse(value, name, error)


def _reduced(value: Any, name: str) -> list[Any]:
    """What `pickle` would keep of an object: how it is made, and a dict of its attributes as a rule."""
    reduce = copyreg.dispatch_table.get(type(value))
    try:
        found = value.__reduce_ex__(4) if reduce is None else reduce(value)
    except Exception as error:
        _refuse(value, name, error)
    if isinstance(found, str):
        return [str(getattr(value, "__module__", "")), found]
    make, arguments, state, items, pairs = (*found, None, None, None)[:5]
    if isinstance(value, keras.callbacks.Callback) and isinstance(state, dict):
        state = {key: part for key, part in state.items() if key not in BY_KERAS}
    return [make, arguments, state, list(items or ()), list(pairs or ())]


def _refuse(value: Any, name: str, fault: Any) -> NoReturn:
    found = f"{name.strip('.')}, a {type(value).__name__} ({textwrap.shorten(str(fault), 100)})"
    raise ValueError(f"`resume_path` must {RULE}. Received: {found}; leave that out, or call without `resume_path`")


def _inside(name: str, key: Any) -> str:
    if not name:
        return str(key)
    return f"{name}{key}" if name.endswith(".") else f"{name}[{key!r}]"


def without_names(config: Any) -> Any:
    """A config without the names in it, which Keras counts up with every object that is made."""
    if isinstance(config, dict):
        if str(config.get("class_name", "")).endswith("DTypePolicy"):  # whose name is what it is
            return config
        return {key: without_names(value) for key, value in config.items() if key != "name"}
    return [without_names(value) for value in config] if isinstance(config, list | tuple) else config


def _hash(*parts: str | bytes | np.ndarray) -> str:
    found = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        found.update(f"{content.nbytes if isinstance(content, np.ndarray) else len(content)} ".encode())
        for block in _blocks(content):
            found.update(block)
    return found.hexdigest()


def _blocks(content: bytes | np.ndarray) -> Iterator[bytes]:
    """The bytes of an array, block by block, for a memory map may be larger than the memory."""
    if isinstance(content, bytes):
        yield content
    elif not content.ndim:
        yield content.tobytes()
    else:
        yield from (content[rows].tobytes() for rows in row_blocks(len(content)))
