"""The networks of a training: those of a user, with the head of a method, or a linear model on features."""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import batches, batches_with_weights, count_examples
from keras_het.base.graph import model_inputs, part_and_preprocessor
from keras_het.base.internals import compile_arguments, weight_decay_exclusions
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_maker
from keras_het.labels.data import Data
from keras_het.labels.discriminant import scaling
from keras_het.labels.methods import Method
from keras_het.layers import HeteroscedasticDense
from keras_het.models.raw_inputs import add_preprocessor
from keras_het.reading.check import leaves, spell
from keras_het.reading.ending import Ending, find_ending, single_output
from keras_het.reading.matching import find_label_form, rebuild, unwrap_annotators

PROBABILITIES = ("softmax", "sigmoid", "log_sigmoid")  # activations of a head that makes no log-probabilities
INTEGER_LOSSES = ("integers", "either", "")  # labels that a loss takes; "" of a user's own
STEP = 0.5  # about the change of a logit of D features by a step of Adam with a learning rate of STEP / D
MAX_LEARNING_RATE = 0.05
PREPROCESSED_ROWS = 256
COMPILE_ARGUMENTS = ("jit_compile", "run_eagerly", "steps_per_execution", "auto_scale_loss")  # kept of the user's
TRAINED = "_keras_het_trained"  # attribute of a variable that a training has changed


def check_maker_or_none(make_model: Any, optimizer: Any) -> None:
    """Raises a ValueError if `make_model` is neither a function nor None, or has an optimizer beside a function."""
    if make_model is not None:
        check_maker(make_model, ", a list of them, a trained model, or None if `x` are features")
        rule = "be None beside a function `make_model`: remove it; set it in `compile`"
        refuse_if(optimizer is not None, "optimizer", rule, kind=optimizer)


def make(make_model: Callable[[], Any] | None, data: Data, optimizer: Any) -> keras.Model:
    """Returns a new compiled model for some data: a user's, or without a function a linear one on features."""
    return linear_model(data, optimizer) if make_model is None else checked_model(make_model(), data.x, data.units)


def linear_model(data: Data, optimizer: Any) -> keras.Model:
    """Returns a Dense layer on scaled features, which starts at zero: few examples need few steps then."""
    shape = getattr(data.x, "shape", None)
    if shape is None or len(shape) != 2:
        received = f"a {type(data.x).__name__}" if shape is None else f"shape {tuple(shape)}"
        raise refusal("x", "be features, an array (N, D), where there is no function `make_model`", received)
    dense = keras.layers.Dense(data.units, "log_softmax", kernel_initializer="zeros", dtype="float32")
    model = keras.Sequential([keras.Input(shape[1:]), *scaling(data.x, data.weight).layers(), dense])
    new = rebuild(optimizer) if isinstance(optimizer, keras.optimizers.Optimizer) else optimizer
    default = keras.optimizers.Adam(min(MAX_LEARNING_RATE, STEP / shape[1]))
    model.compile(default if new is None else keras.optimizers.get(new), _crossentropy())
    return model


def checked_model(model: Any, x: Any, units: int) -> keras.Model:
    """Returns a model of a user's function, which must be new, compiled, and of K classes."""
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False):
        received = f"a {type(model).__name__}" + (", which is not" if isinstance(model, keras.Model) else "")
        raise refusal("make_model", "make compiled models", received)
    if isinstance(model, keras.Sequential) and not model.built and hasattr(x, "shape"):
        model.build((None, *x.shape[1:]))
    _check_new(model)
    for loss in leaves(model.loss):
        if find_label_form(loss, units) not in INTEGER_LOSSES:
            rule = 'make models of a loss of integers: compile(loss="sparse_categorical_crossentropy")'
            rule += " and no NoiseTransition of annotators" * (unwrap_annotators(loss) is not None)
            raise refusal("make_model", rule, f"loss={spell(loss)}")
    outputs = getattr(model, "outputs", None) or []
    size = model.output_shape[-1] if len(outputs) == 1 else units
    refuse_if(size != units, "make_model", f"make models of the {units} classes of `y`", f"one of {size}")
    return model


