"""Runs a model on the active backend, and records what it computes."""

import contextlib
import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.internals import compile_arguments, layers_of, seed_generators_of, share_losses
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.seeds import preserve_random_states
from keras_het.base.validation import check_integer
from keras_het.parity.recording import NOT_DETERMINISTIC, Recording, difference

ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}  # coarsest first
SEED = 2021
_CONTAINERS = (keras.Model, keras.layers.InputLayer)  # these compute nothing themselves
_COLOURS = re.compile(r"\x1b\[\d*m")  # of the terminal, in errors of Keras
_RATES = ("rate", "dropout", "recurrent_dropout")  # attributes of layers that drop units
Named = dict[str, Any]


def record(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    start: Any = None,
    steps: int = 3,
    jit_compile: bool | str = "auto",
) -> Recording:
    """Records what a model computes on the active backend, to compare it with other backends.

    The recording has the outputs of every layer at inference, in the order of calls; the predictions, compiled as Keras
    does by default; the loss and the gradient of every weight; and the change of every weight after some training
    steps with the model's own optimizer. If the model is not compiled or there are no labels, the loss is the mean of
    its outputs, each times a fixed number, and the optimizer is SGD(0.01).

    Random layers of Keras, such as Dropout, run as at inference, since each backend draws other numbers. The heads of
    this package keep their noise, which is equal. A model with a `train_step` of its own is trained by `compute_loss`.

    The model, its optimizer and the global seeds stay as they are.

    Args:
        model: a Keras model; without weights it is built by the first call.
        x: inputs, as `model` takes them: an array, or a list or dict of them.
        y: labels, likewise, or None.
        sample_weight: weights of the examples, or None.
        start: a `Recording` of the same model on another backend, or its file, whose starting weights, inputs and
            labels are used: initializers draw other weights on every backend.
        steps: number of training steps.
        jit_compile: argument of `compile` for the recording, whatever the model was compiled with; "auto" is what Keras
            chooses on the backend.
    Raises:
        ValueError: without inputs, or for a `start` of a model with other weights.

    Example:
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="dense")])
        >>> recording = record(model, np.ones((4, 3)))
        >>> list(recording.arrays["layers"])
        ['dense (Dense)']
        >>> list(recording.arrays)
        ['weights', 'layers', 'predictions', 'loss', 'gradients', 'training']
    """
    check_integer("steps", steps, 1)
    if start is not None:
        start = start if isinstance(start, Recording) else Recording.load(start)
        x, y, sample_weight = (unpacked(name, start.batch) for name in ("x", "y", "sample_weight"))
    refuse_if(x is None, "x", "be given, or `start`", value=x)
    batch = packed("x", x) | packed("y", y) | packed("sample_weight", sample_weight)
    with preserve_random_states(), _quiet():
        if not model.built:
            model(_tensors(x))
        with _kept(model):
            if start is not None:
                _take_weights(model, start.arrays["weights"])
            _build_loss(model, _tensors(x), y, sample_weight)
            return _Run(model, (x, y, sample_weight), steps, jit_compile).recording(batch)


def packed(name: str, data: Any) -> dict[str, np.ndarray]:
    """Returns arrays by name: "x" for one, "x:0" for the first of a list, "x.tokens" for an entry of a dict."""
    if data is None:
        return {}
    if isinstance(data, dict):
        return {f"{name}.{key}": np.asarray(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)) and all(hasattr(part, "shape") for part in data):
        return {f"{name}:{number}": np.asarray(part) for number, part in enumerate(data)}
    return {name: np.asarray(data)}


