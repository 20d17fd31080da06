"""Networks to train: the user's model with the head of a method, and features of a trained model."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import batches, batches_with_weights
from keras_het.base.graph import model_inputs, own_methods
from keras_het.base.internals import compile_arguments
from keras_het.base.rebuild import copy_optimizer
from keras_het.base.refusal import refusal, refuse_if
from keras_het.criteria.criterion import find_criteria
from keras_het.labels.data import Data
from keras_het.labels.methods import Method
from keras_het.layers import HeteroscedasticDense
from keras_het.models.raw_inputs import keep_task
from keras_het.reading.check import spell
from keras_het.reading.ending import Ending, find_ending, single_output
from keras_het.reading.features import batch_predictor, warn_of_pooler

REFUSED_ACTIVATIONS = ("softmax", "sigmoid", "log_sigmoid")  # the loss reads logits or log-probabilities
INTEGER_LOSSES = ("integers", "either", "")  # answers of `Criterion.label_form`; "" is a loss that it does not know
PREPROCESSED_ROWS = 256
KEPT_COMPILE_ARGUMENTS = ("jit_compile", "run_eagerly", "steps_per_execution", "auto_scale_loss")
TRAINED_MARK = "_keras_het_trained"  # attribute of variables that a training has changed


def checked_model(model: Any, x: Any, units: int) -> keras.Model:
    """Returns a model that a user's function made, if it is new, compiled, and of K classes."""
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False):
        received = f"a {type(model).__name__}" + (" that is not compiled" if isinstance(model, keras.Model) else "")
        raise refusal("make_model", "return compiled models", received)
    if isinstance(model, keras.Sequential) and not model.built and hasattr(x, "shape"):
        model.build((None, *x.shape[1:]))
    _check_new(model)
    for loss in find_criteria(model.loss):
        if loss.label_form(units) not in INTEGER_LOSSES:
            rule = 'return models with a loss of integer labels: compile(loss="sparse_categorical_crossentropy")'
            rule += ", without a NoiseTransition of annotators" * (loss.inner is not None)
            raise refusal("make_model", rule, f"loss={spell(loss.identifier)}")
    outputs = getattr(model, "outputs", None) or []
    size = model.output_shape[-1] if len(outputs) == 1 else units
    refuse_if(size != units, "make_model", f"return models of the {units} classes of `y`", f"{size} classes")
    return model


def _check_new(model: keras.Model) -> None:
    """Raises a ValueError if an earlier training has changed a part of a model, which would leak held-out labels."""
    rule = (
        "return new layers and a new optimizer at every call, so that no model starts with what another has learned. "
        "Share only frozen layers (`trainable = False`)"
    )
    variables = [*model.trainable_variables, *(model.optimizer.variables if model.optimizer else [])]
    shared = [variable.path for variable in variables if getattr(variable, TRAINED_MARK, False)]
    refuse_if(shared, "make_model", rule, f"the variable {shared[0]!r} twice" if shared else "")
    steps = int(model.optimizer.iterations) if getattr(model.optimizer, "built", False) else 0
    refuse_if(steps, "make_model", rule, "a trained model")


def mark_trained(model: keras.Model) -> None:
    """Marks the variables that a training has changed."""
    for variable in [*model.trainable_variables, *(model.optimizer.variables if model.optimizer else [])]:
        setattr(variable, TRAINED_MARK, True)


def with_method(model: keras.Model, method: Method, data: Data) -> tuple[keras.Model, keras.Model]:
    """Returns a new model to train, with the head of a method instead of its last layer, and its predictor."""
    rule = "return models that train as Keras does. To compare them as they are, pass a list of functions: [make_model]"
    kind = f"a {type(model).__name__} with its own {', '.join(own_methods(model))}"
    refuse_if(own_methods(model), "make_model", rule, kind)
    ending = model_head(model)
    layers, outputs = method.head(data.units, **head_options(ending.head)), ending.features
    _check_log_probabilities(layers[-1])
    for layer in layers:
        outputs = layer(outputs)
    trained, predictor = _with_outputs(model, outputs), _with_outputs(model, outputs)
    arguments = {key: value for key, value in compile_arguments(model).items() if key in KEPT_COMPILE_ARGUMENTS}
    return method.compile(trained, copy_optimizer(model.optimizer, trained), data, **arguments), predictor


