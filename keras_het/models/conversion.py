"""A pretrained model in, a model with another head out, and nothing that it learnt is lost."""

import contextlib
import math
import random

import keras
import numpy as np

from keras_het.layers import HeteroscedasticDense
from keras_het.models.graph import find_head, model_inputs
from keras_het.ops.log_space import softplus_inverse
from keras_het.validation import check_boolean

START = 0.15  # standard deviation of the noise at a warm start, in temperatures: small beside the logits, but large enough to grow


def heteroscedastic(model, num_factors=None, *, units=None, layer=None, warm_start=True, clone=False, **head_arguments):
    """A new model with the last Dense layer replaced by a `HeteroscedasticDense`.

    It returns log-probabilities (softmax) or logits (sigmoid) whatever the old model returned: use losses with `from_logits=True`.
    An activation of the old head, or in layers behind it, is left out, and the link follows it. Without one the link is softmax,
    or sigmoid for a single unit, unless `link=` says otherwise.

    The layers before the head are shared, as in Keras' functional API: training the new model trains them in the old one.
    The call itself changes nothing: no weight, no `trainable`, no random seed (what it draws, it draws without advancing Python's
    `random`, so two calls in a row draw the same; give them a `seed`).

    Warm start: mu = temperature * (old kernel, old bias), so that without noise the predictions are the old ones exactly; the noise
    starts the same for all inputs, with standard deviation 0.15 temperatures, which moves probabilities by less than 0.02:
        d = 0.15 temperature / sqrt(2),    rows of V random, each of that length    (d = 0.15 temperature if R = 0).

    Args:
        model: a functional model, or a Sequential one that is built: KerasHub and KerasCV classifiers, `keras.applications`, your own.
        num_factors: R, as in `HeteroscedasticDense`.
        units: number of classes if not the old one; mu then starts fresh.
        layer: name of the Dense layer to replace; what the model computes after it is left out. None finds the last one.
        warm_start: False starts mu and the noise as a new `HeteroscedasticDense` does.
        clone: copy the layers before the head instead of sharing them. Layers that cannot be rebuilt from their config cannot be copied.
        head_arguments: of `HeteroscedasticDense`. What is not given of `use_bias`, `name`, `kernel_regularizer` and
            `bias_regularizer` is as in the old layer; its constraints are not kept. With a `covariance_initializer` of your own, V
            starts by it, and with an `initial_scale`, d.
    Returns: a functional `keras.Model` whose last layer is the head.
    Raises: ValueError if there is no graph, no such Dense layer, or more than one output, or if the old head has another activation.
    Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, section 4.2 (transfer, in the other direction).

    Example:
        >>> old = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(3, "softmax")])
        >>> new = heteroscedastic(old, num_factors=2)
        >>> p = np.exp(new.predict(np.ones((1, 8)), verbose=0))
        >>> bool(np.abs(p - old.predict(np.ones((1, 8)), verbose=0)).max() < 0.02)
        True
    """
    _check_not_converted(model)
    head = find_head(model, keras.layers.Dense, layer)
    old, fresh = head.layer, units is not None and units != head.layer.units
    warm = check_boolean("warm_start", warm_start) and not fresh
    arguments = {
        "link": _check_link(head.link, old.units if units is None else units, head_arguments.get("link"), fresh),
        "name": old.name,
        "use_bias": old.use_bias,
        "kernel_regularizer": old.kernel_regularizer,
        "bias_regularizer": old.bias_regularizer,
        **head_arguments,
    }
    if warm and old.use_bias and not arguments["use_bias"]:
        raise ValueError("`use_bias` must be True, for the old head has a bias. Received: use_bias=False")
    with _unchanged_seed():
        new = HeteroscedasticDense(old.units if units is None else units, num_factors, **arguments)
        converted = _with_head(model, head.features, new, clone)
    if warm:
        _give_mean(new, _weights_of(old))
        _give_noise(new, head_arguments)
    return converted


