"""Early-learning regularisation, against NumPy in float64: values, weights, files, half precision, errors."""

import json

import keras
import numpy as np
import pandas
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy import special

import keras_het
from keras_het.losses import GeneralizedCrossentropy
from keras_het.models import EarlyLearning, with_index
from tests.common import (
    assert_finite,
    assert_same_arrays,
    compiled,
    finite_differences,
    refuses,
    reloaded,
    session,
    sparse_crossentropy,
    to_numpy,
)
from tests.gradients import value_and_gradients
from tests.marks import grid

EXAMPLES, UNITS, FEATURES = 12, 4, 5
RNG = np.random.default_rng(0)
STEPS = {"steps_per_execution": 2}  # which Keras does not have on PyTorch
X = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)
LOGITS = RNG.normal(size=(EXAMPLES, UNITS)).astype("float32")
WEIGHTS = RNG.random(EXAMPLES).astype("float32")
INDEX = with_index(EXAMPLES)
KERNEL, BIAS = RNG.normal(size=(FEATURES, UNITS)).astype("float32"), RNG.normal(size=UNITS).astype("float32")


def make_model(loss=None, rate=0.5, activation=None, examples=EXAMPLES, units=UNITS, compile_arguments=None, **kwargs):
    inputs = keras.Input((FEATURES,))
    model = EarlyLearning(inputs, keras.layers.Dense(units, activation)(inputs), examples, **kwargs)
    if units == UNITS:
        model.layers[-1].set_weights([KERNEL, BIAS])
    loss = sparse_crossentropy(from_logits=activation is None) if loss is None else loss
    return compiled(model, keras.optimizers.SGD(rate), loss, **(compile_arguments or {}))


def identity(loss=None, **kwargs):
    inputs = keras.Input((UNITS,))
    model = EarlyLearning(inputs, keras.layers.Identity(name="identity")(inputs), EXAMPLES, **kwargs)
    return compiled(model, "sgd", sparse_crossentropy(reduction="none") if loss is None else loss)


def memory_of(model):
    return to_numpy(model.memory)[:-1]


def probabilities(logits):
    return special.softmax(np.asarray(logits, "float64"), axis=-1)


def oracle(memory, logits, targets, strength=3.0):
    p = probabilities(logits)
    return strength * np.log(1 - np.sum(memory * p, axis=-1)) - np.sum(targets * np.log(p), axis=-1)


def plain(logits, labels):
    return oracle(np.zeros(logits.shape), logits, np.eye(UNITS)[labels])


