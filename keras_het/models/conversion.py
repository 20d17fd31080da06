"""Conversion of pretrained models: a new head with the weights and predictions of the old one."""

import warnings
from typing import Any

import keras
import numpy as np

from keras_het.base.graph import activation_of, model_inputs, output_code
from keras_het.base.internals import compile_arguments, kernel_without_lora
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.serializable import resolve
from keras_het.base.validation import check_boolean, check_number
from keras_het.criteria.criterion import find_criteria
from keras_het.layers import HeteroscedasticDense, JointHeteroscedasticDense
from keras_het.links import Link
from keras_het.losses import JointMultiLabelCrossentropy
from keras_het.models.copying import dense_weights, make_body, preserve_seed
from keras_het.models.distribution_model import DistributionModel
from keras_het.models.output_layers import add_end, compile_like, unused_name
from keras_het.models.raw_inputs import keep_class
from keras_het.models.rescaling import rescale
from keras_het.reading.ending import HEADS, LAST_LAYERS, Ending, find_ending, units_of


def heteroscedastic(
    model: keras.Model,
    num_factors: int | None = None,
    *,
    units: int | None = None,
    layer: str | None = None,
    warm_start: bool = True,
    clone: bool = False,
    keep_activation: bool = True,
    joint: bool = False,
    **head_arguments: Any,
) -> keras.Model:
    """Replaces the last Dense layer, or 1x1 Conv2D, by a `HeteroscedasticDense` in a new model.

    The new model returns the same kind of outputs as the old model. A softmax or sigmoid in or after the old head
    becomes the `activation` of the new head: compile with losses and metrics of probabilities, as before. Without an
    activation, and for a log_softmax, the new model returns log-probabilities (softmax) or logits (sigmoid): use losses
    with `from_logits=True`. The link follows the activation. Without an activation it is softmax, or sigmoid for a
    single unit: pass `link="sigmoid"` for labels that are not exclusive. Reshape and Flatten layers after the head are
    rebuilt.

    The new model is compiled if the old model is: with the same losses and metrics, an optimizer of equal configuration
    and fresh state, and the other settings of `compile`. The new model is not compiled, and a warning says why, if a
    metric or the optimizer cannot be rebuilt from its config. The same holds if the outputs change, from logits to
    log-probabilities or because of `keep_activation=False`, and a loss or metric does not accept the new outputs, would
    have another value, such as "categorical_hinge", or is your own.

    With `joint=True` the head is a `JointHeteroscedasticDense` and the new model a `DistributionModel`, for labels that
    are not exclusive. It is compiled with `losses.JointMultiLabelCrossentropy` instead of the old loss, and with the
    old metrics, which get probabilities.

    For a KerasHub task, the new model keeps the preprocessor: `fit`, `evaluate` and `predict` accept raw images or
    strings.

    The layers before the head are shared, as in Keras' functional API: training the new model trains them in the old
    model. The call changes no weight, no `trainable` and no random state. Two calls without seeds draw the same initial
    weights.

    Warm start: mu has the old kernel and bias, so without noise the predictions are exactly the old ones. The noise
        starts as in every new head, with a standard deviation of 0.15 temperatures; for a latent covariance this is the
        mean over the classes. It moves probabilities by less than 0.02. mu keeps the old regularizers, constraints,
        `trainable` and exclusions from weight decay. For another temperature, kernel and bias are multiplied by it, and
        the regularizers and constraints act on them divided by it, so predictions and penalties stay the same.

    Args:
        model: a functional or built Sequential model: a KerasHub or KerasCV classifier, `keras.applications`, your own.
        num_factors: R, see `HeteroscedasticDense`.
        units: number of classes, if it changes; mu then starts with zeros, because the features are trained. If you
            train all layers for few steps, also try `kernel_initializer="glorot_uniform"`.
        layer: name of the Dense layer (or 1x1 Conv2D) to replace, whose later layers are dropped; None for the layer
            that the model ends in.
        warm_start: False starts mu with zeros.
        clone: boolean, whether to copy the layers before the head, through a `.keras` file, instead of sharing them.
        keep_activation: boolean, whether a model that returns probabilities still does. False drops the activation: the
            new model returns log-probabilities or logits.
        joint: boolean, whether the new model learns which labels occur together, for a sigmoid link.
        head_arguments: other arguments of `HeteroscedasticDense`, or with `joint` of `JointHeteroscedasticDense`.
            `use_bias`, `name`, the regularizers and constraints default to the values of the old layer, and so does
            `activity_regularizer` if the new head returns the same kind of outputs.
    Returns:
        a functional `keras.Model` that ends in the head, or in a reshaping layer or log_sigmoid after it. It has the
            class of the old model if this class has the constructor of `keras.Model` or `keras.Sequential`.
    Raises:
        ValueError: if the model has no graph, no such layer or several outputs; if the old head has another activation
            or is a "channels_first" convolution; for `joint`, if the link is not sigmoid or a layer after the head
            reshapes; for a regression, which `heteroscedastic_regression` converts.
    Warns: if the new model cannot be compiled like the old model, loses methods of training of the old model's class,
        or loses an activity regularizer.
    Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, section 4.2 (transfer, in the other
        direction).

    Example:
        >>> old = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(3, "softmax")])
        >>> new = heteroscedastic(old, num_factors=2)
        >>> x = np.ones((1, 8))
        >>> bool(np.abs(new.predict(x, verbose=0) - old.predict(x, verbose=0)).max() < 0.02)
        True
    """
    temperature = check_number("temperature", head_arguments.get("temperature", 1.0), above=0.0)
    ending = convertible_ending(model, layer)
    _check_classifier(model, ending, head_arguments.get("link"))
    old, old_units = ending.head, units_of(ending.head)
    units = old_units if units is None else units
    is_warm = check_boolean("warm_start", warm_start) and units == old_units
    keep = check_boolean("keep_activation", keep_activation)
    arguments = {
        "link": (link := _choose_link(ending, units, is_warm, head_arguments.get("link"))),
        "activation": None if joint else _new_activation(ending, resolve(Link, link), keep),
        **mean_arguments(old, temperature=temperature),
        **({} if is_warm else {"kernel_initializer": "zeros"}),
        **head_arguments,
    }
    if "activity_regularizer" not in head_arguments:
        is_same = not joint and _has_outputs_of(old, arguments["activation"], link)
        arguments["activity_regularizer"] = _activity_regularizer(old, is_same)
    if is_warm:
        _check_warm_start(old, arguments)
    if check_boolean("joint", joint):
        _check_joint(model, ending, arguments["link"])
    with preserve_seed(head_arguments.get("seed")):
        body = make_body(model, ending, clone)
        kind = JointHeteroscedasticDense if joint else HeteroscedasticDense
        new = kind(units, num_factors, **{"name": unused_name(old.name, body), **arguments})
        if joint:
            converted = DistributionModel(model_inputs(body), new(body.outputs[0]), name=body.name)
            new_ending = converted.head_output
        else:
            converted, new_ending = add_end(body, new, ending, new.link.activation, keep)
            converted = keep_class(converted, model)
    if is_warm:
        _set_mean(new, dense_weights(old))
        new.loc_layer.trainable = new.trainable and old.trainable
    loss, successors = JointMultiLabelCrossentropy() if joint else None, successors_of(old, new.loc_layer)
    compile_like(converted, model, new_ending, ending, loss=loss, hint=_hint(ending, keep), successors=successors)
    return converted


