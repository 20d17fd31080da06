"""Learned temperature of a head."""

import math
from typing import Any

import keras
from keras import ops

from keras_het.base.precision import FullPrecision
from keras_het.base.refusal import refusal
from keras_het.base.serializable import Serializable
from keras_het.base.validation import check_number


@keras.saving.register_keras_serializable("keras_het")
class LearnedTemperature(Serializable, FullPrecision):
    """Learned temperature, tau = lower + (upper - lower) sigmoid(theta), with a weight theta.

    Pass it to a head as its `temperature`. The training loss prefers small temperatures once the labels are memorised.
    So stop early by noisy validation labels, and also try fixed temperatures.

    Args:
        lower: lower bound of tau; greater than 0.
        upper: upper bound of tau; greater than `lower`.
        initial: tau at the start, between the bounds.
    Raises:
        ValueError: for numbers outside these ranges, or if another head has it.
    Source: Collier, Jenatton, Mustafa, Houlsby, Berent and Kokiopoulou: Massively scaling heteroscedastic classifiers.
        ICLR 2023.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> head = HeteroscedasticDense(10, temperature=LearnedTemperature(0.5, 50.0, initial=5.0))
        >>> round(head.temperature, 4)
        5.0
    """

    def __init__(self, lower: float = 0.5, upper: float = 50.0, initial: float = 5.0, **kwargs: Any) -> None:
        super().__init__(**{"name": "temperature", **kwargs})
        self.lower = check_number("lower", lower, above=0.0)
        self.upper = check_number("upper", upper, above=self.lower)
        self.initial = check_number("initial", initial, above=self.lower)
        if self.initial >= self.upper:
            raise refusal("initial", "be less than `upper`", f"initial={initial!r}, upper={upper!r}")
        self.owner: Any = None

    def start(self, owner: str, trainable: bool, dtype: Any) -> None:
        """Makes this temperature belong to the head `owner`, with its `trainable` and `dtype`."""
        if self.owner is not None:
            raise refusal("temperature", "be new for every head", f"the temperature of {self.owner!r}")
        self.owner, self.trainable, self.dtype_policy = owner, trainable, dtype

    def build(self, input_shape: Any = None) -> None:
        fraction = (self.initial - self.lower) / (self.upper - self.lower)
        start = keras.initializers.Constant(math.log(fraction) - math.log1p(-fraction))
        self.theta = self.add_weight(name="theta", shape=(), initializer=start, autocast=False)

    def tensor(self) -> Any:
        """Returns tau, a scalar tensor with a gradient for theta."""
        return self.lower + (self.upper - self.lower) * ops.sigmoid(self.theta)

    @property
    def number(self) -> float:
        """Current tau."""
        return float(ops.convert_to_numpy(self.tensor())) if self.built else self.initial

    def get_build_config(self) -> None:
        """Returns None, because the head builds this layer, even when it is loaded from a file."""
