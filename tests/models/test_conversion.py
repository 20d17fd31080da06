"""A converted model has a new head, predicts as before, and leaves the old model unchanged."""

import keras
import numpy as np
import pytest
from keras import layers, losses
from numpy.testing import assert_allclose, assert_array_equal

import keras_het
from keras_het import heteroscedastic, homoscedastic
from keras_het.covariances import LowRank
from keras_het.layers import HeteroscedasticDense
from keras_het.reading.ending import find_ending
from tests.common import refuses, reloaded, session, texts_of_warnings, to_numpy
from tests.models.checks import (
    UNITS,
    assert_same_state,
    check_conversion,
    check_file,
    check_fit,
    head_of,
    old_probabilities,
    probabilities,
    sharpen,
    state_of,
)
from tests.models.small_models import EXAMPLES, FEATURES, MODELS, X, Y, functional, nested, sequential, two_inputs

pytestmark = pytest.mark.once


@pytest.mark.parametrize("clone", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_converted_model_predicts_as_before_trains_and_is_saved(name, clone, tmp_path):
    model = sharpen(MODELS[name]())
    new = check_conversion(model, X, Y, tmp_path, clone=clone)
    assert [layer.name for layer in new.layers][-1] == find_ending(model).head.name


@pytest.mark.parametrize(
    "options", [{"num_factors": 0}, {"num_factors": 2, "parameter_efficient": True}, {"temperature": 4.0}], ids=str
)
def test_every_head_starts_at_the_old_predictions(options):
    model = sharpen(sequential("softmax"))
    new = heteroscedastic(model, seed=1, **options)
    assert np.abs(probabilities(new, X) - old_probabilities(model, X)).max() < 0.02
    deviation = np.sqrt(to_numpy(new.layers[-1].logit_distribution(np.zeros((1, 16), "float32")).variance()))
    assert_allclose(deviation, 0.15 * new.layers[-1].temperature, rtol=1e-5)


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_without_noise_the_predictions_are_the_old_ones(activation):
    model = sharpen(sequential(activation))
    new = heteroscedastic(model, covariance=LowRank(2, min_scale=1e-8))
    head = new.layers[-1]
    head.covariance.factor_layer.bias.assign(0 * head.covariance.factor_layer.bias.numpy())
    head.covariance.scale_diag_layer.bias.assign(np.full(UNITS, -30.0))
    assert_allclose(probabilities(new, X), old_probabilities(model, X), rtol=2e-5, atol=1e-6)


def link(model, **arguments):
    return heteroscedastic(model, **arguments).layers[-1].link.activation


def test_the_link_follows_the_activation():
    for model in (functional("sigmoid"), functional(None, keras.ops.sigmoid)):
        assert link(model) == "sigmoid"
    assert link(functional(), link="sigmoid") == "sigmoid"
    assert link(functional("softmax")) == link(functional()) == "softmax"
    assert link(sequential(units=1)) == link(functional("softmax"), units=3, link="sigmoid") == "sigmoid"
    assert link(functional(None, layers.Activation("sigmoid")), layer="predictions") == "sigmoid"
    assert link(sequential("sigmoid", units=1), units=3) == "softmax"
    assert link(functional("softmax"), link="sigmoid", warm_start=False) == "sigmoid"
    with refuses("`link` must be 'softmax', the activation of the old head. For another link, pass warm_start=False"):
        link(functional("softmax"), link="sigmoid")


def test_other_units_and_a_cold_start_are_from_zeros():
    model = functional("softmax")
    new = heteroscedastic(model, units=3, seed=0)
    assert new.output_shape == (None, 3)
    assert_array_equal(new.layers[-1].loc_layer.kernel.numpy(), 0)
    assert_array_equal(homoscedastic(new, units=4).layers[-1].kernel.numpy(), 0)
    other = heteroscedastic(model, units=3, kernel_initializer="glorot_uniform")
    assert np.std(other.layers[-1].loc_layer.kernel.numpy()) > 0.1
    fresh = [heteroscedastic(model, units=3, kernel_initializer="glorot_uniform", seed=seed) for seed in (1, 1, 2)]
    first, again, different = (each.layers[-1].loc_layer.kernel.numpy() for each in fresh)
    assert_array_equal(first, again)
    assert np.abs(first - different).max() > 0.01
    check_fit(new, X, Y % 3)
    assert heteroscedastic(model, units=UNITS).layers[-1].loc_layer.bias.shape == (UNITS,)
    assert_array_equal(heteroscedastic(functional(), 2, warm_start=False).layers[-1].loc_layer.kernel.numpy(), 0)


def test_what_the_caller_starts_otherwise_is_kept():
    noise = LowRank(2, initial_scale=0.4, initializer="ones")
    head = heteroscedastic(functional(), covariance=noise, name="het").layers[-1]
    assert head.name == "het"
    assert_allclose(head.covariance.factor_layer.kernel.numpy(), 1)
    expected = UNITS * 2 * 0.5 * (0.4 * head.temperature) ** 2  # V is the map over sqrt(2)
    assert_allclose(np.square(head.covariance.factor_layer.bias.numpy()).sum(), expected, rtol=1e-5)
    head = heteroscedastic(sharpen(functional(use_bias=False)), use_bias=True).layers[-1]
    assert_array_equal(head.loc_layer.bias.numpy(), 0)
    with refuses("`use_bias` must be True"):
        heteroscedastic(functional(), use_bias=False)


def test_layers_are_shared_or_copied():
    model = sharpen(functional())
    model.get_layer("hidden").trainable = False
    before = state_of(model)
    shared, copied = heteroscedastic(model), heteroscedastic(model, clone=True)
    assert shared.get_layer("hidden") is model.get_layer("hidden")
    assert copied.get_layer("hidden") is not model.get_layer("hidden")
    assert not copied.get_layer("hidden").trainable
    copied.get_layer("hidden").trainable = True
    check_fit(copied, X, Y)
    assert np.abs(copied.get_layer("hidden").kernel.numpy() - model.get_layer("hidden").kernel.numpy()).max() > 0
    assert_same_state(before, state_of(model), seeds=False)  # `fit` shuffles by NumPy's


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_the_head_of_a_model_in_half_precision_computes_in_float32(policy, tmp_path):
    with session(policy=policy):
        new = check_conversion(sharpen(sequential("softmax")), X, Y, tmp_path)
    assert new.layers[1].compute_dtype == policy.removeprefix("mixed_")
    assert new.layers[-1].compute_dtype == "float32"
    assert new.predict(X, verbose=0).dtype == "float32"


def test_the_line_for_a_model_without_a_top_is_one_that_runs():
    images = keras.Input((8, 8, 3))
    maps = keras.Model(images, layers.ReLU()(layers.Conv2D(4, 3)(images)))
    for model in (maps, keras.Sequential([images, layers.Conv2D(4, 3), layers.GlobalAveragePooling2D()])):
        with refuses(r"must name one of its Dense layers: none\. For a model without a top, write ") as error:
            heteroscedastic(model)
        line = str(error.value).split("write ")[1].split(". Received")[0]
        made = eval(line, {"keras": keras, "keras_het": keras_het, "model": model, "K": 3})
        assert (made.output_shape, type(made.layers[-1])) == ((None, 3), HeteroscedasticDense)


def test_a_name_that_is_taken_gets_a_number_and_a_layer_that_is_named_becomes_the_last(tmp_path):
    inputs = keras.Input((FEATURES,))
    inner = keras.Sequential([keras.Input((16,)), layers.Dense(UNITS, name="same")])
    model = sharpen(keras.Model(inputs, inner(layers.Dense(16, "tanh", name="same")(inputs))))
    assert check_conversion(model, X, Y, tmp_path).layers[-1].name == "same_1"
    new = heteroscedastic(functional(None, layers.Rescaling(0.5)), layer="predictions")
    assert [type(layer).__name__ for layer in new.layers] == ["InputLayer", "Dense", "HeteroscedasticDense"]
    inside = nested(keras.Sequential([keras.Input((16,)), layers.Dense(UNITS, name="inner"), layers.Rescaling(2.0)]))
    assert heteroscedastic(inside, layer="inner").layers[-1].name == "inner"


def test_a_head_inside_gets_the_inputs_that_the_model_around_it_gives():
    """Inputs by name; and a dict for a list of inputs, in another order, with several outputs of which one is used."""
    model, x = sharpen(two_inputs()), {"a": X, "b": -X}
    assert_allclose(probabilities(heteroscedastic(model, seed=0), x), old_probabilities(model, x), atol=0.02)
    a, b = keras.Input((FEATURES,), name="a"), keras.Input((FEATURES,), name="b")
    outputs = layers.Dense(UNITS)(layers.Concatenate()([layers.Dense(16, "tanh")(b), a]))
    inner = keras.Model([b, a], [layers.Dense(3)(a), outputs])
    x, y = keras.Input((FEATURES,)), keras.Input((FEATURES,))
    model = sharpen(keras.Model([x, y], inner({"a": x, "b": y})[1]))
    new = heteroscedastic(model, seed=0)
    assert np.abs(probabilities(new, [X, -X]) - old_probabilities(model, [X, -X])).max() < 0.02


# Keras says so of the plain model, too.
@pytest.mark.filterwarnings("ignore:Layer .* does not support masking:UserWarning")
@pytest.mark.parametrize("clone", [False, True])
def test_a_mask_reaches_the_layers_of_a_head_inside(clone, tmp_path):
    tokens = keras.Input((7,), dtype="int32")
    inner = keras.Sequential([keras.Input((7, 4)), layers.GRU(8), layers.Dense(UNITS)])
    model = sharpen(keras.Model(tokens, inner(layers.Embedding(9, 4, mask_zero=True)(tokens))))
    lengths = np.random.default_rng(1).integers(7, size=EXAMPLES)
    x = np.random.default_rng(0).integers(9, size=(EXAMPLES, 7)) * np.tri(7, dtype=int)[lengths]
    check_conversion(model, x, Y, tmp_path, clone=clone)


@pytest.mark.smoke
def test_a_copy_brings_statistics_and_flags_along():
    normalization = layers.Normalization()
    normalization.adapt(X * 4 + 9)
    model = keras.Sequential([keras.Input((FEATURES,)), normalization, layers.Dense(8, "tanh"), layers.Dense(UNITS)])
    model.layers[1].bias.trainable = False
    new = heteroscedastic(sharpen(model), clone=True, seed=0)
    assert np.abs(probabilities(new, X * 4 + 9) - old_probabilities(model, X * 4 + 9)).max() < 0.02
    assert not next(layer for layer in new.layers if isinstance(layer, layers.Dense)).bias.trainable


@pytest.mark.smoke
def test_there_and_back():
    model = sharpen(functional("softmax"))
    new = heteroscedastic(model, temperature=3.0)
    back = homoscedastic(new)
    assert type(back.layers[-1]) is layers.Dense
    dense = model.get_layer("predictions")
    assert_allclose(back.layers[-1].kernel.numpy(), dense.kernel.numpy(), rtol=1e-6)
    assert_allclose(back.layers[-1].bias.numpy(), dense.bias.numpy(), rtol=1e-6)
    assert_allclose(back.predict(X, verbose=0), model.predict(X, verbose=0), rtol=1e-4, atol=1e-6)
    logits = homoscedastic(new, keep_activation=False).predict(X, verbose=0)
    assert_allclose(to_numpy(keras.ops.softmax(logits)), model.predict(X, verbose=0), rtol=1e-4, atol=1e-6)
    assert homoscedastic(new, units=2, clone=True).output_shape == (None, 2)
    assert isinstance(new.layers[-1], HeteroscedasticDense)


def test_a_quantised_model_keeps_its_head_and_reloads(tmp_path):
    new = heteroscedastic(sharpen(functional("softmax")), 2, seed=0)
    before = new.predict(X, verbose=0)
    with texts_of_warnings() as texts:  # Keras has its own, of layers that have no `quantize`; of all since 3.16
        new.quantize("int8")
    assert sum("is not quantised" in text for text in texts) == 3 or "were skipped" in texts[-1]
    after = new.predict(X, verbose=0)
    assert 0 < np.abs(np.exp(after) - np.exp(before)).max() < 0.1
    assert new.layers[-1].loc_layer.dtype_policy.name == "float32"
    assert_allclose(reloaded(new, tmp_path).predict(X, verbose=0), after, rtol=1e-5, atol=1e-5)
    for call in (lambda: new.layers[-1].quantize("int8"), lambda: new.layers[-1].enable_lora(2)):
        with pytest.raises(NotImplementedError, match="heteroscedastic head"):
            call()


def convolution(*behind, activation=None, shape=(4, 4, 3), **head):
    inputs = keras.Input(shape)
    outputs = layers.Conv2D(8, 3, padding="same", activation="tanh", data_format=head.get("data_format"))(inputs)
    for layer in (layers.Conv2D(UNITS, 1, activation=activation, name="predictions", **head), *behind):
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


IMAGES = np.random.default_rng(0).normal(size=(12, 4, 4, 3)).astype("float32")
PIXELS = np.random.default_rng(1).integers(UNITS, size=(12, 4, 4))


@pytest.mark.parametrize("clone", [False, True])
@pytest.mark.parametrize("make", [
    lambda: convolution(activation="softmax"),
    lambda: convolution(use_bias=False, padding="same"),
    lambda: convolution(layers.Reshape((16, UNITS), name="flat"), layers.Softmax()),
    lambda: convolution(layers.Softmax(), layers.Reshape((-1, UNITS))),
])  # fmt: skip
def test_a_pointwise_convolution_is_a_dense_layer_of_every_pixel(make, clone, tmp_path):
    model = sharpen(make())
    new = heteroscedastic(model, 2, clone=clone, seed=0)
    assert new.output_shape == model.output_shape
    assert np.abs(probabilities(new, IMAGES) - old_probabilities(model, IMAGES)).max() < 0.02
    assert new.get_layer("predictions").loc_layer.kernel.shape == (8, UNITS)
    back = homoscedastic(new)
    assert back.output_shape == model.output_shape
    kernel = model.get_layer("predictions").kernel.numpy()[0, 0]
    assert_allclose(back.get_layer("predictions").kernel.numpy(), kernel, rtol=1e-5)
    is_log = head_of(new).activation is keras.activations.linear
    # Of vectors: on PyTorch Keras trains no softmax of pixels by its loss of integers, a plain one neither.
    new.compile("sgd", losses.CategoricalCrossentropy(from_logits=is_log))
    new.fit(IMAGES, np.eye(UNITS)[PIXELS].reshape(12, *new.output_shape[1:]), verbose=0)
    check_file(new, IMAGES, tmp_path)


@pytest.mark.smoke
@pytest.mark.parametrize("make", [lambda: layers.Flatten(), lambda: layers.Reshape((UNITS,))])
def test_one_pixel_is_reshaped_as_before_and_other_classes_fit(make):
    model = sharpen(convolution(make(), layers.Activation("softmax"), shape=(1, 1, 3)))
    images, new = IMAGES[:, :1, :1], heteroscedastic(model, 2, seed=0)
    assert np.abs(new.predict(images, verbose=0) - model.predict(images, verbose=0)).max() < 0.02
    assert heteroscedastic(model, units=3).output_shape == (None, 3)
    assert homoscedastic(new, units=7).output_shape == (None, 7)
    model = sharpen(convolution(layers.Flatten(), activation="sigmoid"))  # of every pixel
    predictions = [each.predict(IMAGES, verbose=0) for each in (model, heteroscedastic(model, 2, seed=0))]
    assert np.abs(predictions[1] - predictions[0]).max() < 0.02
