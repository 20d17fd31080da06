"""Recording of what a model computes on the active backend."""

import collections
import functools
import math
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.graph import own_methods
from keras_het.base.internals import compile_arguments, layers_of
from keras_het.base.rebuild import copy_optimizer
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_integer
from keras_het.parity.batch import SEED, pack, unpack
from keras_het.parity.probe import (
    GradientStore,
    Probe,
    as_tensors,
    assign_values,
    build_loss,
    intercept_calls,
    outputs_by_name,
    preserve_model,
    preserve_values,
    random_layers,
    read_values,
    weight_names,
)
from keras_het.parity.recording import NOT_DETERMINISTIC, Recording, difference

ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}  # coarsest first
_CONTAINERS = (keras.Model, keras.layers.InputLayer)  # these compute nothing themselves
_COLOURS = re.compile(r"\x1b\[\d*m")  # of the terminal, in errors of Keras
Named = dict[str, Any]


def record(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    start: Any = None,
    steps: int | Sequence[int] = 3,
    batch_size: int | None = None,
    jit_compile: bool | str = "auto",
) -> Recording:
    """Records what a model computes on the active backend, so that `compare` can compare backends.

    The recording holds:

    - the outputs of every layer at inference, in the order of calls
    - the predictions
    - the loss, and the gradient of every weight
    - the change of every weight after three training steps with a copy of the model's optimizer

    Without labels or without `compile`, the loss is the mean of the outputs, each times a fixed number. A model that is
    not compiled is trained by SGD(0.01).

    Random layers of Keras, such as Dropout, run as at inference, because each backend draws other numbers. The heads of
    this package keep their noise, because it is equal on every backend. If the model has its own `train_step`, its
    `compute_loss` is used instead.

    The model, its optimizer and the global seeds do not change.

    Args:
        model: Keras model. A model without weights is built by a call.
        x: inputs in the form that the model accepts: an array, or a list or dict of arrays.
        y: labels in the same form, or None.
        sample_weight: weights of the examples, or None.
        start: `Recording` of the same model on another backend, or its file. Its weights, data, steps and batch size
            are used, because each backend draws different initial weights.
        steps: number of training steps, after which the weights are recorded. Several numbers such as `range(1, 51)`
            record the weights after each of these steps, and `compare` names the first step that differs.
        batch_size: number of rows in a training step. The steps read the rows in order, and begin again at the end.
            With None, each step reads all rows. Everything else is recorded for all rows.
        jit_compile: replaces this argument of the model's `compile`. With "auto", Keras chooses for the backend.
    Raises:
        ValueError: if there are no inputs, if the weights of `start` do not fit the model, or if a number of `steps`
            or the `batch_size` is less than 1.

    Example:
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="dense")])
        >>> recording = record(model, np.ones((4, 3)))
        >>> list(recording.arrays["layers"])
        ['dense (Dense)']
        >>> list(recording.arrays)
        ['weights', 'layers', 'predictions', 'loss', 'gradients', 'training']
    """
    if start is not None:
        data = {"x": x, "y": y, "sample_weight": sample_weight}
        names = [name for name, value in data.items() if value is not None]
        refuse_if(bool(names), "start", "stand alone, because it has the data", f"also {', '.join(names)}")
        start = start if isinstance(start, Recording) else Recording.load(start)
        steps, batch_size, batch = start.steps, start.batch_size, start.batch
    else:
        refuse_if(x is None, "x", "hold the inputs if there is no `start`", value=x)
        batch = pack("x", x) | pack("y", y) | pack("sample_weight", sample_weight)
    refuse_if(not all(map(np.size, batch.values())), "x", "have at least one example", "none")
    steps = _check_steps(steps)
    batch_size = None if batch_size is None else check_integer("batch_size", batch_size, 1)
    x, y, sample_weight = (unpack(name, batch) for name in ("x", "y", "sample_weight"))
    with preserve_model(model, as_tensors(x)):
        if start is not None:
            _assign_weights(model, start.arrays["weights"])
        build_loss(model, as_tensors(x), y, sample_weight)
        return _Run(model, (x, y, sample_weight), steps, batch_size, jit_compile).recording(batch)


def package_versions() -> dict[str, str]:
    """Returns the versions of Keras and the active backend, by name; Keras has imported both."""
    names = ("keras", keras.config.backend())
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in names}
    return {name: str(version) for name, version in versions.items() if version}


def _assign_weights(model: Any, weights: Named) -> None:
    """Assigns the weights of another recording, by name."""
    for name, weight in zip(weight_names(model.weights), model.weights, strict=True):
        if name not in weights or weights[name].shape != tuple(weight.shape):
            received = f"shape {weights[name].shape}" if name in weights else "no such weight"
            raise refusal("start", f"have a weight {name} of shape {tuple(weight.shape)}", received)
        weight.assign(weights[name])


def _check_steps(steps: Any) -> list[int]:
    """Returns the numbers of the steps after which the weights are recorded."""
    several = [steps] if np.ndim(steps) == 0 else list(steps)
    refuse_if(not several, "steps", "name at least one step", value=steps)
    return sorted({check_integer("steps", step, 1) for step in several})


