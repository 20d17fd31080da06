"""Hashes of data and settings, to tell whether they are the same as those of an earlier run."""

import copyreg
import dis
import enum
import hashlib
import pathlib
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any, NoReturn

import keras
import numpy as np

from keras_het.base.batches import as_numpy

ATOMS = (type(None), bool, int, float, complex, str, bytes)
BY_KERAS = ("params", "_model")  # what `fit` writes into a callback
LIBRARIES = {"keras", "keras_het", *sys.stdlib_module_names}
BY_NAME = ("function", "__lambda__")  # of which a config has the name, or what one version of Python made of it
RULE = (
    "go with arguments that can be compared with those of another call: data, functions, Keras objects with a "
    "`get_config`, and objects that `pickle` can take apart"
)


def fingerprint(value: Any) -> str:
    """A hash of all that a value holds; equal for equal values, also in another process.

    * Numbers, texts, None, arrays and tensors count by what they are, and dicts, sets and sequences of them, too; dicts
      in any order.
    * Keras objects count by their config, without the names, which Keras counts up with every object that is made, but
      for those inside a model; layers also by their weights. A class that has an `__init__` must have a `get_config`.
    * Functions count by their code, their defaults, what they close over, and the globals of their module that they
      name.
    * All other objects, such as dataclasses, callbacks and candidates, count by what `pickle` would keep, which is all
      attributes as a rule, and by the attributes of their classes that are no methods.

    Of classes, and of the functions in other modules that a function calls, the code does not count.

    Args:
        value: a dict of the arguments by their names, for the errors.
    Raises:
        ValueError: for anything else, such as an open file, a lock or a generator; it says where that is.

    Example:
        >>> fingerprint({"a": 1, "b": [2.0]}) == fingerprint({"b": [2.0], "a": 1})
        True
        >>> fingerprint({"a": lambda rate: 2 * rate}) == fingerprint({"a": lambda rate: 3 * rate})
        False
    """
    return _Reader().read(value, "")


class _Reader:
    """Hashes a value part by part, and knows the parts that it is in: a value may hold itself."""

    def __init__(self) -> None:
        self._around: list[int] = []

    def read(self, value: Any, name: str) -> str:
        """The hash of a value, which has this name in errors."""
        value = value.item() if isinstance(value, np.number | np.bool_ | np.character) else value
        if type(value) in ATOMS:
            return _hash(type(value).__name__, repr(value))
        if id(value) in self._around:
            return _hash("around", str(len(self._around) - self._around.index(id(value))))
        self._around.append(id(value))
        try:
            return self._of_parts(value, name)
        finally:
            self._around.pop()

    def _of_parts(self, value: Any, name: str) -> str:
        if type(value) is dict:
            parts = [(self.read(key, name), self.read(part, _inside(name, key))) for key, part in value.items()]
            return _hash("dict", *map("".join, sorted(parts)))
        if type(value) in (set, frozenset):
            return _hash("set", *sorted(self.read(part, name) for part in value))
        if type(value) in (list, tuple, range):
            return _hash("sequence", *(self.read(part, f"{name}[{place}]") for place, part in enumerate(value)))
        if isinstance(value, type):
            return _hash("class", value.__module__, value.__qualname__, *self._constants(value, name))
        if isinstance(value, types.ModuleType):
            return _hash("module", value.__name__)
        if isinstance(value, types.FunctionType):
            return self._of_function(value, name)
        if isinstance(value, types.MethodType):
            return _hash("method", self.read(value.__self__, name), self.read(value.__func__, name))
        if (array := self._array(value, name)) is not None:
            return self._of_array(array, name)
        if hasattr(type(value), "get_config"):
            return self._of_keras_object(value, name)
        return self._of_object(value, name)

    def _constants(self, kind: type, name: str) -> Iterator[str]:
        """The hashes of the attributes of a user's class that are neither methods nor other descriptors."""
        for base in () if isinstance(kind, enum.EnumMeta) else kind.__mro__:
            if not _is_of_a_library(base.__module__):
                for key, part in vars(base).items():
                    if not (key.startswith("__") or key == "_abc_impl" or hasattr(type(part), "__get__")):
                        yield _hash(key, self.read(part, f"{name}.{key}"))

    def _of_function(self, function: types.FunctionType, name: str) -> str:
        module, title = function.__module__ or "", function.__qualname__
        if _is_of_a_library(module) and "<" not in title:  # neither a lambda nor made by another function
            return _hash("function", module, title)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        inner = {key: cell.cell_contents for key, cell in cells.items() if not _is_empty(cell)}
        names = set(_globals_of(function.__code__)) & function.__globals__.keys()
        outer = {key: _own_or_name(function.__globals__[key], module) for key in names}
        parts = {"defaults": function.__defaults__, "keywords": function.__kwdefaults__, **vars(function)}
        return _hash(
            "function",
            self._of_code(function.__code__, name),
            *(self.read(each, name) for each in (inner, outer, parts)),
        )

    def _of_code(self, code: types.CodeType, name: str) -> str:
        constants = [
            self._of_code(part, name) if isinstance(part, types.CodeType) else self.read(part, name)
            for part in code.co_consts
        ]
        return _hash("code", code.co_code, repr(code.co_names), *constants)

    def _array(self, value: Any, name: str) -> np.ndarray | None:
        """An array or a tensor as NumPy; None for all else, such as a file, whose method `detach` would close it."""
        if not (hasattr(type(value), "__array__") or keras.ops.is_tensor(value)):
            return None
        try:
            return np.asarray(as_numpy(value))
        except Exception as error:
            _refuse(value, name, error)

    def _of_array(self, array: np.ndarray, name: str) -> str:
        kind = f"{array.dtype} {array.shape}"
        if array.dtype.hasobject:  # the bytes of objects and of texts of any length are addresses
            return _hash(kind, self.read(array.ravel().tolist(), name))
        return _hash(kind, array.tobytes())

    def _of_keras_object(self, value: Any, name: str) -> str:
        if not _has_own_config(type(value)):
            _refuse(value, name, "its class has an `__init__`, and no `get_config` that tells its arguments")
        try:
            config = value.get_config()
        except Exception as error:
            _refuse(value, name, error)
        if (function := next(_functions_in(config), None)) is not None:
            _refuse(value, name, f"its config has the function {function!r} by name alone")
        known = config if isinstance(value, keras.Model) else _without_names(config)  # a model's graph is of names
        weights = value.get_weights() if isinstance(value, keras.layers.Layer) else []
        return _hash("config", self.read(type(value), name), self.read(known, name), self.read(weights, name))

    def _of_object(self, value: Any, name: str) -> str:
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            found = value.__reduce_ex__(4) if reduce is None else reduce(value)
        except Exception as error:
            _refuse(value, name, error)
        if isinstance(found, str):
            return _hash("global", type(value).__qualname__, str(getattr(value, "__module__", "")), found)
        make, arguments, state, items, pairs = (*found, None, None, None)[:5]
        if isinstance(value, keras.callbacks.Callback) and isinstance(state, dict):
            state = {key: part for key, part in state.items() if key not in BY_KERAS}
        parts = [make, arguments, list(items or ()), list(pairs or ())]
        return _hash("object", self.read(parts, name), self._of_state(state, name))

    def _of_state(self, state: Any, name: str) -> str:
        """The hash of what an object holds: a dict of its attributes, two of them where it has slots, or anything."""
        if type(state) is tuple:
            return _hash("states", *(self._of_state(part, name) for part in state))
        if type(state) is not dict:
            return self.read(state, name)
        return _hash("state", *sorted(self.read(str(k), name) + self.read(v, f"{name}.{k}") for k, v in state.items()))


