"""Errors of one form, "`argument` must RULE. Received: VALUE", and the line that a warning names."""

import inspect
import traceback
import types
from typing import Any, cast

import numpy as np

MAX_VALUE_LETTERS = 200
_NOTHING = object()  # not None, which can be a value


def refusal(
    name: str, rule: str, received: Any = "", *, shape: Any = None, kind: Any = _NOTHING, value: Any = _NOTHING
) -> ValueError:
    """Returns the error for a wrong argument; one of the last four arguments tells what was received.

    `name` is an argument, or a text with a space, such as "The model"; `rule` follows "must". The error prints the
    `shape` of an array, the class of an object (`kind`), or the `value` of the argument, a large array as its shape.

    Example:
        >>> refusal("x", "have shape (N, D)", shape=np.zeros(3))
        ValueError('`x` must have shape (N, D). Received: shape (3,)')
    """
    if shape is not None:
        received = f"shape {tuple(shape.shape)}"
    elif kind is not _NOTHING:
        received = f"a {type(kind).__name__}"
    elif value is not _NOTHING:
        received = f"{name}={_short(value)}"
    return ValueError(f"{name if ' ' in name else f'`{name}`'} must {rule}. Received: {received}")


def _short(value: Any) -> str:
    """Returns the text of a value; for a long text its beginning, or the shape of the array."""
    text, shape = repr(value), tuple(getattr(value, "shape", ()))
    if len(text) <= MAX_VALUE_LETTERS:
        return text
    return f"a {type(value).__name__} of shape {shape}" if shape else f"{text[:MAX_VALUE_LETTERS]}..."


def refuse_if(wrong: Any, name: str, rule: str, received: Any = "", **shown: Any) -> None:
    """Raises the `refusal` if `wrong` is true."""
    if wrong:
        raise refusal(name, rule, received, **shown)


def refuse_first(wrong: np.ndarray, name: str, rule: str, array: np.ndarray, form: str = "") -> None:
    """Raises the `refusal` for the first entry of `array` where `wrong` is true; `form` is a format specifier."""
    if np.any(wrong):
        index = np.argwhere(wrong)[0].tolist()
        raise refusal(name, rule, f"{array[tuple(index)]:{form}} at {index}")


def outside_level() -> int:
    """Returns the `stacklevel` for a warning of the caller that names the user's line."""
    package = f"{__name__.partition('.')[0]}."
    caller = cast(types.FrameType, inspect.currentframe()).f_back
    names = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(caller))
    return next((level for level, name in enumerate(names, 1) if not f"{name}.".startswith(package)), 1)
