"""One temperature for a model's outputs, fitted in float64 to held-out labels."""

import math
import warnings
from collections.abc import Callable
from typing import Any, Self

import keras
import numpy as np
from keras import ops
from scipy.optimize import brentq
from scipy.special import expit, softmax

from keras_het import links
from keras_het.base.batches import labelled_batches
from keras_het.base.graph import has_graph, model_inputs, single_output
from keras_het.base.internals import compile_arguments
from keras_het.base.precision import check_dtype
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import as_float64, check_labels, check_last_axis, check_number
from keras_het.models.members import known_output, symbolic_inputs
from keras_het.models.output_layers import compile_like
from keras_het.models.raw_inputs import with_preprocessor
from keras_het.reading.outputs import Output

LOWEST, HIGHEST = 0.05, 20.0


def best_temperature(outputs: np.ndarray, labels: Any, activation: str) -> float:
    """The T with the least mean negative log-likelihood, which is convex in 1 / T: the root of its slope.

    Args:
        outputs: log-probabilities or logits, float64, `(..., K)`.
        labels: integers `(...)`; for a sigmoid, vectors `(..., K)`.
        activation: "softmax" or "sigmoid".
    Returns:
        a number in [0.05, 20].
    Raises:
        ValueError: for no example, numbers that are not finite, other shapes, or labels out of range.
    Warns: if the best T is outside these bounds, or if all T are equally good, because the outputs of each example are
        equal.

    Example:
        >>> round(best_temperature(np.log([[0.9, 0.1]] * 3), [0, 0, 1], "softmax"), 4)  # log(9) / log(2)
        3.1699
    """
    slope_of = _slope_of_sigmoid if activation == "sigmoid" else _slope_of_softmax
    rows = _rows(outputs)
    slope = slope_of(rows, labels, outputs.shape[:-1])
    if not (rows if activation == "sigmoid" else rows - rows[:, :1]).any():
        warnings.warn(
            "The temperature is 1, for no other changes the likelihood: the outputs of each example are equal.",
            stacklevel=3,
        )
        return 1.0
    return _best(slope)


def _rows(outputs: np.ndarray) -> np.ndarray:
    """Outputs `(..., K)` as rows, `(N, K)`."""
    refuse_if(outputs.ndim < 2 or not outputs.size, "outputs", "be (..., K), with at least one example", shape=outputs)
    rows = outputs.reshape(-1, outputs.shape[-1])
    wrong = np.argwhere(~np.isfinite(rows))
    if len(wrong):
        raise refusal("outputs", "be finite", f"{rows[tuple(wrong[0])]} in row {wrong[0][0]}")
    return rows


def _slope_of_softmax(logits: np.ndarray, labels: Any, shape: tuple[int, ...]) -> Callable[[float], float]:
    """The slope of the mean NLL of integer labels by 1 / T, a function of T: mean (E[logit] - logit of the label)."""
    labels, count = np.asarray(ops.convert_to_numpy(labels)), len(logits)
    refuse_if(labels.shape not in (shape, (*shape, 1)), "labels", f"be integers of shape {shape}", shape=labels)
    labels = check_labels(labels.ravel(), logits.shape[-1])
    logits = logits - logits.max(axis=-1, keepdims=True)
    observed = logits[np.arange(count), labels].mean()
    return lambda temperature: np.einsum("nk,nk->", softmax(logits / temperature, axis=-1), logits) / count - observed


def _slope_of_sigmoid(logits: np.ndarray, labels: Any, shape: tuple[int, ...]) -> Callable[[float], float]:
    """The same for label vectors: mean of logit (p - y)."""
    labels, units = as_float64(labels), logits.shape[-1]
    refuse_if(labels.shape != (*shape, units), "labels", f"be vectors, of shape {(*shape, units)}", shape=labels)
    labels = labels.reshape(logits.shape)
    wrong = np.argwhere(~((labels >= 0) & (labels <= 1)))
    if len(wrong):
        raise refusal("labels", "be in [0, 1]", f"{labels[tuple(wrong[0])]} in row {wrong[0][0]}")
    return lambda temperature: np.mean(logits * (expit(logits / temperature) - labels))


