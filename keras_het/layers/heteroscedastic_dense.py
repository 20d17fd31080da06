"""The head: a Dense layer whose logits carry input-dependent, correlated Gaussian noise, and the clock of its steps."""

import math
from typing import Any

import keras
from keras import ops

from keras_het import covariances, integrators, links
from keras_het.base.compiler import outside_graph
from keras_het.base.eager import numbers
from keras_het.base.graph import activation_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.serializable import resolve
from keras_het.base.tensor import Tensor
from keras_het.base.validation import MAX_CLASSES, check_boolean, check_integer, check_number
from keras_het.layers.learned_temperature import LearnedTemperature
from keras_het.layers.noisy_dense import RANK, NoisyDense, resolve_covariance


@keras.saving.register_keras_serializable("keras_het")
class Clock(keras.layers.Layer):
    """A seed and a step counter, of which the noise is a function; the counter is saved with the weights.

    Args:
        seed: seed of the noise.
    """

    def __init__(self, seed: int, **kwargs: Any) -> None:
        super().__init__(**{"name": "clock", **kwargs})
        self.seed = seed

    def build(self, input_shape: Any = None) -> None:
        self.step = self.add_weight(
            name="step", shape=(), dtype="int32", initializer="zeros", trainable=False, aggregation="only_first_replica"
        )

    def tick(self) -> tuple[Any, Any]:
        """Returns the key of this step, (seed, step), and advances the counter."""
        step = ops.convert_to_tensor(self.step)
        seed, one = numbers(self.seed, 1, beside=step)
        step = step * one  # a copy: on two backends the assignment would change the tensor
        self.step.assign(step + one)
        return seed, step

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "seed": self.seed}


# Arguments of the covariance and of the integrator, and names of other packages, with the rule that mends them.
COVARIANCE_RULE = "be an argument of the covariance: covariance=keras_het.covariances.{kind}(..., {name}={value!r})"
INTEGRATOR_RULE = "be an argument of the integrator: integrator=keras_het.integrators.QuasiMonteCarlo({value!r})"
OTHER_ARGUMENTS = {
    **dict.fromkeys(
        ("min_scale", "initial_scale", "covariance_initializer", "covariance_regularizer"), COVARIANCE_RULE
    ),
    **dict.fromkeys(("num_samples", "num_mc_samples", "train_mc_samples"), INTEGRATOR_RULE),
    "test_mc_samples": INTEGRATOR_RULE.replace("({value", "(..., inference_samples={value"),
    "rank": RANK,
}


