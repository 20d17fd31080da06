"""The networks of a training, the rule that chooses among trials, and the guards against a model that learned none."""

import keras
import ml_dtypes
import numpy as np
import pytest
from scipy.stats import binom

import keras_het
from keras_het.labels import choose, clean
from keras_het.labels.data import Data
from keras_het.labels.methods import EarlyStopping, Heteroscedastic, Method
from keras_het.labels.training.comparison import check_learned, difference, one_standard_error, warn_if_weak
from keras_het.labels.training.trainer import Record, Trainer, Trial, best_epoch
from tests.checks import FALSE_ALARM
from tests.common import assert_same_arrays, compiled
from tests.labels.tasks import SHORT, SHORT_TRAININGS, Named, X, Y, make_model, maker, short

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


class Network:
    weights = ()

    def get_weights(self):
        return self.weights

    def set_weights(self, weights):
        self.weights = weights


@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16])
def test_weights_of_half_precision_are_averaged_in_float32(dtype):
    def average(dtype):
        """The average of a weight of this type that is 256 at the first epoch, and then 1 for long; and a counter."""
        network = Network()
        record = Record(network, None, None, Trainer(make_model))
        for epoch in range(30):
            network.set_weights([np.full(2, 256.0 if epoch == 0 else 1.0, dtype), np.array([7], "uint32")])
            record.on_epoch_end(epoch)
        record.result()
        return network.weights

    half, counter = average(dtype)
    np.testing.assert_array_equal(half, average("float32")[0].astype(dtype))
    assert half.dtype == dtype
    assert counter.tolist() == [7]


def test_a_trained_model_is_its_features_and_stays_as_it_is_and_one_without_a_head_gives_its_outputs():
    trained = make_model()
    trained.fit(X, Y, verbose=0)
    before, result = trained.get_weights(), clean(trained, X, Y, verbose=0)
    features = keras_het.explain.features(trained, X)
    alone = clean(None, features, Y, verbose=0)
    np.testing.assert_array_equal(alone.probabilities, result.probabilities)
    np.testing.assert_allclose(alone.model.predict(features, verbose=0), result.model.predict(X, verbose=0), atol=1e-5)
    assert_same_arrays(trained.weights, before)
    backbone = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "relu"), keras.layers.LayerNormalization()])
    features = backbone.predict(X, verbose=0)
    result, alone = clean(backbone, X, Y, verbose=0), clean(None, features, Y, verbose=0)
    np.testing.assert_allclose(alone.model.predict(features, verbose=0), result.model.predict(X, verbose=0), atol=1e-5)


@pytest.mark.parametrize(("weight", "best"), [(None, [1, 0, 0]), (np.array([5.0, 1.0, 1.0]), [0, 1, 1])])
def test_the_probabilities_of_a_fold_are_those_of_the_best_weighted_epoch(weight, best):
    """The first epoch has the heavy example right, the second both of the others."""
    answers = iter(([0, 1, 1], [1, 0, 0]))
    held_out = Data(np.zeros((3, 1)), np.zeros(3, int), np.arange(2), weight)
    record = Record(Network(), lambda *_: np.eye(2)[next(answers)], held_out, Trainer(make_model))
    for epoch in range(2):
        record.on_epoch_end(epoch)
    scores, p = record.result()
    assert scores.tolist() == [[True, False, False], [False, True, True]]
    assert p.argmax(1).tolist() == best


def test_layers_that_were_trained_before_and_a_head_of_probabilities_are_refused():
    """They know labels that the next training holds out."""
    layer = keras.layers.Dense(8, "relu")
    with pytest.raises(ValueError, match=r"`make_model` must return new layers .*Received: the variable '.*' twice"):
        short(make_model=maker(lambda: layer))
    layer.trainable = False
    assert len(short(make_model=maker(lambda: layer), epochs=6).trials) == 1
    shared = make_model()
    with pytest.raises(ValueError, match="`make_model` must return new layers and a new optimizer at every call"):
        short(make_model=lambda: shared)

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
    model = choose(maker(*body, units=2), x, y, **PLAIN | {"folds": 2, "epochs": 4, "batch_size": 16}).model
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
        model = keras.Sequential([keras.Input((2,), dtype="int32"), *layers])
        return compiled(model, keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy")

    choose(make_model, x, np.arange(40) % 2, **PLAIN)
    assert all("int" in dtype for dtype in seen)  # float32 would round them to 2**24


def test_a_head_keeps_the_regularizer_of_the_models_own_and_may_be_heteroscedastic():
    def make_model():
        dense = keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.5))
        model = keras.Sequential([keras.Input((6,)), dense])
        return compiled(model, keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))

    kernel = short(make_model=make_model).model.layers[-1].get_weights()[0]
    assert np.abs(kernel).max() < 0.5 * np.abs(short(make_model=maker()).model.layers[-1].get_weights()[0]).max()
    result = short(Heteroscedastic(num_factors=1, temperature=1.5), Heteroscedastic(num_factors=1))
    assert [trial.name for trial in result.trials[1:]] == ["heteroscedastic head (1.5)", "heteroscedastic head (1)"]


def outcomes(seed, count=400):
    rng = np.random.default_rng(seed)
    other = rng.random(count) < 0.5
    return np.where(rng.random(count) < 0.1, True, other), other