def _check_new(model: keras.Model) -> None:
    """Raises a ValueError if an earlier training has changed a part of a model: it would know held-out labels."""
    rule = (
        "make new layers and a new optimizer at every call, for a model would begin with what an earlier one has "
        "learned; frozen layers alone may be shared (`trainable = False`)"
    )
    variables = [*model.trainable_variables, *(model.optimizer.variables if model.optimizer else [])]
    known = [variable.path for variable in variables if getattr(variable, TRAINED, False)]
    refuse_if(known, "make_model", rule, f"the variable {known[0]!r} twice" if known else "")
    steps = int(model.optimizer.iterations) if getattr(model.optimizer, "built", False) else 0
    refuse_if(steps, "make_model", rule, "a trained one")


def mark_trained(model: keras.Model) -> None:
    """Marks the variables that a training has changed."""
    for variable in [*model.trainable_variables, *(model.optimizer.variables if model.optimizer else [])]:
        setattr(variable, TRAINED, True)


def with_method(model: keras.Model, method: Method, data: Data) -> tuple[keras.Model, keras.Model]:
    """Returns a new model with the head of a method in the place of its own: one to train, and one to predict."""
    layers, tail = method.head(data.units, **options_of(own_head(model).head)), method.tail(data.units)
    _check_log_probabilities(layers[-1])
    trained, predictor = replace_head(model, layers, tail)
    arguments = {key: value for key, value in compile_arguments(model).items() if key in COMPILE_ARGUMENTS}
    return method.compile(trained, without_decay(model.optimizer, trained, tail), data, **arguments), predictor


def replace_head(model: keras.Model, layers: list, tail: list) -> tuple[keras.Model, keras.Model]:
    """Returns a model with other layers in the place of its last one, and the same without the layers of the tail."""
    outputs = _applied(layers, own_head(model).features)
    return _like(model, _applied(tail, outputs)), _like(model, outputs)


def own_head(model: keras.Model) -> Ending:
    """Returns the last layer of a model, a Dense or a head of this package, and its features."""
    try:
        head = find_ending(model, (HeteroscedasticDense,))
    except ValueError:  # no such head: then it must be a Dense layer
        head = find_ending(model, (keras.layers.Dense,))
    rule = "make models whose last layer takes features (N, D), such as behind Flatten or GlobalAveragePooling2D"
    refuse_if(len(head.features.shape) != 2, "make_model", rule, shape=head.features)
    return head


def options_of(layer: Any) -> dict[str, Any]:
    """Returns what a new head keeps of the model's own: penalties, and an initializer of zeros."""
    penalties = {name: getattr(layer, name, None) for name in ("kernel_regularizer", "bias_regularizer")}
    is_zero = isinstance(getattr(layer, "kernel_initializer", None), keras.initializers.Zeros)
    zeros = {"kernel_initializer": "zeros"} if is_zero else {}
    return zeros | {name: value for name, value in penalties.items() if value is not None}


def without_decay(optimizer: Any, model: keras.Model, layers: list[keras.layers.Layer]) -> Any:
    """Returns a new optimizer like this one, which lets no layer behind the head decay."""
    new = rebuild(optimizer)
    variables, _, pattern = weight_decay_exclusions(optimizer, model.variables)
    own = [variable for layer in layers for variable in layer.variables]
    if variables or own or pattern:
        new.exclude_from_weight_decay([*variables, *own], pattern)
    return new


def compiled(model: keras.Model, optimizer: Any) -> keras.Model:
    """Returns a fitted model, compiled for `evaluate`, and for further training by crossentropy."""
    optimizer = without_decay(optimizer, model, [])
    optimizer.build(model.trainable_variables)  # else a saved model could not be loaded without a warning
    model.compile(optimizer, _crossentropy(), metrics=["accuracy"])
    return model


