"""An ensemble against the mean of probabilities in float64: training, files and every kind of input."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from numpy.testing import assert_allclose
from scipy.special import expit, log_softmax, logit

import keras_het
from keras_het.layers import HeteroscedasticDense
from keras_het.links import NormalCDF, Sigmoid
from keras_het.models import DeepEnsemble
from keras_het.reading.ending import endings
from tests.common import Batches, Subclassed, refuses, reloaded, sparse_crossentropy, to_numpy

pytestmark = pytest.mark.once

FEATURES, UNITS = 6, 4
RNG = np.random.default_rng(0)
X = (2.0 * RNG.normal(size=(40, FEATURES))).astype("float32")
Y = RNG.integers(UNITS, size=40)


def model_of(*end, name=None):
    return keras.Sequential([keras.Input((FEATURES,)), layers.Dense(8, "tanh"), *end], name=name)


def sharp():
    return keras.initializers.RandomNormal(stddev=3.0)


ENDS = {
    "softmax head": lambda: [HeteroscedasticDense(UNITS, 2, kernel_initializer=sharp())],
    "normalised head": lambda: [HeteroscedasticDense(UNITS, 2, link="normal_cdf", kernel_initializer=sharp())],
    "sigmoid head": lambda: [HeteroscedasticDense(UNITS, 2, link="sigmoid", kernel_initializer=sharp())],
    "head with probabilities": lambda: [HeteroscedasticDense(UNITS, 2, kernel_initializer=sharp()), layers.Softmax()],
    "Dense, logits": lambda: [layers.Dense(UNITS, kernel_initializer=sharp())],
    "Dense, log-probabilities": lambda: [layers.Dense(UNITS, "log_softmax", kernel_initializer=sharp())],
    "Dense, probabilities": lambda: [layers.Dense(UNITS, "softmax", kernel_initializer=sharp())],
    "Dense, sigmoid": lambda: [layers.Dense(UNITS, "sigmoid", kernel_initializer=sharp())],
    "Dense, scaled logits": lambda: [layers.Dense(UNITS, kernel_initializer=sharp()), layers.Rescaling(0.5)],
}
TOLD = {"Dense, logits": {"link": "softmax"}, "Dense, scaled logits": {"link": "softmax", "from_logits": True}}


def ensemble_of(end, count=2):
    return DeepEnsemble([model_of(*ENDS[end]()) for _ in range(count)], **TOLD.get(end, {}))


def expected(ensemble, end, x):
    outputs = np.stack([member.predict_on_batch(x) for member in ensemble.members]).astype("float64")
    if "sigmoid" in end:
        return logit((outputs if end == "Dense, sigmoid" else expit(outputs)).mean(0))
    p = outputs if "probabilities" in end and "log" not in end else np.exp(log_softmax(outputs, axis=-1))
    return np.log(p.mean(0))


@pytest.mark.parametrize("end", ENDS)
def test_it_predicts_the_mean_of_the_probabilities(end):
    ensemble = ensemble_of(end)
    found = ensemble.predict(X, verbose=0)
    assert found.dtype == "float32"
    assert_allclose(found, expected(ensemble, end, X), rtol=1e-4, atol=1e-5)
    assert ensemble.link.activation == ("sigmoid" if "sigmoid" in end else "softmax")


@pytest.mark.parametrize(("loss", "activation"), [
    (sparse_crossentropy(), "softmax"),
    (keras.losses.BinaryCrossentropy(from_logits=True), "sigmoid"),
    (keras_het.losses.GeneralizedCrossentropy(from_logits=True), "softmax"),
], ids=lambda value: getattr(value, "name", value))  # fmt: skip
def test_the_loss_of_its_members_tells_the_link(loss, activation):
    def make_model():
        model = model_of(layers.Dense(UNITS))
        model.compile("sgd", loss)
        return model

    assert DeepEnsemble.make(make_model, 2, seed=0).link.activation == activation


@pytest.mark.planted
def test_the_average_layer_of_keras_loses_probability_without_a_word():
    ensemble = ensemble_of("softmax head")
    assert np.exp(to_numpy(layers.Average()([member(X) for member in ensemble.members]))).sum(-1).mean() < 0.95
    assert_allclose(np.exp(ensemble.predict(X, verbose=0)).sum(-1), 1.0, rtol=1e-5)


@pytest.mark.planted
def test_members_of_half_precision_are_averaged_in_float32():
    policy = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    members = [keras.Sequential([keras.Input((FEATURES,)), layers.Dense(UNITS, dtype=policy)]) for _ in range(3)]
    ensemble = DeepEnsemble(members, "softmax")
    outputs = [to_numpy(ops.cast(member(X), "float32")).astype("float64") for member in members]
    mean = np.log(np.exp(log_softmax(np.stack(outputs), axis=-1)).mean(0))
    found = ensemble.predict(X, verbose=0)
    assert found.dtype == "float32"
    assert_allclose(found, mean, atol=0.05)  # a compiler may round the members' outputs elsewhere
    assert_allclose(np.exp(found).sum(-1), 1.0, rtol=1e-5)
    assert np.abs(np.exp(to_numpy(ops.cast(ops.cast(found, "bfloat16"), "float32"))).sum(-1) - 1.0).max() > 1e-4


def compiled(end="softmax head", **arguments):
    model = model_of(*ENDS[end]())
    model.compile(keras.optimizers.Adam(1e-2), sparse_crossentropy(), **arguments)
    return model


def weights_of(ensemble):
    return [
        np.concatenate([weight.numpy().ravel() for weight in member.trainable_variables]) for member in ensemble.members
    ]


def test_fit_trains_every_member_by_its_own_seeds_and_again_the_same():
    ends = []
    for global_seed in (1, 2):
        keras.utils.set_random_seed(global_seed)
        ensemble = DeepEnsemble.make(compiled, 2, seed=5)
        starts = weights_of(ensemble)
        assert np.abs(starts[0] - starts[1]).max() > 0.1
        assert ensemble.members[0].layers[-1].seed != ensemble.members[1].layers[-1].seed
        histories = ensemble.fit(X, Y, seed=5, epochs=3, batch_size=8, verbose=0)
        assert [len(history.history["loss"]) for history in histories] == [3, 3]
        assert all(history.history["loss"][-1] < history.history["loss"][0] for history in histories)
        ends.append(weights_of(ensemble))
        assert all(np.abs(end - start).max() > 1e-2 for end, start in zip(ends[-1], starts, strict=True))
    assert_allclose(ends[0], ends[1], atol=1e-5)
    assert np.abs(weights_of(DeepEnsemble.make(compiled, 2, seed=6))[0] - starts[0]).max() > 0.1


def test_making_members_leaves_the_random_numbers_of_others_alone():
    import random

    states = []
    for make in (lambda: None, lambda: DeepEnsemble.make(compiled, 2, seed=1)):
        random.seed(3)
        make()
        states.append(random.random())
    assert states[0] == states[1]


@pytest.mark.parametrize("seed", [None, 7])
def test_every_member_sees_the_examples_in_another_order(seed):
    """Members that are equal in all else: without noise, of equal weights."""

    def make():
        model = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(UNITS, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.1), sparse_crossentropy())
        return model

    ensemble = DeepEnsemble([make(), make()], "softmax")
    ensemble.fit(X, Y, seed=seed, batch_size=4, verbose=0)
    first, second = weights_of(ensemble)
    assert np.abs(first - second).max() > 1e-3


def test_callbacks_may_be_of_each_member():
    class Count(keras.callbacks.Callback):
        def __init__(self, index):
            super().__init__()
            self.index = index

        def on_epoch_end(self, epoch, logs=None):
            logs["index"] = self.index

    ensemble = DeepEnsemble([compiled("Dense, logits") for _ in range(2)], "softmax")
    histories = ensemble.fit(X, Y, callbacks=lambda index: [Count(index)], verbose=0)
    assert [history.history["index"] for history in histories] == [[0], [1]]


def test_evaluate_has_the_loss_and_the_accuracy_of_the_mean():
    ensemble = ensemble_of("softmax head")
    found = ensemble.evaluate(X, Y, verbose=0, return_dict=True)
    log_p = expected(ensemble, "softmax head", X)
    assert found["accuracy"] == pytest.approx(np.mean(log_p.argmax(-1) == Y))
    assert found["loss"] == pytest.approx(-log_p[np.arange(len(Y)), Y].mean(), rel=1e-4)


def test_check_knows_what_it_returns():
    ensemble = ensemble_of("Dense, probabilities")
    (ending,) = endings(ensemble)
    assert (ending.link, ending.returns, ending.units) == ("softmax", "log-probabilities", UNITS)
    keras_het.check(ensemble)
    ensemble.compile(loss="sparse_categorical_crossentropy")
    with refuses(r"`loss` must accept log-probabilities, which the ensemble 'deep_ensemble.*' returns"):
        keras_het.check(ensemble)
    behind = keras.Sequential([keras.Input((FEATURES,)), ensemble, layers.Softmax()])
    assert endings(behind)[0].returns == "probabilities"


@pytest.mark.smoke
@pytest.mark.on_jax
@pytest.mark.parametrize("end", ["softmax head", "sigmoid head", "Dense, scaled logits"])
def test_a_file_holds_the_whole(end, tmp_path):
    ensemble = ensemble_of(end)
    loaded = reloaded(ensemble, tmp_path)
    assert isinstance(loaded, DeepEnsemble)
    assert_allclose(loaded.predict(X, verbose=0), ensemble.predict(X, verbose=0), rtol=1e-5, atol=1e-5)
    assert loaded.link.activation == ensemble.link.activation


def test_members_of_a_file_go_on_training_where_they_were(tmp_path):
    eagerly = keras.config.backend() == "tensorflow"  # which traces slowly
    ensemble = DeepEnsemble(
        [compiled(end, run_eagerly=eagerly) for end in ("softmax head", "Dense, log-probabilities")]
    )
    ensemble.fit(X, Y, epochs=2, shuffle=False, verbose=0)
    loaded = reloaded(ensemble, tmp_path)
    for each in (ensemble, loaded):
        each.fit(X, Y, shuffle=False, verbose=0)
    for mine, other in zip(weights_of(loaded), weights_of(ensemble), strict=True):
        assert_allclose(mine, other, atol=1e-5)
    assert "accuracy" in loaded.evaluate(X, Y, verbose=0, return_dict=True)


def test_names_of_members_may_be_the_same(tmp_path):
    ensemble = DeepEnsemble([model_of(HeteroscedasticDense(UNITS, name="head"), name="model") for _ in range(2)])
    loaded = reloaded(ensemble, tmp_path)
    for mine, other in zip(loaded.members, ensemble.members, strict=True):
        assert_allclose(mine.predict_on_batch(X), other.predict_on_batch(X), rtol=1e-5, atol=1e-5)


def two_inputs():
    inputs = {name: keras.Input((FEATURES,), name=name) for name in ("a", "b")}
    return keras.Model(inputs, layers.Dense(UNITS, "log_softmax")(layers.Concatenate()([inputs["a"], inputs["b"]])))


def test_several_inputs_by_name(tmp_path):
    ensemble, x = DeepEnsemble([two_inputs() for _ in range(2)]), {"a": X, "b": X[::-1].copy()}
    assert_allclose(ensemble.predict(x, verbose=0), expected(ensemble, "Dense, log", x), rtol=1e-4, atol=1e-5)
    loaded = reloaded(ensemble, tmp_path)
    assert_allclose(loaded.predict(x, verbose=0), ensemble.predict(x, verbose=0), rtol=1e-5, atol=1e-5)


def test_data_sets_train_and_predict():
    ensemble = DeepEnsemble([compiled("Dense, log-probabilities") for _ in range(2)])
    data = Batches(X, Y, size=10)
    assert len(ensemble.fit(data, verbose=0)) == 2
    assert_allclose(ensemble.predict(data, verbose=0), ensemble.predict(X, verbose=0), rtol=1e-5, atol=1e-5)


def test_subclassed_models_can_be_members():
    members = [Subclassed(HeteroscedasticDense(UNITS, 2)) for _ in range(2)]
    for member in members:
        member(X)
    ensemble = DeepEnsemble(members)
    assert_allclose(ensemble.predict(X, verbose=0), expected(ensemble, "softmax head", X), rtol=1e-4, atol=1e-5)


def test_probabilities_of_zero_and_one_stay_finite():
    ends = [
        layers.Activation(lambda x: ops.cast(ops.stack([x[:, 0] > -9, x[:, 0] < -9], axis=-1), "float32"))
        for _ in range(2)
    ]
    for link in ("softmax", "sigmoid"):
        ensemble = DeepEnsemble(
            [keras.Sequential([keras.Input((FEATURES,)), end]) for end in ends], link, from_logits=False
        )
        found = ensemble.predict(X, verbose=0)
        assert np.isfinite(found).all()
        assert found[:, 0].min() > found[:, 1].max() + 80


def test_different_heads_of_exclusive_classes_may_be_members():
    ensemble = DeepEnsemble(
        [model_of(HeteroscedasticDense(UNITS, link=NormalCDF())), model_of(layers.Dense(UNITS, "log_softmax"))]
    )
    assert_allclose(ensemble.predict(X, verbose=0), expected(ensemble, "softmax head", X), rtol=1e-4, atol=1e-5)
    assert DeepEnsemble([model_of(HeteroscedasticDense(1, link=Sigmoid()))]).link.activation == "sigmoid"


def test_training_that_would_go_wrong_is_refused():
    ensemble = ensemble_of("softmax head")
    with refuses(r"`members` must be compiled before `fit`. Received: member 0, not compiled"):
        ensemble.fit(X, Y)
    wrong = [compiled(), model_of(HeteroscedasticDense(UNITS))]
    wrong[1].compile("sgd", "sparse_categorical_crossentropy")
    with refuses("`loss` must accept log-probabilities"):
        DeepEnsemble(wrong).fit(X, Y)
    same = [model_of(HeteroscedasticDense(UNITS, seed=3)) for _ in range(2)]
    for member in same:
        member.compile("sgd", sparse_crossentropy())
    with refuses(r"`members` must have heads with different seeds, .* Received: seed=3 in members 0 and 1"):
        DeepEnsemble(same).fit(X, Y)
    good = DeepEnsemble([compiled()])
    with refuses(r"`x` must be readable more than once: use arrays, a PyDataset .* Received: a generator"):
        good.fit(batch for batch in [(X, Y)])
    with refuses("`validation_data` must be readable more than once"):
        good.fit(X, Y, validation_data=(batch for batch in [(X, Y)]))


def test_members_that_start_alike_are_refused():
    def make_model():
        keras.utils.set_random_seed(0)
        return compiled()

    with refuses(r"`make_model` must set no seed, .* Received: equal weights of members 0 and 1"):
        DeepEnsemble.make(make_model, 2, seed=1)


@pytest.mark.parametrize("masked", [(0.0, 0.0), (0.0, 7.0), (0.0, None)], ids=str)
def test_steps_that_a_member_masks_count_in_no_loss_or_metric(masked):
    x = RNG.normal(size=(4, 5, FEATURES)).astype("float32")
    x[:, 3:], x[:, 0] = 0.0, 7.0
    y = RNG.integers(UNITS, size=(4, 5))

    def member(value):
        mask = [] if value is None else [layers.Masking(value)]
        return keras.Sequential([keras.Input((5, FEATURES)), *mask, *ENDS["Dense, log-probabilities"]()])

    ensemble = DeepEnsemble([member(value) for value in masked])
    p = np.mean([np.exp(each.predict_on_batch(x).astype("float64")) for each in ensemble.members], axis=0)
    steps = slice(1 if 7.0 in masked else 0, 3)
    nll = -np.log(np.take_along_axis(p, y[..., None], axis=-1))[:, steps].mean()
    assert_allclose(ensemble.evaluate(x, y, verbose=0), [nll, np.mean((p.argmax(-1) == y)[:, steps])], rtol=1e-5)