def homoscedastic(model, *, units=None, layer=None, clone=False):
    """The way back: a new model with the `HeteroscedasticDense` layer replaced by a plain Dense layer, which returns logits.

    The Dense layer is mu / temperature: the logits without their noise. With `units` it starts fresh, to transfer what was
    learnt under noise to another task (Collier et al. 2021, section 4.2).

    Args:
        model: a model that ends in a `HeteroscedasticDense`, as `heteroscedastic` returns it.
        units: number of classes if not the old one.
        layer: name of the layer to replace; what the model computes after it is left out. None finds the last one.
        clone: copy the layers before the head instead of sharing them.
    Returns: a functional `keras.Model` whose last layer is the Dense layer.
    Raises: ValueError if there is no graph, no such layer, or more than one output.

    Example:
        >>> model = keras.Sequential([keras.Input((8,)), HeteroscedasticDense(3)])
        >>> homoscedastic(model).layers[-1].units
        3
    """
    head = find_head(model, HeteroscedasticDense, layer)
    old, fresh = head.layer, units is not None and units != head.layer.units
    with _unchanged_seed():
        new = keras.layers.Dense(
            old.units if units is None else units,
            use_bias=old.use_bias,
            kernel_regularizer=old.kernel_regularizer,
            bias_regularizer=old.bias_regularizer,
            name=old.name,
            dtype=old.dtype_policy,
        )
        converted = _with_head(model, head.features, new, clone)
    if not fresh:
        new.set_weights([weight / old.temperature for weight in _weights_of(old.loc)])
    return converted


def _check_not_converted(model):
    if isinstance(model, keras.Model) and getattr(model, "outputs", None) and isinstance(model.layers[-1], HeteroscedasticDense):
        raise ValueError(
            f"The head {model.layers[-1].name!r} is a HeteroscedasticDense already; `homoscedastic(model)` makes it a Dense again. "
            f"Received: model={model.name!r}"
        )


def _check_link(found, units, given, fresh):
    """The link of the new head: of the old activation, or as given, which may differ only if mu starts fresh."""
    if given is not None and found is not None and given != found and not fresh:
        raise ValueError(f"`link` must be {found!r}, as the activation of the old head. Received: link={given!r}")
    return given or found or ("sigmoid" if units == 1 else "softmax")


@contextlib.contextmanager
def _unchanged_seed():
    """Keras draws the seeds of initializers from Python's `random`; the caller's next draw is as if it had not."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


def _weights_of(dense):
    """Kernel and bias as arrays; the kernel with its LoRA update, if there is one."""
    return [keras.ops.convert_to_numpy(x) for x in ((dense.kernel, dense.bias) if dense.use_bias else (dense.kernel,))]


def _give_mean(head, weights):
    """mu = temperature * (kernel, bias)."""
    kernel, *bias = weights
    if head.use_bias and not bias:
        bias = [np.zeros(head.units)]
    head.loc.set_weights([head.temperature * weight for weight in (kernel, *bias)])


def _give_noise(head, given):
    """Noise that is small and the same for all inputs, but for what the caller chose to start otherwise.

    The kernels are zero. The gradient of V's kernel is not, as it would be at V = 0, for the bias is not zero.
    """
    start = START * head.temperature * (math.sqrt(0.5) if head.num_factors else 1.0)
    if "initial_scale" not in given:
        d = max(start, 2.0 * head.min_scale)
        head.scale_diag.bias.assign(np.full(head.units, softplus_inverse(d - head.min_scale)))
    if "covariance_initializer" in given:
        return
    head.scale_diag.kernel.assign(np.zeros(head.scale_diag.kernel.shape))
    if not head.num_factors:
        return
    rows = np.random.default_rng(head.seed).normal(size=(head.units, head.num_factors))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if head.parameter_efficient:
        head.factor.assign(rows)
        head.row_scale.kernel.assign(np.zeros(head.row_scale.kernel.shape))
        head.row_scale.bias.assign(np.full(head.units, start))
    else:
        head.factor.kernel.assign(np.zeros(head.factor.kernel.shape))
        head.factor.bias.assign(start * rows.ravel())


def _with_head(model, features, head, clone):
    """A model of the inputs of a model, its features, and a new head."""
    inputs = model_inputs(model)
    if check_boolean("clone", clone):
        body = copy(keras.Model(inputs, features, name=model.name))
        inputs, features = model_inputs(body), body.outputs[0]
    return keras.Model(inputs, head(features), name=model.name)


def copy(model):
    """A functional model with layers of its own, of equal configuration, weights and `trainable`."""
    copied = keras.models.clone_model(model)
    if [weight.shape for weight in copied.weights] != [weight.shape for weight in model.weights]:
        raise ValueError(
            f"`clone` must be False: the layers of {model.name!r} made again from their configs have other weights, as they do where "
            "LoRA was enabled later (enable it on the new model instead). Received: clone=True"
        )
    copied.set_weights(model.get_weights())
    for layer, other in zip(_all_layers(model), _all_layers(copied), strict=True):
        if layer.trainable != other.trainable:
            other.trainable = layer.trainable
    return copied


def _all_layers(model):
    """A model's layers and those inside them, the outer before the inner. Inputs do not count: models may share theirs."""
    return [layer for layer in model._flatten_layers(include_self=False) if not isinstance(layer, keras.layers.InputLayer)]
