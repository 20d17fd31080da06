"""Heteroscedastic head: a Dense layer whose logits have input-dependent, correlated Gaussian noise."""

import math
from typing import Any

import keras
from keras import ops

from keras_het import covariances, integrators, links
from keras_het.base.compiler import outside_graph
from keras_het.base.eager import numbers
from keras_het.base.graph import activation_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.serializable import Serializable, resolve
from keras_het.base.tensor import Tensor
from keras_het.base.validation import MAX_CLASSES, check_boolean, check_integer, check_number
from keras_het.layers.noisy_dense import NoisyDense, resolve_covariance


@keras.saving.register_keras_serializable("keras_het")
class Clock(Serializable, keras.layers.Layer):
    """Seed and step counter that determine the noise; the counter is saved with the weights."""

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
        step = step * one  # a copy, because on two backends the assignment would change the tensor
        self.step.assign(step + one)
        return seed, step


COVARIANCE_RULE = "be an argument of the covariance: covariance=keras_het.covariances.{kind}(..., {name}={value!r})"
INTEGRATOR_RULE = "be an argument of the integrator: integrator=keras_het.integrators.QuasiMonteCarlo({value!r})"
# Arguments of the covariance or the integrator, some by their names in other packages: the rule of the error.
MISPLACED_ARGUMENTS = {
    **dict.fromkeys(
        ("min_scale", "initial_scale", "covariance_initializer", "covariance_regularizer", "learning_rate_multiplier"),
        COVARIANCE_RULE,
    ),
    **dict.fromkeys(("num_samples", "num_mc_samples", "train_mc_samples"), INTEGRATOR_RULE),
    "test_mc_samples": INTEGRATOR_RULE.replace("({value", "(..., inference_samples={value"),
}