def unpacked(name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Returns the data that `packed` has named, or None."""
    if name in arrays:
        return arrays[name]
    keyed = {key.removeprefix(f"{name}."): value for key, value in arrays.items() if key.startswith(f"{name}.")}
    numbered = [value for key, value in arrays.items() if key.startswith(f"{name}:")]
    return keyed or numbered or None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences the warnings of Keras about weights without gradients, which are recorded as zeros."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Gradients do not exist")
        yield


@contextlib.contextmanager
def _kept(model: Any) -> Iterator[None]:
    """Restores all variables of a model: weights, seeds, counters and metrics; PyTorch keeps no gradients."""
    with _kept_values([*model.variables, *model.metrics_variables]):
        try:
            yield
        finally:
            if hasattr(model, "zero_grad"):
                model.zero_grad()


@contextlib.contextmanager
def _kept_values(variables: list[Any]) -> Iterator[None]:
    values = _values(variables)
    try:
        yield
    finally:
        _assign(variables, values)


def _build_loss(model: Any, x: Any, y: Any, sample_weight: Any) -> None:
    """Builds the model's loss: the metrics of several outputs, made in a trace of JAX, would keep its tracers."""
    if model.compiled and y is not None:
        with contextlib.suppress(Exception):  # the training step meets the same error, and records it
            known = {id(variable) for variable in model.metrics_variables}
            model.compute_loss(x=x, y=_tensors(y), y_pred=model(x), sample_weight=sample_weight)
            for variable in model.metrics_variables:
                if id(variable) not in known:
                    variable.assign(ops.zeros_like(variable))


def _values(variables: Any) -> list[np.ndarray]:
    return [np.array(ops.convert_to_numpy(variable)) for variable in variables]


def _assign(variables: Any, values: Any) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _take_weights(model: Any, weights: Named) -> None:
    names = weight_names(model.weights)
    for name, weight in zip(names, model.weights, strict=True):
        if name not in weights or weights[name].shape != tuple(weight.shape):
            raise refusal("start", f"have a weight {name} of shape {tuple(weight.shape)}", sorted(weights))
        weight.assign(weights[name])


def weight_names(weights: Any) -> list[str]:
    """Returns the paths of weights, numbered where several have the same one."""
    return _distinct(weight.path for weight in weights)


def _distinct(names: Any) -> list[str]:
    counts: dict[str, int] = {}
    result = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        result.append(name if counts[name] == 1 else f"{name}, {counts[name]}")
    return result


def _tensors(x: Any) -> Any:
    return keras.tree.map_structure(ops.convert_to_tensor, x)


class _Run:
    """One recording of a model.

    Everything is computed twice: as it is, and with rounded weights and inputs. The difference is the `rounding`.
    """

    def __init__(self, model: Any, data: tuple, steps: int, jit_compile: bool | str) -> None:
        self.model, self.data, self.steps, self.jit_compile = model, data, steps, jit_compile
        dtypes = {layer.compute_dtype for layer in layers_of(model) if not isinstance(layer, _CONTAINERS)}
        self.precision = next((name for name in ROUNDOFF if name in dtypes), "float32")
        self.start = _values(model.variables)
        self.notes: list[str] = []
        self.failures: dict[str, str] = {}
        self.omitted: dict[str, None] = {}
        self.outputs: Named = {}
        self.is_watching = False  # while the outputs of layers are recorded
        self.path: list[Any] = []  # layers whose calls are under way

    def recording(self, batch: Named) -> Recording:
        """Returns the recording of the model, which must have its starting weights."""
        weights = dict(zip(weight_names(self.model.weights), _values(self.model.weights), strict=True))
        if random := _random_layers(self.model):
            self.notes.append(f"random layers run as at inference: {', '.join(random)}")
        if self.precision in ("bfloat16", "float16"):
            names = ", ".join(layer.name for layer in layers_of(self.model) if layer.compute_dtype == self.precision)
            self.notes.append(f"these layers compute in {self.precision}, with its limits: {names}")
        with _wrapped(self.model, self._call):
            self.check_determinism()
            arrays = self._computed(self.data, self.start)
            moved = self._computed(*self._rounded())
        rounding = {
            part: {name: difference(array, moved[part][name]) for name, array in named.items() if name in moved[part]}
            for part, named in arrays.items()
            if part in moved
        }
        versions = {"keras": keras.__version__}
        return Recording(
            keras.config.backend(), self.precision, versions, {"weights": weights, **arrays}, rounding, batch,
            list(self.omitted), self.notes, self.failures,
        )  # fmt: skip

    def _rounded(self) -> tuple[tuple, list[np.ndarray]]:
        """Returns data and variables, each number moved by up to half a unit in its last place."""
        rng = np.random.default_rng(SEED)

        def moved(array: Any) -> np.ndarray:
            array = np.asarray(array)
            if array.dtype.kind != "f" and "bfloat16" not in str(array.dtype):
                return array
            factors = 1.0 + ROUNDOFF[self.precision] * rng.uniform(-1.0, 1.0, array.shape)
            return (array.astype("float64") * factors).astype(array.dtype)

        x, *others = self.data
        return (keras.tree.map_structure(moved, x), *others), [moved(value) for value in self.start]

    def _computed(self, data: tuple, start: list[np.ndarray]) -> dict[str, Named]:
        """Returns {part: {name: array}}; a part that fails is named in `failures`."""
        arrays: dict[str, Named] = {}
        parts: dict[str, Callable[[tuple], dict[str, Named]]] = {
            "layers": self.layers,
            "predictions": self.predictions,
            "gradients": self.gradients,
            "training": self.training,
        }
        for part, function in parts.items():
            _assign(self.model.variables, start)
            try:
                arrays |= function(data)
            except Exception as error:
                if part == "layers":  # the model does not run at all
                    raise
                text = " ".join(_COLOURS.sub("", str(error)).split())
                self.failures[part] = f"{type(error).__name__}: {text}"[:500]
        return arrays

    # The parts.

    def layers(self, data: tuple) -> dict[str, Named]:
        """Outputs of every layer at inference, in the order of calls."""
        self.outputs, self.is_watching = {}, True
        try:
            outputs = self.model(_tensors(data[0]), training=False)
            self.shapes = [tuple(output.shape[1:]) for output in keras.tree.flatten(outputs)]
            return {"layers": self.outputs}
        finally:
            self.is_watching = False

    def predictions(self, data: tuple) -> dict[str, Named]:
        """Outputs of `predict_on_batch`, compiled as Keras does by default."""
        return {"predictions": _by_number(self.predictor.predict_on_batch(data[0]))}

    def gradients(self, data: tuple) -> dict[str, Named]:
        """The loss, and the gradient of every trainable weight."""
        if not self.model.trainable_variables:
            self.note("no trainable weights: gradients and training are not compared")
            return {}
        loss = self.differentiator.train_on_batch(*data)
        names = weight_names(self.model.trainable_variables)
        values = _values(self.differentiator.optimizer.gradients)
        return {"loss": {"": np.array(loss)}, "gradients": dict(zip(names, values, strict=True))}

    def training(self, data: tuple) -> dict[str, Named]:
        """The change of every weight by some training steps."""
        if not self.model.trainable_variables:
            return {}
        before = _values(self.model.weights)
        with _kept_values(self.trainer.optimizer.variables):
            for _ in range(self.steps):
                self.trainer.train_on_batch(*data)
        changes = (
            after.astype("float64") - first if after.dtype.kind == "f" else after - first
            for after, first in zip(_values(self.model.weights), before, strict=True)
        )
        return {"training": dict(zip(weight_names(self.model.weights), changes, strict=True))}

    # Made once, since each compiles a program.

    @functools.cached_property
    def predictor(self) -> "_Probe":
        """The probe that predicts."""
        probe = _Probe(self.model)
        probe.compile(jit_compile=self.jit_compile)
        return probe

    @functools.cached_property
    def differentiator(self) -> "_Probe":
        """The probe whose optimizer stores gradients."""
        return self._probe(_Gradients())

    @functools.cached_property
    def trainer(self) -> "_Probe":
        """The probe that trains by a copy of the model's optimizer."""
        return self._probe(self._optimizer())

    def _probe(self, optimizer: Any) -> "_Probe":
        has_loss = bool(self.model.compiled) and self.data[1] is not None
        if not has_loss:
            why = "has no labels" if self.model.compiled else "is not compiled"
            self.note(f"the model {why}: its loss is the mean of its outputs, each times a fixed number")
        if type(self.model).train_step is not keras.Model.train_step:
            self.note("the model has a `train_step` of its own, which is not compared: its `compute_loss` is")
        probe = _Probe(self.model, shapes=None if has_loss else self.shapes)
        optimizer.build(self.model.trainable_variables)
        probe.compile(optimizer=optimizer, jit_compile=self.jit_compile, auto_scale_loss=False)
        return probe

    def _optimizer(self) -> Any:
        """Returns a copy of the model's optimizer, without its state."""
        own = compile_arguments(self.model).get("optimizer") if self.model.compiled else None
        if own is None:
            self.note("the model has no optimizer: it is trained by SGD(0.01)")
            return keras.optimizers.SGD(0.01)
        optimizer = keras.optimizers.get(own)
        return type(optimizer).from_config(optimizer.get_config())

    def note(self, text: str) -> None:
        """Adds a note once."""
        if text not in self.notes:
            self.notes.append(text)

    # Around the calls of layers.

    def check_determinism(self) -> None:
        """Adds a failure if a second call gives other outputs; the states of random layers go on between the two."""
        outputs, again = (self.layers(self.data)["layers"] for _ in range(2))
        names = (name for name in outputs if not _is_same(outputs[name], again.get(name)))
        first = next(names, None)
        if first is not None:
            self.failures["layers"] = f"{NOT_DETERMINISTIC}: a second call of `{first}` gives other outputs"

    def _call(self, layer: Any, call: Callable, parameters: Any, arguments: tuple, options: Named) -> Any:
        """Stands for the `call` of a layer."""
        if "training" in parameters and _is_random(layer):
            bound = inspect.Signature(list(parameters.values())).bind_partial(*arguments, **options)
            bound.arguments["training"] = False
            arguments, options = bound.args, bound.kwargs
        if not self.is_watching:
            return call(*arguments, **options)
        self.path.append(layer)
        try:
            outputs = call(*arguments, **options)
        finally:
            self.path.pop()
        # The cell of a recurrent layer runs in a loop, and the model returns the outputs of its last layer.
        if layer is not self.model and not any(isinstance(outer, keras.layers.RNN) for outer in self.path):
            self._keep(layer, outputs)
        return outputs

    def _keep(self, layer: Any, outputs: Any) -> None:
        """Stores the outputs of a call, if they have values: a layer in a loop of the backend may have none."""
        names = [outer.name for outer in self.path if outer is not self.model]
        name = f"{'/'.join([*names, layer.name])} ({type(layer).__name__})"
        call = sum(known == name or known.startswith(f"{name}, ") for known in self.outputs) + 1
        for number, output in enumerate(keras.tree.flatten(outputs)):
            try:
                array = np.array(ops.convert_to_numpy(output))
            except Exception:
                self.omitted[name] = None
                continue
            suffix = (f", call {call}" if call > 1 and not number else "") + (f", output {number}" if number else "")
            self.outputs[f"{name}{suffix}"] = array


def _is_same(first: np.ndarray, second: Any) -> bool:
    return second is not None and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def _random_layers(model: Any) -> list[str]:
    """Returns the names of the random layers of a model; a recurrent layer stands for its cell."""
    layers = layers_of(model)
    cells = {id(getattr(layer, "cell", None)) for layer in layers}
    return list(dict.fromkeys(layer.name for layer in layers if _is_random(layer) and id(layer) not in cells))


def _is_random(layer: Any) -> bool:
    """Returns whether a layer of Keras, or the cell of a recurrent one, draws random numbers in training."""
    parts = [part for part in (layer, getattr(layer, "cell", None)) if part is not None]
    rates = [vars(part)[name] for part in parts for name in _RATES if name in vars(part)]
    return any(map(seed_generators_of, parts)) and (not rates or any(rates))


@contextlib.contextmanager
def _wrapped(model: Any, around: Callable) -> Iterator[None]:
    """Replaces the `call` of every layer by `around(layer, call, parameters, arguments, options)`, for some time."""

    def make(layer: Any) -> Callable:
        call = layer.call
        parameters = inspect.signature(call).parameters
        return lambda *arguments, **options: around(layer, call, parameters, arguments, options)

    layers = list({id(layer): layer for layer in layers_of(model)}.values())
    owned = {id(layer): vars(layer).get("call") for layer in layers}
    for layer in layers:
        vars(layer)["call"] = make(layer)
    try:
        yield
    finally:
        for layer in layers:
            del vars(layer)["call"]
            if owned[id(layer)] is not None:
                vars(layer)["call"] = owned[id(layer)]


def _by_number(outputs: Any) -> Named:
    flat = keras.tree.flatten(outputs)
    return {"" if len(flat) == 1 else f"output {number}": np.array(x) for number, x in enumerate(flat)}


class _Probe(keras.Model):
    """Trains a model's own weights by its own loss, without compiling it anew.

    Args:
        model: the model.
        shapes: shapes of an example's outputs, for a loss of fixed numbers; None for the model's own loss.
    """

    def __init__(self, model: Any, *, shapes: Any = None) -> None:
        super().__init__(name="probe", autocast=False)
        self.model = model
        self.factors = None
        if shapes is not None:
            self.factors = [np.cos(np.arange(np.prod(shape))).reshape(shape).astype("float32") for shape in shapes]

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        return self.model(inputs, training=training)  # a trainer trains a model without this argument as at inference

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Returns the loss of the model, or the mean of its outputs, each times a fixed number."""
        with share_losses(self, self.model):
            if self.factors is None:
                return self.model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight, training=training)
            outputs = zip(keras.tree.flatten(y_pred), self.factors, strict=True)
            means = [ops.mean(ops.multiply(ops.cast(output, "float32"), factors)) for output, factors in outputs]
            return sum([*means, *self.model.losses])


class _Gradients(keras.optimizers.Optimizer):
    """Stores the gradients, and leaves the weights as they are."""

    def __init__(self) -> None:
        super().__init__(learning_rate=0.0, name="gradients")

    def build(self, variables: Any) -> None:
        if not self.built:
            super().build(variables)
            self.gradients = [self.add_variable_from_reference(weight, "gradient") for weight in variables]

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Stores gradients; a weight without one keeps zeros."""
        if trainable_variables is not None:
            self.build(trainable_variables)
        for stored, gradient in zip(self.gradients, grads, strict=True):
            if gradient is not None:
                stored.assign(ops.cast(ops.convert_to_tensor(gradient), stored.dtype))

    def get_config(self) -> dict:
        return {}