@keras.saving.register_keras_serializable("keras_het")
class HeteroscedasticDense(NoisyDense):
    """A drop-in `Dense` for classification under noisy labels.

        u(x) = mu(x) + d(x) * e_K + V(x) e_R,    e_K ~ N(0, I_K), e_R ~ N(0, I_R)       (Collier et al. 2021, section 2)
        softmax: log E[softmax(u / temperature)]            sigmoid: logit E[sigmoid(u / temperature)]    (Eqs. 3 and 5)

    mu is an affine map of the input, and d = softplus(affine) + min_scale a standard deviation. V is an affine map
    reshaped to `(K, R)`, or, with `parameter_efficient`, diag(v(x)) V, where v is affine and V does not depend on the
    input. Both outputs are used as logits, with the usual losses under `from_logits=True`; softmax outputs are
    log-probabilities already. With `activation` the layer returns probabilities, for losses and metrics without
    `from_logits`, such as the strings "sparse_categorical_crossentropy" and "accuracy".

    The form without `activation` is exact. Keras' losses of probabilities clip them to [1e-7, 1 - 1e-7], where a clip
    has no gradient. So in training a probability outside [2e-7, 1 - 2e-7] has the nearer end as its value, and still
    its gradient. Each logit then has the gradient of the exact form within 2e-7 K, and a crossentropy stays below 15.5.

    The nodes e_K, e_R are drawn anew at every training step. The examples of a batch share them, which costs no
    accuracy. The draw is a function of `seed` and of a counter that is saved with the weights, the same bits on every
    backend. The nodes are a constant at inference: `predict` is deterministic, and the head can be exported. The
    temperature matters: choose it by `labels.choose` with a list of functions.

    The head is nearly a plain `Dense` at the start. Its noise has a standard deviation of .15 temperatures, the same
    for all inputs. Half of its variance is in d and half in V, whose rows point in random directions; without factors
    all of its variance is in d. This noise is too small to hide the classes that mu has learned. It is not zero,
    because V would then have no gradient. It grows where the labels ask for more.

    Args:
        units: K, the number of classes, 2 to 2^24, or from 1 for sigmoid.
        num_factors: R, from 0 (diagonal covariance) to units; None is min(15, units).
        parameter_efficient: V(x) = diag(v(x)) V, which adds 2 (D K + K) + K R weights to a Dense layer instead of
            D K + K + D K R + K R.
        link: "softmax" for one label per example, "sigmoid" for independent ones, "normal_cdf" for one label without
            nodes, or an instance from `keras_het.links`.
        activation: the `activation` of the `Dense` layer that the head replaces: None returns log-probabilities
            (softmax) or logits (sigmoid), and "softmax" or "sigmoid", as the link is, returns probabilities.
        temperature: tau > 0, or a `LearnedTemperature`.
        integrator: an instance or name from `keras_het.integrators`; None is QuasiMonteCarlo for softmax, and
            ClosedForm for the other links.
        covariance: an instance from `keras_het.covariances` in place of num_factors and parameter_efficient, for all
            other choices: how the noise starts, regularisers, V with fewer weights (`Narrow`), and noise of the
            features (HET-XL).
        seed: seed of the training noise, in [0, 2^31). None draws one from Python's `random`, as Keras does. The config
            keeps it.
        dtype: "float32", whatever the global policy, or "float64" on a backend that computes in it.
        kwargs: arguments of `keras.layers.Dense` for mu (`use_bias`, `kernel_initializer`, `bias_initializer`,
            `kernel_regularizer`, `bias_regularizer`), and of any Keras layer.
    Input shape: `(..., D)`, with at least one leading axis.
    Output shape: `(..., units)`.
    Raises:
        ValueError: for arguments outside these ranges.
    Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, Algorithm 1 (v has K entries, not R as
        printed).

    Example:
        >>> import numpy as np
        >>> head = HeteroscedasticDense(10, num_factors=3)
        >>> p = keras.ops.convert_to_numpy(head.probabilities(np.zeros((2, 8))))
        >>> p.shape, round(float(p[0].sum()), 4)
        ((2, 10), 1.0)
    """

    def __init__(
        self,
        units: int,
        num_factors: int | None = None,
        *,
        parameter_efficient: bool = False,
        link: str | links.Link = "softmax",
        activation: Any = None,
        temperature: float | LearnedTemperature = 5.0,
        integrator: str | integrators.Integrator | None = None,
        covariance: covariances.Covariance | None = None,
        seed: int | None = None,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        if given := [name for name in OTHER_ARGUMENTS if name in kwargs]:
            kind = type(resolve_covariance(covariance, num_factors, parameter_efficient)).__name__
            name, value = given[0].removeprefix("covariance_"), kwargs[given[0]]
            raise refusal(given[0], OTHER_ARGUMENTS[given[0]].format(kind=kind, name=name, value=value), value=value)
        rule = f"be None or an integer, the second argument; give an activation by name, activation={num_factors!r}"
        refuse_if(isinstance(num_factors, str), "num_factors", rule, value=num_factors)
        chosen: links.Link = resolve(links.Link, link)
        function = _activation(activation, chosen)
        rule = 'be an integer at least 2; one unit, for two classes, needs link="sigmoid"'
        refuse_if(units == 1 < chosen.min_units, "units", rule, "units=1")
        super().__init__(
            check_integer("units", units, chosen.min_units, MAX_CLASSES),
            num_factors,
            parameter_efficient=parameter_efficient,
            covariance=covariance,
            seed=seed,
            dtype=dtype,
            **kwargs,
        )
        self._link, self.activation = chosen, function
        self._fixed_temperature, learned = _temperature(temperature)
        self.learned_temperature = learned
        if learned is not None:
            learned.start(self.name, self.trainable, self.dtype_policy)
        self.covariance.bind(self.units, self.temperature, self.seed, self.trainable, self.dtype_policy)
        self.clock = Clock(self.seed)
        self.integrator = integrator

    @property
    def link(self) -> links.Link:
        """The link, which maps the logits to the outputs; it cannot be changed."""
        return self._link

    @property
    def integrator(self) -> integrators.Integrator:
        """How the head averages. Another may be set at any time; None sets the default of the link.

        Compile the model again after that: until then `predict` keeps the old one on JAX and TensorFlow.
        """
        return self._integrator

    @integrator.setter
    def integrator(self, integrator: Any) -> None:
        given = self.link.default_integrator if integrator is None else integrator
        found = resolve(integrators.Integrator, given)
        found.check(self.link, *self.covariance.size)
        if self.built:
            found.prepare(*self.covariance.size)
        self._integrator = found

    @property
    def temperature(self) -> float:
        """tau as it is now, a number; it cannot be set."""
        return self._fixed_temperature if self.learned_temperature is None else self.learned_temperature.number

    @temperature.setter
    def temperature(self, temperature: Any) -> None:
        how = f"be given when the head is made, because its noise starts in proportion: temperature={temperature!r}"
        raise refusal("temperature", f"{how}. A trained model is scaled by models.scale_temperature", value=temperature)

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        for layer in (self.learned_temperature, self.clock):
            if layer is not None:
                layer.build(input_shape)
        self.integrator.prepare(*self.covariance.size)

    def class_axes(self) -> dict[str, int | None]:
        of_temperature = {} if self.learned_temperature is None else {f"{self.learned_temperature.name}/theta": None}
        return {**super().class_axes(), **of_temperature, "clock/step": None}

    def check_build(self, input_shape: Any) -> None:
        """Raises the errors of the base class for `input_shape`, and those of the integrator."""
        super().check_build(input_shape)
        self.integrator.check(self.link, *self.covariance.size)

    @outside_graph
    def call(self, inputs: Tensor, training: bool = False) -> Any:
        normal = self.logit_distribution(inputs).standardized(self.link.center, self._temperature_now())
        outputs = self.integrator.integrate(self.link, normal, self.clock.tick() if training else None)
        return self.activation(_within_clip(outputs) if training and activation_of(self) else outputs)

    def _temperature_now(self) -> Tensor:
        """Returns tau: a number, or a tensor that passes its gradient to the weight."""
        return self._fixed_temperature if self.learned_temperature is None else self.learned_temperature.tensor()

    def rematerialized_call(self, layer_call: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the call itself; raises ValueError in a `keras.RematScope`, where Keras would run it twice."""
        if super().rematerialized_call(layer_call, *args, **kwargs) is layer_call:
            return layer_call
        rule = (
            "not be rematerialised: it would draw other noise when it is run again for the backward pass, and "
            "count the step twice. It keeps no logits for the backward pass anyway. Make it, and the model "
            'around it, outside `keras.RematScope`, or name the layers to rematerialise by mode="list_of_layers"'
        )
        raise refusal("The head", rule, f"the layer {self.name!r} in such a scope")

    def logit_distribution(self, x: Tensor) -> Any:
        """Returns the Gaussian of the logits u, before division by the temperature, for inputs of shape `(..., D)`.

        Args:
            x: inputs, `(..., D)`.
        Returns:
            a Gaussian, a `Normal` of `keras_het.ops.normal`, with `loc`, `variance()`, `covariance()` and
                `log_prob(value)`; noise of the features has no `log_prob`.
        """
        return self.covariance.normal(self.prepared(x), self.loc_layer)

    def logit_covariance(self, x: Tensor, centered: bool | None = None) -> Any:
        """Returns the covariance of the logits u, shape `(..., K, K)`.

        `centered=True`, the default for softmax, gives only the part that a softmax identifies, C Sigma C with
        C = I - 1 1'/K. The default for sigmoid is False, because a sigmoid identifies the variances.

        Args:
            x: inputs, `(..., D)`.
            centered: boolean, whether to keep only the part that a softmax identifies; None follows the link.
        """
        centered = self.link.ignores_shift if centered is None else check_boolean("centered", centered)
        return self.logit_distribution(x).covariance(centered=centered)

    def probabilities(self, x: Tensor) -> Any:
        """Returns probabilities at inference, shape `(..., K)`.

        They sum to one for softmax; for sigmoid each label has its own.

        Args:
            x: inputs, `(..., D)`.
        """
        outputs = self.call(x)
        return outputs if activation_of(self) else self.link.probabilities(outputs)

    def compute_output_shape(self, input_shape: Any) -> tuple:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "link": keras.saving.serialize_keras_object(self.link),
            "activation": keras.activations.serialize(self.activation),
            "temperature": self._fixed_temperature or keras.saving.serialize_keras_object(self.learned_temperature),
            "integrator": keras.saving.serialize_keras_object(self.integrator),
        }


def _activation(activation: Any, link: links.Link) -> Any:
    """Returns the function of Keras for an activation: the linear one for None, or that of the link."""
    try:
        function = keras.activations.get(activation)
    except (TypeError, ValueError):
        function = None
    other = {"softmax": "sigmoid", "sigmoid": "softmax"}[link.activation]
    if function not in (keras.activations.linear, getattr(keras.activations, link.activation)):
        rule = f'be None, for {link.returns}, or "{link.activation}", for probabilities; "{other}" needs link="{other}"'
        raise refusal("activation", rule, value=activation)
    return function


def _within_clip(outputs: Tensor) -> Any:
    """Returns the outputs within the bounds of Keras' losses, where a clip gives no gradient, with the gradient."""
    largest = -math.log(2.0 * keras.config.epsilon())
    zero = outputs - ops.stop_gradient(outputs)  # has the gradient
    return ops.stop_gradient(ops.clip(outputs, -largest, largest)) + zero


def _temperature(temperature: Any) -> tuple[Any, Any]:
    """Returns (number, None), or (None, layer) for a learned temperature."""
    if isinstance(temperature, dict) and "class_name" in temperature:
        temperature = keras.saving.deserialize_keras_object(temperature)
    if isinstance(temperature, LearnedTemperature):
        return None, temperature
    if isinstance(temperature, type | str):
        raise refusal("temperature", "be a number, or a LearnedTemperature(...)", value=temperature)
    return check_number("temperature", temperature, above=0.0), None