def _rows_of_step(data: tuple, step: int, batch_size: int | None) -> tuple:
    """Returns the rows that a training step uses; steps count from 1."""
    if batch_size is None:
        return data
    num_batches = math.ceil(len(keras.tree.flatten(data)[0]) / batch_size)
    first = (step - 1) % num_batches * batch_size
    return keras.tree.map_structure(lambda x: None if x is None else x[first : first + batch_size], data)


class _Run:
    """Run of a model for one recording.

    Everything is computed twice: with the weights and inputs, and with weights and inputs that are rounded again. The
    difference is the `rounding`.
    """

    def __init__(
        self, model: Any, data: tuple, steps: list[int], batch_size: int | None, jit_compile: bool | str
    ) -> None:
        self.model, self.data, self.jit_compile = model, data, jit_compile
        self.steps, self.batch_size = steps, batch_size
        dtypes = {layer.compute_dtype for layer in layers_of(model) if not isinstance(layer, _CONTAINERS)}
        self.precision = next((name for name in ROUNDOFF if name in dtypes), "float32")
        self.start = read_values(model.variables)
        self.notes: list[str] = []
        self.failures: dict[str, str] = {}
        self.omitted: dict[str, None] = {}
        self.outputs: Named = {}
        self.calls: collections.Counter[str] = collections.Counter()
        self.is_watching = False  # while the outputs of layers are recorded
        self.path: list[Any] = []  # layers whose calls are under way

    def recording(self, batch: Named) -> Recording:
        """Returns the recording of the model, which must have its starting weights."""
        weights = dict(zip(weight_names(self.model.weights), read_values(self.model.weights), strict=True))
        if random := random_layers(self.model):
            self.notes.append(f"random layers run as at inference: {', '.join(random)}")
        if self.precision in ("bfloat16", "float16"):
            names = ", ".join(layer.name for layer in layers_of(self.model) if layer.compute_dtype == self.precision)
            text = f"these layers compute in {self.precision}, so no limit is below its rounding"
            self.notes.append(f"{text}: {names}")
        with intercept_calls(self.model, self._call):
            self.check_determinism()
            arrays = self._compute(self.data, self.start)
            self.check_loss(arrays)
            rounded = self._compute(*self._round())
        rounding = {
            part: {
                name: difference(array, rounded[part][name]) for name, array in named.items() if name in rounded[part]
            }
            for part, named in arrays.items()
            if part in rounded
        }
        return Recording(
            keras.config.backend(), self.precision, package_versions(), {"weights": weights, **arrays}, rounding, batch,
            list(self.omitted), self.notes, self.failures, self.steps, self.batch_size,
        )  # fmt: skip

    def _round(self) -> tuple[tuple, list[np.ndarray]]:
        """Returns data and variables with each number changed by up to one unit in its last place.

        Inputs that are whole numbers stay, because they can be indices.
        """
        rng = np.random.default_rng(SEED)

        def shift(array: Any) -> np.ndarray:
            array = np.asarray(array)
            if array.dtype.kind != "f" and "bfloat16" not in str(array.dtype):
                return array
            factors = 1.0 + ROUNDOFF[self.precision] * rng.uniform(-1.0, 1.0, array.shape)
            return (array.astype("float64") * factors).astype(array.dtype)

        def shift_input(array: Any) -> np.ndarray:
            is_whole = array.dtype.kind == "f" and np.array_equal(array, np.round(array))
            return array if is_whole else shift(array)

        x, *others = self.data
        return (keras.tree.map_structure(shift_input, x), *others), [shift(value) for value in self.start]

    def _compute(self, data: tuple, start: list[np.ndarray]) -> dict[str, Named]:
        """Returns {part: {name: array}}, and adds the error of a part that fails to `failures`."""
        arrays: dict[str, Named] = {}
        parts: dict[str, Callable[[tuple], dict[str, Named]]] = {
            "layers": self.layers,
            "predictions": self.predictions,
            "gradients": self.gradients,
            "training": self.training,
        }
        for part, function in parts.items():
            assign_values(self.model.variables, start)
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
        """Returns the outputs of every layer at inference, in the order of calls."""
        self.outputs, self.calls, self.is_watching = {}, collections.Counter(), True
        try:
            outputs = self.model(as_tensors(data[0]), training=False)
            self.shapes = [tuple(output.shape[1:]) for output in keras.tree.flatten(outputs)]
            return {"layers": self.outputs}
        finally:
            self.is_watching = False

    def predictions(self, data: tuple) -> dict[str, Named]:
        """Returns the outputs of `predict_on_batch`."""
        return {"predictions": outputs_by_name(self.predictor.predict_on_batch(data[0]))}

    def gradients(self, data: tuple) -> dict[str, Named]:
        """Returns the loss, and the gradient of every trainable weight."""
        if not self.model.trainable_variables:
            self.note("there are no trainable weights, so loss, gradients and training are not compared")
            return {}
        loss = self.differentiator.train_on_batch(*data)
        names = weight_names(self.model.trainable_variables)
        values = read_values(self.differentiator.optimizer.gradients)
        return {"loss": {"": np.array(loss)}, "gradients": dict(zip(names, values, strict=True))}

    def training(self, data: tuple) -> dict[str, Named]:
        """Returns the change of every weight since the start, after each recorded step."""
        if not self.model.trainable_variables:
            return {}
        names, before = weight_names(self.model.weights), read_values(self.model.weights)
        changes: Named = {}
        with preserve_values(self.trainer.optimizer.variables):
            for step in range(1, self.steps[-1] + 1):
                self.trainer.train_on_batch(*_rows_of_step(data, step, self.batch_size))
                if step in self.steps:
                    suffix = f", step {step}" if len(self.steps) > 1 else ""
                    differences = map(_change, before, read_values(self.model.weights))
                    changes |= {f"{name}{suffix}": change for name, change in zip(names, differences, strict=True)}
        return {"training": changes}

    # Each probe compiles a program, so it is made once.

    @functools.cached_property
    def predictor(self) -> Probe:
        """Probe that predicts."""
        probe = Probe(self.model)
        probe.compile(jit_compile=self.jit_compile)
        return probe

    @functools.cached_property
    def differentiator(self) -> Probe:
        """Probe whose optimizer stores gradients."""
        return self._probe(GradientStore())

    @functools.cached_property
    def trainer(self) -> Probe:
        """Probe that trains by a copy of the model's optimizer."""
        if (optimizer := self.model.optimizer if self.model.compiled else None) is None:
            self.note("the model has no optimizer, so it is trained by SGD(0.01)")
            return self._probe(keras.optimizers.SGD(0.01))
        return self._probe(copy_optimizer(optimizer, self.model))

    def _probe(self, optimizer: Any) -> Probe:
        own = own_methods(self.model)
        has_terms = "compute_loss" in own or compile_arguments(self.model).get("loss") is not None
        has_loss = bool(self.model.compiled) and has_terms and self.data[1] is not None
        if not has_loss:
            why = "is not compiled" if not self.model.compiled else "has no labels" if has_terms else "has no loss"
            self.note(f"the model {why}, so the loss is the mean of its outputs, each times a fixed number")
        if "train_step" in own:
            more = ", but its `compute_loss` is" if has_loss else ""
            self.note(f"the model's own `train_step` is not compared{more}")
        probe = Probe(self.model, shapes=None if has_loss else self.shapes)
        optimizer.build(self.model.trainable_variables)
        probe.compile(optimizer=optimizer, jit_compile=self.jit_compile, auto_scale_loss=False)
        return probe

    def note(self, text: str) -> None:
        """Adds a note, unless the run has it."""
        if text not in self.notes:
            self.notes.append(text)

    # Around the calls of layers.

    def check_determinism(self) -> None:
        """Adds a failure if a second call returns different outputs. Random states advance between the calls."""
        outputs, again = (self.layers(self.data)["layers"] for _ in range(2))
        names = (name for name in outputs if name not in again or difference(outputs[name], again[name]))
        first = next(names, None)
        if first is not None:
            self.failures["layers"] = f"a second call of `{first}` returns different outputs, {NOT_DETERMINISTIC}"

    def check_loss(self, arrays: dict[str, Named]) -> None:
        """Adds a failure if the loss of the same training step is another number, as for noise in training."""
        if "loss" in arrays:
            assign_values(self.model.variables, self.start)
            again = self.gradients(self.data)["loss"][""]
            if difference(arrays["loss"][""], again) > 100.0 * ROUNDOFF[self.precision]:
                self.failures["gradients"] = f"a second training step has another loss, {NOT_DETERMINISTIC}"

    def _call(self, layer: Any, call: Callable, arguments: tuple, options: Named) -> Any:
        """Calls a layer, and stores its outputs while `is_watching`."""
        if not self.is_watching:
            return call(*arguments, **options)
        self.path.append(layer)
        try:
            outputs = call(*arguments, **options)
        finally:
            self.path.pop()
        # The cell of a recurrent layer runs in a loop. The outputs of the model are in the predictions.
        if layer is not self.model and not any(isinstance(outer, keras.layers.RNN) for outer in self.path):
            self._keep(layer, outputs)
        return outputs

    def _keep(self, layer: Any, outputs: Any) -> None:
        """Stores the outputs of a call. In a loop of the backend, a layer may have outputs without values."""
        names = [outer.name for outer in self.path if outer is not self.model]
        name = f"{'/'.join([*names, layer.name])} ({type(layer).__name__})"
        self.calls[name] += 1
        call = self.calls[name]
        for number, output in enumerate(keras.tree.flatten(outputs)):
            if output is None:
                continue
            try:
                array = np.array(ops.convert_to_numpy(output))
            except Exception:
                self.omitted[name] = None
                continue
            suffix = (f", call {call}" if call > 1 else "") + (f", output {number}" if number else "")
            self.outputs[f"{name}{suffix}"] = array


def _change(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    dtype = "int64" if after.dtype.kind in "biu" else "float64"
    return after.astype(dtype) - before.astype(dtype)
