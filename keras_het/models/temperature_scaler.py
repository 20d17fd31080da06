"""Temperature scaling of a model's outputs, fitted in float64 to held-out labels."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops
from scipy.optimize import brentq
from scipy.special import expit, softmax

from keras_het import links
from keras_het.base.batches import labelled_batches
from keras_het.base.graph import has_graph, model_inputs, symbolic_inputs
from keras_het.base.masks import drop_masked, masked_predictor
from keras_het.base.precision import check_dtype
from keras_het.base.refusal import outside_level, refuse_first, refuse_if
from keras_het.base.serializable import resolve
from keras_het.base.validation import (
    as_float64,
    check_choice,
    check_integer,
    check_labels,
    check_last_axis,
    check_number,
)
from keras_het.models.output_layers import compile_like
from keras_het.models.raw_inputs import keep_class, keep_task
from keras_het.ops.transition import MIN_PROBABILITY
from keras_het.reading.ending import Ending, endings, single_output

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0
MAX_ROUNDED = 1e-3  # with fewer, T hardly moves


@keras.saving.register_keras_serializable("keras_het")
class TemperatureScaler(keras.layers.Layer):
    """A layer that divides logits by a temperature T > 0. Training does not change T: `scale_temperature` fits it.

        logits / T            log softmax(log p / T)            softmax(log p / T), sigmoid(logit(p) / T)

    Args:
        link: "softmax", "sigmoid" or another link of the inputs.
        temperature: T.
        dtype: "float32" under any dtype policy, or "float64" if the backend supports it.
        returns: kind of the inputs and outputs, "logits", "log-probabilities" or "probabilities"; None for the kind
            that a head with this link returns.
        kwargs: arguments of `keras.layers.Layer`.
    Input and output shape: `(..., K)`.
    Raises:
        ValueError: for arguments out of range.
    Source: Guo et al. 2017, section 4.2.

    Example:
        >>> scaler = TemperatureScaler(temperature=3.1699)  # log(9) / log(2)
        >>> [round(float(p), 4) for p in ops.exp(scaler(np.log([[0.9, 0.1]])))[0]]
        [0.6667, 0.3333]
    """

    def __init__(
        self,
        link: Any = "softmax",
        temperature: float = 1.0,
        dtype: Any = "float32",
        returns: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(dtype=check_dtype(dtype), **kwargs)
        self.link = resolve(links.Link, link)
        choices = dict.fromkeys((self.link.returns, "logits", "probabilities"))
        self.returns = check_choice("returns", self.link.returns if returns is None else returns, choices)
        self._start = check_number("temperature", temperature, above=0.0)
        self._units = 0
        self.supports_masking = True

    @property
    def temperature(self) -> float:
        """Current value of T."""
        return float(self._temperature.numpy()) if self.built else self._start

    @property
    def head_output(self) -> Ending:
        """Kind of the output, for `keras_het.check`."""
        return Ending(f"the layer {self.name!r}", self.link.activation, self.returns, self._units)

    def build(self, input_shape: Any) -> None:
        self._units = check_last_axis(input_shape) or 0
        start = keras.initializers.Constant(self._start)
        self._temperature = self.add_weight(
            name="temperature", shape=(), initializer=start, trainable=False, autocast=False
        )

    def call(self, inputs: Any) -> Any:
        scaled = _logits(inputs, self.returns, self.link) / ops.convert_to_tensor(self._temperature)
        if self.returns == "log-probabilities":
            return ops.log_softmax(scaled, axis=-1)
        return keras.activations.get(self.link.activation)(scaled) if self.returns == "probabilities" else scaled

    def get_config(self) -> dict[str, Any]:
        link = keras.saving.serialize_keras_object(self.link)
        return {**super().get_config(), "link": link, "temperature": self.temperature, "returns": self.returns}


def scale_temperature(
    model: keras.Model, x: Any, y: Any = None, link: Any = None, batch_size: int = 128
) -> keras.Model:
    """Fits one temperature T to held-out examples, and returns a new model that divides the logits by it.

    T maximises the likelihood of the labels. Steps that a Keras mask marks as padding do not count. T > 1 makes a model
    less confident, T < 1 more confident. The ranking of the classes and the accuracy do not change. T differs from the
    temperature of a heteroscedastic head, which acts inside the expectation over the noise and is chosen before
    training. T acts after this expectation.

    Noisy labels calibrate the model for noisy labels: its confidence matches the fraction of noisy labels that agree
    with it, so it is underconfident of the true classes.

    The new model returns the same kind of outputs as the old model: probabilities, log-probabilities or logits. If the
    old model is compiled, the new model is compiled with the same losses and metrics.

    Args:
        model: a model that ends in a head or a Dense layer, with or without activation.
        x: examples that the model was not trained on: arrays, or a data set of batches (x, y).
        y: labels, which can be noisy: integers `(...)`, or for a sigmoid vectors `(..., K)` in [0, 1]; None for a data
            set.
        link: "softmax" or "sigmoid", for a model with an unknown last layer, which must return logits.
        batch_size: batch size of the predictions from arrays.
    Returns:
        a model with the layers of the old model and a `TemperatureScaler` at the end.
    Raises:
        ValueError: for a model that has no graph and is not built, has an unknown link, or returns a distribution; for
            no example, outputs that are not finite, labels of another shape or out of range.
    Warns: if the best T is outside [0.05, 20], and T is the nearer bound; if all T are equally good; if the
        probabilities of many labels are rounded to 0, because T can then be far off.
    Source: Guo, Pleiss, Sun and Weinberger, ICML 2017, "On calibration of modern neural networks".

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Rescaling(2.0)])
        >>> scaled = scale_temperature(model, np.array([[1.0, 0.0]] * 3), np.array([0, 0, 1]), link="softmax")
        >>> round(scaled.layers[-1].temperature, 4)  # 2 / log(2)
        2.8854
    """
    ending, (symbols, output) = _scalable_ending(model), _graph(model)
    graph = keep_task(keras.Model(symbols, output), model)
    rule = 'be "softmax" or "sigmoid" for a model that ends in neither a head nor an activation'
    refuse_if(link is None and not ending.link, "link", rule, "link=None")
    link = resolve(links.Link, link or ending.link)
    is_wrong = ending.link not in ("", link.activation)
    refuse_if(is_wrong, "link", f"be a {ending.link}, the link of {ending.source}", value=link)
    predict, batch_size = masked_predictor(graph, graph.output), check_integer("batch_size", batch_size, 1)
    parts = [(*predict(inputs), labels) for inputs, labels in labelled_batches(x, y, batch_size)]
    refuse_if(not parts, "x", "have at least one example", "none")
    outputs, mask, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    outputs = outputs.astype(np.promote_types(outputs.dtype, "float32"))  # MIN_PROBABILITY is 0 in half precision
    if labels.shape[: mask.ndim] == mask.shape:  # else best_temperature refuses the labels
        outputs, labels = drop_masked(mask, outputs, labels)
    temperature = best_temperature(_logits(outputs, ending.returns, link), labels, link.activation)
    if ending.returns == "probabilities":
        _warn_rounded(outputs, labels, link.activation)
    scaler = TemperatureScaler(link, temperature, returns=ending.returns)
    scaled = keep_class(keras.Model(symbols, scaler(output), name=model.name), model)
    compile_like(scaled, model)
    return scaled


def _scalable_ending(model: keras.Model) -> Ending:
    """Returns the `Ending` of a model with one output; numbers of a Dense layer and unknown outputs count as logits."""
    outputs = endings(model)
    if len(outputs) != 1 or outputs[0].returns == "distributions":
        return Ending("the model", "", "logits", 0, is_head=False)
    (ending,) = outputs
    rule = "return logits or probabilities when called"
    refuse_if(ending.is_distribution, "model", rule, f"{model.name!r}, which returns a distribution")
    is_unknown = ending.returns == "anything"
    refuse_if(is_unknown and ending.link, "model", rule, f"{model.name!r}, with activation 'log_sigmoid'")
    return ending._replace(returns="logits") if is_unknown or ending.returns == "numbers" else ending


def _logits(outputs: Any, returns: str, link: links.Link) -> Any:
    """Returns the logits of outputs, `(..., K)`: log-probabilities are logits of a softmax.

    The largest logit is the smallest logit whose sigmoid rounds to one, so that logits stay finite.
    """
    if returns != "probabilities":
        return outputs
    log_p = ops.log(ops.maximum(outputs, MIN_PROBABILITY))
    rounding = 2.0**-54 if "float64" in str(outputs.dtype) else 2.0**-25
    return log_p if link.activation == "softmax" else log_p - ops.log(ops.maximum(1.0 - outputs, rounding))


def _warn_rounded(p: np.ndarray, labels: np.ndarray, activation: str) -> None:
    """Warns if the probabilities of more than `MAX_ROUNDED` of the labels are rounded to 0, and their logits lost."""
    if activation == "softmax":
        is_lost = np.take_along_axis(p, labels.reshape((*p.shape[:-1], 1)).astype(int), axis=-1) <= 0
    else:
        is_lost = np.where(labels > 0.5, p <= 0, p >= 1)
    if is_lost.mean() > MAX_ROUNDED:
        text = f"The temperature can be far off: the probabilities of {is_lost.sum()} of {is_lost.size} labels are"
        warnings.warn(f"{text} rounded to 0. Scale a model that returns logits.", stacklevel=outside_level())


def _graph(model: keras.Model) -> tuple[Any, Any]:
    """Returns the symbolic inputs and output of a model; for a model without a graph, makes them."""
    if has_graph(model):
        return model_inputs(model), single_output(model)
    inputs = symbolic_inputs(model)
    return inputs, model(inputs)


def best_temperature(outputs: Any, labels: Any, activation: str) -> float:
    """Computes the T in [0.05, 20] with the smallest mean NLL, which is convex in 1 / T: T is the root of its slope."""
    outputs = as_float64(outputs)
    refuse_if(outputs.ndim < 2 or not outputs.size, "outputs", "be (..., K), with at least one example", shape=outputs)
    rows = outputs.reshape(-1, outputs.shape[-1])
    refuse_first(~np.isfinite(rows), "outputs", "be finite", rows)
    slope = (_sigmoid_slope if activation == "sigmoid" else _softmax_slope)(rows, labels, outputs.shape[:-1])
    if not (rows if activation == "sigmoid" else rows - rows[:, :1]).any():
        return _warn(1.0, "because T has no effect: the outputs of each example are equal")
    if slope(MIN_TEMPERATURE) <= 0.0:
        reason = "almost every label is predicted correctly. Fit it to more examples, outside the training set"
        return _warn(MIN_TEMPERATURE, f"the lower bound, although a smaller one fits better: {reason}")
    if slope(MAX_TEMPERATURE) >= 0.0:
        reason = "the outputs do not predict these labels. Check that the model is trained, and the order of the labels"
        return _warn(MAX_TEMPERATURE, f"the upper bound, although a larger one fits better: {reason}")
    return math.exp(
        brentq(lambda log_t: slope(math.exp(log_t)), math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE), xtol=1e-12)
    )


def _warn(temperature: float, reason: str) -> float:
    warnings.warn(f"The temperature is {temperature:g}, {reason}.", stacklevel=outside_level())
    return temperature


def _softmax_slope(logits: np.ndarray, labels: Any, shape: tuple[int, ...]) -> Callable[[float], float]:
    """Returns the derivative of the mean NLL by 1 / T, a function of T: the mean of E[logit] - logit of the label."""
    labels, count = np.asarray(ops.convert_to_numpy(labels)), len(logits)
    refuse_if(labels.shape not in (shape, (*shape, 1)), "y", f"be integers of shape {shape}", shape=labels)
    labels = check_labels(labels.ravel(), logits.shape[-1], name="y")
    logits = logits - logits.max(axis=-1, keepdims=True)
    observed = logits[np.arange(count), labels].mean()
    return lambda temperature: np.einsum("nk,nk->", softmax(logits / temperature, axis=-1), logits) / count - observed


def _sigmoid_slope(logits: np.ndarray, labels: Any, shape: tuple[int, ...]) -> Callable[[float], float]:
    """Returns the derivative of the mean NLL of label vectors by 1 / T, a function of T: the mean of logit (p - y)."""
    labels, units = as_float64(labels), logits.shape[-1]
    refuse_if(labels.shape != (*shape, units), "y", f"be vectors of shape {(*shape, units)}", shape=labels)
    labels = labels.reshape(logits.shape)
    refuse_first(~((labels >= 0) & (labels <= 1)), "y", "be in [0, 1]", labels)
    return lambda temperature: np.mean(logits * (expit(logits / temperature) - labels))
