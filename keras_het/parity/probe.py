"""Probes: they compute with a model and preserve its variables, its optimizer, its layers, and the random states."""

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.internals import forget_values, layers_of, share_losses
from keras_het.base.seeds import preserve_random_states
from keras_het.parity.arrays import Store

_FUNCTIONS = ("train_function", "test_function", "predict_function")  # that Keras compiles
_AUTOMATIC_NAME = re.compile(r"(?<=[/_]variable)_\d+(?=_|$)")


def to_numpy(tensor: Any) -> np.ndarray:
    """Returns a copy of a tensor or a variable."""
    return np.array(ops.convert_to_numpy(tensor))


def as_tensors(x: Any) -> Any:
    """Returns tensors, in the structure of the arrays; None stays."""
    return keras.tree.map_structure(ops.convert_to_tensor, x, none_is_leaf=False)


def outputs_by_name(outputs: Any) -> dict[str, np.ndarray]:
    """Returns the outputs of a model by name: "" for a single output, otherwise "output 0" or "output logits"."""
    flat = [(".".join(map(str, path)), to_numpy(output)) for path, output in keras.tree.flatten_with_path(outputs)]
    return {f"output {path}" if path else "": array for path, array in flat if array.dtype != object}  # as of None


def flatten_outputs(outputs: Any) -> list[Any]:
    """Returns the outputs of a model in a list, without None."""
    return [output for output in keras.tree.flatten(outputs) if output is not None]


def weight_names(weights: Any) -> list[str]:
    """Returns the paths of weights, numbered if several weights have the same path.

    Keras counts weights without a name in each process, so this number is left out.
    """
    paths = [_AUTOMATIC_NAME.sub("", weight.path) for weight in weights]
    counts = [paths[: number + 1].count(path) for number, path in enumerate(paths)]
    return [path if count == 1 else f"{path}, {count}" for path, count in zip(paths, counts, strict=True)]


def store_weights(weights: Any) -> Store:
    """Returns the values of weights by name."""
    return Store(zip(weight_names(weights), map(to_numpy, weights), strict=True))


@contextlib.contextmanager
def preserve_model(model: Any, x: Any, y: Any, sample_weight: Any) -> Iterator[None]:
    """Builds a model and its loss, and restores its variables, optimizer and functions, and global random states."""
    with preserve_random_states(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Gradients do not exist")  # the recording has zeros for them
        if not model.built:
            model(x, training=False)
        before = {name: value for name, value in vars(model).items() if name in ("optimizer", *_FUNCTIONS)}
        vars(model).update(dict.fromkeys(_FUNCTIONS))
        with preserve_values([*model.variables, *model.metrics_variables]):
            try:
                if model.compiled and y is not None:  # in a trace of JAX, the metrics of outputs would keep its tracers
                    with contextlib.suppress(Exception):  # the training step records the same error
                        model.compute_loss(x=x, y=y, y_pred=model(x, training=False), sample_weight=sample_weight)
                        model.reset_metrics()
                yield
            finally:
                for name, value in before.items():
                    setattr(model, name, value)
                if hasattr(model, "zero_grad"):  # PyTorch would keep the gradients
                    model.zero_grad()


@contextlib.contextmanager
def preserve_values(variables: list[Any]) -> Iterator[None]:
    """Restores the values of variables."""
    values = Store((str(number), to_numpy(variable)) for number, variable in enumerate(variables))
    try:
        yield
    finally:
        for variable, value in zip(variables, values.values(), strict=True):
            variable.assign(value)


@contextlib.contextmanager
def intercept_calls(model: Any, around: Callable) -> Iterator[None]:
    """Replaces the `call` of every layer by `around(layer, call, arguments, options)`."""

    def make(layer: Any, call: Callable) -> Callable:
        return lambda *arguments, **options: around(layer, call, arguments, options)

    layers = {id(layer): layer for layer in layers_of(model)}.values()
    calls = [(layer, "quantized_call" if getattr(layer, "quantization_mode", None) else "call") for layer in layers]
    before = [vars(layer).get(name) for layer, name in calls]
    for layer, name in calls:
        vars(layer)[name] = make(layer, getattr(layer, name))
    try:
        yield
    finally:
        for (layer, name), call in zip(calls, before, strict=True):
            del vars(layer)[name]
            if call is not None:
                vars(layer)[name] = call


class Probe(keras.Model):
    """Model that trains the weights of another model by its loss, without compiling it again.

    With `shapes` of an example's outputs, the loss is the mean of the outputs, each times a fixed factor.
    """

    def __init__(self, model: Any, *, shapes: Sequence[tuple[int, ...]] = ()) -> None:
        super().__init__(name="probe", autocast=False)
        self.model, self.shapes = model, shapes

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.model(inputs, training=training)  # without this argument, Keras trains a model as at inference

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Returns the loss."""
        with share_losses(self, self.model):
            if not self.shapes:
                return self.model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
            factors = [np.cos(np.arange(np.prod(shape))).reshape(shape).astype("float32") for shape in self.shapes]
            outputs = zip(flatten_outputs(y_pred), factors, strict=True)
            means = [ops.mean(ops.multiply(ops.cast(output, "float32"), each)) for output, each in outputs]
            return sum([*means, *self.model.losses])


def train(model: Any, data: tuple) -> dict[str, Any]:
    """Does a training step, and returns the loss by the name "", or the numbers that the model's own step returns."""
    model.reset_metrics()
    logs = model.train_on_batch(*as_tensors(data), return_dict=True)
    forget_values(model)
    named = {"": logs["loss"]} if isinstance(model, Probe) else logs
    return {name: value for name, value in named.items() if np.ndim(value) == 0}


class GradientStore(keras.optimizers.Optimizer):
    """Optimizer that stores the gradients and does not change the weights. A weight without a gradient has zeros."""

    def __init__(self) -> None:
        super().__init__(learning_rate=0.0, name="gradients")

    def build(self, variables: Any) -> None:
        if not self.built:
            super().build(variables)
            self.gradients = [self.add_variable_from_reference(weight, "gradient") for weight in variables]

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Stores gradients."""
        for stored, gradient in zip(self.gradients, grads, strict=True):
            if gradient is not None:
                stored.assign(ops.cast(ops.convert_to_tensor(gradient), stored.dtype))
