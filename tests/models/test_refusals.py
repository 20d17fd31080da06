"""Errors about models that cannot be made or converted, and about wrong arguments."""

import re
import warnings

import keras
import numpy as np
import pytest
from keras import layers

from keras_het import explain, heteroscedastic, homoscedastic, losses
from keras_het.covariances import Latent, LowRank
from keras_het.layers import HeteroscedasticDense, JointHeteroscedasticDense, StochasticSegmentation
from keras_het.models import DistributionModel, EarlyLearning, heteroscedastic_regression, scale_temperature
from keras_het.models.temperature_scaler import TemperatureScaler, best_temperature
from tests.checks import refusals, refused_arguments
from tests.common import Subclassed, compiled, refuses
from tests.models import test_early_learning as early
from tests.models import test_regression as regression
from tests.models.checks import UNITS
from tests.models.small_models import FEATURES, functional
from tests.models.test_conversion import convolution
from tests.models.test_regression import multi_label

pytestmark = pytest.mark.refusal

COUNT = "be an integer in [1, 16777216]"
POSITIVE = "be a finite float32 number greater than 0"
WEIGHTS = "`sample_weight` must have the index of every example in training: `fit(x, y, sample_weight=keras_het.models."
EXCLUSIVE = "`loss` must be for exclusive classes, with `from_logits`"
FLAG = "be True or False"
BY_HAND = (
    "`layer` must name one of its Dense layers: 'predictions'. For a model without a top, write keras.Model("
    "model.input, keras_het.HeteroscedasticDense(K)(keras.layers.GlobalAveragePooling2D()(model.outputs[0]))). Re"
)
OUTPUTS = "`outputs` must be (..., K), with at least one example. Received: "
LABELS = "`y` must be integers of shape "
VECTORS, MAPS, ZEROS = np.zeros((2, 6), "float32"), np.zeros((8, 4, 4), int), np.zeros((2, 3))


class Cosine(layers.Dense):
    def call(self, inputs):
        return super().call(inputs / keras.ops.norm(inputs, axis=-1, keepdims=True))


class Softmax(layers.Layer):
    """Not Keras' softmax."""

    def call(self, inputs):
        return keras.ops.softmax(inputs / 5)


def tempered_softmax(x):
    return keras.ops.softmax(x / 5)


def ends_in_convolution(*arguments, behind=(), **named):
    return keras.Sequential([keras.Input((8, 8, 8)), layers.Conv2D(4, *arguments, **named), *behind])


def quantised():
    model = functional()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.quantize("int8")
    return model


def two_outputs():
    inputs = keras.Input((FEATURES,))
    return keras.Model(inputs, [layers.Dense(UNITS, name=name)(inputs) for name in ("first", "second")], name="m")


def chain(*behind):
    return keras.Sequential([keras.Input((FEATURES,)), *behind])


def converting(make, **arguments):
    return lambda: heteroscedastic(make(), **arguments)


def fitting(link, outputs, labels):
    return lambda: best_temperature(np.asarray(outputs), np.asarray(labels), link)


def scaling(end, count=60, **named):
    x, y = np.zeros((count, 6), "float32"), np.zeros(count, int)
    return lambda: scale_temperature(keras.Sequential([keras.Input((6,)), end], name="m"), x, y, **named)


def regressing(*data, model=None, **arguments):
    return lambda: heteroscedastic_regression((model or regression.trained)(), *data, **arguments)


def joint(**change):
    return lambda: heteroscedastic(multi_label(), **{"joint": True, **change})


def joint_end():
    inputs = keras.Input((3,))
    return inputs, JointHeteroscedasticDense(3)(inputs)


def multi(*arguments, **named):
    return lambda: losses.JointMultiLabelCrossentropy(*arguments, **named)


def learning(make=early.identity, weights=early.INDEX, **arguments):
    return lambda: early.loss_of(make(**arguments), early.LABELS, early.LOGITS, weights)


