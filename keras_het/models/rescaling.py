"""Regularizers and constraints for weights that a conversion multiplied by a temperature."""

from typing import Any

import keras

from keras_het.base.validation import check_number


class _Rescaled:
    """Base class of functions of weights divided by a number, `scale`."""

    def __init__(self, function: Any, scale: float) -> None:
        self.function, self.scale = self.get_function(function), check_number("scale", scale, above=0.0)

    @staticmethod
    def get_function(identifier: Any) -> Any:
        """Returns the function for an instance, a name or a config."""

    def get_config(self) -> dict[str, Any]:
        return {"function": keras.saving.serialize_keras_object(self.function), "scale": self.scale}


@keras.saving.register_keras_serializable("keras_het")
class RescaledRegularizer(_Rescaled, keras.regularizers.Regularizer):
    """Regularizer of weights divided by a number: function(weights / scale)."""

    get_function = staticmethod(keras.regularizers.get)

    def __call__(self, x: Any) -> Any:
        return self.function(x / self.scale)


@keras.saving.register_keras_serializable("keras_het")
class RescaledConstraint(_Rescaled, keras.constraints.Constraint):
    """Constraint on weights divided by a number: scale * function(weights / scale)."""

    get_function = staticmethod(keras.constraints.get)

    def __call__(self, w: Any) -> Any:
        return self.scale * self.function(w / self.scale)


def rescale(name: str, function: Any, old_temperature: float, temperature: float) -> Any:
    """Returns the function of `Dense`'s argument `name` that acts on the logits as before at another temperature."""
    if function is None or temperature == old_temperature:
        return function
    scale = temperature / old_temperature
    if isinstance(function, _Rescaled):
        if function.scale * temperature == old_temperature:  # the inverse gives the first function back
            return function.function
        function, scale = function.function, function.scale * scale
    return (RescaledConstraint if name.endswith("constraint") else RescaledRegularizer)(function, scale)
