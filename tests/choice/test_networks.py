"""The networks of `choose`: a body of layers or a model, frozen features, a head, and a tail in training alone."""

import warnings

import keras
import ml_dtypes
import numpy as np
import pytest

import keras_het
from keras_het.choice import Candidate, choose, training
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

    short(Transition(), folds=2, trainings=4, optimizer=optimizer, callbacks=[Spy()])
    assert seen[2] == {"kernel": True, "bias": True, "transition": False}


@pytest.mark.parametrize("as_model", [False, True])
def test_a_body_that_was_trained_before_is_refused(as_model):
    """Its layers know labels that the next training holds out."""
    inputs, layer = keras.Input((6,)), keras.layers.Dense(8, "relu")
    body = keras.Model(inputs, layer(inputs)) if as_model else [layer]
    with pytest.raises(ValueError, match=r"`make_body` must make new layers .*Received: the variable 'dense.*' twice"):
        choose(lambda: body, X, Y, candidates=[], **SHORT)
    layer.trainable = False
    assert choose(lambda: body, X, Y, candidates=[], **SHORT).trainings == 4


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


@pytest.mark.smoke
def test_images_of_bytes_reach_a_convolution_as_numbers():
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(40, 6, 6, 1)).astype("uint8"), np.arange(40) % 2
    x[y == 1, :3] //= 8
    arguments = {**SHORT, "candidates": [], "folds": 2, "epochs": 1}
    bytes_, floats = (
        choose(lambda: [keras.layers.Conv2D(2, 3), keras.layers.Flatten()], given, y, **arguments).model
        for given in (x, x.astype("float32"))
    )
    np.testing.assert_array_equal(bytes_.predict(x, verbose=0), floats.predict(x, verbose=0))


def test_an_embedding_gets_large_numbers_as_they_are():
    x, seen = np.full((40, 2), 2**24 + 1), []

    class Last(keras.layers.Embedding):
        def call(self, inputs):
            seen.append(str(inputs.dtype))
            return super().call(inputs % 3)

    choose(lambda: [Last(3, 2), keras.layers.Flatten()], x, np.arange(40) % 2, candidates=[], **SHORT)
    assert all("int64" in dtype for dtype in seen)  # float32 would round them to 2**24


def test_what_looks_like_a_head_is_said_once():
    def make_body():
        return [keras.layers.Dense(8, "relu"), keras.layers.Dense(3)]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        choose(make_body, X, Y, candidates=[], **SHORT)
    texts = [str(warning.message) for warning in caught]
    assert len([text for text in texts if "ends in a Dense layer of 3 units without an activation" in text]) == 1


def average(dtype):
    """The average of a weight of this type that is 256 at the first epoch, and then 1 for long; and a counter."""

    class Weights:
        def get_weights(self):
            return [np.full(2, 256.0 if epoch == 0 else 1.0, dtype), np.array([7], "uint32")]

        def set_weights(self, weights):
            found.extend(weights)

    found, record = [], training._Record(Weights(), None, 32)
    for epoch in range(30):
        record.on_epoch_end(epoch)
    record.use_averages()
    return found


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_weights_of_half_precision_are_averaged_in_float32(dtype):
    half, counter = average(dtype)
    np.testing.assert_array_equal(half, average("float32")[0].astype(dtype))
    assert half.dtype == dtype
    assert counter.tolist() == [7]
