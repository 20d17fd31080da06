"""Conversion of a pretrained model to one with another head, which keeps all that the model learned."""

from typing import Any

import keras
import numpy as np

from keras_het.base.graph import model_inputs
from keras_het.base.internals import compile_arguments
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.serializable import resolve
from keras_het.base.validation import check_boolean
from keras_het.layers import HeteroscedasticDense, JointHeteroscedasticDense
from keras_het.links import Link
from keras_het.losses import JointMultiLabelCrossentropy
from keras_het.models.copying import dense_weights, make_body, preserve_seed
from keras_het.models.distribution_model import DistributionModel
from keras_het.models.output_layers import add_end, compile_like, unused_name
from keras_het.models.raw_inputs import add_preprocessor
from keras_het.reading.ending import DENSE_LAYERS, HEADS, Ending, find_ending, units_of

OF_REGRESSION = (  # losses of Keras, without _
    "mse", "meansquarederror", "mae", "meanabsoluteerror", "mape", "meanabsolutepercentageerror",
    "msle", "meansquaredlogarithmicerror", "huber", "logcosh",
)  # fmt: skip


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
    """Returns a new model with the last Dense layer, or 1x1 Conv2D, replaced by a `HeteroscedasticDense`.

    The new model returns what the old one returned. A softmax or sigmoid, also in a layer behind the old head, becomes
    the `activation` of the new head: compile with the losses and metrics of probabilities, as before. Without one, and
    for a log_softmax, the new model returns log-probabilities (softmax) or logits (sigmoid): use losses with
    `from_logits=True`. The link follows the activation. Without an activation it is softmax, or sigmoid for a single
    unit: give `link="sigmoid"` for labels that are not exclusive. The link "normal_cdf" cannot give the old predictions
    for all inputs: it starts fresh, with `warm_start=False`. Layers behind the head that only reshape (Reshape,
    Flatten) are made again.

    The new model is compiled if the old one is. Its losses and metrics are the same, in the form that takes its
    outputs. Its optimizer has an equal configuration and a fresh state. The other settings of `compile` are kept. The
    new model is not compiled, and a warning says so, if a metric or the optimizer cannot be made again from its
    configuration. The same holds with `keep_activation=False` if a loss or metric has no form that takes
    log-probabilities or logits, such as `kl_divergence`, or is your own and may take probabilities.

    With `joint=True` the head is a `JointHeteroscedasticDense` and the new model a `DistributionModel`, for labels that
    are not exclusive. It is compiled with `losses.JointMultiLabelCrossentropy`, whatever the old loss was, and the old
    metrics in the form that takes probabilities, which it predicts.

    A KerasHub task gives a model that keeps the task's preprocessor: `fit`, `evaluate` and `predict` take raw images or
    strings.

    The layers before the head are shared, as in Keras' functional API: training the new model trains them in the old
    one. The call itself changes no weight, no `trainable` and no random seed. It draws from Python's `random` without
    advancing that, so two calls in a row draw the same numbers, unless they have different seeds.

    Warm start: mu = temperature * (old kernel, old bias), so without noise the predictions are exactly the old ones.
        The noise starts as in every new head, with a standard deviation of 0.15 temperatures; for a latent covariance
        that is the mean over the classes. It moves probabilities by less than 0.02, for temperatures from 0.02 up.

    Args:
        model: a functional model, or a Sequential one that is built: KerasHub and KerasCV classifiers,
            `keras.applications`, your own.
        num_factors: R, see `HeteroscedasticDense`.
        units: the number of classes, if it is not the old one; mu then starts fresh.
        layer: the name of the Dense layer (or 1x1 Conv2D) to replace; None finds the last one. If it is not the last
            one, the layers after it are left out.
        warm_start: False starts mu as a new `HeteroscedasticDense` does.
        clone: boolean, whether to copy the layers before the head, by way of a `.keras` file, instead of sharing them.
        keep_activation: boolean, whether a model that returns probabilities still does. False leaves the activation
            out: the new model returns log-probabilities or logits.
        joint: boolean, whether the new model learns which labels go together, for a sigmoid link.
        head_arguments: other arguments of the head, a `HeteroscedasticDense`, or with `joint` a
            `JointHeteroscedasticDense`. `use_bias`, `name`, `kernel_regularizer` and
            `bias_regularizer` are taken from the old layer unless given; its constraints, activity regularizer and
            `trainable` are not kept.
    Returns:
        a functional `keras.Model` whose last layer is the head, except for layers that reshape and a log_sigmoid.
    Raises:
        ValueError: if there is no graph, no such layer, or more than one output, if the old head has another
            activation, or if it is a convolution of "channels_first"; for `joint`, if the link is not the sigmoid, or
            if a layer behind the head is to be kept; for a regression, which `heteroscedastic_regression` converts.
    Warns: if the old model was compiled with something that has no match, or that cannot be made again.
    Source: Collier, Mustafa, Kokiopoulou, Jenatton and Berent, CVPR 2021, section 4.2 (transfer, in the other
        direction).

    Example:
        >>> old = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(3, "softmax")])
        >>> new = heteroscedastic(old, num_factors=2)
        >>> x = np.ones((1, 8))
        >>> bool(np.abs(new.predict(x, verbose=0) - old.predict(x, verbose=0)).max() < 0.02)
        True
    """
    ending = convertible_ending(model, layer)
    _check_classifier(model, ending, head_arguments.get("link"))
    old, old_units = ending.head, units_of(ending.head)
    units = old_units if units is None else units
    warm = check_boolean("warm_start", warm_start) and units == old_units
    keep = check_boolean("keep_activation", keep_activation)
    arguments = {
        "link": (link := _link(ending, units, warm, head_arguments.get("link"))),
        "activation": None if joint else _kept_activation(ending, resolve(Link, link), keep),
        "use_bias": old.use_bias,
        "kernel_regularizer": old.kernel_regularizer,
        "bias_regularizer": old.bias_regularizer,
        **head_arguments,
    }
    if warm:
        _check_warm(old, arguments)
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
            converted = add_preprocessor(converted, model)
    if warm:
        _give_mean(new, dense_weights(old))
    loss = JointMultiLabelCrossentropy() if joint else None
    compile_like(converted, model, new_ending, ending, loss=loss, hint=_hint(ending, keep))
    return converted


