"""Endings of models of every kind, and the number of graph walks."""

import sys

import keras
import pytest
from keras import layers

import keras_het
from keras_het.base import graph
from keras_het.layers import HeteroscedasticDense, HeteroscedasticNormal, JointHeteroscedasticDense, NoiseTransition
from keras_het.models import DistributionModel
from keras_het.models.temperature_scaler import TemperatureScaler
from keras_het.reading.ending import LAST_LAYERS, Ending, endings, find_ending
from keras_het.reading.head_noise import noisy_ending
from tests.common import Subclassed
from tests.reading.test_check import called

pytestmark = pytest.mark.once


def model_of(*end, shape=(6,)):
    return keras.Sequential([keras.Input(shape), layers.Dense(4, "relu", name="hidden"), *end], name="model")


def head(link="softmax"):
    return HeteroscedasticDense(3, 1, link=link, name="head")


def last(activation=None):
    return layers.Dense(3, activation, name="last")


def convolution(*end, **arguments):
    return model_of(layers.Conv2D(3, 1, name="map", **arguments), *end, shape=(2, 2, 6))


def two_outputs():
    inputs = keras.Input((6,))
    return keras.Model(inputs, [head()(inputs), layers.Dense(2, "softmax", name="b")(inputs)])


def merged():
    inputs = keras.Input((6,))
    return keras.Model(inputs, layers.Average(name="mean")([head()(inputs), layers.Dense(3, "log_softmax")(inputs)]))


def nested():
    inputs = keras.Input((6,))
    return keras.Model(inputs, model_of(last("softmax"))(layers.Dense(6, "tanh")(inputs)))


def distribution(made):
    inputs = keras.Input((6,))
    return DistributionModel(inputs, made(inputs), name="model")


class Task(keras.Model):
    """A functional model of a subclass with a preprocessor, as a KerasHub task."""

    def __init__(self):
        inputs = keras.Input((6,))
        super().__init__(inputs, layers.Dense(3, "softmax", name="predictions")(layers.Dense(4, "relu")(inputs)))
        self.preprocessor = lambda x: x


NO_END = "The model must end in a"
NO_GRAPH = "`model` must be a functional"
NO_LAYERS = "`model` must be functional"
ONE_OUTPUT = "`model` must have one output"
NO_CLASSIFIER = "The activation of the head must be softmax, sigmoid or none"
NO_NAME = "`layer` must name a HeteroscedasticDense layer of the model: none"
STARTS = (NO_END, NO_GRAPH, NO_LAYERS, ONE_OUTPUT, NO_CLASSIFIER, NO_NAME)
# The layer or model that makes each output, its link, what it returns and its classes; then the layer that can be
# replaced, its activation and the layers behind it that reshape; then the features and the noisy head: the layer's
# name, or how the refusal begins.
TABLE = {
    "Sequential": (lambda: model_of(last()), [("the layer 'last'", "", "numbers", 3)], ("last", None, ()), (None, 4),
        NO_END),
    "subclassed with a head": (lambda: called(Subclassed(head("sigmoid"))),
        [("the head 'head'", "sigmoid", "logits", 3)], NO_GRAPH, NO_GRAPH, NO_LAYERS),
    "not built": (lambda: keras.Sequential([layers.Dense(4), last("sigmoid")]),
        [("the layer 'last'", "sigmoid", "probabilities", 3)], NO_GRAPH, NO_GRAPH, NO_LAYERS),
    "Activation layer": (lambda: model_of(last(), layers.Activation("log_softmax", name="p")),
        [("the layer 'p'", "softmax", "log-probabilities", 3)], ("last", "log_softmax", ()), (None, 4), NO_END),
    "log_sigmoid": (lambda: model_of(last("log_sigmoid")),
        [("the layer 'last' (Dense) with the activation log_sigmoid", "sigmoid", "anything", 3)],
        ("last", "log_sigmoid", ()), (None, 4), NO_END),
    "softmax head": (lambda: model_of(head()), [("the head 'head'", "softmax", "log-probabilities", 3)], NO_END,
        (None, 4), "head"),
    "head with a kept activation": (lambda: model_of(head(), layers.Softmax()),
        [("an activation after the head 'head'", "softmax", "probabilities", 3)], NO_END, (None, 4), "head"),
    "head with flips": (lambda: model_of(head(), NoiseTransition(3, name="flips")),
        [("the layer 'flips'", "softmax", "log-probabilities", 3)], NO_END, NO_END, "head"),
    "joint head": (lambda: model_of(JointHeteroscedasticDense(3, 1, name="head")),
        [("the head 'head'", "sigmoid", "distributions", 3)], NO_END, (None, 4), "head"),
    "joint model": (lambda: distribution(JointHeteroscedasticDense(3, 1, name="head")),
        [("the model 'model'", "sigmoid", "probabilities", 3)], NO_END, (None, 6), "head"),
    "regression": (lambda: distribution(HeteroscedasticNormal(3, 1, name="head")),
        [("the model 'model'", "", "numbers", 3)], NO_END, (None, 6), NO_END),
    "convolution": (lambda: convolution(activation="softmax"), [("the layer 'map'", "softmax", "probabilities", 3)],
        ("map", "softmax", ()), (None, 2, 2, 4), NO_END),
    "reshaped convolution": (lambda: convolution(layers.Reshape((4, 3), name="flat"), layers.Softmax(name="p")),
        [("the layer 'p'", "softmax", "probabilities", 3)], ("map", "softmax", ("flat",)), (None, 2, 2, 4), NO_END),
    "permuted": (lambda: model_of(last("softmax"), layers.Reshape((3, 1)), layers.Permute((2, 1))),
        [("the layer 'last'", "softmax", "probabilities", 3)], NO_END, NO_END, NO_END),
    "each step": (lambda: model_of(layers.TimeDistributed(head()), shape=(2, 6)),
        [("the head 'head'", "softmax", "log-probabilities", 3)], NO_END, NO_END, NO_NAME),
    "scaled head": (lambda: model_of(head("sigmoid"), TemperatureScaler("sigmoid", name="scaler")),
        [("the layer 'scaler'", "sigmoid", "logits", 3)], NO_END, NO_END, "head"),
    "head in a model": (nested, [("the layer 'last'", "softmax", "probabilities", 3)], ("last", "softmax", ()),
        (None, 4), NO_END),
    "several outputs": (two_outputs,
        [("the head 'head'", "softmax", "log-probabilities", 3), ("the layer 'b'", "softmax", "probabilities", 2)],
        ONE_OUTPUT, ONE_OUTPUT, ONE_OUTPUT),
    "task": (Task, [("the layer 'predictions'", "softmax", "probabilities", 3)], ("predictions", "softmax", ()),
        (None, 4), NO_END),
    "relu": (lambda: model_of(last("relu")), [("the layer 'last' (Dense) with the activation relu", "", "anything", 3)],
        NO_CLASSIFIER, NO_CLASSIFIER, NO_END),
    "head before a mean": (merged, [("the layer 'mean' (Average)", "", "anything", 3)], NO_END, NO_END, "head"),
}  # fmt: skip


