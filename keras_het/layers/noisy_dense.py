"""The base class of heads: a Dense layer whose outputs have the noise of a covariance."""

import numbers
import random
from typing import Any

import keras
from keras import ops

from keras_het import covariances
from keras_het.base.precision import AffineMap, FullPrecision, check_autocast, check_dtype
from keras_het.base.refusal import refusal
from keras_het.base.replicas import weight_parts
from keras_het.base.serializable import resolve
from keras_het.base.tensor import Tensor
from keras_het.base.validation import check_boolean, check_integer, check_last_axis
from keras_het.covariances.covariance import Covariance, Diagonal
from keras_het.covariances.low_rank import LowRank
from keras_het.covariances.parameter_efficient import ParameterEfficient

MAX_WEIGHT_BYTES = 16 << 30
RANK = "be given as num_factors={value!r}"
OF_DENSE = ("use_bias", "kernel_initializer", "bias_initializer", "kernel_regularizer", "bias_regularizer")


class NoisyDense(FullPrecision):
    """Base class of heads: a mean mu, an affine map of the input, and a covariance.

    A subclass binds the covariance to its units, builds what else it has, and defines `call`.

    Args:
        units: K, checked.
        num_factors: argument of `HeteroscedasticDense`.
        parameter_efficient: argument of `HeteroscedasticDense`.
        covariance: argument of `HeteroscedasticDense`.
        initial_scale: initial scale of a covariance that the other arguments make; None for its default.
        seed: integer in [0, 2^31); None draws one from Python's `random`.
        dtype: "float32", or "float64" on a backend that computes in it.
        kwargs: arguments of `keras.layers.Dense`: `use_bias`, initializers and regularizers of mu, and those of any
            layer.
    """

    def __init__(
        self,
        units: int,
        num_factors: int | None,
        *,
        parameter_efficient: bool,
        covariance: Any,
        initial_scale: float | None = None,
        seed: int | None = None,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        of_dense = {name: kwargs.pop(name) for name in OF_DENSE if name in kwargs}
        super().__init__(dtype=check_dtype(dtype), **kwargs)
        self.units = units
        check_boolean("use_bias", of_dense.get("use_bias", True))
        self.seed = random.randrange(1 << 31) if seed is None else check_integer("seed", seed, 0, (1 << 31) - 1)
        self.supports_masking = True
        self.loc_layer: Any = AffineMap(
            units, **of_dense, name="loc", trainable=self.trainable, dtype=self.dtype_policy
        )
        for name in OF_DENSE:
            setattr(self, name, getattr(self.loc_layer, name))
        check_boolean("parameter_efficient", parameter_efficient)
        self._is_short = covariance is None
        self.covariance = resolve_covariance(covariance, num_factors, parameter_efficient, initial_scale)

    @property
    def num_factors(self) -> Any:
        """R, the number of factors of the covariance."""
        return self.covariance.num_factors

    @property
    def parameter_efficient(self) -> bool:
        """Whether all inputs share V."""
        return isinstance(self.covariance, covariances.ParameterEfficient)

    def build(self, input_shape: Any) -> None:
        self.check_build(input_shape)
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: input_shape[-1]})
        self.loc_layer.build(input_shape)
        self.covariance.build(input_shape)

    def check_build(self, input_shape: Any) -> None:
        """Raises ValueError for an `input_shape` or sizes that a file could request, before anything is made.

        The head can then be built again.
        """
        features = check_last_axis(input_shape)
        if len(input_shape) < 2 or features is None:
            rule = "have shape (..., D) with D known and a leading axis"
            raise refusal("The input", rule, f"input_shape={input_shape}")
        self.covariance.fit_features(features)
        of_classes = [path for path, axis in self.covariance.class_axes().items() if axis is not None]
        shares = min((weight_parts(f"{self.path}/{self.covariance.name}/{path}") for path in of_classes), default=1)
        size = 4 * features * self.units / weight_parts(f"{self.path}/loc/kernel")
        size += 4 * self.covariance.count_weights(features, self.units) / shares
        if size > MAX_WEIGHT_BYTES:
            rule = f"keep within {MAX_WEIGHT_BYTES >> 30} GiB on each device, and have {size / 2**30:.4g}"
            raise ValueError(
                f"The weights must {rule}. Received: units={self.units}, num_factors={self.num_factors}, "
                f"parameter_efficient={self.parameter_efficient}, {features} features"
            )

    def class_axes(self) -> dict[str, int | None]:
        """Returns the axis of the classes of every weight, `{path below the head: axis}`; None without classes."""
        of_covariance = {f"{self.covariance.name}/{path}": axis for path, axis in self.covariance.class_axes().items()}
        return {"loc/kernel": 1, "loc/bias": 0, **of_covariance}

    def prepared(self, x: Tensor) -> Tensor:
        """Returns inputs `x`, `(..., D)`, as a tensor; builds the layer if it is not built."""
        x = ops.convert_to_tensor(x, dtype=self.compute_dtype)
        check_autocast(self.compute_dtype, beside=x)
        if not self.built:
            self.build(tuple(x.shape))
        return x

    def get_config(self) -> dict[str, Any]:
        of_loc = self.loc_layer.get_config()
        return {
            **super().get_config(),
            "units": self.units,
            **{name: of_loc[name] for name in OF_DENSE},
            "num_factors": self.num_factors if self._is_short else None,
            "parameter_efficient": self._is_short and self.parameter_efficient,
            "covariance": None if self._is_short else keras.saving.serialize_keras_object(self.covariance),
            "seed": self.seed,
        }


def resolve_covariance(
    covariance: Any, num_factors: int | None, parameter_efficient: bool, initial_scale: float | None = None
) -> covariances.Covariance:
    """Returns the covariance, or, for None, the covariance of the short spelling."""
    start = {} if initial_scale is None else {"initial_scale": initial_scale}
    if covariance is None:
        return make_covariance(num_factors, parameter_efficient, **start)
    short = {"num_factors": num_factors, "parameter_efficient": parameter_efficient or None, **start}
    given = [f"{name}={value!r}" for name, value in short.items() if value is not None]
    covariance = resolve(Covariance, covariance)
    if given:
        name, kind = given[0].split("=")[0], type(covariance).__name__
        rule = f"be None, or `{name}` its default: give it to the covariance, as covariance={kind}(...)"
        raise refusal("covariance", rule, given[0])
    return covariance


def make_covariance(num_factors: int | None = None, parameter_efficient: bool = False, **arguments: Any) -> Covariance:
    """Returns the covariance of a head's arguments: `Diagonal` for R = 0, else `LowRank` or `ParameterEfficient`.

    Raises:
        ValueError: for a shared V without factors.
    """
    is_zero = isinstance(num_factors, numbers.Integral) and not isinstance(num_factors, bool) and num_factors == 0
    if not is_zero:
        kind = ParameterEfficient if parameter_efficient else LowRank
        return kind(num_factors, **arguments)
    if parameter_efficient:
        raise refusal("parameter_efficient", "be False without factors", "parameter_efficient=True, num_factors=0")
    return Diagonal(**arguments)