def homoscedastic(
    model: keras.Model,
    *,
    units: int | None = None,
    layer: str | None = None,
    clone: bool = False,
    keep_activation: bool = True,
    seed: int | None = None,
) -> keras.Model:
    """Returns a new model with the `HeteroscedasticDense` layer replaced by a Dense layer.

    It undoes `heteroscedastic`. The Dense layer is mu / temperature: the logits without their noise. With `units` it
    starts fresh, to transfer features that were learned under noise to another task (Collier et al. 2021, section 4.2).
    A model that returned probabilities still does, and any other returns logits. The new model is compiled as the old
    one is.

    Args:
        model: a model that ends in a `HeteroscedasticDense`, as `heteroscedastic` returns it.
        units: the number of classes, if it is not the old one.
        layer: the name of the layer to replace; layers after it are left out. None finds the last one.
        clone: boolean, whether to copy the layers before the head instead of sharing them.
        keep_activation: boolean, whether the Dense layer gets the softmax or sigmoid of the head; False leaves it out.
        seed: the seed of a fresh layer's kernel; None draws it from Python's `random`, without advancing that.
    Returns:
        a functional `keras.Model` whose last layer is the Dense layer, except for layers that reshape and a
            log_sigmoid.
    Raises:
        ValueError: if there is no graph, no such layer, or more than one output, or if the link is "normal_cdf", whose
            predictions no Dense layer can give.

    Example:
        >>> model = keras.Sequential([keras.Input((8,)), HeteroscedasticDense(3)])
        >>> homoscedastic(model).layers[-1].units
        3
    """
    ending = find_ending(model, (HeteroscedasticDense,), layer)
    old, link = ending.head, ending.head.link
    units = old.units if units is None else units
    if units == old.units and not link.activations:
        rule = (
            "have a head whose link a Dense layer can have, softmax or sigmoid, or `units` be another number, "
            "to start fresh"
        )
        raise refusal("model", rule, f"link={link!r}")
    keep = check_boolean("keep_activation", keep_activation)
    with preserve_seed(seed):
        body = make_body(model, ending, clone)
        new = keras.layers.Dense(
            units,
            _kept_activation(ending, link, keep),
            use_bias=old.use_bias,
            kernel_regularizer=old.kernel_regularizer,
            bias_regularizer=old.bias_regularizer,
            name=unused_name(old.name, body),
            dtype=old.dtype_policy,
        )
        converted, new_ending = add_end(body, new, ending, link.activation, keep)
        converted = add_preprocessor(converted, model)
    if units == old.units:
        new.set_weights([weight / old.temperature for weight in dense_weights(old.loc_layer)])
    if new_ending.returns == "numbers":
        new_ending = new_ending._replace(returns="logits", link=link.activation)
    compile_like(converted, model, new_ending, ending, hint=_hint(ending, keep))
    return converted


