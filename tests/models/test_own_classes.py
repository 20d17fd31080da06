"""Conversion of models whose class trains in its own way: the class is kept, or a warning names its methods."""

import keras
import numpy as np
import pytest

from keras_het import heteroscedastic, homoscedastic
from keras_het.labels import choose
from keras_het.labels.methods import EarlyStopping
from keras_het.layers import HeteroscedasticDense
from keras_het.models import EarlyLearning, heteroscedastic_regression, scale_temperature
from tests.common import compiled, refuses, texts_of_warnings
from tests.marks import grid
from tests.models.checks import UNITS, sharpen
from tests.models.small_models import FEATURES, X, Y, functional, sequential

pytestmark = pytest.mark.once
SPARSE = keras.losses.SparseCategoricalCrossentropy


class Doubled:
    def compute_loss(self, *arguments, **named):
        return 2 * super().compute_loss(*arguments, **named)


class Functional(Doubled, keras.Model):
    pass


class Sequential(Doubled, keras.Sequential):
    pass


class OwnConstructor(Doubled, keras.Model):
    def __init__(self, factor):
        model, self.factor = functional("softmax"), factor
        super().__init__(model.input, model.output)


class OwnCompile(keras.Model):
    def compile(self, optimizer, factor):
        super().compile(optimizer, SPARSE())
        self.factor = factor


def logs_of(loss, *arguments):
    """Returns what a step returns; a step on JAX also returns the state."""
    logs = {"loss": keras.ops.convert_to_tensor(loss)}
    return (logs, arguments[0]) if keras.config.backend() == "jax" else logs


class OwnSteps(keras.Model):
    """Returns a fixed loss from each step."""

    def train_step(self, *arguments):
        return logs_of(1.5, *arguments)

    def test_step(self, *arguments):
        return logs_of(2.5, *arguments)


def made(kind, activation="softmax"):
    plain = (sequential if kind is Sequential else functional)(activation)
    return kind([keras.Input((FEATURES,)), *plain.layers]) if kind is Sequential else kind(plain.input, plain.output)


def crossentropy(model, from_logits=False):
    return float(keras.ops.mean(SPARSE(from_logits)(Y, model.predict(X, verbose=0))))


def trained(model, loss="sparse_categorical_crossentropy"):
    return compiled(sharpen(model), "sgd", loss)


@pytest.mark.parametrize("clone", [False, True])
@pytest.mark.parametrize("kind", grid([Functional, Sequential], span=[Functional]))
def test_a_class_with_the_constructor_of_keras_is_kept_with_its_loss(kind, clone):
    old = trained(made(kind))
    new = heteroscedastic(old, 2, clone=clone)
    back = homoscedastic(new)
    for model in (new, back):
        assert type(model) is kind
        assert model.evaluate(X, Y, verbose=0) == pytest.approx(2 * crossentropy(model), rel=1e-5)
    assert back.evaluate(X, Y, verbose=0) == pytest.approx(old.evaluate(X, Y, verbose=0), rel=1e-5)
    assert [layer.name for layer in back.layers] == [layer.name for layer in old.layers]
    with_steps = heteroscedastic(trained(made(OwnSteps)), 2)
    assert (with_steps.train_on_batch(X, Y), with_steps.test_on_batch(X, Y)) == (1.5, 2.5)


def early_learning(activation="softmax"):
    model = functional(activation)
    return EarlyLearning(model.input, model.output, len(X))


def regression():
    model = functional()
    return compiled(Functional(model.input, model.output), "sgd", "mse")


def with_head():
    inputs = keras.Input((FEATURES,))
    model = EarlyLearning(inputs, HeteroscedasticDense(UNITS, activation="softmax")(inputs), len(X))
    return compiled(model, "sgd", "sparse_categorical_crossentropy")


class Strength(keras.Model):
    strength = 1.0

    def compute_loss(self, *arguments, **named):
        return self.strength * super().compute_loss(*arguments, **named)


def with_own(model, **attributes):
    for name, value in attributes.items():
        setattr(model, name, value)
    return model


LOST = "compute_loss, which the new model lacks. Define the methods in a "
OTHER = "Functional has its own compute_loss, and the outputs are of another kind"


@pytest.mark.parametrize(("call", "text"), [
    (lambda: heteroscedastic(trained(OwnConstructor(2.0)), 2), f"OwnConstructor has its own {LOST}class without"),
    (lambda: heteroscedastic(early_learning(), 2), "EarlyLearning has its own compute_loss, compute_metrics, which"),
    (lambda: homoscedastic(with_head()), "EarlyLearning has its own compute_loss, compute_metrics, which"),
    (lambda: heteroscedastic(with_own(trained(functional("softmax")), train_step=len), 2),
        "Functional has its own train_step"),
    (lambda: heteroscedastic(with_own(trained(made(Strength)), strength=3.0), 2), "Strength has its own compute_loss"),
    (lambda: scale_temperature(early_learning(), X, Y), "EarlyLearning has its own compute_loss, compute_metrics"),
    (lambda: heteroscedastic_regression(regression(), initial_scale=1.0), f"Functional has its own {LOST}subclass"),
    (lambda: heteroscedastic(compiled(made(OwnCompile), "sgd", 3.0), 2), "OwnCompile has its own compile. Call its"),
    (lambda: heteroscedastic(trained(made(Functional)), 2, keep_activation=False),
        f"{OTHER} (keep_activation=True keeps it). Adapt"),
])  # fmt: skip
def test_a_model_that_could_train_in_another_way_is_not_compiled(call, text):
    with texts_of_warnings() as texts:
        assert not call().compiled
    assert any(warning.startswith(f"The new model is not compiled: {text}") for warning in texts), texts


class Named(keras.Model):
    def __init__(self):
        model = functional("softmax")
        super().__init__(model.input, model.output)


def test_a_scaled_model_keeps_the_loss_if_its_outputs_are_of_the_same_kind_and_choose_refuses_its_methods():
    old = trained(made(Functional, None), SPARSE(from_logits=True))
    labels = np.where(np.arange(len(X)) % 2, Y, old.predict(X, verbose=0).argmax(-1))
    scaled = scale_temperature(old, X, labels, link="softmax")
    assert type(scaled) is Functional
    assert scaled.evaluate(X, Y, verbose=0) == pytest.approx(2 * crossentropy(scaled, from_logits=True), rel=1e-5)

    def make_model():
        return compiled(made(Functional), "sgd", "sparse_categorical_crossentropy")

    text = r"`make_model` must .* pass a list of functions: \[make_model\]. .*Functional with its own compute_loss"
    with refuses(text):
        choose(make_model, X, Y, methods=[EarlyStopping()], epochs=1, folds=2, verbose=0)


@pytest.mark.parametrize("make", [lambda: functional("softmax"), lambda: sequential("softmax"), Named])
def test_a_model_that_trains_as_keras_does_is_compiled_without_a_warning(make):
    with texts_of_warnings() as texts:
        new = heteroscedastic(trained(make()), 2)
    assert new.compiled
    assert type(new) is type(keras.Model(new.input, new.output))
    assert texts == []
