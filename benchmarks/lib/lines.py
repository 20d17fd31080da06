"""Lines of results, dicts with equal keys: those with given values, the values of a key, mean and standard error."""

import numpy as np


def select(lines, **values):
    """The lines that have these values."""
    return [line for line in lines if all(line[name] == value for name, value in values.items())]


def distinct(lines, name):
    """The values of a key, in order of first appearance."""
    return list(dict.fromkeys(line[name] for line in lines))


def with_error(values):
    """Mean +- standard error as text, or nothing if there are no numbers."""
    if np.isnan(np.asarray(values, float)).all():
        return ""
    error = f" +- {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{error}"