def _best(slope: Callable[[float], float]) -> float:
    """T where the slope is zero; the slope rises with 1 / T."""
    if slope(LOWEST) <= 0.0:
        why = "no label, or hardly one, is predicted wrong. Fit it to more examples, which the model was not trained on"
        warnings.warn(
            f"The temperature is {LOWEST:g}, the least, and the likelihood still grows below it: {why}.", stacklevel=4
        )
        return LOWEST
    if slope(HIGHEST) >= 0.0:
        why = (
            "the outputs say nothing of these labels. Are the labels in the order of the examples, and is the model "
            "trained?"
        )
        warnings.warn(
            f"The temperature is {HIGHEST:g}, the largest, and the likelihood still grows above it: {why}", stacklevel=4
        )
        return HIGHEST
    return math.exp(
        brentq(
            lambda log_temperature: slope(math.exp(log_temperature)), math.log(LOWEST), math.log(HIGHEST), xtol=1e-12
        )
    )


@keras.saving.register_keras_serializable("keras_het")
class TemperatureScaler(keras.layers.Layer):
    """A layer that divides logits by one temperature T > 0, which is fitted to held-out labels and not trained.

        softmax: log softmax(log p / T)            sigmoid: logit / T                    (Guo et al. 2017, section 4.2)

    T > 1 makes a model less sure, T < 1 more sure. The order of the classes stays, and so does the accuracy. T is not
    the temperature of a heteroscedastic head, which is inside the expectation over the noise and chosen before
    training, while T is behind the expectation and fitted after training.

    Noisy labels calibrate the model for noisy labels: its confidence matches the fraction of noisy labels that agree
    with it. It could be more confident of the true classes.

    Args:
        link: the link of its inputs: "softmax" (log-probabilities or logits), "sigmoid" (logits), or another link.
        temperature: T before it is fitted.
        dtype: "float32", whatever the policy of the model around it, or "float64" on a backend that computes in it.
        kwargs: arguments of `keras.layers.Layer`.
    Input and output shape: `(..., K)`.
    Raises:
        ValueError: for arguments out of range.
    Source: Guo, Pleiss, Sun and Weinberger, ICML 2017, "On calibration of modern neural networks".

    Example:
        >>> log_p = np.log([[0.9, 0.1], [0.9, 0.1], [0.9, 0.1]])
        >>> scaler = TemperatureScaler().fit(log_p, [0, 0, 1])
        >>> round(scaler.temperature, 4)  # log(9) / log(2), for two of three labels are as predicted
        3.1699
        >>> [round(float(p), 4) for p in ops.exp(scaler(log_p[:1]))[0]]
        [0.6667, 0.3333]
    """

    def __init__(self, link: Any = "softmax", temperature: float = 1.0, dtype: Any = "float32", **kwargs: Any):
        super().__init__(dtype=check_dtype(dtype), **kwargs)
        self._link = links.get(link)
        self._start = check_number("temperature", temperature, above=0.0)
        self._units: int | None = None
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
    def head_output(self) -> Output:
        """The kind of its output, for `keras_het.check`."""
        return Output(f"the layer {self.name!r}", self.link.activation, self.link.returns, self._units or 0)

    def build(self, input_shape: Any) -> None:
        self._units = check_last_axis(input_shape)
        start = keras.initializers.Constant(self._start)
        self._temperature = self.add_weight(
            name="temperature", shape=(), initializer=start, trainable=False, autocast=False
        )

    def call(self, inputs: Any) -> Any:
        """See the class."""
        scaled = inputs / ops.convert_to_tensor(self._temperature)
        return ops.log_softmax(scaled, axis=-1) if self.link.activation == "softmax" else scaled

    def fit(self, outputs: Any, labels: Any) -> Self:
        """Sets T to the value that maximises the likelihood of the labels, whose negative log is convex in 1 / T.

        Args:
            outputs: outputs of a model for examples that it was not trained on, `(..., K)`: log-probabilities or
                logits.
            labels: labels of these examples, integers `(...)`; for a sigmoid `(..., K)`, in [0, 1].
        Returns:
            itself.
        Raises:
            ValueError: for no example, numbers that are not finite, other shapes, or labels out of range.
        Warns: if the best T is outside [0.05, 20]; T is set to the nearer end.
        """
        outputs = as_float64(outputs)
        temperature = best_temperature(outputs, labels, self.link.activation)
        if not self.built:
            self.build(outputs.shape)
        self._temperature.assign(temperature)
        return self

    def append_to(self, model: keras.Model) -> keras.Model:
        """Returns a new model with the layers of the old one and this layer at the end.

        It is compiled with the losses and metrics of the old one. Its optimizer is a plain SGD without state: the model
        is for `evaluate` and files, after the training.

        Args:
            model: a model with one output of log-probabilities or logits.
        Raises:
            ValueError: for a model that returns probabilities, or that has no graph and is not built.

        Example:
            >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
            >>> TemperatureScaler(temperature=2.0).append_to(model).layers[-1].temperature
            2.0
        """
        known = known_output(model)
        _check_fits(model, known, self.link)
        if has_graph(model):
            inputs, outputs = model_inputs(model), single_output(model)
        else:
            inputs = symbolic_inputs(model)
            outputs = model(inputs)
        scaled = with_preprocessor(keras.Model(inputs, self(outputs), name=model.name), model)
        compile_like(scaled, model, self.head_output, None, known.returns if known else "")
        if scaled.compiled:
            scaled.compile(**{**compile_arguments(scaled), "optimizer": "sgd"})
        return scaled

    def get_config(self) -> dict[str, Any]:
        link = keras.saving.serialize_keras_object(self.link)
        return {**super().get_config(), "link": link, "temperature": self.temperature}


