"""What a loss remembers belongs to the training of a model of any kind: it is carried along, saved, and never shown."""

import gc
import itertools

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

import keras_het
from keras_het.losses import EarlyLearningRegularizedCrossentropy, with_index

EXAMPLES, UNITS = 12, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, 5)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)


@keras.saving.register_keras_serializable("keras_het_tests")
class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(UNITS)

    def call(self, inputs):
        return self.dense(inputs)


def make_model(kind="functional"):
    keras.utils.set_random_seed(0)
    if "subclassed" in kind:
        model = Subclassed()
        if "built" in kind:
            model(X)
        return model
    if kind == "unbuilt":
        return keras.Sequential([keras.layers.Dense(UNITS)])
    if kind == "sequential":
        return keras.Sequential([keras.Input((5,)), keras.layers.Dense(UNITS)])
    inputs = keras.Input((5,))
    return keras.Model(inputs, keras.layers.Dense(UNITS)(inputs))


def make_loss():
    return EarlyLearningRegularizedCrossentropy(EXAMPLES, UNITS, from_logits=True)


def compiled(kind="functional", rate=0.0, **kwargs):
    model, loss = make_model(kind), make_loss()
    model.compile(keras.optimizers.SGD(rate), loss.attach(model), **kwargs)
    return model, loss


def fit(model, epochs=1, **kwargs):
    return model.fit(
        X, LABELS, **{"sample_weight": with_index(EXAMPLES), "batch_size": 5, "epochs": epochs, "verbose": 0, **kwargs}
    )


def memory(loss):
    return ops.convert_to_numpy(loss.memory)


def check_memory(model, loss, epochs):
    """With a learning rate of zero the memory after n epochs is (1 - beta^n) p, whatever the order of the examples."""
    p = special.softmax(model.predict(X, verbose=0), axis=-1)
    np.testing.assert_allclose(memory(loss), (1 - 0.7**epochs) * p, rtol=1e-5)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed", "built and subclassed", "unbuilt"])
def test_fit_remembers_and_shows_nothing_of_it(kind):
    model, loss = compiled(kind, metrics=["accuracy"])
    history = fit(model, epochs=3, validation_data=(X, LABELS)).history
    check_memory(model, loss, 3)
    assert sorted(history) == ["accuracy", "loss", "val_accuracy", "val_loss"]
    values = model.evaluate(X, LABELS, verbose=0, return_dict=True)
    assert sorted(values) == ["accuracy", "loss"]
    p = special.softmax(model.predict(X, verbose=0).astype("float64"), axis=-1)
    assert values["loss"] == pytest.approx(-np.log(p[np.arange(EXAMPLES), LABELS]).mean(), rel=1e-5)
    assert history["val_loss"][-1] == pytest.approx(values["loss"], rel=1e-5)
    check_memory(model, loss, 3)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("way", [{"run_eagerly": True}, {"steps_per_execution": 2}], ids=["eager", "two steps at once"])
def test_other_ways_to_train(way):
    if way.get("run_eagerly") is None and keras.config.backend() == "torch":
        way = {}  # Keras on PyTorch has no such steps
    model, loss = compiled(**way)
    fit(model, epochs=2)
    check_memory(model, loss, 2)


def test_a_part_for_validation_has_a_memory_of_its_own():
    model, loss = compiled()
    history = fit(model, epochs=2, validation_split=0.25).history
    check_memory(model, loss, 2)
    p = special.softmax(model.predict(X, verbose=0).astype("float64"), axis=-1)[-3:]
    penalty = 3 * np.log(1 - (1 - 0.7**2) * np.sum(p * p, axis=-1))
    assert history["val_loss"][-1] == pytest.approx(np.mean(penalty - np.log(p[np.arange(3), LABELS[-3:]])), rel=1e-5)


def test_a_loss_that_is_not_attached_says_so():
    model, loss = make_model(), make_loss()
    model.compile("sgd", loss)
    text = (
        "The loss 'early_learning_regularized_crossentropy' must be attached to the model that it trains: "
        "`model.compile(..., loss.attach(model))`, or, after a model was loaded or cloned, `model.loss.attach(model)`. "
        "Received: a loss that is not"
    )
    for call in (
        lambda: loss(LABELS, np.zeros((EXAMPLES, UNITS)), with_index(EXAMPLES)),
        lambda: keras_het.check(model),
    ):
        with pytest.raises(ValueError) as error:
            call()
        assert str(error.value) == text
    with pytest.raises(ValueError, match="must be attached to the model that it trains"):
        fit(model)
    with pytest.raises(ValueError) as error:
        loss.attach("model")
    assert str(error.value) == "`model` must be a keras.Model. Received: a str"


def test_another_loss_takes_the_place_of_the_first():
    model, first = compiled()
    fit(model)
    second = make_loss().attach(model)
    model.compile(keras.optimizers.SGD(0.0), second.attach(model))  # twice is once
    fit(model, epochs=2)
    check_memory(model, first, 1)
    check_memory(model, second, 2)
    assert [metric for metric in model.metrics if metric is first.state] == []
    assert sum(metric is second.state for metric in model.metrics) == 1
    with pytest.raises(ValueError, match="must be attached to the model that it trains"):
        first(LABELS, np.zeros((EXAMPLES, UNITS)), with_index(EXAMPLES))


