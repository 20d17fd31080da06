"""The networks of a training: what a user gives, with the head of a candidate and its layers for training alone."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_het.base.fingerprint import without_names
from keras_het.base.graph import model_inputs, part_and_preprocessor
from keras_het.base.internals import compile_arguments, layers_of, not_decayed
from keras_het.base.new_models import NewModels
from keras_het.base.refusal import outside_level
from keras_het.base.validation import check_maker
from keras_het.label_noise.discriminant import Scaling
from keras_het.models.raw_inputs import with_preprocessor
from keras_het.reading.check import leaves, spelled
from keras_het.reading.ending import CLASSIFIERS, Ending, ending_of, single_output
from keras_het.reading.matching import labels_for, of_annotators, remade
from keras_het.training.candidates import Candidate, LinearDiscriminant
from keras_het.training.task import Task

PROBABILITIES = ("softmax", "sigmoid", "log_sigmoid")  # activations, not of logits or log-probabilities of one class
OF_INTEGERS = ("integers", "either", "")  # labels that a loss takes; "" of a user's own
STEP = 0.5  # what a step of Adam changes a logit of D features by, about: a learning rate of STEP / D
MOST_RATE = 0.05
KEPT = ("jit_compile", "run_eagerly", "steps_per_execution", "auto_scale_loss")  # of the arguments of `compile`


def maker(make_model: Any, optimizer: Any, known: NewModels) -> Callable[[Task], keras.Model]:
    """A function that makes a new compiled model for a task, of what a user gives: see `choose`.

    Args:
        make_model: a function; or None, or a trained model, for a Dense layer on features.
        optimizer: optimizer of a model on features; refused beside a function.
        known: models of the run so far.
    Raises:
        ValueError: for anything else.
    """
    if make_model is None or isinstance(make_model, keras.Model):
        return lambda task: _linear(task, optimizer)
    check_maker(make_model, ", a trained model, or None if `x` are features")
    if optimizer is not None:
        rule = "be None beside a function `make_model`: remove it; set it in `compile`"
        raise ValueError(f"`optimizer` must {rule}. Received: a {type(optimizer).__name__}")
    return lambda task: checked_model(make_model(), task, known)


def _linear(task: Task, optimizer: Any) -> keras.Model:
    """A Dense layer on features, which begins at zero: with few steps it still is what these have learned.

    Random kernels would have to be unlearned first, which takes more steps than few examples give.
    """
    shape = getattr(task.x, "shape", None)
    if shape is None or len(shape) != 2:
        found = f"a {type(task.x).__name__}" if shape is None else f"shape {tuple(shape)}"
        rule = "be features, an array (N, D), where there is no function `make_model`"
        raise ValueError(f"`x` must {rule}. Received: {found}")
    dense = keras.layers.Dense(task.units, "log_softmax", kernel_initializer="zeros", dtype="float32")
    model = keras.Sequential([keras.Input(shape[1:]), scaling_layer(task.scale), dense])
    new = remade(optimizer) if isinstance(optimizer, keras.optimizers.Optimizer) else optimizer
    chosen = keras.optimizers.Adam(min(MOST_RATE, STEP / shape[1])) if new is None else keras.optimizers.get(new)
    model.compile(chosen, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def discriminant_model(task: Task, optimizer: Any, weights: list[np.ndarray] | None = None) -> keras.Model:
    """The same with the weights of a linear discriminant, or others, in closed form: see `LinearDiscriminant`.

    Args:
        task: the examples to learn from.
        optimizer: optimizer of further training.
        weights: kernel and bias; None for those of the discriminant.
    """
    model = _linear(task, optimizer)
    model.layers[-1].set_weights(LinearDiscriminant().solution(task, None) if weights is None else weights)
    return model


def scaling_layer(scale: Scaling) -> keras.layers.Normalization:
    """A layer that scales features, `(N, D)`, whatever their units."""
    mean, deviation = scale
    return keras.layers.Normalization(mean=mean.tolist(), variance=np.square(deviation).tolist(), dtype="float32")


def checked_model(model: Any, task: Task, known: NewModels) -> keras.Model:
    """A model of a user's function, which must be new, compiled, and of the classes of the task.

    Args:
        model: result of the function.
        task: task that it is to learn.
        known: models of the run so far.
    """
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False):
        found = f"a {type(model).__name__}" + (", which is not" if isinstance(model, keras.Model) else "")
        raise ValueError(f"`make_model` must make compiled models. Received: {found}")
    if isinstance(model, keras.Sequential) and not model.built and hasattr(task.x, "shape"):
        model.build((None, *task.x.shape[1:]))
    known.check(model)
    if getattr(model.optimizer, "built", False) and int(model.optimizer.iterations) > 0:
        rule = "make a new model each time, or one would have seen what it predicts"
        raise ValueError(f"`make_model` must {rule}. Received: a trained one")
    for loss in leaves(model.loss):
        if labels_for(loss, task.units) not in OF_INTEGERS:
            rule = "make models of a loss of integers, which all labels become"
            remedy = 'compile(loss="sparse_categorical_crossentropy")'
            if of_annotators(loss) is not None:
                remedy += " and no NoiseTransition: a T of each annotator is a candidate of `choose`"
            raise ValueError(f"`make_model` must {rule}: {remedy}. Received: loss={spelled(loss)}")
    units = model.output_shape[-1] if getattr(model, "outputs", None) and len(model.outputs) == 1 else task.units
    if units != task.units:
        rule = f"make models of the {task.units} classes of `y`"
        raise ValueError(f"`make_model` must {rule}. Received: one of {units}")
    return model


def with_head(model: keras.Model, task: Task, candidate: Candidate, strength: Any) -> tuple[keras.Model, keras.Model]:
    """A model with the head of a candidate in the place of its own, for training and for prediction.

    Args:
        model: new, of a function `make_model`.
        task: the examples to train on.
        candidate: makes the layers.
        strength: strength of the candidate.
    Returns:
        the model to train, compiled with the optimizer of `model`, and the one without the layers for training alone,
            which share their layers.
    Raises:
        ValueError: for a model without a graph or a head, features of another shape than `(N, D)`, or a head of
            probabilities.
    """
    task = dataclasses.replace(task, head_options=options_of(own_head(model).head))
    layers, tail = candidate.head(task, strength), candidate.tail(task, strength)
    _check_log_probabilities(layers[-1])
    _, predictor = with_layers(model, layers, [])
    outputs = _applied(tail, predictor.output)
    trained = candidate.model(model_inputs(model), outputs, task, strength)
    if type(trained) is type(keras.Model(model_inputs(model), outputs)):  # a class of its own takes preprocessed inputs
        trained = with_preprocessor(trained, model)
    arguments = {key: value for key, value in compile_arguments(model).items() if key in KEPT}
    trained.compile(without_decay(model.optimizer, trained, tail), candidate.loss(task, strength), **arguments)
    return trained, predictor


def inputs_for(trained: keras.Model, model: keras.Model, x: Any) -> Any:
    """Returns the inputs of a trained model: preprocessed if it lacks the preprocessor of the user's model."""
    if getattr(trained, "preprocessor", None) is not None:
        return x
    return part_and_preprocessor(model, own_head(model).features)[1](x)