def _kept_activation(ending: Ending, link: Link, keep: bool) -> str | None:
    """Returns the activation of the new head: that of its link if the old head has one and it is kept, or None."""
    return link.activation if keep and ending.head_activation in ("softmax", "sigmoid") else None


def _hint(ending: Ending, keep: bool) -> str:
    return "" if keep or ending.head_activation in (None, "log_softmax") else "; keep_activation=True keeps it"


def _check_joint(model, ending, link):
    rule = "be False where classes are exclusive: one label has no correlations"
    refuse_if(resolve(Link, link).activation != "sigmoid", "joint", rule, f"joint=True, link={link!r}")
    rule = "be False where a layer behind the head reshapes: the loss takes its output"
    refuse_if(ending.reshapes, "joint", rule, "joint=True")
    rule = "be False for a task with a preprocessor: convert keras.Model(task.input, task.output) instead"
    refuse_if(getattr(model, "preprocessor", None) is not None, "joint", rule, f"joint=True, model={model.name!r}")


def _check_classifier(model, ending, link):
    """A Dense layer without activation may be a classifier or a regression: the loss tells, or the link."""
    loss = compile_arguments(model).get("loss")
    if ending.head_activation is None and link is None and _is_of_regression(loss):
        rule = "be a classifier, or `link` be given: heteroscedastic_regression(model, x, y) converts a regression"
        raise refusal("model", rule, f"loss={loss!r} behind a layer without activation")


def _is_of_regression(loss):
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    return name.lower().replace("_", "") in OF_REGRESSION


def convertible_ending(model: keras.Model, layer: str | None) -> Ending:
    """Returns the ending of a model at the Dense layer, or 1x1 Conv2D, of this name that another head can replace.

    Raises:
        ValueError: for a head of this package, and as `find_ending`.
    """
    ending = find_ending(model, (*DENSE_LAYERS, *HEADS), layer)
    if isinstance(ending.head, HEADS):
        raise ValueError(
            f"The head {ending.head.name!r} is a {type(ending.head).__name__} already; `homoscedastic(model)` makes a "
            f"HeteroscedasticDense a Dense again. Received: model={model.name!r}"
        )
    return ending


def _link(ending, units, warm, given):
    """Returns the link of the new head: the given link, or the link that fits the old activation.

    A given link can differ from the old activation only if mu starts fresh.
    """
    # One sigmoid stands for two classes.
    old = None if units_of(ending.head) == 1 < units else ending.link or None
    continued = () if given is None else resolve(Link, given).activations
    if warm and given is not None and (old or "softmax") not in continued and (old is not None or not continued):
        rule = (
            f"{old!r}, as the activation of the old head,"
            if old
            else "one that a Dense layer can have, 'softmax' or 'sigmoid',"
        )
        raise refusal("link", f"be {rule} unless mu starts fresh by `warm_start=False` or other `units`", value=given)
    return given or old or ("sigmoid" if units == 1 else "softmax")


def _check_warm(old, arguments):
    mode = getattr(old, "quantization_mode", None)  # a convolution lacks it
    refuse_if(mode is not None, "warm_start", f"be False, for the old head is quantised ({mode})", "warm_start=True")
    if old.use_bias and not arguments["use_bias"]:
        raise refusal("use_bias", "be True, for the old head has a bias", "use_bias=False")


def _give_mean(head, weights):
    """mu = temperature * (kernel, bias)."""
    kernel, *bias = weights
    if head.use_bias and not bias:
        bias = [np.zeros(head.units)]
    head.loc_layer.set_weights([head.temperature * weight for weight in (kernel, *bias)])
    head.covariance.restart(head.temperature * kernel)