def test_a_later_fit_goes_on_with_what_is_remembered():
    model, loss = compiled()
    fit(model)
    fit(model)
    check_memory(model, loss, 2)


@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed"])
def test_a_saved_model_brings_it_back_and_goes_on(kind, tmp_path):
    model, loss = compiled(kind)
    fit(model, epochs=2)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(memory(again.loss), memory(loss))
    with pytest.raises(ValueError, match="must be attached to the model that it trains"):
        fit(again)
    again.loss.attach(again)
    fit(again)
    check_memory(again, again.loss, 3)


def test_a_loaded_model_is_evaluated_without_what_is_remembered(tmp_path):
    model, _ = compiled(metrics=["accuracy"])
    fit(model)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.evaluate(X, LABELS, verbose=0) == pytest.approx(model.evaluate(X, LABELS, verbose=0))
    again.loss.attach(again)
    fit(again)
    check_memory(again, again.loss, 2)


def test_weights_with_and_without_it_load_into_models_with_and_without_it(tmp_path):
    with_it, without = tmp_path / "with.weights.h5", tmp_path / "without.weights.h5"
    model, loss = compiled()
    fit(model, epochs=2)
    model.save_weights(with_it)
    make_model().save_weights(without)
    plain, (same, its_loss), other = make_model(), compiled(), make_model()
    plain.load_weights(with_it)
    np.testing.assert_array_equal(plain.get_weights()[0], model.get_weights()[0])
    same.load_weights(with_it)
    np.testing.assert_array_equal(memory(its_loss), memory(loss))
    empty = make_loss().attach(other)
    with pytest.warns(
        UserWarning, match="The file has nothing that 'early_learning_regularized_crossentropy_state' remembers"
    ):
        other.load_weights(without)
    np.testing.assert_array_equal(memory(empty), 0.0)


class Stop(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["functional", "subclassed"])
def test_a_run_that_is_interrupted_and_resumed_equals_the_whole_one(kind, tmp_path):
    runs = []
    for interrupted in (False, True):
        model, loss = compiled(kind, rate=0.5)
        model(X)  # builds it, which loading needs
        backup = keras.callbacks.BackupAndRestore(tmp_path / str(interrupted))
        if interrupted:
            with pytest.raises(KeyboardInterrupt):
                fit(model, 4, shuffle=False, callbacks=[backup, Stop()])
            model, loss = compiled(kind, rate=0.5)
            model(X)
        fit(model, 4, shuffle=False, callbacks=[keras.callbacks.BackupAndRestore(tmp_path / str(interrupted))])
        runs.append([memory(loss), *model.get_weights()])
    for whole, resumed in zip(*runs, strict=True):
        np.testing.assert_array_equal(whole, resumed)
    assert all(np.any(row) for row in itertools.chain(*runs))


def test_a_loss_of_another_model_is_found():
    model, loss = compiled()
    keras_het.check(model)
    other = make_model()
    other.compile("sgd", loss)
    with pytest.raises(ValueError, match=r"must be attached to the model that it trains, 'functional.*another model"):
        keras_het.check(other)


ON_JAX = pytest.mark.skipif(keras.config.backend() != "jax", reason="the others remember, whoever owns the state")


@ON_JAX
@pytest.mark.parametrize("kind", ["sequential", "functional", "subclassed"])
def test_a_loss_of_another_model_is_refused_in_fit(kind):
    _, loss = compiled(kind)
    other = make_model(kind)
    other.compile("sgd", loss)
    with pytest.raises(ValueError, match=r"attached to the whole model .* Make or load the model anew: Keras on"):
        fit(other)
    anew = make_model(kind)
    again = make_loss()
    anew.compile(keras.optimizers.SGD(0.0), again.attach(anew))
    fit(anew)
    check_memory(anew, again, 1)


@ON_JAX
def test_a_loss_of_an_inner_model_is_refused_in_fit():
    inner = make_model()
    inputs = keras.Input((5,))
    outer, loss = keras.Model(inputs, inner(inputs)), make_loss()
    outer.compile("sgd", loss.attach(inner))
    with pytest.raises(ValueError, match=f"Received: a loss that is attached to another model, '{inner.name}'"):
        fit(outer)


@ON_JAX
def test_a_loss_of_a_model_that_is_gone_is_refused_in_fit():
    loss = compiled()[1]
    gc.collect()
    other = make_model()
    other.compile("sgd", loss)
    with pytest.raises(ValueError, match="Received: a loss whose model is gone"):
        fit(other)


def test_a_converted_model_has_a_loss_of_its_own():
    model, loss = compiled("sequential")
    converted = keras_het.heteroscedastic(model)
    assert converted.loss is not loss
    with pytest.raises(ValueError, match="must be attached to the model that it trains"):
        converted.fit(X, LABELS, sample_weight=with_index(EXAMPLES), verbose=0)
    converted.loss.attach(converted)
    fit(converted)
    assert np.all(memory(converted.loss).sum(axis=1) > 0)


def test_a_built_model_of_ones_own_stays_locked_for_others():
    model, _ = compiled("built and subclassed")
    with pytest.raises(ValueError, match="You cannot add new elements of state"):
        model.another = keras.layers.Dense(2)
