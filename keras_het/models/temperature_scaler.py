"""One temperature for a model's outputs, fitted in float64 to held-out labels."""

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
from keras_het.base.graph import has_graph, model_inputs
from keras_het.base.internals import compile_arguments
from keras_het.base.masks import drop_masked, masked_predictor
from keras_het.base.precision import check_dtype
from keras_het.base.refusal import outside_level, refuse_first, refuse_if
from keras_het.base.serializable import resolve
from keras_het.base.validation import as_float64, check_boolean, check_labels, check_last_axis, check_number
from keras_het.models.members import convert_probabilities, single_ending, symbolic_inputs
from keras_het.models.output_layers import compile_like
from keras_het.models.raw_inputs import add_preprocessor
from keras_het.reading.ending import Ending, single_output

MIN_TEMPERATURE, MAX_TEMPERATURE = 0.05, 20.0


@keras.saving.register_keras_serializable("keras_het")
class TemperatureScaler(keras.layers.Layer):
    """A layer that divides logits by one temperature T > 0, which is not trained: `scale_temperature` fits it.

        softmax: log softmax(log p / T)            sigmoid: logit / T                    (Guo et al. 2017, section 4.2)

    Args:
        link: the link of its inputs: "softmax" (log-probabilities or logits), "sigmoid" (logits), or another link.
        temperature: T.
        dtype: "float32", whatever the policy of the model around it, or "float64" on a backend that computes in it.
        from_logits: boolean, False for inputs that are probabilities.
        kwargs: arguments of `keras.layers.Layer`.
    Input and output shape: `(..., K)`.
    Raises:
        ValueError: for arguments out of range.

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
        from_logits: bool = True,
        **kwargs: Any,
    ):
        super().__init__(dtype=check_dtype(dtype), **kwargs)
        self.from_logits = check_boolean("from_logits", from_logits)
        self._link = resolve(links.Link, link)
        self._start = check_number("temperature", temperature, above=0.0)
        self._units = 0
        self.supports_masking = True

    @property
    def link(self) -> links.Link:
        """The link of its inputs and outputs."""
        return self._link

    @property
    def temperature(self) -> float:
        """The current T."""
        return float(self._temperature.numpy()) if self.built else self._start

    @property
    def head_output(self) -> Ending:
        """The kind of its output, for `keras_het.check`."""
        return Ending(f"the layer {self.name!r}", self.link.activation, self.link.returns, self._units)

    def build(self, input_shape: Any) -> None:
        self._units = check_last_axis(input_shape) or 0
        start = keras.initializers.Constant(self._start)
        self._temperature = self.add_weight(
            name="temperature", shape=(), initializer=start, trainable=False, autocast=False
        )

    def call(self, inputs: Any) -> Any:
        """See the class."""
        logits = inputs if self.from_logits else convert_probabilities(inputs, self.link.activation)
        scaled = logits / ops.convert_to_tensor(self._temperature)
        return ops.log_softmax(scaled, axis=-1) if self.link.activation == "softmax" else scaled

    def get_config(self) -> dict[str, Any]:
        link = keras.saving.serialize_keras_object(self.link)
        return {**super().get_config(), "link": link, "temperature": self.temperature, "from_logits": self.from_logits}


def scale_temperature(
    model: keras.Model, x: Any, y: Any = None, link: Any = None, batch_size: int = 128
) -> keras.Model:
    """Returns a new model that divides the logits by one temperature T, fitted to held-out examples.

    T maximises the likelihood of the labels. Steps that a Keras mask marks as padding do not count. T > 1 makes a model
    less sure, T < 1 more sure. The order of the classes stays, and so does the accuracy. T is not the temperature of a
    heteroscedastic head: that is inside the expectation over the noise and chosen before training, while T is behind
    the expectation and fitted after training.

    Noisy labels calibrate the model for noisy labels: its confidence matches the fraction of noisy labels that agree
    with it. It could be more confident of the true classes.

    The new model is compiled with the losses and metrics of the old model. Its optimizer is a plain SGD without state:
    the model is for `evaluate` and files, after the training.

    Args:
        model: a model of any head, of a Dense layer, with an activation or without, or a `DeepEnsemble`.
        x: examples that it was not trained on: arrays, or a data set of batches (x, y).
        y: their labels, which may be noisy: integers `(...)`, or for a sigmoid vectors `(..., K)` in [0, 1]; None for a
            data set.
        link: "softmax" or "sigmoid", for a model whose last layer does not tell.
        batch_size: size of the batches for predictions from arrays.
    Returns:
        a model, with the layers of the old model and a `TemperatureScaler` at the end, which returns log-probabilities
            or logits, also if the old model returned probabilities.
    Raises:
        ValueError: for a model that has no graph and is not built, whose link is unknown, or whose call returns a
            distribution; for no example, outputs that are not finite, labels of another shape or out of range.
    Warns: if the best T is outside [0.05, 20], and T is the nearer end; if all T are equally good.
    Source: Guo, Pleiss, Sun and Weinberger, ICML 2017, "On calibration of modern neural networks".

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Rescaling(2.0)])
        >>> scaled = scale_temperature(model, np.array([[1.0, 0.0]] * 3), np.array([0, 0, 1]), link="softmax")
        >>> round(scaled.layers[-1].temperature, 4)  # 2 / log(2)
        2.8854
    """
    ending = single_ending(model)
    rule = 'be given, "softmax" or "sigmoid", for a model that does not end in a head'
    refuse_if(link is None and not ending.link, "link", rule, "link=None")
    link = resolve(links.Link, link or ending.link)
    refuse_if(ending.link not in ("", link.activation), "link", f"be for {ending.link}, as {ending.source}", value=link)
    whole = add_preprocessor(keras.Model(*_graph(model)), model)
    predict = masked_predictor(whole, whole.output)
    parts = [(*predict(inputs), labels) for inputs, labels in labelled_batches(x, y, batch_size)]
    refuse_if(not parts, "x", "have at least one example", "none")
    outputs, mask, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    if labels.shape[: mask.ndim] == mask.shape:  # else best_temperature refuses the labels
        outputs, labels = drop_masked(mask, outputs, labels)
    if not (from_logits := ending.returns != "probabilities"):
        outputs = convert_probabilities(ops.convert_to_tensor(outputs, "float32"), link.activation)
    temperature = best_temperature(outputs, labels, link.activation)
    return _scaled(model, TemperatureScaler(link, temperature, from_logits=from_logits), ending)


def _graph(model: keras.Model) -> tuple[Any, Any]:
    """Returns the symbolic inputs and output of a model; new ones for a model without a graph."""
    if has_graph(model):
        return model_inputs(model), single_output(model)
    inputs = symbolic_inputs(model)
    return inputs, model(inputs)


def _scaled(model: keras.Model, scaler: TemperatureScaler, ending: Ending) -> keras.Model:
    """Returns a compiled model with the layers of a model and the scaler at the end."""
    inputs, outputs = _graph(model)
    scaled = add_preprocessor(keras.Model(inputs, scaler(outputs), name=model.name), model)
    compile_like(scaled, model, scaler.head_output, ending)
    if scaled.compiled:
        scaled.compile(**{**compile_arguments(scaled), "optimizer": "sgd"})
    return scaled


def best_temperature(outputs: Any, labels: Any, activation: str) -> float:
    """Returns the T in [0.05, 20] with the least mean negative log-likelihood.

    The likelihood is convex in 1 / T, and T is the root of its slope.

    Args:
        outputs: log-probabilities or logits, `(..., K)`.
        labels: integers `(...)`; for a sigmoid, vectors `(..., K)`.
        activation: "softmax" or "sigmoid".
    Raises:
        ValueError: for no example, numbers that are not finite, other shapes, or labels out of range.
    Warns: if the best T is outside these bounds, or if all T are equally good, because the outputs of each example are
        equal.

    Example:
        >>> round(best_temperature(np.log([[0.9, 0.1]] * 3), [0, 0, 1], "softmax"), 4)  # log(9) / log(2)
        3.1699
    """
    outputs = as_float64(outputs)
    refuse_if(outputs.ndim < 2 or not outputs.size, "outputs", "be (..., K), with at least one example", shape=outputs)
    rows = outputs.reshape(-1, outputs.shape[-1])
    refuse_first(~np.isfinite(rows), "outputs", "be finite", rows)
    slope = (_slope_of_sigmoid if activation == "sigmoid" else _slope_of_softmax)(rows, labels, outputs.shape[:-1])
    if not (rows if activation == "sigmoid" else rows - rows[:, :1]).any():
        return _warned(1.0, "because T changes nothing: the outputs of each example are equal")
    if slope(MIN_TEMPERATURE) <= 0.0:
        why = "no label, or hardly one, is predicted wrong. Fit it to more examples, outside the training set"
        return _warned(MIN_TEMPERATURE, f"the least, and the likelihood still grows below it: {why}")
    if slope(MAX_TEMPERATURE) >= 0.0:
        why = "the outputs say nothing of these labels. Check that the model is trained, and the order of the labels"
        return _warned(MAX_TEMPERATURE, f"the largest, and the likelihood still grows above it: {why}")
    return math.exp(
        brentq(lambda log_t: slope(math.exp(log_t)), math.log(MIN_TEMPERATURE), math.log(MAX_TEMPERATURE), xtol=1e-12)
    )


def _warned(temperature: float, reason: str) -> float:
    """Returns the temperature, with a warning of the reason for it."""
    warnings.warn(f"The temperature is {temperature:g}, {reason}.", stacklevel=outside_level())
    return temperature


def _slope_of_softmax(logits: np.ndarray, labels: Any, shape: tuple[int, ...]) -> Callable[[float], float]:
    """Returns the slope of the mean NLL by 1 / T, a function of T: the mean of E[logit] - logit of the label."""
    labels, count = np.asarray(ops.convert_to_numpy(labels)), len(logits)
    refuse_if(labels.shape not in (shape, (*shape, 1)), "labels", f"be integers of shape {shape}", shape=labels)
    labels = check_labels(labels.ravel(), logits.shape[-1])
    logits = logits - logits.max(axis=-1, keepdims=True)
    observed = logits[np.arange(count), labels].mean()
    return lambda temperature: np.einsum("nk,nk->", softmax(logits / temperature, axis=-1), logits) / count - observed


def _slope_of_sigmoid(logits: np.ndarray, labels: Any, shape: tuple[int, ...]) -> Callable[[float], float]:
    """Returns the slope of the mean NLL of label vectors by 1 / T, a function of T: the mean of logit (p - y)."""
    labels, units = as_float64(labels), logits.shape[-1]
    refuse_if(labels.shape != (*shape, units), "labels", f"be vectors, of shape {(*shape, units)}", shape=labels)
    labels = labels.reshape(logits.shape)
    refuse_first(~((labels >= 0) & (labels <= 1)), "labels", "be in [0, 1]", labels)
    return lambda temperature: np.mean(logits * (expit(logits / temperature) - labels))
