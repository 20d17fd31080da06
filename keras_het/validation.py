"""Checks of arguments. Every error names the argument, the rule, and the value received."""

import math
import numbers

import numpy as np

_LARGEST, _SMALLEST = float(np.finfo("float32").max), float(np.finfo("float32").tiny)


def check_integer(name, value, low, high=None):
    """`value` as an int, if it is an integer in [low, high]."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        rule = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"`{name}` must be an integer {rule}. Received: {name}={value!r}")
    return int(value)


def check_number(name, value, above=-math.inf, low=None):
    """`value` as a float, if it is greater than `above`, or at least `low`, and neither infinite nor lost in float32."""
    whole_or_float = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    number = float(value) if whole_or_float and -_LARGEST < value < _LARGEST else math.nan
    in_range = number > above if low is None else number >= low
    if not in_range or (number and abs(number) < _SMALLEST):
        rule = f"greater than {above:g}" if low is None else f"at least {low:g}"
        raise ValueError(f"`{name}` must be a finite float32 number {rule}. Received: {name}={value!r}")
    return number


def check_boolean(name, value):
    """`value`, if it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")
    return value


def check_choice(name, value, choices):
    """`value`, if it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}. Received: {name}={value!r}")
    return value