def test_the_difference_is_that_of_a_paired_comparison_and_weights_count_as_examples():
    right, other = outcomes(0)
    gap, found = 1.0 * right - other, difference(right, other)
    assert found.mean == pytest.approx(gap.mean())
    assert found.error == pytest.approx(gap.std(ddof=1) / np.sqrt(400))
    one = difference(np.eye(1, 400)[0], np.zeros(400))  # a single example
    assert one.mean == pytest.approx(one.error)
    assert not one.is_clear
    assert found.error < 0.5 * np.sqrt(right.var() / 400 + other.var() / 400)
    right, other = outcomes(1)
    weights = np.where(np.arange(400) < 100, 1.0, 0.0)
    assert difference(right, other, weights) == pytest.approx(difference(right[:100], other[:100]))


def chosen(*scores, weight=None):
    trials = [Trial(Named(str(number)), 1, score, np.zeros((len(score), 2))) for number, score in enumerate(scores)]
    return trials.index(one_standard_error(trials, weight))


def test_the_most_cautious_method_is_chosen_unless_another_is_clearly_better():
    rng, base = np.random.default_rng(0), np.arange(400) % 2 == 0
    better, near = base.copy(), base.copy()
    better[1:41:2] = True  # 20 of 400 more, none fewer: over four standard errors
    near[1:41:2], near[0:36:2] = True, False  # 20 more and 18 fewer: a third of a standard error
    assert [chosen(base, better), chosen(base, near), chosen(near, base, better), chosen(base)] == [1, 0, 2, 0]
    best = rng.random(1000) < 0.8
    near = np.where(rng.random(1000) < 0.1, rng.random(1000) < 0.78, best)
    behind = np.where(rng.random(1000) < 0.3, False, best)
    assert difference(best, near).mean <= difference(best, near).error
    assert chosen(behind, near, best) == 1
    assert chosen(base, ~base, weight=np.where(base, 1.0, 2.0)) == 1
    assert chosen(base, ~base) == 0


def test_the_best_epoch_is_that_of_the_best_neighbourhood():
    scores = np.zeros((14, 1))
    scores[[2, 7, 8, 9, 10, 11], 0] = [1.0, 0.5, 0.6, 0.7, 0.6, 0.5]  # a lonely peak, and a hill
    assert best_epoch(scores) == 9
    assert best_epoch(np.ones((3, 2)), np.ones(2)) == 0


def answered(accuracy, classes=3, count=600, seed=0):
    """Labels, features of which the nearest class mean is nearly always right, and probabilities of this accuracy."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=count)
    said = np.where(rng.random(count) < accuracy, labels, (labels + 1) % classes)
    features = 4.0 * np.eye(classes)[labels] + rng.normal(size=(count, classes))
    return 0.7 * np.eye(classes)[said] + 0.3 / classes, Data(features, labels, np.arange(3)), np.arange(count) % 5


def test_a_model_behind_logistic_regression_is_warned_of_with_both_figures():
    p, data, fold_of = answered(0.8)
    with pytest.warns(UserWarning, match=r"predicts 80.\d% of the held-out labels, but logistic regression .* 99.\d%"):
        warn_if_weak(p, data, fold_of)
    good, data, fold_of = answered(1.0)
    warn_if_weak(good, data, fold_of)  # no warning, which would be an error
    answers = good.argmax(1)
    answers[:6] = (answers[:6] + 1) % 3  # a point behind, which is clear, and no weak model
    warn_if_weak(0.7 * np.eye(3)[answers] + 0.1, data, fold_of)
    warn_if_weak(p, Data(data.x[:, :, None], data.y, data.classes), fold_of)  # no features


def test_a_model_that_learned_nothing_is_an_error_and_one_of_rare_classes_is_not():
    p, data, _ = answered(1 / 3)
    with pytest.raises(ValueError, match=r"the majority class 3\d.\d%"):
        check_learned(p, data.y)
    labels = (np.arange(600) % 20 == 0).astype(int)  # 5% of the second class, which is never the most probable one
    for p in (np.where(np.random.default_rng(0).random(600) < 0.3 + 0.3 * labels, 1.0, 0.0), 0.3 * labels):
        with pytest.warns(UserWarning, match=r"not clearly better than the majority class.* class 95\.0%"):
            check_learned(np.stack([1 - p, p], axis=1), labels)
    with pytest.raises(ValueError, match=r"the majority class 95\.0%"):
        check_learned(np.tile([0.95, 0.05], (600, 1)), labels)
    labels, is_right = np.arange(200) % 3, np.arange(200) * 37 % 200 < 82
    with pytest.warns(UserWarning, match=r"\(\+7\.5 \+- 5\.1 points\)"):  # one in fourteen random models is as good
        check_learned(0.7 * np.eye(3)[np.where(is_right, labels, (labels + 1) % 3)] + 0.1, labels)
    labels = np.repeat([0, 1, 2], [7, 7, 6])
    said = np.where(np.arange(20) % 5 < 2, labels, (labels + 1) % 3)  # 8 of 20 are right, and 7 are of a class
    text = r"clearly better than .* it predicts 40\.0% of the labels, the majority class 35\.0% \(\+5\.0 \+- "
    with pytest.raises(ValueError, match=text):
        check_learned(0.7 * np.eye(3)[said] + 0.1, labels)


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore:The model is not clearly better")
def test_chance_seldom_passes_for_learning(base_seed, redraws):
    """By accuracy a sixth of the draws would, by the probability of the labels one of fifty."""
    passed, count = 0, redraws(1000)
    for seed in range(base_seed, base_seed + count):
        p, data, _ = answered(1 / 3, count=200, seed=seed)
        try:
            check_learned(p, data.y)
        except ValueError:
            continue
        passed += 1
    assert passed <= binom.isf(FALSE_ALARM, count, 1 / 6)