def trained(batches, weights=None, rate=0.5, strength=3.0, momentum=0.7):
    weights = np.ones(EXAMPLES) if weights is None else weights.astype("float64")
    kernel, bias = KERNEL.astype("float64"), BIAS.astype("float64")
    memory, losses = np.zeros((EXAMPLES, UNITS)), []
    for rows in batches:
        x, targets = X[rows].astype("float64"), np.eye(UNITS)[LABELS[rows]]
        p = probabilities(x @ kernel + bias)
        memory[rows] = momentum * memory[rows] + (1 - momentum) * p
        agreement = np.sum(memory[rows] * p, axis=-1, keepdims=True)
        losses.append(np.mean(weights[rows] * oracle(memory[rows], np.log(p), targets, strength)))
        slope = p - targets - strength * p * (memory[rows] - agreement) / (1 - agreement)
        slope *= weights[rows, None] / len(rows)
        kernel, bias = kernel - rate * x.T @ slope, bias - rate * slope.sum(axis=0)
    return np.array(losses), memory, kernel, bias


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["unweighted", "weighted"])
def test_twenty_compiled_steps_equal_numpy(weights):
    model = make_model(compile_arguments={"jit_compile": keras.config.backend() != "torch"})
    rng, losses, index = np.random.default_rng(1), [], with_index(EXAMPLES, weights)
    batches = [rng.permutation(EXAMPLES)[:7] for _ in range(20)]
    for rows in batches:
        losses.append(float(model.train_on_batch(X[rows], LABELS[rows], index[rows])))
        model.reset_metrics()  # or the next loss would be a mean over the batches
    expected, memory, kernel, bias = trained(batches, weights)
    assert_allclose(losses, expected, rtol=1e-6, atol=1e-6)
    assert_allclose(memory_of(model), memory, rtol=1e-6, atol=1e-6)
    for ours, exact in zip(model.layers[-1].get_weights(), (kernel, bias), strict=True):
        assert_allclose(ours, exact, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("way", grid([{}, {"run_eagerly": True}, STEPS], span=[{}, STEPS]), ids=str)
def test_fit_shuffles_the_index_with_the_examples(way):
    """With a learning rate of zero the memory after n epochs is (1 - beta^n) p, whatever the order of the examples."""
    way = {} if keras.config.backend() == "torch" and "steps_per_execution" in way else way
    model = make_model(rate=0.0, compile_arguments={"metrics": ["accuracy"], "weighted_metrics": ["accuracy"], **way})
    data = X, LABELS
    history = model.fit(*data, sample_weight=INDEX, batch_size=5, epochs=3, verbose=0, validation_data=data).history
    assert_allclose(memory_of(model), (1 - 0.7**3) * probabilities(model.predict(X, verbose=0)), rtol=1e-5)
    assert history["val_loss"][-1] == pytest.approx(plain(model.predict(X, verbose=0), LABELS).mean(), rel=1e-5)
    assert history["accuracy"] == history["val_accuracy"]


def loss_of(model, labels, logits, weights, training=True):
    return to_numpy(model.compute_loss(None, labels, ops.convert_to_tensor(logits), weights, training))


@pytest.mark.once
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 1e-3)])
def test_values_and_memory_of_many_steps(dtype, tolerance):
    model, memory, rng = identity(memory_dtype=dtype), np.zeros((EXAMPLES, UNITS)), np.random.default_rng(1)
    for _ in range(5):
        index = rng.permutation(EXAMPLES)[:7]
        logits = rng.normal(size=(7, UNITS)).astype("float32")
        memory[index] = 0.7 * memory[index] + 0.3 * probabilities(logits)
        exact = oracle(memory[index], logits, np.eye(UNITS)[LABELS[index]])
        assert_allclose(loss_of(model, LABELS[index], logits, INDEX[index]), exact, rtol=tolerance, atol=tolerance)
    assert_allclose(memory_of(model), memory, atol=tolerance)
    assert model.memory.dtype == dtype