def homoscedastic(
    model: keras.Model,
    *,
    units: int | None = None,
    layer: str | None = None,
    clone: bool = False,
    keep_activation: bool = True,
) -> keras.Model:
    """Replaces the `HeteroscedasticDense` layer by a Dense layer in a new model, and so undoes `heteroscedastic`.

    The Dense layer computes mu / temperature: the logits without noise. It keeps the regularizers, constraints,
    `trainable` and exclusions from weight decay of mu. With `units` it starts with zeros, to transfer features that
    were learned under noise to another task (Collier et al. 2021, section 4.2). A model that returns probabilities
    still does. Any other model returns logits. The new model is compiled as by `heteroscedastic`.

    Args:
        model: a model that ends in a `HeteroscedasticDense`, for example a result of `heteroscedastic`.
        units: number of classes, if it changes.
        layer: name of the layer to replace, whose later layers are dropped; None for the layer that the model ends in.
        clone: boolean, whether to copy the layers before the head instead of sharing them.
        keep_activation: boolean, whether the Dense layer gets the softmax or sigmoid of the head.
    Returns:
        a functional `keras.Model` that ends in the Dense layer, or in a reshaping layer or log_sigmoid after it, of the
            same class as with `heteroscedastic`.
    Raises:
        ValueError: if the model has no graph, no such layer or several outputs, or if no Dense layer can reproduce the
            predictions of the head's link.

    Example:
        >>> model = keras.Sequential([keras.Input((8,)), HeteroscedasticDense(3)])
        >>> homoscedastic(model).layers[-1].units
        3
    """
    ending = find_ending(model, (HeteroscedasticDense,), layer)
    old, link = ending.head, ending.head.link
    units = old.units if units is None else units
    if units == old.units and not link.activations:
        rule = "have a head with the link softmax or sigmoid. For another link, change `units` to start fresh"
        raise refusal("model", rule, f"link={link!r}")
    keep = check_boolean("keep_activation", keep_activation)
    activation = _new_activation(ending, link, keep)
    with preserve_seed():
        body = make_body(model, ending, clone)
        new = keras.layers.Dense(
            units,
            activation,
            **mean_arguments(old.loc_layer, old.temperature),
            kernel_initializer="zeros",
            activity_regularizer=_activity_regularizer(old, _has_outputs_of(old, activation, link)),
            name=unused_name(old.name, body),
            dtype=old.dtype_policy,
        )
        converted, new_ending = add_end(body, new, ending, link.activation, keep)
        converted = keep_class(converted, model)
    if units == old.units:
        new.set_weights([weight / old.temperature for weight in dense_weights(old.loc_layer)])
        new.trainable = old.loc_layer.trainable
    if new_ending.returns == "numbers":
        new_ending = new_ending._replace(returns="logits", link=link.activation)
    successors = successors_of(old.loc_layer, new)
    compile_like(converted, model, new_ending, ending, hint=_hint(ending, keep), successors=successors)
    return converted


