"""Recording of what a model computes on the active backend."""

import collections
import dataclasses
import gc
import math
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.graph import own_methods
from keras_het.base.internals import compile_arguments, forget_values, layers_of, seed_generators_of
from keras_het.base.rebuild import copy_optimizer
from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_integer, check_number
from keras_het.parity import probe as probes
from keras_het.parity.arrays import BLOCK, ROUNDOFF, Slices, Store, measure
from keras_het.parity.batch import SEED, pack, unpack
from keras_het.parity.draws import equal_draws, reset_states
from keras_het.parity.recording import NOT_DETERMINISTIC, PARTS, SECOND, Recording

_CONTAINERS = (keras.Model, keras.layers.InputLayer)  # these compute nothing themselves
_COLOURS = re.compile(r"\x1b\[\d*m")  # of the terminal, in errors of Keras
_LETTERS = 1000  # of an error, at its beginning and at its end
Arrays = Iterator[tuple[str, str, np.ndarray]]  # part, name, array


def record(
    model: Any,
    x: Any = None,
    y: Any = None,
    *,
    sample_weight: Any = None,
    second: Any = None,
    start: Any = None,
    steps: int | Sequence[int] = 3,
    batch_size: int | None = None,
    jit_compile: bool | str = "auto",
    roundings: int = 2,
    units: float = 1.0,
    parts: Collection[str] = (),
    label: str = "",
) -> Recording:
    """Records what a model computes on the active backend, so that `compare` can compare backends.

    The recording holds the outputs of every layer at inference, in the order of calls, the predictions, the outputs in
    training that are not those at inference, the loss, the metrics over two batches after a reset, the gradient of
    every weight, and the change of every weight after three training steps with a copy of the model's optimizer, which
    ends with its averages as in `fit`. For a second batch, it holds all this but the training steps.

    If the model has its own `train_step`, `test_step` or `predict_step`, it is used. Without labels or without
    `compile`, the loss is the mean of the outputs, each times a fixed number. A model that is not compiled is trained
    by SGD(0.01). The draws of `keras.random` are replaced by numbers that are equal on every backend, and by the means
    of gamma, beta and binomial draws. So Dropout and sampling layers are compared in training.

    The model, its optimizer and the global seeds do not change, except for an optimizer that only the model's own
    `train_step` uses, and the state of recurrent layers with `stateful=True`.

    Args:
        model: Keras model. A model without weights is built by a call.
        x: inputs in the form that the model accepts: an array, or a list or dict of arrays.
        y: labels in the same form, or None.
        sample_weight: weights of the examples, or None.
        second: `(x, y)` of a second batch, for example with zeros, ties and padding, or None.
        start: `Recording` of the same model on another backend, or its file. Its weights, data, steps and batch size
            are used, because each backend draws different initial weights.
        steps: number of training steps, or several numbers such as `range(1, 51)`: then `compare` names the first step
            after which a weight differs. With `gradient_accumulation_steps`, a step has as many batches.
        batch_size: number of rows in a training step, in order, or None for all rows.
        jit_compile: replaces this argument of the model's `compile`. With "auto", Keras chooses for the backend.
        roundings: number of runs with changed roundings, which measure what rounding alone can change.
        units: size of the changes in every second run after two, in units in the last place. Their effect is divided by
            it, so this matters at a kink, as of a ReLU: long sums round by many units inside, and can pass it.
        parts: parts to record besides the weights, such as `["gradients"]`, which brings the loss, or none for all.
        label: name of the recording in tables, such as "GPU". By default it is the name of the backend.
    Raises:
        ValueError: if there are no inputs, if `start` does not fit the model, or if a number is less than 1.

    Example:
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, name="dense")])
        >>> recording = record(model, np.ones((4, 3)))
        >>> list(recording.arrays["layers"])
        ['dense (Dense)']
        >>> list(recording.arrays)
        ['weights', 'layers', 'predictions', 'loss', 'gradients', 'training']
    """
    batch = pack(x, y, sample_weight, second)
    refuse_if(x is None and start is None, "x", "hold the inputs if there is no `start`", value=x)
    if start is not None:
        refuse_if(batch, "start", "stand alone, because it has the data", f"also {', '.join(batch)}")
        start = start if isinstance(start, Recording) else Recording.load(start)
        steps, batch_size, batch = start.steps, start.batch_size, start.batch
    refuse_if(not all(map(np.size, batch.values())), "x", "have at least one example", "none")
    refuse_if(np.size(steps) == 0, "steps", "name at least one step", value=steps)
    steps = sorted({check_integer("steps", step, 1) for step in np.ravel(np.array(steps, object))})
    batch_size = None if batch_size is None else check_integer("batch_size", batch_size, 1)
    check_integer("roundings", roundings, 1)
    check_number("units", units, above=0.0)
    refuse_if(not set(parts) <= set(PARTS), "parts", f"be a list of names among {', '.join(PARTS)}", value=parts)
    data, _ = unpack(batch)
    with probes.preserve_model(model, *probes.as_tensors(data)):
        if start is not None:
            _assign_weights(model, start.arrays["weights"])
        reset_states(model)
        recording = Recording(keras.config.backend(), versions=package_versions(), batch=batch, label=label)
        recording.steps, recording.batch_size = steps, batch_size
        return _Run(model, recording, jit_compile, roundings, units, parts).record()