def _refuse(value: Any, name: str, fault: Any) -> NoReturn:
    found = f"{name.lstrip('.')}, a {type(value).__name__} ({textwrap.shorten(str(fault), 100)})"
    raise ValueError(f"`path` must {RULE}. Received: {found}; leave that out, or call without `path`")


def _inside(name: str, key: Any) -> str:
    return f"{name}[{key!r}]" if name else str(key)


def _is_of_a_library(module: str) -> bool:
    """Whether a module is installed, so that its code stays as it is; the globals of one may be anything."""
    file = pathlib.PurePath(getattr(sys.modules.get(module), "__file__", None) or "")
    return module.partition(".")[0] in LIBRARIES or bool({"site-packages", "dist-packages"} & {*file.parts})


def _is_empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """The names of the globals in code, and in the functions inside it."""
    yield from (step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _globals_of(part)


def _own_or_name(value: Any, module: str) -> Any:
    """A global of a module, or the name of a function that is from another one."""
    is_foreign = isinstance(value, types.FunctionType) and value.__module__ != module
    return ["function", value.__module__, value.__qualname__] if is_foreign else value


def _has_own_config(kind: type) -> bool:
    """Whether the class whose `__init__` makes an object, or one below it, has a `get_config`: else that knows less."""
    made = next(base for base in kind.__mro__ if "__init__" in vars(base))
    told = next(base for base in kind.__mro__ if "get_config" in vars(base))
    return _is_of_a_library(made.__module__) or issubclass(told, made)


def _functions_in(config: Any) -> Iterator[Any]:
    """The names of functions that a config has by their names alone; one that is registered has another name there."""
    if isinstance(config, dict):
        if config.get("class_name") in BY_NAME and config.get("registered_name", "function") == "function":
            yield config.get("config")
        for part in config.values():
            yield from _functions_in(part)
    elif isinstance(config, list | tuple):
        for part in config:
            yield from _functions_in(part)


def _without_names(config: Any) -> Any:
    if isinstance(config, dict):
        return {key: _without_names(value) for key, value in config.items() if key != "name"}
    return [_without_names(value) for value in config] if isinstance(config, list | tuple) else config


def _hash(*parts: str | bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        found.update(f"{len(content)} ".encode())
        found.update(content)
    return found.hexdigest()
