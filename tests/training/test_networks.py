"""The networks of `choose`: a body of layers or a model, frozen features, a head, and a tail in training alone."""

import keras
import ml_dtypes
import numpy as np
import pytest

import keras_het
from keras_het.label_noise.discriminant import scaling
from keras_het.training import Candidate, Heteroscedastic, choose, fit, networks
from tests.training.tasks import SHORT, SHORT_TRAININGS, TRUE, X, Y, maker, short

pytestmark = [pytest.mark.once, SHORT_TRAININGS]

FAST = keras.optimizers.Adam(0.1)


def test_layers_of_the_tail_act_in_training_alone():
    class Transition(Candidate):
        name = "transition"

        def tail(self, task, strength):
            return [keras_het.layers.NoiseTransition(task.units, regularizer="l2")]

        def callbacks(self, task, strength):
            return [keras_het.callbacks.ReleaseTransition(1)]

    found = short(Transition(), epochs=6)
    assert [score.name for score in found.table] == ["early stopping", "transition"]
    assert not any("transition" in layer.name for layer in found.model.layers)


def test_a_transition_does_not_decay():
    seen = []

    def make_model():
        model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3)])
        optimizer = keras.optimizers.AdamW(0.1, weight_decay=1e-3)
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    class Spy(keras.callbacks.Callback):
        def on_train_end(self, logs=None):
            decayed = self.model.optimizer._use_weight_decay
            seen.append({v.path.split("/")[-1]: decayed(v) for v in self.model.trainable_variables})

    class Transition(Candidate):
        name = "transition"

        def tail(self, task, strength):
            return [keras_het.layers.NoiseTransition(task.units)]

    short(Transition(), folds=2, trainings=4, make_model=make_model, callbacks=[Spy()])
    assert seen[2] == {"kernel": True, "bias": True, "transition": False}


def test_weights_are_averaged_over_the_epochs():
    seen = []

    class Weights(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            seen.append(self.model.get_weights())

    found = short(epochs=4, callbacks=[Weights()])
    last = seen[-found.table[0].epoch :]
    shares = 0.8 ** np.arange(len(last))[::-1]
    for index, weight in enumerate(found.model.get_weights()):
        average = np.tensordot(shares / shares.sum(), [weights[index] for weights in last], 1)
        np.testing.assert_allclose(weight, average, rtol=1e-5, atol=1e-7)


def test_features_have_a_road_of_their_own():
    trained = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(5, "softmax")])
    trained.compile("sgd", "sparse_categorical_crossentropy")
    trained.fit(X, Y, verbose=0)
    before = trained.get_weights()
    found = choose(trained, X, Y, optimizer=FAST, candidates=[], **SHORT)
    features = keras_het.explain.features(trained, X)
    alone = choose(None, features, Y, optimizer=FAST, candidates=[], **SHORT)
    np.testing.assert_array_equal(alone.model.predict(features, verbose=0), found.model.predict(X, verbose=0))
    for weight, old in zip(trained.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, old)


def test_features_of_few_examples_are_learned_by_default_whatever_their_units():
    """A Dense layer as Keras makes it, by Adam as it is, was far behind logistic regression."""
    given = {"candidates": [], "epochs": 10, "folds": 3, "verbose": 0}
    found = choose(None, X, Y, **given)
    assert np.mean(found.model.predict(X, verbose=0).argmax(1) == TRUE) > 0.85
    other = choose(None, 1e4 * X + 1e3, Y, **given)
    np.testing.assert_allclose(
        other.model.predict(1e4 * X + 1e3, verbose=0), found.model.predict(X, verbose=0), atol=0.02
    )
    head = short(make_model=None, x=X, epochs=10).model.layers[-1]
    assert head.kernel_initializer.get_config() == keras.initializers.Zeros().get_config()


def test_a_rare_feature_is_not_made_large():
    x = np.concatenate([X, np.eye(240, 2), np.ones((240, 1))], axis=1).astype("float32")  # two rare words, a constant
    scaled = keras.ops.convert_to_numpy(networks.scaling_layer(scaling(x))(x))
    variance = x.var(0)
    np.testing.assert_allclose(
        scaled[:, :6], ((x - x.mean(0)) / np.sqrt(variance + np.median(variance[:8])))[:, :6], atol=1e-4
    )
    assert np.abs(scaled[:, 6:]).max() < 2  # and 15 standard deviations
    assert np.isfinite(
        keras.ops.convert_to_numpy(networks.scaling_layer(scaling(np.ones((5, 2))))(np.ones((5, 2))))
    ).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch and NumPy