@pytest.mark.once
def test_labels_of_every_form_and_probabilities():
    memory, vectors = 0.3 * probabilities(LOGITS), np.eye(UNITS)[LABELS]
    soft, exact = RNG.dirichlet(np.ones(UNITS), size=EXAMPLES), oracle(memory, LOGITS, vectors)
    for labels, expected in (
        (LABELS, exact),
        (LABELS[:, None], exact),
        (vectors, exact),
        (soft, oracle(memory, LOGITS, soft)),
    ):
        loss = sparse_crossentropy if labels.size == EXAMPLES else keras.losses.CategoricalCrossentropy
        for from_logits, outputs in ((True, LOGITS), (False, probabilities(LOGITS))):
            model = identity(loss(from_logits=from_logits, reduction="none"))
            assert_allclose(loss_of(model, labels, outputs, INDEX), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("form", [lambda loss: loss, lambda loss: [loss], lambda loss: {"identity": loss}])
@pytest.mark.parametrize("name", ["sparse_categorical_crossentropy", "robust"])
def test_other_losses_get_the_same_term(name, form):
    loss = form(name if name != "robust" else GeneralizedCrossentropy(0.5))
    model, term = identity(loss), 3.0 * np.log(1 - 0.3 * np.square(probabilities(LOGITS)).sum(-1))
    p = probabilities(LOGITS)[np.arange(EXAMPLES), LABELS]
    own = -np.log(p) if name != "robust" else (1 - p**0.5) / 0.5
    found = loss_of(model, LABELS, probabilities(LOGITS), INDEX)
    assert float(found) == pytest.approx(np.mean(own + term), rel=1e-6)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum", "mean_with_sample_weight"])
def test_weights_and_ignored_labels_count_as_in_the_loss(reduction):
    labels = np.where(np.arange(EXAMPLES) % 3 == 0, -1, LABELS)
    kept = labels != -1
    model = identity(sparse_crossentropy(ignore_class=-1, reduction=reduction))
    exact = WEIGHTS[kept] * oracle(0.3 * probabilities(LOGITS), LOGITS, np.eye(UNITS)[LABELS])[kept]
    divisor = {"sum_over_batch_size": kept.sum(), "sum": 1.0, "mean_with_sample_weight": WEIGHTS[kept].sum()}[reduction]
    weights = ops.convert_to_tensor(with_index(EXAMPLES, WEIGHTS))
    found = loss_of(model, labels, LOGITS, weights)
    assert float(found) == pytest.approx(exact.sum() / divisor, rel=1e-6)
    assert_array_equal(to_numpy(weights), with_index(EXAMPLES, WEIGHTS))  # for the weighted metrics
    assert_array_equal(np.any(memory_of(model), axis=1), kept)


def test_without_index_or_strength_it_is_the_plain_loss_and_nothing_is_stored():
    model, some = identity(), np.where(np.arange(EXAMPLES)[:, None] % 2 == 0, INDEX, [1.0, -1.0])
    _, each = (loss_of(model, LABELS, LOGITS, some) for _ in range(2))
    before = memory_of(model)
    assert_allclose(each[1::2], plain(LOGITS, LABELS)[1::2], rtol=1e-6, atol=1e-6)
    assert_array_equal(before[1::2], 0.0)
    assert (np.abs(each - plain(LOGITS, LABELS))[::2] > 0.1).all()
    for weights in (None, WEIGHTS, WEIGHTS[:, None], with_index(EXAMPLES, WEIGHTS)):
        exact = plain(LOGITS, LABELS) * (1.0 if weights is None else WEIGHTS)
        found = loss_of(model, LABELS, LOGITS, weights, training=False)
        assert_allclose(found.reshape(-1), exact, rtol=1e-6, atol=1e-6)
    assert_array_equal(memory_of(model), before)
    model = identity(strength=0.0)
    for _ in range(3):
        assert_allclose(loss_of(model, LABELS, LOGITS, INDEX), plain(LOGITS, LABELS), rtol=1e-6, atol=1e-6)


def gradient_of(model, logits, weights=INDEX):
    """Returns the sum of the losses and its gradient. JAX needs assigned variables in the scope."""

    def total(tensors):
        with keras.StatelessScope(state_mapping=[(model.memory, model.memory.value)]):
            return ops.sum(model.compute_loss(None, LABELS, tensors[0], weights))

    value, (gradient,) = value_and_gradients(total, [logits])
    return value, gradient


def test_gradients_are_finite_differences_with_the_memory_held():
    model, before = identity(), RNG.dirichlet(np.ones(UNITS), size=EXAMPLES).astype("float32")
    model.memory.assign(np.concatenate([before, np.zeros((1, UNITS))]))
    _, gradient = gradient_of(model, LOGITS)
    memory, targets = 0.7 * before.astype("float64") + 0.3 * probabilities(LOGITS), np.eye(UNITS)[LABELS]
    slopes = finite_differences(lambda logits: oracle(memory, logits, targets).sum(), LOGITS)
    assert gradient == pytest.approx(slopes, rel=1e-5, abs=1e-6)


def test_nan_of_one_example_without_an_index_stays_with_it():
    """They share a row of the memory, where nan would reach the gradients of other examples."""
    model, none = identity(), np.tile([1.0, -1.0], (EXAMPLES, 1))
    loss_of(model, LABELS, LOGITS, INDEX)
    loss_of(model, LABELS, np.full_like(LOGITS, np.nan), none)
    value, gradient = gradient_of(model, LOGITS, none)
    assert_allclose(value, plain(LOGITS, LABELS).sum(), rtol=1e-6)
    assert np.isfinite(gradient).all()


def test_an_index_out_of_range_is_nan_and_of_one_that_comes_twice_one_prediction_is_stored():
    found = loss_of(identity(), LABELS[:3], LOGITS[:3], np.array([[1.0, 0.0], [1.0, EXAMPLES], [1.0, 1.0]]))
    assert_array_equal(np.isnan(found), [False, True, False])
    model = identity()
    loss_of(model, LABELS[:2], LOGITS[:2], np.array([[1.0, 5.0], [1.0, 5.0]]))
    memory, candidates = memory_of(model), 0.3 * probabilities(LOGITS[:2])
    assert np.abs(memory[5] - candidates).max(axis=-1).min() < 1e-6
    assert np.count_nonzero(memory) == UNITS
    assert loss_of(model, LABELS[:0], LOGITS[:0], INDEX[:0]).shape == (0,)


@pytest.mark.once
@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_certain_predictions_are_finite_for_many_epochs(from_logits, dtype):
    model = identity(sparse_crossentropy(from_logits=from_logits, reduction="none"), memory_dtype=dtype)
    outputs = 1e4 * LOGITS if from_logits else np.eye(UNITS, dtype="float32")[(LABELS + 1) % UNITS]
    for _ in range(60):
        each = loss_of(model, LABELS, outputs, INDEX)
    value, gradient = gradient_of(model, outputs)
    assert np.isfinite(each).all()
    assert_finite(value, [gradient])
    possible = np.arange(UNITS) != (LABELS[:, None] + 1) % UNITS  # an impossible class is one of a very small logit
    infinite, lowest = (np.where(possible, LOGITS, low).astype("float32") for low in (-np.inf, -1e4))
    loss = keras_het.losses.SmoothedCrossentropy(0.0, from_logits=True, reduction="none")
    found, near = (loss_of(identity(loss), LABELS, logits, INDEX) for logits in (infinite, lowest))
    assert_allclose(found, near, rtol=1e-6)
    assert_allclose(*[gradient_of(identity(loss), logits)[1] for logits in (infinite, lowest)], atol=1e-6)


@pytest.mark.parametrize(("dtype", "rounding"), [("float32", 2.0**-24), ("float16", 2.0**-11)])
def test_the_gradient_of_a_trained_model_is_exact(dtype, rounding):
    """Once t and p are nearly one, rounding of 1 - sum t p must not come into the gradient.

    That rounding is a hundred times p's distance from one. The memory itself moves once more, and a compiler may round
    that step up or down.
    """
    model = identity(memory_dtype=dtype)
    logits = np.where(np.arange(UNITS) == 1, 18.0, 3.0 * LOGITS).astype("float32")
    for _ in range(80):
        loss_of(model, LABELS, logits, INDEX)
    _, gradient = gradient_of(model, logits)
    p, memory = probabilities(logits), memory_of(model).astype("float64")
    tolerances = {"rtol": 0.02 if dtype == "float16" else 1e-3, "atol": 3e-4}
    fits = np.zeros(EXAMPLES, bool)
    for moved in (-rounding, 0.0, rounding):
        largest = memory.max(axis=-1, keepdims=True) + moved
        slopes = p * np.where(np.arange(UNITS) == 1, 0.0, largest - memory)  # of the rest, for log p
        rest = np.maximum(1 - largest, rounding) + slopes.sum(axis=-1, keepdims=True)
        exact = p - np.eye(UNITS)[LABELS] + 3.0 * (slopes - p * slopes.sum(axis=-1, keepdims=True)) / rest
        fits |= np.isclose(gradient, exact, **tolerances).all(axis=-1)
    assert fits.all()


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_under_mixed_precision_loss_and_memory_are_float32(policy):
    with session(policy=policy):
        model = make_model(rate=0.0)
    outputs = model(X)
    assert keras.backend.standardize_dtype(outputs.dtype) == policy.removeprefix("mixed_")
    loss = model.compute_loss(None, LABELS, outputs, INDEX)
    assert keras.backend.standardize_dtype(loss.dtype) == model.memory.dtype == "float32"
    logits = to_numpy(ops.cast(outputs, "float32"))
    memory = 0.3 * probabilities(logits)
    assert float(to_numpy(loss)) == pytest.approx(oracle(memory, logits, np.eye(UNITS)[LABELS]).mean(), rel=1e-6)
    assert_allclose(memory_of(model), memory, rtol=1e-5)
    model.fit(X, LABELS, sample_weight=INDEX, verbose=0)
    assert_allclose(memory_of(model), (1 - 0.7**2) * probabilities(logits), rtol=2e-2)


def fit(model, epochs=2, **kwargs):
    return model.fit(X, LABELS, sample_weight=INDEX, batch_size=5, epochs=epochs, shuffle=False, verbose=0, **kwargs)


def test_a_saved_model_comes_back_and_goes_on_as_if_it_had_not_stopped(tmp_path):
    model, whole, other = (make_model(activation="softmax", strength=2.0, momentum=0.9, name="early") for _ in range(3))
    fit(whole, 4)
    fit(model)
    again = reloaded(model, tmp_path)
    assert (type(again), again.name, again.strength, again.momentum) == (EarlyLearning, "early", 2.0, 0.9)
    model.save_weights(tmp_path / "some.weights.h5")
    other.load_weights(tmp_path / "some.weights.h5")
    for each in (again, other):
        assert_same_arrays(each.weights, model.weights)
    assert_array_equal(again.predict(X, verbose=0), model.predict(X, verbose=0))
    fit(again)
    assert_same_arrays(again.weights, whole.weights)
    assert np.all(memory_of(again).sum(axis=1) > 0)
    keras.Model(model.inputs, model.outputs).save_weights(tmp_path / "plain.weights.h5")
    keras.Model(other.inputs, other.outputs).load_weights(tmp_path / "plain.weights.h5")


@pytest.mark.once
def test_a_round_trip_of_the_config():
    inputs = {"a": keras.Input((2,), name="a"), "b": keras.Input((3,), name="b")}
    shared = keras.layers.Dense(4, "relu")
    hidden = shared(keras.layers.Concatenate()([inputs["a"], inputs["b"]]))
    outputs = keras_het.layers.HeteroscedasticDense(UNITS, num_factors=2, seed=0)(hidden)
    model = EarlyLearning(inputs, outputs, 7, 5.0, 0.9, memory_dtype="float16", name="two")
    shared.trainable = False
    again = EarlyLearning.from_config(json.loads(json.dumps(model.get_config())))
    assert [layer.get_config() for layer in again.layers] == [layer.get_config() for layer in model.layers]
    assert (again.name, again.strength, again.momentum, again.memory_dtype) == ("two", 5.0, 0.9, "float16")
    assert again.memory.shape == (8, UNITS)
    assert [layer.trainable for layer in again.layers] == [layer.trainable for layer in model.layers]
    model.trainable = False
    assert not EarlyLearning.from_config(model.get_config()).trainable_weights
    data = {"a": X[:7, :2], "b": X[:7, 2:]}
    again.compile("sgd", sparse_crossentropy())
    keras_het.check(again, data, LABELS[:7])
    again.fit(data, LABELS[:7], sample_weight=with_index(7), verbose=0)
    assert np.all(memory_of(again).sum(axis=1) > 0)


@pytest.mark.refusal
@pytest.mark.parametrize("form", [np.asarray, pandas.DataFrame, ops.convert_to_tensor])
@pytest.mark.parametrize("way", ["fit", "train_on_batch"])
def test_an_index_beyond_the_memory_is_refused_before_the_loss_is_nan(way, form):
    model, weights = identity(), form(with_index(2 * EXAMPLES))
    with refuses(f"`sample_weight` must have indices below `num_examples`, {EXAMPLES}"):
        getattr(model, way)(np.repeat(LOGITS, 2, 0), np.repeat(LABELS, 2), sample_weight=weights)