@keras.saving.register_keras_serializable("keras_het")
class HeteroscedasticDense(NoisyDense):
    """Drop-in replacement of the last `Dense` layer of a classifier, for noisy labels.

    It learns for each input how large the noise of each logit is, and which logits vary together.

        u(x) = mu(x) + d(x) * e_K + V(x) e_R,    e_K ~ N(0, I_K), e_R ~ N(0, I_R)       (Collier et al. 2021, section 2)
        softmax: log E[softmax(u / temperature)]            sigmoid: logit E[sigmoid(u / temperature)]    (Eqs. 3 and 5)

    mu is an affine map of the input, and d = s softplus(m affine / s) + min_scale a standard deviation
    (`covariances.Covariance`). V is an affine map reshaped to `(K, R)`. With `parameter_efficient` it is diag(v(x)) V,
    where v is affine and V does not depend on the input. Use the outputs as logits, with the usual losses and
    `from_logits=True`; softmax outputs are log-probabilities. With `activation`, the layer returns probabilities, for
    losses and metrics without `from_logits`, such as the strings "sparse_categorical_crossentropy" and "accuracy".

    The head is exact without `activation`. Keras' losses clip probabilities to [1e-7, 1 - 1e-7], and a clip has no
    gradient. So in training, a probability outside [2e-7, 1 - 2e-7] is moved to the nearer end, but keeps its gradient.
    The gradient of each logit differs from the exact form by at most 2e-7 K, and a crossentropy stays below 15.5.

    Every training step draws new nodes e_K, e_R, which the examples of a batch share without a loss of accuracy. The
    draw depends on `seed` and on a counter that is saved with the weights, with the same bits on every backend. At
    inference the nodes are a constant, so `predict` is deterministic, and you can export the head.

    At temperature 1 the mean is the `Dense` layer that the head replaces: the same kernel, bias, initializers,
    penalties, constraints and learning speed. On frozen features of a pretrained network, start both with
    `kernel_initializer="zeros"`.

    The noise starts with a standard deviation of 0.15 temperatures for all inputs. Half of the variance is in d and
    half in V, whose rows point in random directions; without factors all of it is in d. The noise is too small to hide
    the classes that mu has learned, but not zero, because V would have no gradient. It grows if the labels require
    more; `learning_rate_multiplier` of the covariance sets how fast.

    Args:
        units: K, the number of classes, 2 to 2^24, or from 1 for sigmoid.
        num_factors: R, from 0 (diagonal covariance) to units; None is min(15, units).
        parameter_efficient: boolean, whether V(x) = diag(v(x)) V. The noise then has 2 (D K + K) + K R weights instead
            of D K + K + D K R + K R.
        link: "softmax" for one label per example, "sigmoid" for independent labels, or an instance from
            `keras_het.links`.
        activation: activation of the `Dense` layer that the head replaces. None returns log-probabilities (softmax) or
            logits (sigmoid). "softmax" or "sigmoid", to match the link, returns probabilities.
        temperature: tau > 0, by which the paper divides the whole logit. It limits no function that the head can
            represent. With Adam the mean and the noise learn 1 / tau times as fast as at temperature 1.
        integrator: instance or name from `keras_het.integrators`; None is QuasiMonteCarlo for softmax, and ClosedForm
            for the other links.
        covariance: instance from `keras_het.covariances` instead of num_factors and parameter_efficient, for other
            choices: starting noise, regularizers, V with fewer weights (`Narrow`), and noise of the features (HET-XL).
        seed: seed of the training noise, in [0, 2^31). None draws a seed from Python's `random`, like Keras, and stores
            it in the config.
        dtype: "float32", for any global policy, or "float64" on a backend that computes in it.
        kwargs: arguments of `keras.layers.Dense` for mu (`use_bias`, `kernel_initializer`, `bias_initializer`,
            `kernel_regularizer`, `bias_regularizer`, `kernel_constraint`, `bias_constraint`), and of any Keras layer.
            All act on the weights of mu, before the division by the temperature.
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
        temperature: float = 1.0,
        integrator: str | integrators.Integrator | None = None,
        covariance: covariances.Covariance | None = None,
        seed: int | None = None,
        dtype: Any = "float32",
        **kwargs: Any,
    ) -> None:
        if misplaced := next((name for name in MISPLACED_ARGUMENTS if name in kwargs), None):
            kind = type(resolve_covariance(covariance, num_factors, parameter_efficient)).__name__
            name, value = misplaced.removeprefix("covariance_"), kwargs[misplaced]
            rule = MISPLACED_ARGUMENTS[misplaced].format(kind=kind, name=name, value=value)
            raise refusal(misplaced, rule, value=value)
        rule = f"be None or an integer; pass an activation by name, activation={num_factors!r}"
        refuse_if(isinstance(num_factors, str), "num_factors", rule, value=num_factors)
        link_object: links.Link = resolve(links.Link, link)
        function = _activation(activation, link_object)
        rule = 'be an integer at least 2; one unit, for two classes, needs link="sigmoid"'
        refuse_if(units == 1 < link_object.min_units, "units", rule, "units=1")
        super().__init__(
            check_integer("units", units, link_object.min_units, MAX_CLASSES),
            num_factors,
            parameter_efficient=parameter_efficient,
            covariance=covariance,
            seed=seed,
            dtype=dtype,
            **kwargs,
        )
        self._link, self.activation = link_object, function
        self._temperature = check_number("temperature", temperature, above=0.0)
        self.covariance.bind(self.units, self.temperature, self.seed, self.trainable, self.dtype_policy)
        self.clock = Clock(self.seed)
        self.integrator = integrator

    @property
    def link(self) -> links.Link:
        """Link, which maps the logits to the outputs; it cannot be changed."""
        return self._link

    @property
    def integrator(self) -> integrators.Integrator:
        """Integrator, which you can set at any time; None sets the default of the link.

        Compile the model again after that. Until then, `predict` uses the old integrator on JAX and TensorFlow.
        """
        return self._integrator

    @integrator.setter
    def integrator(self, integrator: Any) -> None:
        integrator = self.link.default_integrator if integrator is None else integrator
        instance = resolve(integrators.Integrator, integrator)
        instance.check(self.link, *self.covariance.size)
        if self.built:
            instance.prepare(*self.covariance.size)
        self._integrator = instance

    @property
    def temperature(self) -> float:
        """Temperature tau; it cannot be changed. To scale a trained model, use `models.scale_temperature`."""
        return self._temperature

    def build(self, input_shape: Any) -> None:
        super().build(input_shape)
        self.clock.build(input_shape)
        self.integrator.prepare(*self.covariance.size)

    def class_axes(self) -> dict[str, int | None]:
        return {**super().class_axes(), "clock/step": None}

    def check_build(self, input_shape: Any) -> None:
        """Raises the errors of the base class for `input_shape`, and the errors of the integrator."""
        super().check_build(input_shape)
        self.integrator.check(self.link, *self.covariance.size)

    @outside_graph
    def call(self, inputs: Tensor, training: bool = False) -> Any:
        normal = self.logit_distribution(inputs).standardized(self.link.center, self.temperature)
        outputs = self.integrator.integrate(self.link, normal, self.clock.tick() if training else None)
        return self.activation(_keep_gradient_at_clip(outputs) if training and activation_of(self) else outputs)

    def rematerialized_call(self, layer_call: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the call; raises ValueError in a `keras.RematScope`, in which Keras would run it twice."""
        others = {name: value for name, value in kwargs.items() if name != "training"}  # Keras 3.16 wraps calls with it
        if super().rematerialized_call(layer_call, *args, **others) is layer_call:
            return layer_call
        rule = (
            "not be rematerialised, because the second run would draw other noise and count the step twice. It stores "
            "no logits for the backward pass anyway. Make it, and the model around it, outside `keras.RematScope`, or "
            'name the layers to rematerialise with mode="list_of_layers"'
        )
        raise refusal("The head", rule, f"the layer {self.name!r} in such a scope")

    def logit_distribution(self, x: Tensor) -> Any:
        """Returns the Gaussian of the logits u for inputs `x`, `(..., D)`, before division by the temperature.

        It is a `keras_het.ops.normal.Normal`, with `loc`, `variance()`, `covariance()` and `log_prob(value)`;
        noise of the features has no `log_prob`.
        """
        return self.covariance.normal(self.prepare_inputs(x), self.loc_layer)

    def logit_covariance(self, x: Tensor, centered: bool | None = None) -> Any:
        """Returns the covariance of the logits u, shape `(..., K, K)`, for inputs `x`, `(..., D)`.

        A softmax identifies only C Sigma C with C = I - 1 1'/K; a sigmoid identifies the variances. `centered` returns
        C Sigma C; None is True for softmax, False for sigmoid.
        """
        centered = self.link.ignores_shift if centered is None else check_boolean("centered", centered)
        return self.logit_distribution(x).covariance(centered=centered)

    def probabilities(self, x: Tensor) -> Any:
        """Returns probabilities at inference, shape `(..., K)`, for inputs `x`, `(..., D)`.

        They sum to one for softmax, and are independent for sigmoid.
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
            "temperature": self.temperature,
            "integrator": keras.saving.serialize_keras_object(self.integrator),
        }


def _activation(activation: Any, link: links.Link) -> Any:
    """Returns the Keras function of an activation, if it is linear or fits the link."""
    try:
        function = keras.activations.get(activation)
    except (TypeError, ValueError):
        function = None
    other = {"softmax": "sigmoid", "sigmoid": "softmax"}[link.activation]
    if function not in (keras.activations.linear, getattr(keras.activations, link.activation)):
        rule = f'be None, for {link.returns}, or "{link.activation}", for probabilities; "{other}" needs link="{other}"'
        raise refusal("activation", rule, value=activation)
    return function


def _keep_gradient_at_clip(outputs: Tensor) -> Any:
    bound = -math.log(2.0 * keras.config.epsilon())
    zero = outputs - ops.stop_gradient(outputs)  # has the gradient
    return ops.stop_gradient(ops.clip(outputs, -bound, bound)) + zero