def halved_index():
    inputs = keras.Input((early.UNITS,))
    model = EarlyLearning(inputs, layers.Identity()(inputs), 3000)
    compiled(model, "sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    early.loss_of(model, early.LABELS, early.LOGITS, keras.ops.cast(early.INDEX, "float16"))


def reshaped():
    return chain(layers.Dense(4), layers.Reshape((2, 2)))


CONVERSION = {
    "'a'. For a model without a top, ...inputs, ...Dense(K)(model.outputs[0])). Received: ":
        converting(lambda: chain(layers.Dense(5, name="a"), layers.Rescaling(2.0, name="r"))),
    "layers: none. ...ends in 'r', a Rescaling": converting(lambda: chain(layers.Rescaling(2.0, name="r"))),
    "`model` must have one output: pass keras.Model(model.input, model.outputs[0]) for 'first'. Received: a model with":
        converting(two_outputs),
    "`model` must be a functional or built Sequential model": converting(lambda: Subclassed(layers.Dense(UNITS))),
    "give a Sequential model a keras.Input": converting(lambda: keras.Sequential([layers.Dense(5)])),
    "`model` must be a functional or built Sequential model...": converting(lambda: layers.Dense(5)),
    "`layer` must name a Dense layer of the model: 'hidden', 'predictions'. Received: layer='nope'":
        converting(functional, layer="nope"),
    'none, by name: activation="softmax". Received: tests.models.test_refusals.tempered_softmax':
        converting(lambda: functional(tempered_softmax)),
    "The activation of the head must be softmax, sigmoid or none. Received: tanh in 'hidden'":
        converting(functional, layer="hidden"),
    "`warm_start` must be False, because the old head is quantised (int8)": converting(quantised),
    "layers: none. For a model": converting(lambda: chain(Cosine(5, name="c"))),
    "which ends in 's', a Softmax": converting(lambda: functional(None, Softmax(name="s"))),
    "The head must have one activation": converting(lambda: functional("softmax", layers.Softmax())),
    "must be over the last axis. Received: axis=0": converting(lambda: functional(None, layers.Softmax(axis=0))),
    "is already a HeteroscedasticDense. `homoscedastic(model)`": converting(lambda: heteroscedastic(functional())),
    f"`warm_start` must {FLAG}": converting(functional, warm_start=1),
    f"`clone` must {FLAG}": converting(functional, clone="yes"),
    "`num_factors` must be None or an integer in [1, units]. For no factors": converting(functional, num_factors=12),
    "must end in a HeteroscedasticDense layer": lambda: homoscedastic(functional()),
    "must keep its 5 classes on the last axis. Received: 'f'":
        converting(lambda: convolution(layers.Flatten(name="f"))),
    "The model must end in a Dense layer or a 1x1 Conv2D. ... Received: ...a Conv2D with strides=(2, 2)":
        converting(lambda: convolution(strides=2)),
    "layers: none. Received: ...a Conv2D with groups=2": converting(lambda: ends_in_convolution(1, groups=2)),
    "layers: none. Received: ...a Conv2D with kernel_size=(3, 3)":
        converting(lambda: ends_in_convolution(3, behind=[layers.Softmax()])),
    "GlobalAveragePooling2D()(model.outputs[0]))). Received: ...a Conv2D with kernel_size=(3, 3)":
        converting(lambda: ends_in_convolution(3, activation="relu")),
    BY_HAND: converting(lambda: convolution(layers.UpSampling2D())),
    "`data_format` of a head must be 'channels_last', because a Dense layer maps the last axis...data_format=":
        converting(lambda: convolution(data_format="channels_first")),
    "`joint` must be False for exclusive classes": joint(link="softmax", warm_start=False),
    "`joint` must be False if a layer after the head reshapes":
        lambda: heteroscedastic(functional("sigmoid", layers.Reshape((UNITS, 1))), joint=True),
    "`joint` must be": joint(joint=1),
    "`model` must be a classifier. Convert a regression with": converting(regression.trained),
}  # fmt: skip
# Every form of a loss that `compile` accepts.
FORMS = {
    "alone": lambda loss: loss,
    "in a list": lambda loss: [loss],
    "by name": lambda loss: {"out": loss},
    "in a list by name": lambda loss: {"out": [loss]},
    "config": lambda loss: loss if isinstance(loss, str) else keras.losses.serialize(keras.losses.get(loss)),
}
NUMBERS = ["mse", "cosine_similarity", "poisson", "huber", "log_cosh", keras.losses.mean_absolute_error]
NUMBERS += [keras.losses.MeanSquaredError(), keras.losses.MeanSquaredLogarithmicError]
CLASSES = [keras.losses.SparseCategoricalCrossentropy(from_logits=True), "crossentropy", "kl_divergence"]
CLASSES += [keras.losses.BinaryCrossentropy(from_logits=True), keras.losses.categorical_crossentropy]
CLASSES += [losses.GeneralizedCrossentropy(from_logits=True), losses.AnnotatorsLoss(), "categorical_hinge", "hinge"]


def compiled_with(loss):
    return compiled(keras.Sequential([keras.Input((3,)), layers.Dense(2, name="out")]), "sgd", loss)


@pytest.mark.parametrize("form", FORMS)
def test_a_regression_and_a_classifier_are_told_apart_by_every_form_of_a_loss(form):
    for loss in NUMBERS:
        model = compiled_with(FORMS[form](loss))
        with refuses("`model` must be a classifier. Convert a regression with heteroscedastic_regression"):
            heteroscedastic(model, 1)
        assert isinstance(heteroscedastic_regression(model, initial_scale=1.0).loss, losses.MultivariateNormalNLL)
    for loss in CLASSES:
        with refuses("`model` must be a regression. Convert a classifier with heteroscedastic"):
            heteroscedastic_regression(compiled_with(FORMS[form](loss)), initial_scale=1.0)


REGRESSION = {
    "`initial_scale` must be a number without `x` and `y`": regressing(),
    "`initial_scale` must be a number without": regressing(regression.X, regression.Y, initial_scale=1.0),
    "`y` must be labels for arrays": regressing(regression.X),
    "`y` must have shape (N, ..., 2). Received: shape": regressing(regression.X, regression.Y[:, :1]),
    "`y` must be an array of numbers. Received: a ndarray; could not convert string": regressing(
        regression.X, regression.Y.astype(str).astype(object) + "a"
    ),
    "`x` must have at least one example. Received: none": regressing(regression.X[:0], regression.Y[:0]),
    "`y` must be finite. Received: nan or infinity": regressing(regression.X, regression.Y * np.nan),
    "`initial_scale` must be a finite": regressing(initial_scale=0.0),
    "`form` must be one of": regressing(initial_scale=1.0, form="mse"),
    "`num_factors` must be": regressing(initial_scale=1.0, num_factors=3),
    "without activation, with no layer after it":
        regressing(regression.X, regression.Y, model=lambda: regression.trained(2, "sigmoid")),
    "'reshape...' after it": regressing(regression.X, regression.Y, model=reshaped),
    "is already a HeteroscedasticNormal":
        regressing(regression.X, regression.Y, model=regressing(regression.X, regression.Y)),
}  # fmt: skip
DISTRIBUTIONS = {
    "The model must end in a HeteroscedasticNormal": lambda: DistributionModel(*joint_end()).predict_interval(ZEROS),
    "to predict covariances of targets": lambda: DistributionModel(*joint_end()).predict_covariance(ZEROS),
    "`num_samples` must be an integer in": multi(0),
    "`false_negative_rate` must be a number in": multi(false_negative_rate=1.0),
    "`false_negative_rate` must be an array of numbers. Received: a dict; ": multi(false_negative_rate={}),
    "`false_negative_rate` must be less than 1 - false_positive_rate, ... Received: false_negative_rate=0.7, "
    "false_positive_rate=0.5": multi(4, 0.7, 0.5),
    "`y_true` must have shape": lambda: multi()()(VECTORS, np.zeros((2, 10))),
    "for a head of K units..., R <= K. Received: shape (2, 1), with `y_pred` of shape (2, 21)":
        lambda: (multi()()(VECTORS[:, :1], np.zeros((2, 21)))),
    "`outputs` must come from a layer that returns a": lambda: DistributionModel(*[keras.Input((2,))] * 2),
    "`covariance` must have noise of the logits": lambda: JointHeteroscedasticDense(4, covariance=Latent(2)),
    "`num_classes` must be an integer in": lambda: losses.JointSegmentationCrossentropy(1),
    "`ignore_class` must be an integer in": lambda: losses.JointSegmentationCrossentropy(3, ignore_class=0.5),
    "`y_pred` must have shape": lambda: losses.JointSegmentationCrossentropy(3)(MAPS, np.zeros((8, 4, 4, 11))),
    "`y_true` must have the shape":
        lambda: losses.JointSegmentationCrossentropy(3)(MAPS[:, :2], np.zeros((8, 4, 4, 10))),
    "`link` must be a softmax": lambda: StochasticSegmentation(3, link="sigmoid"),
    "`covariance` must be None": lambda: StochasticSegmentation(3, 4, covariance=LowRank(2)),
    "`num_factors` must be an integer in": lambda: StochasticSegmentation(3, 2000),
}  # fmt: skip
EARLY = {
    **refused_arguments(early.make_model, {"strength": [("be a finite float32 number at least 0", -1.0)]}),
    **refused_arguments(early.make_model, {"momentum": [("be in [0, 1)", 1.0)]}),
    **refused_arguments(early.make_model, {"memory_dtype": [("be one of 'float32', 'float16'", "int8")]}),
    f"`num_examples` must {COUNT}. Received: num_examples=0": lambda: early.make_model(examples=0),
    "`outputs` must have shape (B, K) with K >= 2. Received: shape (None, 1)": lambda: early.make_model(units=1),
    "`outputs` must have shape (B, K) with K >= 2. Received: shape (None, 3, 4)":
        lambda: EarlyLearning(keras.Input((3, 4)), keras.Input((3, 4)), 4),
    "`outputs` must be one symbolic tensor. Received: a list": lambda: EarlyLearning(keras.Input((4,)), [], 4),
    'at most 5368708 for 100 classes...2 GiB. memory_dtype="float16" halves it...=10000000':
        lambda: early.make_model(examples=10**7, units=100),
    f"{WEIGHTS}with_index(len(y)))`. Received: no index": learning(weights=None),
    EXCLUSIVE: learning(loss="binary_crossentropy"),
    f"{EXCLUSIVE}...": learning(loss=lambda y_true, y_pred: y_pred[:, 0]),
    "`sample_weight` must be float32 for more than 2048 examples": halved_index,
}  # fmt: skip
TEMPERATURES = {
    **refused_arguments(TemperatureScaler, {"temperature": [(POSITIVE, 0)]}),
    **refused_arguments(TemperatureScaler, {"dtype": [('be "float32" or "float64"', "bfloat16")]}),
    f"{OUTPUTS}shape (0, 3)": fitting("softmax", ZEROS[:0], []),
    f"{OUTPUTS}shape (3,)": fitting("softmax", np.zeros(3), [0]),
    "`outputs` must be finite. Received: nan at [1, 0]": fitting("softmax", [[0, 1], [np.nan, 0]], [0, 1]),
    f"{LABELS}(2,). Received: shape (1,)": fitting("softmax", ZEROS, [0]),
    "`y` must be in [0, 3). Received: 3 at [1]": fitting("softmax", ZEROS, [0, 3]),
    "`y` must be in [0, 3). Received: -1 at [0]": fitting("softmax", ZEROS, [-1, 0]),
    f"{LABELS}(N,). Received: shape (2,), dtype float": fitting("softmax", ZEROS, [0.0, np.nan]),
    "`y` must be vectors of shape (2, 3). Received: shape (2,)": fitting("sigmoid", ZEROS, [0, 1]),
    "`y` must be in [0, 1]. Received: 2.0 at [0, 1]": fitting("sigmoid", [[0, 0]], [[0, 2]]),
    "`y` must be in [0, 1]. Received: nan at [0, 1]": fitting("sigmoid", [[0, 0]], [[0, np.nan]]),
    "`model` must return logits or probabilities when called. Received: 'm', which returns a":
        lambda: (scale_temperature(DistributionModel(*joint_end(), name="m"), ZEROS, ZEROS)),
    "`model` must return logits or probabilities when called. Received: 'm', with activation 'log_sigmoid'":
        scaling(layers.Dense(UNITS, "log_sigmoid", name="end")),
    "`link` must be a softmax, the link of the head 'head'. Received: link=Sigmoid()":
        scaling(HeteroscedasticDense(4, name="head"), link="sigmoid"),
    "`link` must be ... for a model that ends in neither... Received: link=None":
        scaling(layers.Dense(4, name="end")),
    "`model` must have one output: ... Received: a model with 2 outputs, ['first', 'second']":
        lambda: scale_temperature(two_outputs(), ZEROS, ZEROS[:, 0]),
    "`model` must be built: ...": lambda: scale_temperature(Subclassed(layers.Dense(UNITS)), ZEROS, ZEROS[:, 0]),
    "`x` must have at least one example. Received: none": scaling(HeteroscedasticDense(4), 0),
    "`batch_size` must be an integer at least 1. Received: batch_size=0":
        scaling(HeteroscedasticDense(4), batch_size=0),
}  # fmt: skip


test_refusals = refusals(CONVERSION, REGRESSION, DISTRIBUTIONS, EARLY, TEMPERATURES, errors=(ValueError, TypeError))


def named_outputs():
    inputs = {name: keras.Input((FEATURES,), name=name) for name in ("a", "b")}
    hidden = layers.Concatenate()([inputs["b"], inputs["a"]])
    return keras.Model(inputs, {name: layers.Dense(UNITS, "softmax", name=name)(hidden) for name in ("y", "x")})


@pytest.mark.parametrize("call", [heteroscedastic, lambda model: explain.features(model, None)])
@pytest.mark.parametrize("make", [two_outputs, named_outputs])
def test_the_code_of_the_error_selects_an_output(make, call):
    model = make()
    with pytest.raises(ValueError, match="must have one output") as error:
        call(model)
    code, name = re.search("pass (.*?) for '(.*?)'", str(error.value)).groups()
    selected = eval(code)
    x = keras.tree.map_structure(lambda tensor: np.ones((2, FEATURES), "float32"), model.input)
    expected = model.predict(x, verbose=0)
    expected = expected[name] if isinstance(expected, dict) else expected[0]
    assert np.array_equal(selected.predict(x, verbose=0), expected)
    assert heteroscedastic(selected).layers[-1].name == name
