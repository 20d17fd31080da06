"""A T for each of several annotators: outputs, training, and equality with a single T."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal

import keras_het
from keras_het import explain
from keras_het.callbacks import ReleaseTransition, TransitionMonitor
from keras_het.layers import NoiseTransition
from keras_het.losses import AnnotatorsLoss
from keras_het.metrics import AnnotatorsMetric
from keras_het.ops.transition import apply_transition, total_variation
from tests.common import built, compiled, refuses, sparse_crossentropy, to_numpy
from tests.gradients import layer_gradients, value_and_gradients
from tests.layers.test_noise_transition import EXAMPLES, FEATURES, LOG_P, UNITS, X, rows

pytestmark = pytest.mark.once

ANNOTATORS = 3
RNG = np.random.default_rng(0)
CLEAN = RNG.integers(UNITS, size=EXAMPLES)
LABELS = np.where(RNG.random((EXAMPLES, ANNOTATORS)) < 0.4, -1, RNG.integers(UNITS, size=(EXAMPLES, ANNOTATORS)))
T = RNG.dirichlet(np.ones(UNITS), size=(ANNOTATORS, UNITS))
SPARSE = sparse_crossentropy(ignore_class=-1)


def make(**arguments):
    return NoiseTransition(UNITS, num_annotators=ANNOTATORS, **arguments)


def make_model(layer, loss=None, optimizer=None, **options):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(layer.size, "log_softmax"), layer])
    return compiled(model, optimizer or keras.optimizers.SGD(0.1), loss or AnnotatorsLoss(), **options)


@pytest.mark.parametrize("inputs", [LOG_P, LOG_P[0], LOG_P.reshape(8, 8, UNITS)], ids=["(N, K)", "(K,)", "(N, P, K)"])
def test_each_annotator_multiplies_by_its_own_t(inputs):
    layer = make(transition=T, trainable=False)
    outputs = to_numpy(layer(inputs, training=True))
    expected = np.stack([np.log(np.exp(inputs.astype("float64")) @ t) for t in T], axis=-2)
    assert_allclose(outputs, expected, rtol=1e-6, atol=1e-6)
    assert_array_equal(to_numpy(layer(inputs)), inputs)
    assert layer(keras.Input(inputs.shape), training=True).shape == (None, *expected.shape)


def test_gradients_are_those_of_each_t_alone_and_inputs_get_their_sum():
    weights = RNG.normal(size=(EXAMPLES, ANNOTATORS, UNITS)).astype("float32")
    layer = built(make(transition=T), LOG_P.shape)
    _, result = layer_gradients(layer, lambda outputs: ops.sum(ops.multiply(outputs, weights)), LOG_P)

    def of_inputs(t):
        return value_and_gradients(lambda x: ops.sum(ops.square(apply_transition(x[0], t))), [LOG_P])[1][0]

    for m in range(ANNOTATORS):
        alone = built(NoiseTransition(UNITS, transition=T[m]), LOG_P.shape)
        _, expected = layer_gradients(alone, lambda outputs, m=m: ops.sum(ops.multiply(outputs, weights[:, m])), LOG_P)
        assert_allclose(result["transition"][m], expected["transition"], rtol=1e-4, atol=1e-4)
    assert_allclose(of_inputs(T), np.sum([of_inputs(t) for t in T], axis=0), rtol=1e-4, atol=1e-4)


def test_one_annotator_is_the_plain_layer():
    result = []
    for annotators, loss, y in ((None, SPARSE, LABELS[:, 0]), (1, AnnotatorsLoss(), LABELS[:, :1])):
        layer = NoiseTransition(UNITS, num_annotators=annotators, regularizer=keras.regularizers.L2(0.1))
        model = make_model(layer, loss, keras.optimizers.Adam(0.01))
        history = model.fit(X, y, epochs=3, shuffle=False, verbose=0)
        weights = [weight.reshape(weight.shape[-2:]) for weight in model.get_weights() if weight.ndim > 1]
        result.append([history.history["loss"], *weights])
    assert len(result[0]) == 3  # the losses, the kernel, and T
    for plain, one in zip(*result, strict=True):
        assert_allclose(plain, one, rtol=1e-5, atol=1e-6)


def test_a_regularizer_sums_over_annotators():
    layer = built(make(transition=T, regularizer=keras.regularizers.L2(0.3)), LOG_P.shape)
    assert float(to_numpy(layer.losses[0])) == pytest.approx(0.3 * np.square(rows(layer)).sum(), rel=1e-5)


def test_fit_validates_on_clean_labels_as_without_the_layer():
    nll = AnnotatorsMetric(keras.metrics.SparseCategoricalCrossentropy("nll", from_logits=True))
    model = make_model(make(), metrics=[AnnotatorsMetric(name="accuracy"), nll])
    keras_het.check(model)
    history = model.fit(X, LABELS, validation_data=(X, CLEAN[:, None]), epochs=2, verbose=0).history
    log_p = model.predict(X, verbose=0)
    assert log_p.shape == (EXAMPLES, UNITS)
    assert history["val_accuracy"][-1] == pytest.approx(np.mean(log_p.argmax(-1) == CLEAN))
    assert history["val_loss"][-1] == pytest.approx(-np.mean(log_p[np.arange(EXAMPLES), CLEAN]), rel=1e-5)
    assert history["val_nll"][-1] == pytest.approx(history["val_loss"][-1], rel=1e-5)
    # Of the true classes, against each label that is there.
    loss, accuracy, _ = model.evaluate(X, LABELS, batch_size=EXAMPLES, verbose=0)
    examples, labels = np.nonzero(LABELS >= 0)[0], LABELS[LABELS >= 0]
    assert loss == pytest.approx(-np.mean(log_p[examples, labels]), rel=1e-5)
    assert accuracy == pytest.approx(np.mean(log_p[examples].argmax(-1) == labels))


def test_a_gate_keeps_all_and_the_monitor_logs_means():
    layer = make(name="flips", regularizer="l2")
    release, monitor = ReleaseTransition(after=1), TransitionMonitor(reference=T, validation_data=(X, LABELS))
    start, history = rows(layer), make_model(layer, optimizer=keras.optimizers.Adam(0.01))
    history = history.fit(X, LABELS, epochs=2, verbose=0, callbacks=[release, monitor]).history
    for name, measure in {"trace": np.trace, "condition": np.linalg.cond}.items():
        assert history[f"flips_{name}"][0] == pytest.approx(np.mean([measure(t) for t in start]), rel=1e-5)
        assert history[f"flips_{name}"][1] == pytest.approx(np.mean([measure(t) for t in rows(layer)]), rel=1e-4)
    distance = np.mean([total_variation(t, true) for t, true in zip(rows(layer), T, strict=True)])
    assert history["flips_distance"][1] == pytest.approx(distance, rel=1e-5)
    assert history["flips_trace"][1] != pytest.approx(history["flips_trace"][0], rel=1e-4)


def test_the_likelihood_of_the_labels_that_are_there():
    model = make_model(make(transition=T, trainable=False))
    noisy = np.log(np.einsum("nk,mkj->nmj", np.exp(model.predict(X, verbose=0).astype("float64")), T))
    picked = np.take_along_axis(noisy, np.maximum(LABELS, 0)[..., None], -1)[..., 0]
    assert explain.noisy_nll(model, X, LABELS) == pytest.approx(-picked[LABELS >= 0].mean(), rel=1e-5)
    with refuses(r"`y` must be integers of shape \(N, 3\)\. Received: shape \(64, 2\), dtype int64"):
        explain.noisy_nll(model, X, LABELS[:, :2])
    with refuses(r"The model must have a single T: for several annotators.* with num_annotators=3"):
        explain.confusion_matrices(model, X, CLEAN)
