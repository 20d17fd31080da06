"""Label flips: inputs and outputs of the layer, how T is learned, and the identity at inference."""

import functools

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal

from keras_het.callbacks import TransitionMonitor
from keras_het.explain import noisy_nll
from keras_het.labels import corrupt, pair_flip
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.layers.log_probabilities import nan_unless_log_probabilities
from keras_het.losses import AnnotatorsLoss
from keras_het.ops import transition
from keras_het.ops.transition import outlier_class, total_variation
from tests import layer_contract
from tests.common import built, compiled, refuses, reloaded, sparse_crossentropy, texts_of_warnings, to_numpy
from tests.gradients import layer_gradients, value_and_gradients
from tests.marks import grid

UNITS, EXAMPLES, FEATURES = 4, 64, 6
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)
LOG_P = to_numpy(ops.log_softmax(RNG.normal(size=(EXAMPLES, UNITS)).astype("float32")))
T = RNG.dirichlet(np.ones(UNITS), size=UNITS)
LOSS = sparse_crossentropy()
KINDS = {
    "projected": {},
    "regularized": {"regularizer": keras.regularizers.L2(0.1)},
    "started": {"transition": T},
    "outliers": {"transition": outlier_class(UNITS - 1, 0.4), "outlier_class": True},
    "annotators": {"num_annotators": 3},
    "annotators, started": {
        "num_annotators": 3,
        "transition": RNG.dirichlet(np.ones(UNITS), (3, UNITS)),
        "regularizer": "l2",
    },
    "annotators, one start": {"num_annotators": 3, "transition": T},
    "annotators, outliers": {"num_annotators": 3, "outlier_class": True},
}


def make_model(layer):
    inputs = keras.Input((FEATURES,))
    outputs = keras.layers.Dense(layer.size, "log_softmax")(keras.layers.Dense(8, "tanh")(inputs))
    return keras.Model(inputs, layer(outputs))


def rows(layer):
    return to_numpy(layer.compute_transition())


@pytest.mark.parametrize("kind", grid(KINDS, span=["projected", "annotators, outliers"]))
def test_contract_and_rows_that_stay_stochastic(kind, tmp_path):
    def make():
        return NoiseTransition(UNITS - ("outlier_class" in KINDS[kind]), **KINDS[kind])

    loss, labels, layer = LOSS, LABELS, make()
    if layer.num_annotators:
        is_missing = np.random.default_rng(1).random((EXAMPLES, 3)) < 0.4
        loss, labels = AnnotatorsLoss(), np.where(is_missing, -1, LABELS[:, None])
    layer_contract.check_layer(make, LOG_P, labels, loss, tmp_path, left_out=("gate",))
    model = compiled(make_model(layer), keras.optimizers.SGD(5.0, clipvalue=1.0), loss)
    before = rows(layer)
    for _ in range(20):  # steps far out of the simplex
        model.train_on_batch(X, labels)
        assert rows(layer).min() > 0
        assert_allclose(rows(layer).sum(axis=-1), 1, rtol=1e-5)
    assert np.abs(rows(layer) - before).max() > 1e-4


@pytest.mark.once
@pytest.mark.parametrize("closed", ["fixed", "gate"])
def test_no_weight_before_a_transition_that_stays_is_without_a_gradient(closed):
    class Behind(keras.layers.Layer):
        def build(self, input_shape):
            self.head = HeteroscedasticDense(UNITS, 0, seed=0)
            self.flips = NoiseTransition(UNITS, transition=T, trainable=closed != "fixed")
            self.flips.build(self.head(ops.zeros((1, FEATURES))).shape)
            if closed == "gate":
                self.flips.gate.assign(0.0)

        def call(self, inputs, training=None):
            return self.flips(self.head(inputs, training=training), training=training)

    layer_contract.check_gradients(Behind, X)