def training_inputs(trained: keras.Model, predictor: keras.Model, x: Any) -> Any:
    """Returns x as `trained` accepts it: preprocessed if the predictor is a KerasHub task and `trained` is none."""
    preprocess = getattr(predictor, "preprocess_samples", None)
    if preprocess is None or hasattr(trained, "preprocess_samples"):
        return x
    parts = [keras.utils.unpack_x_y_sample_weight(preprocess(part))[0] for part, _ in batches(x, PREPROCESSED_ROWS)]
    arrays = [keras.tree.map_structure(keras.ops.convert_to_numpy, part) for part in parts]
    return keras.tree.map_structure(lambda *rows: np.concatenate(rows), *arrays)


def feature_batches(model: keras.Model, x: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields the features of a trained model, the labels and weights of a data set, batch by batch."""
    part, preprocess = part_and_preprocessor(model, features_of(model))
    for inputs, labels, weights in batches_with_weights(x, 1):
        yield keras.ops.convert_to_numpy(part.predict_on_batch(preprocess(inputs))), labels, weights


def frozen_features(model: keras.Model, x: Any, batch_size: int, folder: pathlib.Path | None) -> np.ndarray:
    """Returns the features of a trained model, `(N, D)`: the inputs of its head, or its outputs if it has none.

    With a folder they are a memory map, features.npy, from which a later call goes on.
    """
    part, preprocess = part_and_preprocessor(model, symbolic := features_of(model))
    parts = (
        keras.ops.convert_to_numpy(part.predict_on_batch(preprocess(inputs))) for inputs, _ in batches(x, batch_size)
    )
    shape, file = (count_examples(x), symbolic.shape[-1]), None if folder is None else folder / "features.npy"
    if file is not None and file.exists():
        stored, first = np.load(file, mmap_mode="r", allow_pickle=False), next(parts)
        is_same = stored.shape == shape and np.allclose(stored[: len(first)], first, rtol=1e-3, atol=1e-4)
        rule = f"be a folder of the same examples and model (delete {file} to compute their features anew)"
        refuse_if(not is_same, "resume_path", rule, "other features")
        return stored
    if file is None:
        return np.concatenate([*parts])
    half, start = file.with_name("features.unfinished.npy"), 0
    written = np.lib.format.open_memmap(half, "w+", "float32", shape)
    for rows in parts:
        written[start : start + len(rows)] = rows
        start += len(rows)
    written.flush()
    half.replace(file)
    return np.load(file, mmap_mode="r", allow_pickle=False)


def features_of(model: keras.Model) -> Any:
    """Returns the symbolic features of a trained model, `(N, D)`."""
    output = single_output(model)  # raises for a model without a graph
    try:
        return own_head(model).features
    except ValueError:
        if len(output.shape) == 2:
            return output
        raise


def joined(model: keras.Model, on_features: keras.Model) -> keras.Model:
    """Returns the frozen layers of a trained model with a model on their features."""
    return add_preprocessor(keras.Model(model_inputs(model), on_features(features_of(model))), model)


def _like(model: keras.Model, outputs: Any) -> keras.Model:
    return add_preprocessor(keras.Model(model_inputs(model), outputs), model)


def _applied(layers: list, tensor: Any) -> Any:
    for layer in layers:
        tensor = layer(tensor)
    return tensor


def _crossentropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _check_log_probabilities(layer: keras.layers.Layer) -> None:
    """Raises a ValueError if the last layer of a method's head makes probabilities."""
    name = getattr(getattr(layer, "activation", None), "__name__", "")
    if name in PROBABILITIES or isinstance(layer, keras.layers.Softmax):
        rule = "make logits or log-probabilities of exclusive classes"
        received = f"a {type(layer).__name__}" + (f" with activation {name!r}" if name else "")
        raise refusal("The head of a method", rule, received)