def scale_temperature(
    model: keras.Model, x: Any, y: Any = None, link: Any = None, batch_size: int = 128
) -> keras.Model:
    """Returns a new model with a `TemperatureScaler` at the end, fitted to held-out examples.

    Args:
        model: a model that returns log-probabilities or logits: any head, a plain Dense layer, a `DeepEnsemble`.
        x: examples that it was not trained on: arrays, or a data set of batches (x, y).
        y: their labels, which may be noisy: integers, or vectors for a sigmoid; None for a data set.
        link: "softmax" or "sigmoid", for a model whose last layer does not tell.
        batch_size: size of the batches for predictions from arrays.
    Returns:
        a model, with the layers of the old one.
    Raises:
        ValueError: as `TemperatureScaler.fit` and `append_to`, or if the link is not known.
    Warns: as `TemperatureScaler.fit`.

    Example:
        >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Rescaling(2.0)])
        >>> scaled = scale_temperature(model, np.array([[1.0, 0.0]] * 3), np.array([0, 0, 1]), link="softmax")
        >>> round(scaled.layers[-1].temperature, 4)  # 2 / log(2)
        2.8854
    """
    known = known_output(model)
    if link is None and (known is None or not known.activation):
        raise refusal("link", 'be given, "softmax" or "sigmoid", for a model that does not end in a head', "link=None")
    scaler = TemperatureScaler(known.activation if link is None and known else link)
    _check_fits(model, known, scaler.link)
    parts = [
        (ops.convert_to_numpy(model.predict_on_batch(inputs)), labels)
        for inputs, labels in labelled_batches(x, y, batch_size)
    ]
    refuse_if(not parts, "x", "have at least one example", "none")
    outputs, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    return scaler.fit(outputs, labels).append_to(model)


def _check_fits(model: keras.Model, known: Output | None, link: links.Link) -> None:
    if known is not None and known.returns == "probabilities":
        raise refusal("model", "return log-probabilities or logits", f"{model.name!r}, which returns probabilities")
    if known is not None and known.activation not in ("", link.activation):
        raise refusal("link", f"be for {known.activation}, as {known.source}", value=link)
