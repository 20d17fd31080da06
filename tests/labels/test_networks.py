"""The networks of a training: a user's model with the head of a method, frozen features, and what is refused."""

import keras
import ml_dtypes
import numpy as np
import pytest

import keras_het
from keras_het.labels import choose, clean
from keras_het.labels.data import Data
from keras_het.labels.methods import EarlyStopping, Heteroscedastic, Method
from keras_het.labels.training.trainer import Record, Trainer
from tests.common import assert_same_arrays, compiled
from tests.labels.tasks import SHORT, SHORT_TRAININGS, X, Y, make_model, maker, short

pytestmark = [pytest.mark.once, SHORT_TRAININGS]

PLAIN = {"methods": [EarlyStopping()], **SHORT}


def test_callbacks_of_a_method_see_its_trainings_alone():
    seen = []

    class Watched(Method):
        name = "watched"

        def callbacks(self):
            return [keras.callbacks.LambdaCallback(on_train_end=lambda logs: seen.append(self.name))]

    assert [trial.name for trial in short(Watched(), folds=2).trials] == ["early stopping", "watched"]
    assert seen == ["watched"] * 2


def test_weights_are_averaged_over_the_epochs():
    seen = []

    class Weights(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(self.model.get_weights())

    result = short(epochs=4, callbacks=[Weights()])
    last = seen[-result.chosen.epoch :]
    shares = 0.8 ** np.arange(len(last))[::-1]
    for index, weight in enumerate(result.model.get_weights()):
        average = np.tensordot(shares / shares.sum(), [weights[index] for weights in last], 1)
        np.testing.assert_allclose(weight, average, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_weights_of_half_precision_are_averaged_in_float32(dtype):
    def average(dtype):
        """The average of a weight of this type that is 256 at the first epoch, and then 1 for long; and a counter."""

        class Weights:
            def get_weights(self):
                return [np.full(2, 256.0 if epoch == 0 else 1.0, dtype), np.array([7], "uint32")]

            def set_weights(self, weights):
                averages[:] = weights

        averages, record = [], Record(Weights(), None, None, Trainer(make_model))
        for epoch in range(30):
            record.on_epoch_end(epoch)
        record.result()
        return averages

    half, counter = average(dtype)
    np.testing.assert_array_equal(half, average("float32")[0].astype(dtype))
    assert half.dtype == dtype
    assert counter.tolist() == [7]


def test_a_trained_model_is_its_features_and_stays_as_it_is():
    trained = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(5, "softmax")])
    trained.compile("sgd", "sparse_categorical_crossentropy")
    trained.fit(X, Y, verbose=0)
    before, result = trained.get_weights(), clean(trained, X, Y, verbose=0)
    features = keras_het.explain.features(trained, X)
    alone = clean(None, features, Y, verbose=0)
    np.testing.assert_array_equal(alone.probabilities, result.probabilities)
    np.testing.assert_array_equal(alone.model.predict(features, verbose=0), result.model.predict(X, verbose=0))
    assert_same_arrays(trained.weights, before)


@pytest.mark.parametrize(("weight", "best"), [(None, [1, 0, 0]), (np.array([5.0, 1.0, 1.0]), [0, 1, 1])])
def test_the_probabilities_of_a_fold_are_those_of_the_best_weighted_epoch(weight, best):
    """The first epoch has the heavy example right, the second both of the others."""

    class Weights:
        get_weights, set_weights = lambda self: [np.zeros(1, "float32")], lambda self, weights: None

    answers = iter(([0, 1, 1], [1, 0, 0]))
    held_out = Data(np.zeros((3, 1)), np.zeros(3, int), np.arange(2), weight)
    record = Record(Weights(), lambda *_: np.eye(2)[next(answers)], held_out, Trainer(make_model))
    for epoch in range(2):
        record.on_epoch_end(epoch)
    scores, p = record.result()
    assert scores.tolist() == [[True, False, False], [False, True, True]]
    assert p.argmax(1).tolist() == best


def test_a_model_without_a_head_gives_its_outputs():
    backbone = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.LayerNormalization()])
    features = backbone.predict(X, verbose=0)
    result, alone = clean(backbone, X, Y, verbose=0), clean(None, features, Y, verbose=0)
    np.testing.assert_allclose(alone.model.predict(features, verbose=0), result.model.predict(X, verbose=0), atol=1e-5)


def test_layers_that_were_trained_before_are_refused():
    """They know labels that the next training holds out."""
    layer = keras.layers.Dense(8, "relu")
    with pytest.raises(ValueError, match=r"`make_model` must return new layers .*Received: the variable '.*' twice"):
        short(make_model=maker(lambda: layer))
    layer.trainable = False
    assert len(short(make_model=maker(lambda: layer), epochs=6).trials) == 1
    shared = make_model()
    with pytest.raises(ValueError, match="`make_model` must return new layers and a new optimizer at every call"):
        short(make_model=lambda: shared)


def test_a_head_of_probabilities_is_refused():
    class Probabilities(Method):
        name = "probabilities"

        def head(self, units, **options):
            return [keras.layers.Dense(units, "softmax")]

    with pytest.raises(ValueError, match="must return logits or log-probabilities of exclusive classes"):
        short(Probabilities())


@pytest.mark.smoke
def test_images_of_bytes_reach_a_convolution_as_numbers():
    x, y = np.random.default_rng(0).integers(256, size=(40, 6, 6, 1)).astype("uint8"), np.arange(40) % 2
    x[y == 1, :3] //= 8
    body = [lambda: keras.layers.Rescaling(1 / 255), lambda: keras.layers.Conv2D(2, 3), keras.layers.Flatten]
    model = choose(maker(*body, units=2), x, y, **PLAIN | {"folds": 2, "epochs": 4}).model
    p = model.predict(x, verbose=0)
    np.testing.assert_array_equal(model.predict(x.astype("float32"), verbose=0), p)
    assert np.mean(p.argmax(1) == y) > 0.9


def test_an_embedding_gets_large_numbers_as_they_are():
    x, seen = np.full((40, 2), 2**24 + 1) + np.arange(40)[:, None] % 2, []

    class Last(keras.layers.Embedding):
        def call(self, inputs):
            seen.append(str(inputs.dtype))
            return super().call(inputs % 3)

    def make_model():
        layers = [Last(3, 2), keras.layers.Flatten(), keras.layers.Dense(2, "softmax")]
        model = keras.Sequential([keras.Input((2,), dtype="int64"), *layers])
        return compiled(model, keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")

    choose(make_model, x, np.arange(40) % 2, **PLAIN)
    assert all("int64" in dtype for dtype in seen)  # float32 would round them to 2**24


def test_a_head_keeps_the_regularizer_of_the_models_own_and_may_be_heteroscedastic():
    def make_model():
        dense = keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.5))
        model = keras.Sequential([keras.Input((6,)), dense])
        return compiled(model, keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    kernel = short(make_model=make_model).model.layers[-1].get_weights()[0]
    assert np.abs(kernel).max() < 0.5 * np.abs(short(make_model=maker()).model.layers[-1].get_weights()[0]).max()
    result = short(Heteroscedastic(num_factors=1, temperature=1.5), Heteroscedastic(num_factors=1))
    assert [trial.name for trial in result.trials[1:]] == ["heteroscedastic head (1.5)", "heteroscedastic head (1)"]
