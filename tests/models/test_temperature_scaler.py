"""The fitted temperature against a dense grid in float64, and the scaled model."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, log_expit, log_softmax, softmax

import keras_het
from keras_het.base.serializable import resolve
from keras_het.layers import HeteroscedasticDense
from keras_het.models import scale_temperature
from keras_het.models.temperature_scaler import MAX_TEMPERATURE, MIN_TEMPERATURE, TemperatureScaler, best_temperature
from keras_het.reading.probabilities import predict_probabilities
from tests.common import Batches, Subclassed, reloaded, sparse_crossentropy, texts_of_warnings, to_numpy

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:The temperature is 20")]  # of untrained models

FEATURES, UNITS = 6, 4
GRID = np.geomspace(MIN_TEMPERATURE, MAX_TEMPERATURE, 5_001)


def data(link, true, count=300, seed=0):
    rng = np.random.default_rng(seed)
    logits = 2.0 * rng.normal(size=(count, UNITS))
    if link == "sigmoid":
        return logits, (rng.random(logits.shape) < expit(logits / true)).astype("int64")
    labels = np.array([rng.choice(UNITS, p=row) for row in np.exp(log_softmax(logits / true, axis=-1))])
    return log_softmax(logits, axis=-1), labels


def nll(link, outputs, labels, temperature):
    if link == "sigmoid":
        return -np.mean(labels * log_expit(outputs / temperature) + (1 - labels) * log_expit(-outputs / temperature))
    return -log_softmax(outputs / temperature, axis=-1)[np.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("link", ["softmax", "sigmoid"])
@pytest.mark.parametrize("true", [0.3, 1.0, 4.0])
def test_the_temperature_is_the_best_of_a_dense_grid_and_divides_logits(link, true):
    outputs, labels = data(link, true)
    found = best_temperature(outputs, labels, link)
    losses = [nll(link, outputs, labels, temperature) for temperature in GRID]
    assert found == pytest.approx(GRID[np.argmin(losses)], rel=1.3e-3)  # the steps of the grid are of 1.2e-3
    assert nll(link, outputs, labels, found) <= min(losses) + 1e-12
    assert 0.7 < found / true < 1.4
    divided = outputs / true if link == "sigmoid" else log_softmax(outputs / true, axis=-1)
    assert_allclose(to_numpy(TemperatureScaler(link, true)(outputs.astype("float32"))), divided, rtol=1e-5, atol=1e-5)
    logits = 1e3 * np.random.default_rng(0).normal(size=(200, UNITS)).astype("float32")
    assert np.isfinite(to_numpy(TemperatureScaler(link, MIN_TEMPERATURE)(logits))).all()


@pytest.mark.parametrize(("link", "dtype", "scale", "is_off"), [
    ("sigmoid", "float32", 15.0, True),
    ("sigmoid", "float32", 3.0, False),
    ("softmax", "float16", 10.0, True),
    ("softmax", "float16", 2.0, False),
    ("softmax", "float32", 15.0, False),
])  # fmt: skip
def test_probabilities_whose_rounding_moves_the_temperature_get_a_warning(link, dtype, scale, is_off):
    logits, labels = data(link, 1.0, 1000)
    model = keras.Sequential([keras.Input((UNITS,)), layers.Activation(link, dtype=dtype)])
    with texts_of_warnings() as texts:
        found = scale_temperature(model, (scale * logits).astype("float32"), labels).layers[-1].temperature
    expected = best_temperature(scale * logits, labels, link)
    assert (abs(found / expected - 1) > 0.1) == is_off
    assert ["Scale a model that returns logits" in text for text in texts if "far off" in text] == [True] * is_off


def test_labels_and_outputs_of_places_count_as_examples():
    outputs, labels = data("softmax", 2.0)
    flat = best_temperature(outputs, labels, "softmax")
    places = outputs.reshape(3, 10, 10, UNITS)
    assert best_temperature(places, labels.reshape(3, 10, 10), "softmax") == flat
    assert best_temperature(places, labels.reshape(3, 10, 10, 1), "softmax") == flat
    outputs, labels = data("sigmoid", 2.0)
    flat = best_temperature(outputs, labels, "sigmoid")
    tensor = ops.convert_to_tensor(outputs.reshape(3, 100, -1))
    assert best_temperature(tensor, labels.reshape(3, 100, -1), "sigmoid") == pytest.approx(flat, rel=1e-5)


RIGHT, WRONG = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 1.0]]), data("softmax", 0.5)
LOWER = "The temperature is 0.05, the lower bound, .* almost every label is predicted correctly"
UPPER = "The temperature is 20, the upper bound, .* the outputs do not predict these labels"
EQUAL = "the outputs of each example are equal"


@pytest.mark.parametrize(("link", "outputs", "labels", "expected", "text"), [
    ("softmax", RIGHT, [0, 1], MIN_TEMPERATURE, LOWER),
    ("softmax", 1e6 * RIGHT, [0, 1], MIN_TEMPERATURE, LOWER),  # every probability is 0 or 1
    ("sigmoid", RIGHT - 1.5, [[1, 0, 0], [0, 1, 0]], MIN_TEMPERATURE, LOWER),
    ("softmax", np.full((4, 3), -2.0), [0, 1, 2, 0], 1.0, EQUAL),
    ("sigmoid", np.zeros((2, 3)), np.eye(3)[:2], 1.0, EQUAL),
    ("softmax", WRONG[0], (WRONG[1] + 1) % UNITS, MAX_TEMPERATURE, UPPER),
    ("softmax", 1e3 * WRONG[0], (WRONG[1] + 1) % UNITS, MAX_TEMPERATURE, UPPER),  # improbable labels do not overflow
])  # fmt: skip
def test_a_temperature_at_a_bound_or_without_evidence_gets_a_warning(link, outputs, labels, expected, text):
    with pytest.warns(UserWarning, match=text):
        assert best_temperature(outputs, labels, link) == expected


def network(*end, dtype=None):
    return keras.Sequential([keras.Input((FEATURES,)), layers.Dense(8, "tanh", dtype=dtype), *end])


def test_a_sigmoid_that_rounds_to_one_is_not_infinitely_sure_and_zero_and_one_stay_finite():
    """A logit of 18 would count as 87."""
    x = np.array([[200.0, -200.0], [-200.0, 200.0], [1.0, 0.0], [0.0, 1.0]], "float32")
    for link, labels in (("softmax", np.array([0, 1, 0, 0])), ("sigmoid", np.eye(2)[[0, 1, 0, 0]])):
        model = keras.Sequential([keras.Input((2,)), layers.Activation(link)])
        assert np.isfinite(scale_temperature(model, x, labels, link=link).predict(x, verbose=0)).all()
    rng = np.random.default_rng(0)
    z = rng.normal(size=(400, 1)).astype("float32") * 9.0
    y = (rng.random(z.shape) < expit(z / 5.0)).astype("float32")
    model = keras.Sequential([keras.Input((1,)), layers.Activation("sigmoid")])
    scaled = scale_temperature(model, z, y, link="sigmoid")
    assert scaled.layers[-1].temperature == pytest.approx(best_temperature(z, y, "sigmoid"), rel=0.02)
    p = scaled.predict(np.array([[30.0]]), verbose=0).astype("float64")[0, 0]
    assert np.log(p / (1.0 - p)) * scaled.layers[-1].temperature == pytest.approx(25 * np.log(2.0), rel=1e-4)


def own_data(sigmoid=False):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(60, FEATURES)).astype("float32")
    return x, rng.integers(2, size=(60, UNITS)) if sigmoid else rng.integers(UNITS, size=60)


def sharp():
    return keras.initializers.RandomNormal(stddev=3.0)


def sharp_head(**arguments):
    return HeteroscedasticDense(UNITS, 2, kernel_initializer=sharp(), **arguments)


def sharp_dense(activation=None):
    return layers.Dense(UNITS, activation, kernel_initializer=sharp())


MODELS = {
    "softmax head": lambda: network(sharp_head(temperature=0.3)),
    "sigmoid": lambda: network(sharp_dense()),
    "log-probabilities": lambda: network(sharp_dense("log_softmax")),
    "logits": lambda: network(sharp_dense()),
    "probabilities": lambda: network(sharp_dense("softmax")),
    "sigmoid of a head": lambda: network(sharp_head(link="sigmoid", activation="sigmoid", temperature=2.0)),
}


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # of a model that was never trained
@pytest.mark.parametrize("name", [*list(MODELS)[1:], pytest.param("softmax head", marks=pytest.mark.smoke)])
def test_a_scaled_model_is_one_file_with_the_likelihood_of_its_temperature(name, tmp_path):
    link = "sigmoid" if "sigmoid" in name else "softmax"
    is_log = name not in ("probabilities", "sigmoid of a head")
    x, y = own_data(link == "sigmoid")
    model = MODELS[name]()
    loss = resolve(keras_het.links.Link, link).loss()
    metric = keras.metrics.AUC if link == "sigmoid" else keras_het.metrics.ExpectedCalibrationError
    model.compile("adam", loss if is_log else loss.name, metrics=[metric(from_logits=is_log)])
    predictions = model.predict(x, verbose=0)
    p = predictions.astype("float64")
    before = p if is_log else np.log(p) if link == "softmax" else np.log(p) - np.log1p(-p)
    scaled = scale_temperature(model, x, y, link=link if name in ("logits", "sigmoid") else None)
    temperature = scaled.layers[-1].temperature
    assert temperature > 1.2
    expected = before / temperature
    if name not in ("logits", "sigmoid"):
        expected = expit(expected) if link == "sigmoid" else log_softmax(expected, axis=-1)
    expected = np.exp(expected) if name == "probabilities" else expected
    assert_allclose(scaled.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5)
    assert_array_equal(model.predict(x, verbose=0), predictions)
    assert scaled.loss == model.loss
    assert scaled.optimizer.get_config() == model.optimizer.get_config()
    probabilities = expit(before / temperature) if link == "sigmoid" else softmax(before / temperature, axis=-1)
    assert_allclose(predict_probabilities(scaled, x), probabilities, rtol=1e-4, atol=1e-5)
    measured = scaled.evaluate(x, y, verbose=0, return_dict=True)
    assert measured["loss"] == pytest.approx(nll(link, before, y, temperature), rel=1e-4)
    assert len(measured) > 1  # the metrics of the old one
    keras_het.check(scaled)
    loaded = reloaded(scaled, tmp_path)
    assert loaded.layers[-1].temperature == pytest.approx(temperature)
    assert_allclose(loaded.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-5)


def test_a_model_of_its_own_loss_of_logits_has_the_loss_of_the_scaled_logits():
    x, y = own_data()
    model = MODELS["logits"]()
    assert not scale_temperature(model, x, y, link="softmax").compiled
    model.compile("sgd", lambda y, z: ops.logsumexp(z, axis=-1))
    scaled = scale_temperature(model, x, y, link="softmax")
    logits = model.predict(x, verbose=0) / scaled.layers[-1].temperature
    expected = np.log(np.exp(logits).sum(axis=-1)).mean()
    assert scaled.evaluate(x, y, verbose=0) == pytest.approx(expected, rel=1e-4)


def test_training_leaves_the_temperature_alone_and_half_precision_costs_none_of_its_digits():
    x, y = own_data()
    dense = layers.Dense(UNITS, dtype="mixed_bfloat16")
    scaled = network(dense, TemperatureScaler(temperature=1.2345), dtype="mixed_bfloat16")
    scaled.compile(keras.optimizers.SGD(0.5), sparse_crossentropy())
    scaled.fit(x, y, verbose=0)
    assert scaled.layers[-1].temperature == pytest.approx(1.2345, rel=1e-6)  # in bfloat16: 1.234375
    assert not scaled.layers[-1].trainable_variables
    found = scaled.predict(x, verbose=0)
    assert found.dtype == "float32"
    assert_allclose(np.exp(found).sum(-1), 1.0, rtol=1e-5)


def test_data_sets_and_inputs_by_name():
    model, x, y = MODELS["log-probabilities"](), *own_data()
    of_arrays, of_batches = (scale_temperature(model, *each) for each in ((x, y), (Batches(x, y, size=20),)))
    assert of_batches.layers[-1].temperature == pytest.approx(of_arrays.layers[-1].temperature, rel=1e-5)
    inputs = {name: keras.Input((FEATURES,), name=name) for name in ("a", "b")}
    joined = layers.Concatenate()([inputs["a"], inputs["b"]])
    model = keras.Model(inputs, HeteroscedasticDense(UNITS, 2, temperature=0.3)(joined))
    assert scale_temperature(model, {"a": x, "b": x}, y).predict({"a": x, "b": x}, verbose=0).shape == (60, UNITS)


def without_graph(model):
    wrapped = Subclassed(model)
    wrapped(np.ones((1, *model.input_shape[1:]), "int32"))
    return wrapped


@pytest.mark.parametrize("wrapped", [lambda model: model, without_graph], ids=["graph", "no graph"])
def test_masked_steps_and_their_labels_have_no_part(wrapped):
    tokens = np.array([[1, 2, 0, 0], [2, 3, 1, 0], [3, 1, 0, 0]] * 20)
    tokens[:4] = 1  # a first batch without padding

    def model():
        embedding = layers.Embedding(4, 3, mask_zero=True)
        built = keras.Sequential([keras.Input((4,), dtype="int32"), embedding, layers.Activation("log_softmax")])
        embedding.set_weights([2.0 * np.eye(4, 3, -1)])  # token 1 has class 0 by odds of e^2 : 1 : 1
        return built

    labels = np.where(tokens, tokens - 1, -1)
    labels[tokens > 0] = np.where(np.arange((tokens > 0).sum()) % 4, labels[tokens > 0], labels[tokens > 0] - 1) % 3
    scaled = scale_temperature(wrapped(model()), tokens, labels, link="softmax", batch_size=4)
    # A fraction c of labels is the most probable class, so that e^(2 / T) : 1 : 1 are its best odds.
    c = np.mean(labels[tokens > 0] == tokens[tokens > 0] - 1)
    assert scaled.layers[-1].temperature == pytest.approx(2.0 / np.log(2.0 * c / (1.0 - c)), rel=1e-5)
