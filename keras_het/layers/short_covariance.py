"""The short spelling of a head's covariance: arguments of the head instead of a covariance object."""

import numbers
from typing import Any

import keras

from keras_het import covariances

DEFAULTS = {
    "num_factors": None,
    "parameter_efficient": False,
    "min_scale": 1e-3,
    "covariance_initializer": "zeros",
    "covariance_regularizer": None,
    "initial_scale": 0.15,
}


def resolve(covariance: Any, short: dict) -> covariances.Covariance:
    """The covariance that an object or a name gives, or, for None, the arguments of the short spelling."""
    return _made(short) if covariance is None else _given(covariance, short)


def config(layer: Any, is_given: bool) -> dict[str, Any]:
    """The arguments that make a covariance again, in the form in which it was given: an object, or in short."""
    if is_given:
        return {**DEFAULTS, "covariance": keras.saving.serialize_keras_object(layer)}
    return {
        "num_factors": layer.num_factors,
        "parameter_efficient": isinstance(layer, covariances.ParameterEfficient),
        "min_scale": layer.min_scale,
        "covariance_initializer": keras.initializers.serialize(layer.initializer),
        "covariance_regularizer": keras.regularizers.serialize(layer.regularizer),
        "initial_scale": layer.initial_scale,
        "covariance": None,
    }


def _made(short):
    """The covariance of the short spelling."""
    num_factors, efficient = short["num_factors"], short["parameter_efficient"]
    arguments = {
        "initializer": short["covariance_initializer"],
        "regularizer": short["covariance_regularizer"],
        "initial_scale": short["initial_scale"],
        "min_scale": short["min_scale"],
    }
    if isinstance(num_factors, numbers.Integral) and not isinstance(num_factors, bool) and num_factors == 0:
        if efficient:
            raise ValueError(
                "`parameter_efficient` must be False without factors. Received: parameter_efficient=True, num_factors=0"
            )
        return covariances.Diagonal(**arguments)
    kind = covariances.ParameterEfficient if efficient else covariances.LowRank
    return kind(num_factors, **arguments)


def _given(covariance, short):
    """The covariance that an object or a name gives; the arguments of the short spelling must be defaults."""
    changed = [name for name, value in short.items() if value != DEFAULTS[name]]
    if changed:
        kind = type(covariances.get(covariance)).__name__
        rule = (
            f"`covariance` must be None, or `{changed[0]}` its default: give it to the covariance, as "
            f"covariance={kind}(...)."
        )
        raise ValueError(f"{rule} Received: {changed[0]}={short[changed[0]]!r}")
    return covariances.get(covariance)