def test_a_fixed_transition_multiplies():
    layer = NoiseTransition(UNITS, transition=T, trainable=False)
    outputs = to_numpy(layer(LOG_P, training=True))
    assert_allclose(outputs, np.log(np.exp(LOG_P.astype("float64")) @ T), rtol=1e-6, atol=1e-6)
    assert layer.trainable_weights == []
    assert_array_equal(to_numpy(layer(LOG_P)), LOG_P)  # inference gives the true classes


def nearest_row(row, lower):
    """Returns the nearest vector of sum one with entries of at least `lower`, by bisection without a sort."""
    low, high = row.min() - 1.0, row.max()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(row - middle, lower).sum() > 1 else (low, middle)
    return np.maximum(row - low, lower)


def check_is_transition(matrix):
    assert_allclose(matrix.sum(axis=-1), 1, rtol=1e-5)
    assert matrix.min() > 0.999e-4 / UNITS


@pytest.mark.parametrize("annotators", [None, 2])
@pytest.mark.filterwarnings("ignore:T of")  # random weights
def test_a_weight_that_is_no_transition_is_projected_where_it_is_read_evaluated_and_saved(annotators):
    arguments = {"num_annotators": annotators, "transition": np.eye(UNITS)}
    layer = built(NoiseTransition(UNITS, **arguments), (None, UNITS))
    weight = np.random.default_rng(3).normal(size=layer.kernel.shape, scale=2.0)
    weight[..., 0, :] = (1.0, 0.001, -0.0005, -0.04)  # as an average of weights
    layer.kernel.assign(weight)
    expected = np.array([nearest_row(row, 1e-4 / UNITS) for row in weight.reshape(-1, UNITS)]).reshape(weight.shape)
    store = {}
    layer.save_own_variables(store)
    assert_allclose(rows(layer), expected, atol=1e-6)
    assert_array_equal(store["transition"], rows(layer))
    noisy = np.einsum("nk,...kj->n...j", np.exp(LOG_P.astype("float64")), expected)
    assert_allclose(np.exp(to_numpy(layer(LOG_P, training=True))), noisy, rtol=1e-4, atol=1e-6)
    check_is_transition(rows(layer))
    layer.trainable = False
    assert_array_equal(store["transition"], rows(layer))


@pytest.mark.once
@pytest.mark.parametrize(("optimizer", "rate"), [(keras.optimizers.Adam, 0.05), (keras.optimizers.SGD, 2.0)])
@pytest.mark.filterwarnings("ignore:T of")  # random weights
def test_averaged_and_released_weights_are_a_transition(optimizer, rate, tmp_path):
    layer = NoiseTransition(UNITS, transition=np.eye(UNITS))
    model = compiled(make_model(layer), optimizer(rate, use_ema=True), LOSS)
    model.fit(X, LABELS, batch_size=16, epochs=3, verbose=0)
    assert layer.kernel.numpy().min() < 0  # Keras averages the weights before it projects them
    for matrix in (rows(layer), rows(reloaded(model, tmp_path).layers[-1])):
        check_is_transition(matrix)
    model = make_model(NoiseTransition(UNITS, trainable=False))  # and a fixed one that is released
    for fitted in (model, reloaded(model, tmp_path), keras.models.clone_model(model)):
        fitted.layers[-1].trainable = True
        compiled(fitted, keras.optimizers.SGD(1.0), LOSS).fit(X, LABELS, epochs=2, verbose=0)
        check_is_transition(rows(fitted.layers[-1]))


def test_the_gradient_of_every_row_is_centred_and_otherwise_that_of_t_which_can_be_given_back():
    layer = built(NoiseTransition(UNITS, transition=T), (None, UNITS))

    def of_labels(log_p):
        return ops.mean(ops.take_along_axis(log_p, LABELS[:, None], axis=-1))

    _, (plain,) = value_and_gradients(lambda t: of_labels(transition.apply_transition(LOG_P, t[0])), [rows(layer)])
    _, gradients = layer_gradients(layer, of_labels, LOG_P)
    assert_allclose(gradients["transition"], plain - plain.mean(axis=1, keepdims=True), rtol=1e-4, atol=1e-6)
    for given in (layer.transition, layer.transition * 1):  # on PyTorch with a gradient
        assert_allclose(rows(NoiseTransition(UNITS, transition=given, trainable=False)), rows(layer), rtol=1e-5)
        assert total_variation(given, rows(layer)) < 1e-6