def mean_arguments(old: Any, old_temperature: float = 1.0, temperature: float = 1.0) -> dict[str, Any]:
    """Returns the arguments of a `Dense` layer with the weights of another one at a new temperature."""
    names = ("kernel_regularizer", "bias_regularizer", "kernel_constraint", "bias_constraint")
    functions = {name: rescale(name, getattr(old, name), old_temperature, temperature) for name in names}
    if functions["kernel_constraint"] is not None and len(old.kernel.shape) > 2:
        functions["kernel_constraint"] = None
        warnings.warn(
            f"The new model has no kernel constraint: the constraint of {old.name!r} is for the axes of a convolution. "
            "Pass `kernel_constraint` to choose one.",
            stacklevel=3,
        )
    return {"use_bias": old.use_bias, **functions}


def _has_outputs_of(old: Any, activation: Any, link: Any) -> bool:
    """True if a head and a `Dense` layer return the same kind of outputs: a softmax head returns no logits."""
    function = keras.activations.get(activation)
    is_logits = function is not keras.activations.linear or resolve(Link, link).returns == "logits"
    return is_logits and keras.activations.get(activation_of(old)) is function


def _activity_regularizer(old: Any, is_same: bool) -> Any:
    """Returns the activity regularizer of the old head if the new head returns the same kind of outputs, else warns."""
    if old.activity_regularizer is None or is_same:
        return old.activity_regularizer
    warnings.warn(
        f"The new model has no activity regularizer: {old.name!r} regularises other outputs than the new head "
        "returns. Pass `activity_regularizer` to choose one.",
        stacklevel=3,
    )
    return None


