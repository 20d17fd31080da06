"""Checks of arguments. Every error names the argument, the rule, and the value received."""

import math
import numbers


def check_integer(name, value, low, high=None):
    """`value` as an int, if it is an integer in [low, high]."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        rule = f"at least {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"`{name}` must be an integer {rule}. Received: {name}={value!r}")
    return int(value)


def check_number(name, value, above=None, low=None):
    """`value` as a float, if it is finite and greater than `above`, or at least `low`."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    in_range = number and math.isfinite(value) and (value > above if low is None else value >= low)
    if not in_range:
        rule = f"greater than {above:g}" if low is None else f"at least {low:g}"
        raise ValueError(f"`{name}` must be a finite number {rule}. Received: {name}={value!r}")
    return float(value)


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