def answer(read):
    """Returns the ending that is read, or the start of the error."""
    try:
        return read()
    except ValueError as error:
        return next((start for start in STARTS if str(error).startswith(start)), str(error))


def replaced(model):
    ending = find_ending(model)
    return ending.head.name, ending.head_activation, tuple(layer.name for layer in ending.reshapes)


@pytest.mark.parametrize("name", TABLE)
def test_the_end_of_a_model(name):
    make, *expected = TABLE[name]
    model = make()
    assert [
        [(each.source, each.link, each.returns, each.units) for each in endings(model)],
        answer(lambda: replaced(model)),
        answer(lambda: tuple(find_ending(model, LAST_LAYERS).features.shape)),
        answer(lambda: noisy_ending(model).head.name),
    ] == expected


@pytest.mark.smoke
@pytest.mark.parametrize("function", [keras_het.heteroscedastic, keras_het.check])
def test_a_graph_is_walked_once(function, monkeypatch):
    model, calls = model_of(layers.Dense(3, "softmax")), []
    model.compile("sgd", "sparse_categorical_crossentropy")
    walk = graph.walk

    def counted(*arguments, **named):
        calls.append(1)
        return walk(*arguments, **named)

    for module in [module for name, module in sys.modules.items() if name.startswith("keras_het.")]:
        if getattr(module, "walk", None) is walk:
            monkeypatch.setattr(module, "walk", counted)
    function(model)
    assert len(calls) == 1


def test_a_reading_adds_no_call_to_a_layer_and_keeps_no_subclassed_model_alive():
    """The features of a head in an inner model are computed lazily."""
    model = nested()
    before = [len(layer._inbound_nodes) for layer in model._flatten_layers()]
    ending = find_ending(model)
    assert [len(layer._inbound_nodes) for layer in model._flatten_layers()] == before
    assert keras.Model(model.input, ending.features).output_shape == (None, 4)
    # What is stored of it holds none of its layers, one of which may refer to it.
    model = called(Subclassed(last()))
    (ending,) = endings(model)
    assert endings(model)[0] is ending
    assert (ending.head, ending.tail, ending.call_site) == (None, (), None)


@pytest.mark.once
def test_only_a_head_with_an_argument_for_it_is_given_an_activation():
    stack = [keras.Input((6,)), HeteroscedasticDense(3), NoiseTransition(3)]
    remedies = [endings(keras.Sequential(stack[:size]))[0].activation_remedy for size in (2, 3)]
    declared = Ending("the head of somebody", "softmax", "log-probabilities", 3).activation_remedy
    behind = "put keras.layers.Softmax() after it"
    assert [*remedies, declared] == ['give the head activation="softmax"', behind, behind]
