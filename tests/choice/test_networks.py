"""The networks of `choose`: a body of layers or a model, frozen features, a head, and a tail in training alone."""

import keras
import numpy as np
import pytest

import keras_het
from keras_het.choice import Candidate, choose
from tests.choice.tasks import SHORT, X, Y, short

pytestmark = pytest.mark.once


def test_layers_of_the_tail_act_in_training_alone():
    class Transition(Candidate):
        name = "transition"

        def tail(self, task, strength):
            return [keras_het.layers.NoiseTransition(task.units, regularizer="l2")]

        def callbacks(self, task, strength):
            return [keras_het.callbacks.ReleaseTransition(1)]

    found = short(Transition(), folds=2)
    assert [score.name for score in found.scores] == ["early stopping", "transition"]
    assert not any("transition" in layer.name for layer in found.model.layers)


def test_a_transition_does_not_decay():
    optimizer, seen = keras.optimizers.AdamW(0.0, weight_decay=1.0), []

    class Spy(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            decayed = self.model.optimizer._use_weight_decay
            seen.append({v.path.split("/")[-1]: decayed(v) for v in self.model.trainable_variables})

    class Transition(Candidate):
        name = "transition"

        def tail(self, task, strength):
            return [keras_het.layers.NoiseTransition(task.units)]

    short(Transition(), folds=2, trainings=3, optimizer=optimizer, callbacks=[Spy()])
    assert seen[1] == {"kernel": True, "bias": True, "transition": False}


def test_weights_are_averaged_over_the_epochs():
    seen = []

    class Weights(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(self.model.get_weights())

    found = short(epochs=4, callbacks=[Weights()])
    last = seen[-found.scores[0].epoch :]
    shares = 0.8 ** np.arange(len(last))[::-1]
    for index, weight in enumerate(found.model.get_weights()):
        average = np.tensordot(shares / shares.sum(), [weights[index] for weights in last], 1)
        np.testing.assert_allclose(weight, average, rtol=1e-5, atol=1e-7)


def test_features_have_a_road_of_their_own():
    trained = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(5, "softmax")])
    before = trained.get_weights()
    found = choose(trained, X, Y, candidates=[], **SHORT)
    features = keras_het.analysis.features(trained, X)
    alone = choose(None, features, Y, candidates=[], **SHORT)
    np.testing.assert_array_equal(alone.model.predict(features, verbose=0), found.model.predict(X, verbose=0))
    for weight, old in zip(trained.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_a_model_without_a_head_gives_its_outputs():
    backbone = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.LayerNormalization()])
    found = choose(backbone, X, Y, candidates=[], **SHORT)
    alone = choose(None, backbone.predict(X, verbose=0), Y, candidates=[], **SHORT)
    np.testing.assert_allclose(
        alone.model.predict(backbone.predict(X, verbose=0), verbose=0), found.model.predict(X, verbose=0), atol=1e-5
    )


def test_a_functional_body_takes_inputs_of_several_parts():
    def body():
        one, two = keras.Input((3,), name="one"), keras.Input((3,), name="two")
        joined = keras.layers.Concatenate()([one, two])
        return keras.Model({"one": one, "two": two}, keras.layers.Dense(8, "relu")(joined))

    x = {"one": X[:, :3], "two": X[:, 3:]}
    found = choose(body, x, Y, candidates=[], **SHORT)
    assert found.model.predict(x, verbose=0).shape == (240, 3)


def test_a_head_of_probabilities_is_refused():
    class Probabilities(Candidate):
        name = "probabilities"

        def head(self, task, strength):
            return [keras.layers.Dense(task.units, "softmax")]

    with pytest.raises(ValueError, match="must make logits or log-probabilities of exclusive classes"):
        short(Probabilities())