def test_a_model_that_was_never_trained_is_said_to_be_one():
    with pytest.warns(UserWarning, match="`make_model` is a model that looks untrained: its optimizer has made no"):
        short(make_model=keras.Sequential([keras.Input((6,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(3)]))


def test_a_model_without_a_head_gives_its_outputs():
    last = keras.layers.LayerNormalization(beta_initializer="normal")  # as if it was trained
    backbone = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), last])
    found = choose(backbone, X, Y, optimizer=FAST, candidates=[], **SHORT)
    alone = choose(None, backbone.predict(X, verbose=0), Y, optimizer=FAST, candidates=[], **SHORT)
    np.testing.assert_allclose(
        alone.model.predict(backbone.predict(X, verbose=0), verbose=0), found.model.predict(X, verbose=0), atol=1e-5
    )


def test_a_functional_model_takes_inputs_of_several_parts():
    def body():
        one, two = keras.Input((3,), name="one"), keras.Input((3,), name="two")
        joined = keras.layers.Concatenate()([one, two])
        model = keras.Model({"one": one, "two": two}, keras.layers.Dense(3, "softmax")(joined))
        model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
        return model

    x = {"one": X[:, :3], "two": X[:, 3:]}
    found = choose(body, x, Y, candidates=[], **SHORT)
    assert found.model.predict(x, verbose=0).shape == (240, 3)


def test_layers_that_were_trained_before_are_refused():
    """They know labels that the next training holds out."""
    layer = keras.layers.Dense(8, "relu")
    with pytest.raises(ValueError, match=r"`make_model` must make new layers .*Received: the variable '.*' twice"):
        short(make_model=maker(lambda: layer))
    layer.trainable = False
    assert short(make_model=maker(lambda: layer), epochs=6).trainings == 4


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
    body = [lambda: keras.layers.Rescaling(1 / 255), lambda: keras.layers.Conv2D(2, 3), keras.layers.Flatten]
    arguments = {**SHORT, "candidates": [], "folds": 2, "epochs": 4, "trainings": 3}
    found = choose(maker(*body, units=2), x, y, **arguments).model
    p = found.predict(x, verbose=0)
    np.testing.assert_array_equal(found.predict(x.astype("float32"), verbose=0), p)
    assert np.mean(p.argmax(1) == y) > 0.9


def test_an_embedding_gets_large_numbers_as_they_are():
    x, seen = np.full((40, 2), 2**24 + 1) + np.arange(40)[:, None] % 2, []

    class Last(keras.layers.Embedding):
        def call(self, inputs):
            seen.append(str(inputs.dtype))
            return super().call(inputs % 3)

    def make_model():
        layers = [
            keras.Input((2,), dtype="int64"),
            Last(3, 2),
            keras.layers.Flatten(),
            keras.layers.Dense(2, "softmax"),
        ]
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")
        return model

    choose(make_model, x, np.arange(40) % 2, candidates=[], **SHORT)
    assert all("int64" in dtype for dtype in seen)  # float32 would round them to 2**24


def test_the_head_keeps_the_regularizer_of_the_models_own():
    def make_model():
        model = keras.Sequential(
            [keras.Input((6,)), keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.5))]
        )
        model.compile(keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    found = short(make_model=make_model)
    assert found.model.layers[-1].kernel_regularizer.l2 == pytest.approx(0.5)
    assert (
        np.abs(found.model.layers[-1].get_weights()[0]).max()
        < 0.5 * np.abs(short(make_model=maker()).model.layers[-1].get_weights()[0]).max()
    )


def test_a_heteroscedastic_head_is_a_candidate():
    found = short(Heteroscedastic(num_factors=1, temperatures=(1.5, 3.0)))
    assert [score.name for score in found.table[1:]] == ["heteroscedastic head, 1.5", "heteroscedastic head, 3.0"]
    assert [score.value for score in found.table[1:]] == [1.5, 3.0]
    with pytest.raises(ValueError, match="`temperatures` must be a list of temperatures, each of which is tried, such"):
        Heteroscedastic(temperatures=5.0)


def average(dtype):
    """The average of a weight of this type that is 256 at the first epoch, and then 1 for long; and a counter."""

    class Weights:
        def get_weights(self):
            return [np.full(2, 256.0 if epoch == 0 else 1.0, dtype), np.array([7], "uint32")]

        def set_weights(self, weights):
            found.extend(weights)

    found, record = [], fit.Record(Weights(), None, 32, "accuracy")
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