def successors_of(old: Any, new: Any) -> list[tuple[Any, Any]]:
    """Returns the pairs (old variable, new variable) of kernel and bias, without an update by LoRA."""
    pairs = [(kernel_without_lora(old), new.kernel)]
    return pairs + ([(old.bias, new.bias)] if old.use_bias and new.use_bias else [])


def _new_activation(ending: Ending, link: Link, keep: bool) -> str | None:
    return link.activation if keep and ending.head_activation in ("softmax", "sigmoid") else None


def _hint(ending: Ending, keep: bool) -> str:
    return "" if keep or ending.head_activation in (None, "log_softmax") else " (keep_activation=True keeps it)"


def check_array_output(model: keras.Model) -> None:
    """Raises an error for a model that returns a dict, which a `DistributionModel` cannot return."""
    is_dict = isinstance(getattr(model, "output", None), dict)
    refuse_if(is_dict, "model", f"return an array: pass {output_code(model)}", "a model that returns a dict")


def _check_joint(model, ending, link):
    check_array_output(model)
    rule = "be False for exclusive classes: one label has no correlations"
    refuse_if(resolve(Link, link).activation != "sigmoid", "joint", rule, f"joint=True, link={link!r}")
    rule = "be False if a layer after the head reshapes: the loss needs the output of the head"
    refuse_if(ending.reshapes, "joint", rule, "joint=True")
    rule = "be False for a task with a preprocessor: convert keras.Model(task.input, task.output) instead"
    refuse_if(getattr(model, "preprocessor", None) is not None, "joint", rule, f"joint=True, model={model.name!r}")


def _check_classifier(model, ending, link):
    """Raises an error for a regression: without an activation, only the loss or the link tells it from a classifier."""
    loss = compile_arguments(model).get("loss")
    is_regression = any(criterion.is_regression for criterion in find_criteria(loss))
    rule = (
        "be a classifier. Convert a regression with heteroscedastic_regression(model, x, y), or pass `link` if the "
        "model is a classifier"
    )
    is_wrong = ending.head_activation is None and link is None and is_regression
    refuse_if(is_wrong, "model", rule, f"loss={loss!r} after a layer without activation")


def convertible_ending(model: keras.Model, layer: str | None) -> Ending:
    """Returns the ending of a model at the Dense layer, or 1x1 Conv2D, to replace; refuses a head of this package."""
    ending = find_ending(model, LAST_LAYERS, layer)
    if isinstance(ending.head, HEADS):
        raise ValueError(
            f"The head {ending.head.name!r} is already a {type(ending.head).__name__}. `homoscedastic(model)` turns a "
            f"HeteroscedasticDense into a Dense. Received: model={model.name!r}"
        )
    return ending


def _choose_link(ending, units, is_warm, link):
    """Returns the link of the new head; a `link` that differs from the old activation needs a fresh start of mu."""
    # A single sigmoid unit stands for two classes.
    old = None if units_of(ending.head) == 1 < units else ending.link or None
    activations = () if link is None else resolve(Link, link).activations
    if is_warm and link is not None and (old or "softmax") not in activations and (old is not None or not activations):
        rule = f"{old!r}, the activation of the old head" if old else "'softmax' or 'sigmoid'"
        raise refusal("link", f"be {rule}. For another link, pass warm_start=False or other `units`", value=link)
    return link or old or ("sigmoid" if units == 1 else "softmax")


def _check_warm_start(old, arguments):
    mode = getattr(old, "quantization_mode", None)  # convolutions have no such attribute
    rule = f"be False, because the old head is quantised ({mode})"
    refuse_if(mode is not None, "warm_start", rule, "warm_start=True")
    if old.use_bias and not arguments["use_bias"]:
        raise refusal("use_bias", "be True, because the old head has a bias", "use_bias=False")


def _set_mean(head, weights):
    """Sets mu = temperature * (kernel, bias)."""
    kernel, *bias = weights
    if head.use_bias and not bias:
        bias = [np.zeros(head.units)]
    head.loc_layer.set_weights([head.temperature * weight for weight in (kernel, *bias)])
    head.covariance.restart(head.temperature * kernel)