def with_layers(model: keras.Model, layers: list, tail: list) -> tuple[keras.Model, keras.Model]:
    """A model with other layers in the place of its last one, and the same without those for training alone.

    Args:
        model: a user's.
        layers: new, of features.
        tail: new, behind them.
    """
    outputs = _applied(layers, own_head(model).features)
    return _like(model, _applied(tail, outputs)), _like(model, outputs)


def own_head(model: keras.Model) -> Ending:
    """Returns the `Ending` of a model at its last layer, a Dense or a head of this package."""
    head = ending_of(model, CLASSIFIERS)
    if len(head.features.shape) != 2:
        rule = "make models whose last layer takes features (N, D), such as behind Flatten or GlobalAveragePooling2D"
        raise ValueError(f"`make_model` must {rule}. Received: shape {tuple(head.features.shape)}")
    return head


def described(model: keras.Model) -> list:
    """The layers of a model and its optimizer, by class and config, without names, which Keras counts up; its loss."""
    parts = [[type(part).__qualname__, _config_of(part)] for part in (*layers_of(model), model.optimizer)]
    return [*parts, compile_arguments(model).get("loss")]


def described_graph(model: keras.Model) -> dict[str, Any]:
    """The operations of a functional model, and how they are joined, by their order for their names; the weights."""
    names = [model.name, *(part.name for part in (*model.operations, *layers_of(model)))]
    number = {name: index for index, name in enumerate(dict.fromkeys(names))}

    def numbered(config: Any) -> Any:
        if isinstance(config, dict):
            return {key: numbered(part) for key, part in config.items()}
        if isinstance(config, list | tuple):
            return [numbered(part) for part in config]
        return number.get(config, config) if isinstance(config, str) else config

    classes = [type(each) for each in model.operations]
    return {"config": numbered(model.get_config()), "classes": classes, "weights": model.get_weights()}


