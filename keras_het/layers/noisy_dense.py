"""Base class of heads: a Dense layer with a covariance."""

import numbers
import random
from typing import Any

import keras
from keras import ops

from keras_het import covariances
from keras_het.base.precision import AffineMap, FullPrecision, check_autocast, check_dtype
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.replicas import weight_parts
from keras_het.base.serializable import resolve
from keras_het.base.tensor import Tensor
from keras_het.base.validation import check_boolean, check_integer, check_last_axis
from keras_het.covariances.covariance import Covariance, Diagonal
from keras_het.covariances.low_rank import LowRank
from keras_het.covariances.parameter_efficient import ParameterEfficient

MAX_WEIGHT_BYTES = 16 << 30
PARTS = ("loc_layer", "covariance")  # attributes of a head that can be frozen on their own
DENSE_ARGUMENTS = (
    "use_bias", "kernel_initializer", "bias_initializer", "kernel_regularizer", "bias_regularizer",
    "kernel_constraint", "bias_constraint",
)  # fmt: skip


class NoisyDense(FullPrecision):
    """Base class of heads: a mean mu, which is an affine map of the input, and a covariance.

    A subclass binds the covariance to its units, builds its other parts, and defines `call`. The arguments are those of
    `HeteroscedasticDense`, with valid `units`, and `initial_scale` of the covariance; None is its default.
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
        if "rank" in kwargs:
            raise refusal("rank", f"be given as num_factors={kwargs['rank']!r}", value=kwargs["rank"])
        dense_arguments = {name: kwargs.pop(name) for name in DENSE_ARGUMENTS if name in kwargs}
        super().__init__(dtype=check_dtype(dtype), **kwargs)
        self.units = units
        check_boolean("use_bias", dense_arguments.get("use_bias", True))
        self.seed = random.randrange(1 << 31) if seed is None else check_integer("seed", seed, 0, (1 << 31) - 1)
        self.supports_masking = True
        self.loc_layer: Any = AffineMap(
            units, **dense_arguments, name="loc", trainable=self.trainable, dtype=self.dtype_policy
        )
        for name in DENSE_ARGUMENTS:
            setattr(self, name, getattr(self.loc_layer, name))
        check_boolean("parameter_efficient", parameter_efficient)
        self._has_short_spelling = covariance is None
        self.covariance = resolve_covariance(covariance, num_factors, parameter_efficient, initial_scale)

    @property
    def num_factors(self) -> Any:
        """Number of factors R of the covariance."""
        return self.covariance.num_factors

    @property
    def parameter_efficient(self) -> bool:
        """True if all inputs share V."""
        return isinstance(self.covariance, covariances.ParameterEfficient)

    def build(self, input_shape: Any) -> None:
        self.check_build(input_shape)
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: input_shape[-1]})
        self.loc_layer.build(input_shape)
        self.covariance.build(input_shape)

    def check_build(self, input_shape: Any) -> None:
        """Raises ValueError for sizes that a file could request, before anything is made, so you can build again."""
        features = check_last_axis(input_shape)
        if len(input_shape) < 2 or features is None:
            rule = "have shape (..., D) with a known D and a leading axis"
            raise refusal("The input", rule, f"input_shape={input_shape}")
        self.covariance.fit_features(features)
        paths = [path for path, axis in self.covariance.class_axes().items() if axis is not None]
        parts = min((weight_parts(f"{self.path}/{self.covariance.name}/{path}") for path in paths), default=1)
        size = 4 * features * self.units / weight_parts(f"{self.path}/loc/kernel")
        size += 4 * self.covariance.count_weights(features, self.units) / parts
        if size > MAX_WEIGHT_BYTES:
            rule = f"have at most {MAX_WEIGHT_BYTES >> 30} GiB on each device, but would have {size / 2**30:.4g}"
            raise ValueError(
                f"The weights must {rule}. Received: units={self.units}, num_factors={self.num_factors}, "
                f"parameter_efficient={self.parameter_efficient}, {features} features"
            )

    def class_axes(self) -> dict[str, int | None]:
        """Returns the class axis of every weight, `{path below the head: axis}`; None for a weight without classes."""
        axes = {f"{self.covariance.name}/{path}": axis for path, axis in self.covariance.class_axes().items()}
        return {"loc/kernel": 1, "loc/bias": 0, **axes}

    def prepare_inputs(self, x: Tensor) -> Tensor:
        """Converts inputs `x`, `(..., D)`, to a tensor, and builds the layer if necessary."""
        x = ops.convert_to_tensor(x, dtype=self.compute_dtype)
        check_autocast(self.compute_dtype, beside=x)
        if not self.built:
            self.build(tuple(x.shape))
        return x

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Makes a head from its config; its mean or covariance is frozen if it was frozen in a trainable head."""
        frozen = config.get("frozen", [])
        rule = f"be a list of the names {', '.join(map(repr, PARTS))}"
        refuse_if(
            not isinstance(frozen, list | tuple) or not set(map(str, frozen)) <= set(PARTS), "frozen", rule, frozen
        )
        head = super().from_config({name: value for name, value in config.items() if name != "frozen"})
        for name in frozen:
            getattr(head, name).trainable = False
        return head

    def get_config(self) -> dict[str, Any]:
        loc_config = self.loc_layer.get_config()
        parts = [name for name in PARTS if not getattr(self, name).trainable]
        return {
            **super().get_config(),
            **({"frozen": parts} if parts and self.trainable else {}),
            "units": self.units,
            **{name: loc_config[name] for name in DENSE_ARGUMENTS},
            "num_factors": self.num_factors if self._has_short_spelling else None,
            "parameter_efficient": self._has_short_spelling and self.parameter_efficient,
            "covariance": None if self._has_short_spelling else keras.saving.serialize_keras_object(self.covariance),
            "seed": self.seed,
        }


def resolve_covariance(
    covariance: Any, num_factors: int | None, parameter_efficient: bool, initial_scale: float | None = None
) -> covariances.Covariance:
    """Returns the covariance; for None, the covariance that the other arguments describe."""
    start = {} if initial_scale is None else {"initial_scale": initial_scale}
    if covariance is None:
        return make_covariance(num_factors, parameter_efficient, **start)
    short_arguments = {"num_factors": num_factors, "parameter_efficient": parameter_efficient or None, **start}
    conflicts = [f"{name}={value!r}" for name, value in short_arguments.items() if value is not None]
    covariance = resolve(Covariance, covariance)
    if conflicts:
        name, kind = conflicts[0].split("=")[0], type(covariance).__name__
        rule = f"be None, or `{name}` its default: pass it to the covariance, as covariance={kind}(...)"
        raise refusal("covariance", rule, conflicts[0])
    return covariance


def make_covariance(num_factors: int | None = None, parameter_efficient: bool = False, **arguments: Any) -> Covariance:
    """Builds the covariance of a head's arguments: `Diagonal` for R = 0, else `LowRank` or `ParameterEfficient`."""
    is_zero = isinstance(num_factors, numbers.Integral) and not isinstance(num_factors, bool) and num_factors == 0
    received = "parameter_efficient=True, num_factors=0"
    refuse_if(is_zero and parameter_efficient, "parameter_efficient", "be False without factors", received)
    kind = ParameterEfficient if parameter_efficient else LowRank
    return Diagonal(**arguments) if is_zero else kind(num_factors, **arguments)
