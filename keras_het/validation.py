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


def check_number(name, value, above):
    """`value` as a float, if it is finite and greater than `above`."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value <= above:
        raise ValueError(f"`{name}` must be a finite number greater than {above:g}. Received: {name}={value!r}")
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