def _config_of(part: Any) -> Any:
    try:
        config = {} if isinstance(part, keras.Model) else part.get_config()
    except NotImplementedError:  # of a user's class
        return None
    return without_names(config)


def below_head(model: keras.Model) -> tuple[keras.Model, Callable[[Any], Any]]:
    """The layers of a trained model below its head, and the function that makes their inputs of a batch."""
    return part_and_preprocessor(model, _trained_features(model))


def _trained_features(model: keras.Model) -> Any:
    """The symbolic features; warns of a model that looks untrained."""
    symbolic = features_of(model)
    if _looks_untrained(model, symbolic):
        warnings.warn(
            "`make_model` is a model that looks untrained: its optimizer has made no step, and no bias of the layers "
            "below its head differs from another. Its features say little: train it on other data, or, to train all of "
            "its layers here, give the function that makes it.",
            stacklevel=outside_level(),
        )
    return symbolic


def _looks_untrained(model: keras.Model, symbolic: Any) -> bool:
    """Whether vectors of weights, such as biases, moving means and scales, are all as initializers make them.

    Kernels do not tell, and a model that has no vectors may be trained.
    """
    steps = int(model.optimizer.iterations) if getattr(model, "optimizer", None) else 0
    below = keras.Model(model_inputs(model), symbolic)
    vectors = [np.ravel(weight) for weight in below.get_weights() if weight.ndim == 1 and len(weight) > 1]
    return not steps and bool(vectors) and all(np.all(vector == vector[0]) for vector in vectors)


def features_of(model: keras.Model) -> Any:
    """The symbolic features of a trained model, `(N, D)`."""
    output = single_output(model)  # raises for a model without a graph
    try:
        return own_head(model).features
    except ValueError:
        if len(output.shape) == 2:
            return output
        raise


def joined(model: keras.Model, on_features: keras.Model) -> keras.Model:
    """The frozen layers of a trained model with a model on their features, for the inputs of the trained one."""
    return with_preprocessor(keras.Model(model_inputs(model), on_features(features_of(model))), model)


def part_on_features(model: keras.Model) -> keras.Model:
    """The model on features of one that `joined` made."""
    return model.layers[-1]


def without_decay(optimizer: Any, model: keras.Model, layers: list[keras.layers.Layer]) -> Any:
    """An optimizer like this one, without state, which lets no layer decay that stands behind the head."""
    made = remade(optimizer)
    variables, _, pattern = not_decayed(optimizer, model.variables)
    own = [variable for layer in layers for variable in layer.variables]
    if variables or own or pattern:
        made.exclude_from_weight_decay([*variables, *own], pattern)
    return made


def compiled(model: keras.Model, optimizer: Any) -> keras.Model:
    """A fitted model, compiled for `evaluate`, and for further training by crossentropy."""
    optimizer = without_decay(optimizer, model, [])
    optimizer.build(model.trainable_variables)  # else a saved model could not be loaded without a warning
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def options_of(layer: Any) -> dict[str, Any]:
    """What a new head takes over of the model's own: penalties, and that it begins at zero."""
    given = {name: getattr(layer, name, None) for name in ("kernel_regularizer", "bias_regularizer")}
    begins_at_zero = isinstance(getattr(layer, "kernel_initializer", None), keras.initializers.Zeros)
    found = {"kernel_initializer": "zeros"} if begins_at_zero else {}
    return found | {name: value for name, value in given.items() if value is not None}


def _like(model: keras.Model, outputs: Any) -> keras.Model:
    return with_preprocessor(keras.Model(model_inputs(model), outputs), model)


def _applied(layers: Any, tensor: Any) -> Any:
    for layer in layers:
        tensor = layer(tensor)
    return tensor


def _check_log_probabilities(layer: keras.layers.Layer) -> None:
    """Raises a ValueError if the last layer of a candidate's head makes probabilities."""
    name = getattr(getattr(layer, "activation", None), "__name__", "")
    if name in PROBABILITIES or isinstance(layer, keras.layers.Softmax):
        rule = "make logits or log-probabilities of exclusive classes"
        found = type(layer).__name__ + (f" with activation {name!r}" if name else "")
        raise ValueError(f"The head of a candidate must {rule}. Received: a {found}")
