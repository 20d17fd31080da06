"""Objects whose config is read from their constructor, such as the links and integrators of heads."""

import inspect
import re
from typing import Any, ClassVar, Self

import keras

from keras_het.base.refusal import refusal


class Serializable:
    """Base class of objects whose config is the constructor's arguments, each an attribute of the same name.

    The `**kwargs` of a constructor are the arguments of its base class. Register your own class with Keras, so
    that files can contain it.
    """

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = getattr(super(), "get_config", dict)()
        arguments = {name: getattr(self, name) for name in _argument_names(type(self))}
        return {**config, **{name: keras.saving.serialize_keras_object(value) for name, value in arguments.items()}}


def _argument_names(kind: type) -> list[str]:
    """Returns the argument names of a constructor, and of the base classes that its `**kwargs` stands for."""
    names: list[str] = []
    for base in kind.__mro__:
        if not issubclass(base, Serializable):  # a Keras class, which has its own config
            break
        if "__init__" in vars(base):
            parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
            names += [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in names]
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    return names


class Component(Serializable):
    """Base class of links and integrators: small objects, like the initializers of `keras.initializers`."""

    named_classes: ClassVar[tuple[type, ...]] = ()  # classes that a string can name

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.get_config().items())})"


def resolve(base: Any, identifier: Any) -> Any:
    """Returns the object for an instance, a name ("QuasiMonteCarlo" or "quasi_monte_carlo"), or a serialised dict."""
    if isinstance(identifier, base):
        return identifier
    argument = _snake_case(base.__name__)
    classes = {_snake_case(cls.__name__): cls for cls in getattr(base, "named_classes", ())}
    if isinstance(identifier, str) and _snake_case(identifier) in classes:
        return classes[_snake_case(identifier)]()
    if isinstance(identifier, dict):
        instance = keras.saving.deserialize_keras_object(identifier)
        if isinstance(instance, base):
            return instance
    if isinstance(identifier, type) and issubclass(identifier, base):
        raise refusal(argument, f"be an instance: {identifier.__name__}(...)", f"the class {identifier.__name__}")
    article = "an" if base.__name__[0] in "AEIOU" else "a"
    names = f"one of the names {', '.join(map(repr, classes))}, " if classes else ""
    raise refusal(argument, f"be {article} {base.__name__}, {names}or a serialised dict", value=identifier)


def _snake_case(name: str) -> str:
    """Returns "quasi_monte_carlo" for "QuasiMonteCarlo"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
