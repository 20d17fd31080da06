"""Choices: small serialisable objects that are given as arguments, as `keras.initializers` are."""

import inspect
import re
from typing import Any, Self, TypeVar

import keras

from keras_het.base.refusal import refusal


class Choice:
    """Base class of choices: `get_config` returns the arguments of the constructor.

    Register your own class with Keras, so that files can hold it.
    """

    def get_config(self) -> dict[str, Any]:
        """Arguments of the constructor.

        Raises:
            NotImplementedError: if the constructor has arguments, and the class no `get_config` of its own: a file
                would lose them.
        """
        if type(self).get_config is Choice.get_config and inspect.signature(type(self)).parameters:
            raise NotImplementedError(
                f"{type(self).__name__} has arguments and must define get_config, which returns them"
            )
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the choice of a config, as strictly as the constructor."""
        return cls(**config)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.get_config().items())})"


Kind = TypeVar("Kind")


def find_choice(argument: str, identifier: Any, base: type[Kind], known: tuple[type[Kind], ...]) -> Kind:
    """Finds a choice by an instance, a name ("QuasiMonteCarlo" or "quasi_monte_carlo"), or a serialised dict.

    Args:
        argument: name of the argument, for the error.
        identifier: the argument's value.
        base: the class of all choices of this argument.
        known: the choices that have a name.
    Returns:
        an instance of `base`.
    Raises:
        ValueError: if it is none of these.
    """
    if isinstance(identifier, base):
        return identifier
    by_name = {_in_lower_case(cls.__name__): cls for cls in known}
    if isinstance(identifier, str) and _in_lower_case(identifier) in by_name:
        return by_name[_in_lower_case(identifier)]()
    if isinstance(identifier, dict):
        found = keras.saving.deserialize_keras_object(identifier)
        if isinstance(found, base):
            return found
    if isinstance(identifier, type) and issubclass(identifier, base):
        raise refusal(argument, f"be an instance: {identifier.__name__}(...)", f"the class {identifier.__name__}")
    article = "an" if base.__name__[0] in "AEIOU" else "a"
    names = f"one of the names {', '.join(map(repr, by_name))}, " if by_name else ""
    raise refusal(argument, f"be {article} {base.__name__}, {names}or a serialised dict", value=identifier)


def _in_lower_case(name: str) -> str:
    """ "QuasiMonteCarlo" as "quasi_monte_carlo", "NormalCDF" as "normal_cdf"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