@pytest.mark.once
@pytest.mark.parametrize(("arguments", "expected"), [
    ({}, 0.5 * np.eye(UNITS) + 0.125),
    ({"num_annotators": 2}, np.stack([0.5 * np.eye(UNITS) + 0.125] * 2)),
    ({"regularizer": "l2"}, 0.99 * np.eye(UNITS) + 0.0025),
    ({"transition": T}, 0.99 * T + 0.0025),
    ({"trainable": False}, np.eye(UNITS)),
    ({"outlier_class": True}, 0.99 * outlier_class(UNITS, 0.5) + 0.01 / (UNITS + 1)),
])  # fmt: skip
def test_where_t_starts(arguments, expected):
    layer = built(NoiseTransition(UNITS, **arguments), (None, expected.shape[-1]))
    assert_allclose(rows(layer), expected, rtol=1e-5, atol=1e-7)
    assert not layer.has_moved


@pytest.mark.once
def test_without_a_penalty_t_learns_swapped_classes_and_with_a_penalty_of_zero_it_does_not():
    rng = np.random.default_rng(0)
    clean = rng.integers(3, size=600)
    x = (4 * np.eye(5)[clean] + rng.normal(size=(600, 5))).astype("float32")
    labels, distances = corrupt(clean, pair_flip(3, 0.4), seed=0), []
    for regularizer in (None, keras.regularizers.L2(0.0)):
        keras.utils.set_random_seed(0)
        layer = NoiseTransition(3, regularizer=regularizer)
        hidden = keras.layers.Dense(64, "relu")
        model = keras.Sequential([keras.Input((5,)), hidden, keras.layers.Dense(3, "log_softmax"), layer])
        model.compile(keras.optimizers.Adam(0.03), LOSS)
        model.fit(x, labels, batch_size=64, epochs=15, verbose=0)
        distances.append(total_variation(rows(layer), pair_flip(3, 0.4)))
    assert distances[0] < 0.15
    assert distances[1] > 0.3  # 0.4 at its start; initial weights can make one of its rows move


OPEN_T = T + 0.25 * (np.roll(T, 1, axis=1) - T)  # positive