def package_versions() -> dict[str, str]:
    """Returns the versions of Keras and the active backend, and the device."""
    names = ("keras", keras.config.backend())
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in names}
    device = getattr(ops.zeros(()), "device", "cpu")
    kind = str(getattr(device, "device_kind", device)).rpartition("device:")[2].lower()
    return {name: str(version) for name, version in versions.items() if version} | {"device": kind}


def _assign_weights(model: Any, weights: Any) -> None:
    """Assigns the weights of another recording, by name, or by order if a model was made again in one process."""
    names = probes.weight_names(model.weights)
    shapes = [tuple(weight.shape) for weight in model.weights]
    if not set(names) <= set(weights) and [weights[name].shape for name in weights] == shapes:
        names = list(weights)
    for name, weight in zip(names, model.weights, strict=True):
        value = weights.get(name)
        received = "no such weight" if value is None else f"shape {value.shape}"
        rule = f"have a weight {name} of shape {tuple(weight.shape)}"
        refuse_if(value is None or value.shape != tuple(weight.shape), "start", rule, received)
        weight.assign(value)


class _Run:
    """Run of a model for one recording. The model must have its starting weights.

    Every part is computed with the weights and inputs, and several times with weights and inputs that are rounded
    again. The changes are the `rounding`. One array is in memory at a time, because models can be large.
    """

    def __init__(
        self, model: Any, recording: Recording, jit_compile: Any, roundings: int, units: float, parts: Collection[str]
    ) -> None:
        self.units, self.size = units, 1.0
        self.parts = {part.replace("loss", "gradients") for part in parts}  # one step computes both
        self.model, self.recording, self.jit_compile, self.roundings = model, recording, jit_compile, roundings
        self.arrays, self.notes, self.steps = recording.arrays, recording.notes, recording.steps
        self.data, second = unpack(recording.batch)
        self.batches = {"": self.data} | ({SECOND: (*second, None)} if second else {})
        self.start = Store((str(number), probes.to_numpy(variable)) for number, variable in enumerate(model.variables))
        self.optimizer = model.optimizer if model.compiled else None
        own = own_methods(model)
        self.own = own if model.compiled else [name for name in own if name == "predict_step"]
        self.outputs: Store | None = None  # of layers, while they are recorded
        self.path: list[Any] = []  # layers whose calls are under way
        self.probe: Any = None  # of the active part, because it compiles a program, and can hold as much as the weights

    def record(self) -> Recording:
        """Fills the recording."""
        model, notes = self.model, self.notes
        if random := dict.fromkeys(layer.name for layer in layers_of(model) if seed_generators_of(layer)):
            text = "random layers draw numbers that are equal on every backend, instead of the backend's own"
            notes.append(f"{text}: {', '.join(random)}")
        dtypes = {each.name: each.compute_dtype for each in layers_of(model) if not isinstance(each, _CONTAINERS)}
        precision = next((name for name in ROUNDOFF if name in dtypes.values()), "float32")
        if precision in ("bfloat16", "float16"):
            names = ", ".join(name for name, dtype in dtypes.items() if dtype == precision)
            notes.append(f"these layers compute in {precision}, so no limit is below its rounding: {names}")
        self.recording.precision, self.arrays["weights"] = precision, probes.store_weights(model.weights)
        with equal_draws(), probes.intercept_calls(model, self._call):
            for function in (self.layers, self.predictions, self.layers_in_training, self.metrics, self.gradients):
                for suffix, data in self.batches.items():
                    self._record(function, data, suffix)
                self.probe = None
            if "train_step" in self.own:
                del model.optimizer  # TensorFlow would track it until another one takes its place
                model.train_function = None
            gc.collect()  # frees the gradients
            self._record(self.training, self.data, "")
        used = {"train_step": "loss", "test_step": "metrics", "predict_step": "predictions"}
        missing = [name for name, part in used.items() if name in self.own and part not in self.arrays]
        if missing and not self.parts:
            notes.insert(0, f"the model's own {' and '.join(missing)} did not run, and is not compared")
        return dataclasses.replace(self.recording, notes=list(dict.fromkeys(notes)))

    def _record(self, function: Callable[[tuple], Arrays], data: tuple, suffix: str) -> None:
        """Stores what a function yields, and its rounding. Stores the error of a part that fails in `failures`."""
        self.suffix, place = suffix, function.__name__.replace("_", " ") + suffix
        if self.parts and place not in self.parts:
            return
        try:
            for part, name, array in function(self._start(data)):
                self.arrays.setdefault(part + suffix, Store())[name] = array
            if function in (self.layers, self.gradients):
                self._check_determinism(function, data)
            for seed in range(self.roundings):
                self.size = self.units if seed > 1 and seed % 2 else 1.0
                self._add_rounding(function(self._start(data, seed)))
        except Exception as error:
            if function == self.layers and not suffix:  # the model does not run at all
                raise
            self.recording.failures[place] = describe_error(error)
        finally:
            forget_values(self.model)

    def _check_determinism(self, function: Callable[[tuple], Arrays], data: tuple) -> None:
        """Adds a failure if a second run with the same draws returns other numbers."""
        is_layers = function == self.layers
        part, tolerance = ("layers", 0.0) if is_layers else ("loss", 100.0 * ROUNDOFF[self.recording.precision])
        first = self.arrays.get(part + self.suffix, Store())
        for again, name, array in function(self._start(data)):
            if again == part and measure(first.get(name), array, tolerance=tolerance).ratio > 1:
                what = f"call of `{name}` returns different outputs" if is_layers else "training step has another loss"
                self.recording.failures[f"{function.__name__}{self.suffix}"] = f"a second {what}, {NOT_DETERMINISTIC}"
                break

    def _add_rounding(self, arrays: Arrays) -> None:
        for part, name, array in arrays:
            base = self.arrays.get(part + self.suffix, Store()).get(name)
            if base is None or base.shape != array.shape or array.dtype.kind not in "biufcV":
                continue
            change = Slices.of(array, base).times(1.0 / self.size)
            if part == "training":  # a sum with a weight is rounded to the weight's own grid
                weight = self.arrays["weights"][name.partition(", step")[0]]
                grid = max(ROUNDOFF[self.recording.precision], ROUNDOFF.get(weight.dtype.name, 0.0))
                change = change.join(Slices.of(weight).times(grid * self.steps[-1]))
            named = self.recording.rounding.setdefault(part + self.suffix, {})
            named[name] = change.join(named.get(name, change))

    def _start(self, data: tuple, seed: int | None = None) -> tuple:
        """Assigns the starting values, and returns the batch; with a seed, both have other roundings.

        Whole numbers in the batch stay, because they can be indices or stand for a mask.
        """
        rng, batch_rng = (None if seed is None else np.random.default_rng([SEED, seed, *more]) for more in ((), (1,)))
        for variable, array in zip(self.model.variables, self.start.values(), strict=True):
            variable.assign(self._shift(array, rng))
        reset_states(self.model)

        def shift(array: np.ndarray) -> np.ndarray:
            is_whole = array.dtype.kind != "f" or array == np.round(array)
            return np.where(is_whole, array, self._shift(array, batch_rng))

        return data if seed is None else (keras.tree.map_structure(shift, data[0]), *data[1:])

    def _shift(self, array: np.ndarray, rng: np.random.Generator | None) -> np.ndarray:
        """Returns an array with each number changed by up to `size` units in its last place."""
        if rng is None or (array.dtype.kind != "f" and "bfloat16" not in str(array.dtype)):
            return array
        shifted = array.copy().reshape(-1)
        for start in range(0, shifted.size, BLOCK):  # a large array needs no second one in float64
            block = shifted[start : start + BLOCK]
            factors = 1.0 + self.size * ROUNDOFF[self.recording.precision] * rng.uniform(-1.0, 1.0, block.size)
            block[:] = (block.astype("float64") * factors).astype(array.dtype)
        return shifted.reshape(array.shape)

    def layers(self, data: tuple, training: bool = False) -> Arrays:
        """Yields the outputs of every layer, in the order of calls."""
        self.outputs = outputs = Store()
        self.calls: collections.Counter[str] = collections.Counter()
        try:
            self.model(probes.as_tensors(data[0]), training=training)
        finally:
            self.outputs = None
        for name, array in outputs.items():
            yield "layers", name, array

    def layers_in_training(self, data: tuple) -> Arrays:
        """Yields the outputs of layers in training that are not those at inference."""
        known = self.arrays.get(f"layers{self.suffix}", Store())
        for _, name, array in self.layers(data, training=True):
            if measure(array, known.get(name)).difference:
                yield "layers in training", name, array

    def predictions(self, data: tuple) -> Arrays:
        """Yields the outputs of `predict_on_batch`."""
        if "predict_step" in self.own:
            self.probe = self.model
        elif self.probe is None:
            self.probe = probes.Probe(self.model)
            self.probe.compile(jit_compile=self.jit_compile)
        for name, array in probes.outputs_by_name(self.probe.predict_on_batch(data[0])).items():
            yield "predictions", name, array

    def metrics(self, data: tuple) -> Arrays:
        """Yields the compiled metrics, or what the model's own `test_step` returns, after two batches.

        Both have the same inputs, and the labels of the first belong to other examples. A batch before a reset shows
        whether the reset works.
        """
        model, (x, y, sample_weight) = self.model, data
        is_own = {"test_step", "compute_metrics"} & set(self.own)
        if not model.compiled or y is None or not (is_own or any(metric.name != "loss" for metric in model.metrics)):
            return
        y_pred = None if is_own else model(probes.as_tensors(x), training=False)
        for shift in (2, 1, 0):
            labels = keras.tree.map_structure(lambda each, shift=shift: np.roll(each, shift, 0), y, none_is_leaf=False)
            if shift:
                model.reset_metrics()
            if is_own:
                values = model.test_on_batch(x, labels, sample_weight, return_dict=True)
            else:
                inputs, targets, weights = map(probes.as_tensors, (x, labels, sample_weight))
                values = model.compute_metrics(inputs, targets, y_pred, weights)
                values.pop("loss", None)  # it is only counted in a step
        model.reset_metrics()
        for name, value in values.items():
            for number, each in enumerate(keras.tree.flatten(value)):
                yield "metrics", f"{name}, {number + 1}" if number else name, probes.to_numpy(each)

    def gradients(self, data: tuple) -> Arrays:
        """Yields the loss, and the gradient of every trainable weight."""
        weights = self.model.trainable_variables
        if not weights:
            self.notes.append("there are no trainable weights, so loss, gradients and training are not compared")
            return
        self.probe = self.probe or self._trainer(probes.GradientStore())
        for name, value in probes.train(self.probe, data).items():
            yield "loss", name, np.array(value)
        for name, gradient in zip(probes.weight_names(weights), self.probe.optimizer.gradients, strict=True):
            yield "gradients", name, probes.to_numpy(gradient)

    def training(self, data: tuple) -> Arrays:
        """Yields the change of every weight since the start, after each recorded step."""
        if not self.model.trainable_variables:
            return
        if self.probe is None:
            if self.optimizer is None:
                self.notes.append("the model has no optimizer, so it is trained by SGD(0.01)")
            copy = copy_optimizer(self.optimizer, self.model) if self.optimizer else keras.optimizers.SGD()
            self.probe = self._trainer(copy)
        before, count = probes.store_weights(self.model.weights), len(keras.tree.flatten(data)[0])

        def changes(suffix: str) -> Arrays:
            for name, weight in zip(before, self.model.weights, strict=True):
                after = probes.to_numpy(weight)
                wide = np.result_type(after, "int64" if after.dtype.kind in "biu" else "float32")
                yield "training", f"{name}{suffix}", after.astype(wide) - before[name].astype(wide)

        size, optimizer = self.recording.batch_size or count, self.probe.optimizer
        inner = [optimizer, getattr(optimizer, "inner_optimizer", None), *getattr(optimizer, "optimizers", ())]
        updates = max(getattr(each, "gradient_accumulation_steps", None) or 1 for each in inner)  # batches of a change
        with probes.preserve_values(optimizer.variables):
            for step in range(1, updates * self.steps[-1] + 1):
                start = (step - 1) % math.ceil(count / size) * size
                rows = slice(start, start + size)
                part = keras.tree.map_structure(lambda x, rows=rows: x[rows], data, none_is_leaf=False)
                probes.train(self.probe, part)
                if step % updates == 0 and step // updates in self.steps:
                    yield from changes(f", step {step // updates}" if len(self.steps) > 1 else "")
            if any(getattr(each, "use_ema", False) for each in inner):  # `fit` ends with the averages
                optimizer.finalize_variable_values(self.model.trainable_variables)
                yield from changes(", step average")

    def _trainer(self, optimizer: Any) -> Any:
        optimizer.build(self.model.trainable_variables)
        if "train_step" in self.own:
            self.model.optimizer, self.model.train_function = optimizer, None
            return self.model
        has_terms = "compute_loss" in self.own or compile_arguments(self.model).get("loss") is not None
        has_loss = bool(self.model.compiled) and has_terms and self.data[1] is not None
        if not has_loss:
            why = "is not compiled" if not self.model.compiled else "has no labels" if has_terms else "has no loss"
            self.notes.append(f"the model {why}, so the loss is the mean of its outputs, each times a fixed number")
        with probes.preserve_values(self.model.variables):  # a draw changes a seed
            outputs = [] if has_loss else self.model(probes.as_tensors(self.data[0]), training=False)
        shapes = [tuple(output.shape[1:]) for output in probes.flatten_outputs(outputs)]
        probe = probes.Probe(self.model, shapes=shapes)
        probe.compile(optimizer=optimizer, jit_compile=self.jit_compile, auto_scale_loss=False)
        return probe

    def _call(self, layer: Any, call: Callable, arguments: tuple, options: dict) -> Any:
        """Calls a layer, and stores its outputs while layers are recorded."""
        if self.outputs is None:
            return call(*arguments, **options)
        # The cell of a recurrent layer runs in a loop. The outputs of the model are in the predictions.
        is_kept = layer is not self.model and not any(isinstance(outer, keras.layers.RNN) for outer in self.path)
        self.path.append(layer)
        try:
            outputs = call(*arguments, **options)
            if is_kept:
                self._keep(layer, outputs, self.outputs)
        finally:
            self.path.pop()
        return outputs

    def _keep(self, layer: Any, outputs: Any, store: Store) -> None:
        """Stores the outputs of a call. In a loop of the backend, a layer may have outputs without values."""
        path = "/".join(each.name for each in self.path if each is not self.model)
        name = f"{path} ({type(layer).__name__})"
        self.calls[name] += 1
        call = f", call {self.calls[name]}" if self.calls[name] > 1 else ""
        for number, output in enumerate(keras.tree.flatten(outputs)):
            try:
                array = probes.to_numpy(output)
            except Exception:
                array = np.array(None)
            if array.dtype != object:
                store[f"{name}{call}{f', output {number}' if number else ''}"] = array
            elif ops.is_tensor(output):
                self.recording.omitted += [] if name in self.recording.omitted else [name]
            elif output is not None:
                kind = type(output).__name__
                self.notes.append(f"an output of `{name}` is no array, but of the class {kind}, and is not compared")


def describe_error(error: BaseException) -> str:
    """Returns the class and the text of an error; of a long text the beginning and the end, which has the reason."""
    text = " ".join(_COLOURS.sub("", str(error)).split())
    if len(text) > 2 * _LETTERS:
        text = f"{text[:_LETTERS]} ... {text[-_LETTERS:]}"
    return f"{type(error).__name__}: {text}"
