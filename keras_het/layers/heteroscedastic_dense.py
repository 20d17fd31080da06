"""The head: a Dense layer whose logits carry input-dependent, correlated Gaussian noise."""

import math
import random

import keras
from keras import ops

from keras_het import integrators, links
from keras_het.layers.full_precision import AffineMap, FullPrecision, check_autocast, check_dtype
from keras_het.layers.unit_rows import UnitRows
from keras_het.ops.log_space import softplus_inverse
from keras_het.ops.low_rank import DiagonalNormal, LowRankNormal, ScaledLowRankNormal
from keras_het.validation import check_boolean, check_integer, check_number

DEFAULT_NUM_FACTORS = 15
MAX_WEIGHT_BYTES = 16 << 30


@keras.saving.register_keras_serializable("keras_het")
class HeteroscedasticDense(FullPrecision):
    """A drop-in `Dense` for classification under noisy labels.

        u(x) = mu(x) + d(x) * e_K + V(x) e_R,    e_K ~ N(0, I_K), e_R ~ N(0, I_R)          (Collier et al. 2021, section 2)
        softmax: log E[softmax(u / temperature)]            sigmoid: logit E[sigmoid(u / temperature)]      (Eqs. 3 and 5)

    mu is an affine map of the input, d = softplus(affine) + min_scale a standard deviation, and V is an affine map reshaped to
    `(K, R)`, or diag(v(x)) V with v affine and V free of the input (`parameter_efficient`). Both outputs are used as logits, with the
    usual losses under `from_logits=True`; softmax outputs are log-probabilities already.

    In training the nodes e_K, e_R are drawn anew at every step and shared by the examples of the batch, which costs no accuracy;
    the draw is a function of `seed` and of a counter that is saved with the weights, the same bits on every backend. Otherwise the
    nodes are a constant: `predict` is deterministic and exports. The temperature matters: choose it by `keras_het.select`.

    At the start the head is nearly the plain one. Its noise has a standard deviation of `initial_scale` temperatures, the same for all
    inputs, half of its variance in d and half in V, whose rows point in random directions: too small to hide what mu has learned, but
    not zero, where V would have no gradient. Where the labels ask for more noise, it grows.

    Args:
        units: K, the number of classes, from 2 for softmax and from 1 for sigmoid.
        num_factors: R, from 0 (diagonal covariance) to units; None is min(15, units).
        parameter_efficient: V(x) = diag(v(x)) V, which adds 2 (D K + K) + K R weights to a Dense layer instead of
            D K + K + D K R + K R.
        link: "softmax" for one label per example, "sigmoid" for independent ones, or an instance from `keras_het.links`.
        temperature: tau > 0.
        integrator: an instance or name from `keras_het.integrators`; None is the link's, QuasiMonteCarlo for softmax, ClosedForm for
            sigmoid.
        use_bias, kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer: of mu, as in `Dense`.
        min_scale: added to d; at least 0.
        covariance_initializer: of the kernels of d and V (or v); what it gives is added to the start by the biases.
        covariance_regularizer: of these kernels and of the shared V.
        initial_scale: standard deviation of a logit's noise at the start, in temperatures; greater than 0.
        seed: of the training noise, in [0, 2^31); None draws one from Python's `random`, as Keras does; the config keeps it.
        dtype: "float32", whatever the global policy, or "float64" on a backend that computes in it.
    Input shape: `(..., D)`, with at least one leading axis.    Output shape: `(..., units)`.
    Raises: ValueError for arguments outside these ranges.
    Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, Algorithm 1 (v has K entries, not R as printed).

    Example:
        >>> import numpy as np
        >>> head = HeteroscedasticDense(10, num_factors=3)
        >>> p = ops.convert_to_numpy(head.probabilities(np.zeros((2, 8))))
        >>> p.shape, round(float(p[0].sum()), 4)
        ((2, 10), 1.0)
    """

    def __init__(
        self,
        units,
        num_factors=None,
        *,
        parameter_efficient=False,
        link="softmax",
        temperature=5.0,
        integrator=None,
        use_bias=True,
        min_scale=1e-3,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        covariance_initializer="zeros",
        covariance_regularizer=None,
        initial_scale=0.15,
        seed=None,
        dtype="float32",
        **kwargs,
    ):
        if "activation" in kwargs:
            raise ValueError(
                "`activation` is not an argument: the layer returns log-probabilities (softmax) or logits (sigmoid). Use a loss with "
                f"from_logits=True, or `probabilities(x)`. Received: activation={kwargs['activation']!r}"
            )
        super().__init__(dtype=check_dtype(dtype), **kwargs)
        self.link = links.get(link)
        if units == 1 < self.link.min_units:
            raise ValueError('`units` must be an integer at least 2; one unit, for two classes, needs link="sigmoid". Received: units=1')
        self.units = check_integer("units", units, self.link.min_units)
        self.num_factors = _check_num_factors(num_factors, self.units)
        self.parameter_efficient = check_boolean("parameter_efficient", parameter_efficient)
        if parameter_efficient and self.num_factors == 0:
            raise ValueError("`parameter_efficient` must be False without factors. Received: parameter_efficient=True, num_factors=0")
        self.temperature = check_number("temperature", temperature, above=0.0)
        self.integrator = integrators.get(self.link.default_integrator if integrator is None else integrator)
        self.integrator.check(self.link, self.units, self.num_factors)
        self.use_bias = check_boolean("use_bias", use_bias)
        self.min_scale = check_number("min_scale", min_scale, low=0.0)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.covariance_initializer = keras.initializers.get(covariance_initializer)
        self.covariance_regularizer = keras.regularizers.get(covariance_regularizer)
        self.initial_scale = check_number("initial_scale", initial_scale, above=0.0)
        self.seed = random.randrange(1 << 31) if seed is None else check_integer("seed", seed, 0, (1 << 31) - 1)
        self.supports_masking = True
        self._make_maps()

    def _make_maps(self):
        """The affine maps of the input, as Dense layers; V of the parameter-efficient form follows in `build`."""
        self.loc = AffineMap(
            self.units,
            use_bias=self.use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            name="loc",
            trainable=self.trainable,
            dtype=self.dtype_policy,
        )
        start = self.initial_scale * self.temperature * (math.sqrt(0.5) if self.num_factors else 1.0)
        bias = softplus_inverse(max(start, 2.0 * self.min_scale) - self.min_scale)
        self.scale_diag = self._covariance_map("scale_diag", self.units, keras.initializers.Constant(bias))
        if self.parameter_efficient:
            self.row_scale = self._covariance_map("row_scale", self.units, keras.initializers.Constant(start))
        elif self.num_factors:
            rows = UnitRows(self.num_factors, self.seed, start)
            self.factor = self._covariance_map("factor", self.units * self.num_factors, rows)

    def _covariance_map(self, name, width, bias_initializer):
        return AffineMap(
            width,
            kernel_initializer=_copy(self.covariance_initializer),
            bias_initializer=bias_initializer,
            kernel_regularizer=self.covariance_regularizer,
            name=name,
            trainable=self.trainable,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape):
        if len(input_shape) < 2 or input_shape[-1] is None:
            raise ValueError(f"The input must have shape (..., D) with D known and a leading axis. Received: input_shape={input_shape}")
        self._check_memory(input_shape[-1])
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: input_shape[-1]})
        for name in ("loc", "scale_diag", "row_scale" if self.parameter_efficient else "factor"):
            if hasattr(self, name):
                getattr(self, name).build(input_shape)
        if self.parameter_efficient:
            self.factor = self.add_weight(
                name="factor",
                shape=(self.units, self.num_factors),
                initializer=UnitRows(self.num_factors, self.seed),
                regularizer=self.covariance_regularizer,
                autocast=False,  # or a method called inside another layer would see it rounded to that layer's precision
            )
        self.integrator.prepare(self.units, self.num_factors)
        self.step = self.add_weight(
            name="step", shape=(), dtype="int32", initializer="zeros", trainable=False, aggregation="only_first_replica"
        )

    def _check_memory(self, features):
        """Refuses, before anything is allocated, what a hostile file may ask for."""
        size = 4 * features * self.units * (2 + (1 if self.parameter_efficient else self.num_factors))
        size += 4 * self.units * self.num_factors
        if size > MAX_WEIGHT_BYTES:
            raise ValueError(
                f"The weights must keep within {MAX_WEIGHT_BYTES >> 30} GiB, and have {size / 2**30:.4g}. Received: units={self.units}, "
                f"num_factors={self.num_factors}, parameter_efficient={self.parameter_efficient}, {features} features"
            )

    @property
    def variables(self):
        """Mean, diagonal, factor, step counter: Keras alone would put a layer's own weights before those of its maps."""
        return self._own_last(super().variables)

    @property
    def weights(self):
        """As `variables`."""
        return self._own_last(super().weights)

    def _own_last(self, variables):
        own = {id(self.step)} | ({id(self.factor)} if self.parameter_efficient else set()) if self.built else set()
        return sorted(variables, key=lambda variable: id(variable) in own)

    def call(self, inputs, training=False):
        return self._integrate(inputs, self._next_key() if training else None)

    def _integrate(self, inputs, key=None):
        normal = self.logit_distribution(inputs).centered(self.link.center).divided(self.temperature)
        return self.integrator.integrate(self.link, normal, (self.units, self.num_factors), key)

    def _next_key(self):
        step = ops.convert_to_tensor(self.step) * 1  # a copy: on two backends the tensor would follow the assignment
        self.step.assign(step + 1)
        return self.seed, step

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """The call itself; where Keras would run it twice (`keras.RematScope`), it raises ValueError: see its text."""
        if super().rematerialized_call(layer_call, *args, **kwargs) is layer_call:
            return layer_call
        raise ValueError(
            "The head must not be rematerialised: it would draw other noise when it is run again for the backward pass, and count the step "
            "twice. It keeps no logits for the backward pass anyway. Make it, and the model around it, outside `keras.RematScope`, or name "
            f'the layers to rematerialise by mode="list_of_layers". Received: the layer {self.name!r} in such a scope'
        )

    def logit_distribution(self, x):
        """The Gaussian of the logits u, before division by the temperature, for inputs of shape `(..., D)`.

        Returns: `DiagonalNormal`, `LowRankNormal` or, parameter-efficient, `ScaledLowRankNormal`, of `keras_het.ops`.
        """
        x = self._prepared(x)
        loc, (scale_diag, row_scale) = self.loc(x), self._scales(x)
        if self.parameter_efficient:
            return ScaledLowRankNormal(loc, scale_diag, row_scale, ops.convert_to_tensor(self.factor))
        if not self.num_factors:
            return DiagonalNormal(loc, scale_diag)
        shape = (*ops.shape(loc)[:-1], self.units, self.num_factors)
        return LowRankNormal(loc, scale_diag, ops.reshape(self.factor(x), shape))

    def scales(self, x):
        """`(d, v)` for inputs of shape `(..., D)`, both `(..., K)`, without V, which is R times as large; v is None in the full form."""
        return self._scales(self._prepared(x))

    def _scales(self, x):
        scale_diag = ops.softplus(self.scale_diag(x)) + self.min_scale
        return scale_diag, self.row_scale(x) if self.parameter_efficient else None

    def _prepared(self, x):
        """Inputs as a tensor; the layer is built."""
        check_autocast(self.compute_dtype)
        x = ops.convert_to_tensor(x, dtype=self.compute_dtype)
        if not self.built:
            self.build(tuple(x.shape))
        return x

    def covariance(self, x, centered=None):
        """Covariance of the logits u, shape `(..., K, K)`.

        By default, for softmax, `centered=True`: only the part that a softmax identifies, see `DiagonalNormal.covariance`. A sigmoid
        identifies the variances, so for it the default is False.
        """
        centered = self.link.ignores_shift if centered is None else check_boolean("centered", centered)
        return self.logit_distribution(x).covariance(centered=centered)

    def probabilities(self, x):
        """Probabilities at inference, shape `(..., K)`: they sum to one for softmax, each is one label's own for sigmoid."""
        return self.link.probabilities(self._integrate(x))

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        return {
            **super().get_config(),
            "units": self.units,
            "num_factors": self.num_factors,
            "parameter_efficient": self.parameter_efficient,
            "link": keras.saving.serialize_keras_object(self.link),
            "temperature": self.temperature,
            "integrator": keras.saving.serialize_keras_object(self.integrator),
            "use_bias": self.use_bias,
            "min_scale": self.min_scale,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "covariance_initializer": keras.initializers.serialize(self.covariance_initializer),
            "covariance_regularizer": keras.regularizers.serialize(self.covariance_regularizer),
            "initial_scale": self.initial_scale,
            "seed": self.seed,
        }


def _check_num_factors(num_factors, units):
    if num_factors is None:
        return min(DEFAULT_NUM_FACTORS, units)
    try:
        return check_integer("num_factors", num_factors, 0, units)
    except ValueError:
        raise ValueError(
            f"`num_factors` must be None or an integer in [0, units]. Received: num_factors={num_factors!r}, units={units}"
        ) from None


def _copy(initializer):
    """An initializer of equal configuration. One unseeded instance would give every kernel of one shape the same values."""
    return initializer.clone() if isinstance(initializer, keras.initializers.Initializer) else initializer