def test_a_copy_of_learned_weights_that_is_fixed_has_the_same_t():
    learned, fixed = (built(NoiseTransition(UNITS, trainable=each), (None, UNITS)) for each in (True, False))
    learned.load_own_variables({"transition": OPEN_T})
    fixed.set_weights(learned.get_weights())
    assert_allclose(rows(fixed), OPEN_T, rtol=1e-6)
    fixed.kernel.assign(fixed.kernel - 0.5)  # as an average of weights
    assert rows(fixed).min() >= 0
    assert_allclose(rows(fixed).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.once
@pytest.mark.parametrize("arguments", [{"regularizer": "l2"}, {"transition": np.eye(UNITS)}])
@pytest.mark.filterwarnings("ignore:T of")  # random weights
def test_weights_of_another_scale_are_refused_and_files_of_it_converted(arguments, tmp_path):
    source, other = (built(NoiseTransition(UNITS, **each), (None, UNITS)) for each in ({}, arguments))
    source.load_own_variables({"transition": OPEN_T})
    for of, into in ((source, other), (other, source)):
        with refuses("shape"):
            into.set_weights(of.get_weights())
    models = [keras.Sequential([keras.Input((UNITS,)), layer]) for layer in (source, other)]
    models[0].save_weights(tmp_path / "m.weights.h5")
    models[1].load_weights(tmp_path / "m.weights.h5")
    assert_allclose(rows(other), OPEN_T, rtol=1e-6)


@pytest.mark.once
def test_a_step_of_many_classes_leaves_the_scale_of_t():
    """The step takes the sums of rows from 8 to -1, as if the scale were another."""
    layer = NoiseTransition(1000)
    compiled(make_model(layer), keras.optimizers.Adam(0.01), LOSS).train_on_batch(X, np.arange(EXAMPLES))
    assert_allclose(rows(layer).diagonal(), 0.5, atol=0.005)


@pytest.mark.once
@pytest.mark.parametrize(("shift", "has_moved"), [(0.009, False), (0.011, True)])
def test_a_transition_has_moved_if_its_rows_did_by_a_hundredth(shift, has_moved):
    layer = built(NoiseTransition(UNITS, regularizer="l2", num_annotators=2), (None, UNITS))
    weight = rows(layer).copy()
    weight[1] += shift * (1.0 - UNITS * np.eye(UNITS)) / (UNITS - 1)  # of one annotator
    layer.kernel.assign(weight)
    assert layer.has_moved == has_moved


@pytest.mark.once
def test_exchanged_classes_are_as_likely_and_warned_of_wherever_t_is_read(tmp_path):
    """If the rows of T and the outputs of the network are exchanged, predictions are wrong, and labels as likely."""
    true = np.arange(300) % 3
    x, noisy = np.eye(3, dtype="float32")[true], corrupt(true, pair_flip(3, 0.3), seed=0)
    layer, dense = NoiseTransition(3, name="flips"), keras.layers.Dense(3, "log_softmax", use_bias=False)
    model = keras.Sequential([keras.Input((3,)), dense, layer])
    model.compile(keras.optimizers.SGD(0.0), LOSS)
    results, order = [], [1, 0, 2]
    for kernel, t in ((6.0 * np.eye(3), pair_flip(3, 0.3)), (6.0 * np.eye(3)[order], pair_flip(3, 0.3)[order])):
        dense.kernel.assign(kernel)
        layer.load_own_variables({"transition": t})
        model.fit(x, noisy, verbose=0)
        accuracy = np.mean(model.predict(x, verbose=0).argmax(-1) == true)
        with texts_of_warnings() as texts:
            nll, _ = noisy_nll(model, x, noisy), layer.transition
            model.save(tmp_path / "model.keras")
            model.fit(x, noisy, verbose=0, callbacks=[TransitionMonitor()])
        texts = [text for text in texts if "off the diagonal" in text]
        results.append((accuracy, nll, len(texts)))
    assert results[0] == (1.0, pytest.approx(results[1][1], rel=1e-5), 0)
    assert results[1][::2] == (pytest.approx(1 / 3), 5)  # Keras saves a layer of a Sequential model twice
    assert all("T of 'flips' has its largest entry off the diagonal for true class 0, 1. Either" in x for x in texts)


@pytest.mark.once
def test_what_is_known_before_the_training_is_not_warned_of():
    swapped = np.eye(UNITS)[[1, 0, *range(2, UNITS)]]
    for trainable in (True, False):
        layer = built(NoiseTransition(UNITS, transition=swapped, trainable=trainable), (None, UNITS))
        assert to_numpy(layer.transition).argmax(1).tolist() == swapped.argmax(1).tolist()
    mean = built(NoiseTransition(UNITS, num_annotators=2), (None, UNITS))
    mean.load_own_variables({"transition": np.stack([0.4 * swapped + 0.6 / UNITS, np.eye(UNITS)])})
    assert to_numpy(mean.transition).shape == (2, UNITS, UNITS)  # one bad annotator is none of the network


D = keras.layers.Dense
WRONG = {
    "logits": ([D(UNITS, name="made")], "the output of 'made', a Dense with activation=None"),
    "probabilities": ([D(UNITS, "softmax", name="made")], "the output of 'made', a Dense with activation='softmax'"),
    "a softmax operation": ([D(UNITS, keras.ops.softmax, name="made")], "'made', a Dense with activation='softmax'"),
    "a layer of probabilities": ([D(UNITS), keras.layers.Softmax(name="made")], "the output of 'made', a Softmax"),
    "an activation": ([D(UNITS), keras.layers.Activation("sigmoid", name="made")],
        "Activation with activation='sigmoid'"),
    "features, before the head": ([D(UNITS, "relu", name="made")],
        "the output of 'made', a Dense with activation='relu'"),
    "through an identity": ([D(UNITS, name="made"), keras.layers.Identity()], "the output of 'made', a Dense"),
    "through a linear activation": ([D(UNITS, name="made"), keras.layers.Activation("linear")],
        "the output of 'made', a Dense"),
    "a model inside": ([keras.Sequential([keras.Input((FEATURES,)), D(UNITS, name="made")])],
        "the output of 'made', a Dense"),
    "half precision": ([D(UNITS, name="made", dtype="mixed_bfloat16")], "the output of 'made', a Dense"),
    "labels that are not exclusive": ([HeteroscedasticDense(UNITS, link="sigmoid", name="made")],
        "HeteroscedasticDense with link=Sigmoid()"),
    "probabilities of a head": ([HeteroscedasticDense(UNITS, activation="softmax", name="made")],
        "HeteroscedasticDense with activation='softmax'"),
}  # fmt: skip


@pytest.mark.once
@pytest.mark.parametrize("functional", [True, False])
@pytest.mark.parametrize("kind", WRONG)
def test_a_model_whose_layer_gets_no_log_probabilities_is_refused(kind, functional):
    layers, text = WRONG[kind]
    layers, rule = [*layers, NoiseTransition(UNITS)], r"must be log-probabilities, for example from Dense\(K, 'log_soft"
    with refuses(rule) as error:
        if functional:
            functools.reduce(lambda tensor, layer: layer(tensor), layers, keras.Input((FEATURES,)))
        else:
            keras.Sequential([keras.Input((FEATURES,)), *layers])
    assert text in str(error.value)


class Own(keras.layers.Dense):
    def call(self, inputs):
        return ops.log_softmax(super().call(inputs))


@pytest.mark.once
@pytest.mark.parametrize(
    "layer", [D(UNITS, "log_softmax"), keras.layers.Activation("log_softmax"), Own(UNITS), D(UNITS, ops.log_softmax)]
)
def test_what_may_make_log_probabilities_is_allowed(layer):
    behind = [keras.layers.Identity(), keras.layers.Activation("linear", dtype="float32"), NoiseTransition(UNITS)]
    model = compiled(keras.Sequential([keras.Input((UNITS,)), layer, *behind]), "sgd", LOSS)
    assert np.isfinite(model.fit(X[:, :UNITS], LABELS, verbose=0).history["loss"][0])


@pytest.mark.parametrize("inputs", ["logits", "probabilities", "one row"])
def test_training_on_what_are_no_log_probabilities_is_not_silent(inputs):
    """Where no graph tells: rows that do not sum to one are nan, and so is the loss; the others are what they were."""
    one_row = np.where(np.arange(EXAMPLES)[:, None] == 3, 1, LOG_P)
    wrong = {"logits": 3 + LOG_P, "probabilities": np.exp(LOG_P), "one row": one_row}[inputs]
    layer = NoiseTransition(UNITS, transition=T, trainable=False)
    outputs = to_numpy(layer(wrong.astype("float32"), training=True))
    spoiled = np.isnan(outputs).all(axis=1)
    assert spoiled.sum() == (1 if inputs == "one row" else EXAMPLES)
    assert_array_equal(outputs[~spoiled], to_numpy(layer(LOG_P, training=True))[~spoiled])


@pytest.mark.once
@pytest.mark.parametrize("units", [2, 1000, 20_000])
def test_log_probabilities_of_half_precision_are_right(units):
    logits = np.random.default_rng(0).normal(size=(8, units)).astype("float32")
    for row in (logits, 0 * logits, 20 * logits):
        rounded = ops.cast(ops.cast(ops.log_softmax(row), "bfloat16"), "float32")
        assert np.isfinite(to_numpy(nan_unless_log_probabilities(rounded, rounded))).all()