def model_head(model: keras.Model) -> Ending:
    """Returns the last layer of a model, a Dense layer or a head of this package, and its features."""
    try:
        head = find_ending(model, (HeteroscedasticDense,))
    except ValueError:  # without a head of this package, the last layer must be a Dense layer
        head = find_ending(model, (keras.layers.Dense,))
    rule = "return models whose last layer reads features (N, D), as after Flatten or GlobalAveragePooling2D"
    refuse_if(len(head.features.shape) != 2, "make_model", rule, shape=head.features)
    return head


def head_options(layer: Any) -> dict[str, Any]:
    """Returns the options that a new head inherits from the last layer: penalties, and an initializer of zeros."""
    names = ("kernel_regularizer", "bias_regularizer", "kernel_constraint", "bias_constraint")
    penalties = {name: getattr(layer, name, None) for name in names}
    is_zero = isinstance(getattr(layer, "kernel_initializer", None), keras.initializers.Zeros)
    zeros = {"kernel_initializer": "zeros"} if is_zero else {}
    return zeros | {name: value for name, value in penalties.items() if value is not None}


def compile_with_crossentropy(model: keras.Model, optimizer: Any) -> keras.Model:
    """Returns a fitted model, compiled with crossentropy for `evaluate` and further training."""
    optimizer = copy_optimizer(optimizer, model)
    optimizer.build(model.trainable_variables)  # else a saved model could not be loaded without a warning
    model.compile(optimizer, _crossentropy(), metrics=["accuracy"])
    return model


def training_inputs(trained: keras.Model, predictor: keras.Model, x: Any) -> Any:
    """Returns x as `trained` accepts it: preprocessed if only the predictor is a KerasHub task."""
    preprocess = getattr(predictor, "preprocess_samples", None)
    if preprocess is None or hasattr(trained, "preprocess_samples"):
        return x
    parts = [keras.utils.unpack_x_y_sample_weight(preprocess(part))[0] for part, _ in batches(x, PREPROCESSED_ROWS)]
    arrays = [keras.tree.map_structure(keras.ops.convert_to_numpy, part) for part in parts]
    return keras.tree.map_structure(lambda *rows: np.concatenate(rows), *arrays)


def feature_batches(model: keras.Model, x: Any, batch_size: int = 1) -> Iterator[tuple[Any, Any, Any]]:
    """Yields features of a trained model, labels and weights, for each batch; labels of arrays are None."""
    features = symbolic_features(model)
    warn_of_pooler(features)
    predict = batch_predictor(model, features)
    return ((predict(inputs), *others) for inputs, *others in batches_with_weights(x, batch_size))


def trained_features(model: keras.Model, x: Any, batch_size: int) -> np.ndarray:
    """Returns the features of a trained model, `(N, D)`: the inputs of its head, or its outputs without a head."""
    return np.concatenate([features for features, *_ in feature_batches(model, x, batch_size)])


def symbolic_features(model: keras.Model) -> Any:
    """Returns the symbolic features of a trained model, `(N, D)`."""
    output = single_output(model)  # raises for a model without a graph
    try:
        return model_head(model).features
    except ValueError:
        if len(output.shape) == 2:
            return output
        raise


def join(model: keras.Model, on_features: keras.Model) -> keras.Model:
    """Returns the frozen layers of a trained model, followed by a model on their features."""
    return _with_outputs(model, on_features(symbolic_features(model)))


def _with_outputs(model: keras.Model, outputs: Any) -> keras.Model:
    return keep_task(keras.Model(model_inputs(model), outputs), model)


def _crossentropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _check_log_probabilities(layer: keras.layers.Layer) -> None:
    """Raises a ValueError if the last layer of a method's head returns probabilities."""
    name = getattr(getattr(layer, "activation", None), "__name__", "")
    if name in REFUSED_ACTIVATIONS or isinstance(layer, keras.layers.Softmax):
        rule = "return logits or log-probabilities of exclusive classes"
        received = f"a {type(layer).__name__}" + (f" with activation {name!r}" if name else "")
        raise refusal("The head of a method", rule, received)
