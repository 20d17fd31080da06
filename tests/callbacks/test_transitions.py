"""The callbacks of label flips: when T moves, what is logged, and the warning of a fraction that collapses."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_het.callbacks import ReleaseTransition, TransitionMonitor
from keras_het.explain import noisy_nll
from keras_het.labels import corrupt, pair_flip, symmetric
from keras_het.layers import NoiseTransition
from keras_het.ops.transition import outlier_class
from tests import common
from tests.checks import refusals
from tests.common import Batches, Subclassed, assert_same_arrays, compiled, sparse_crossentropy, texts_of_warnings

pytestmark, SMOKE = pytest.mark.once, pytest.mark.smoke

UNITS, EXAMPLES = 3, 48
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, 5)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)


class Record(keras.callbacks.Callback):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.transitions, self.bases = layer, [], []

    def on_epoch_end(self, epoch, logs=None):
        self.transitions.append(rows(self.layer).copy())
        self.bases.append(self.model.layers[0].get_weights()[0].copy())


def make_model(layer, optimizer=None, known_input=True):
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(layer.size, "log_softmax"), layer]
    model = keras.Sequential([keras.Input((5,)), *layers] if known_input else layers)
    return compiled(model, optimizer or keras.optimizers.SGD(0.1), sparse_crossentropy())


def flips(**arguments):
    return NoiseTransition(UNITS, regularizer=keras.regularizers.L2(0.1), name="flips", **arguments)


def rows(layer):
    return ops.convert_to_numpy(layer.transition)


def moved(arrays):
    return [bool(np.any(a != b)) for a, b in itertools.pairwise(arrays)]


def fit(model, *callbacks, epochs=6, **arguments):
    return model.fit(X, LABELS, batch_size=16, epochs=epochs, verbose=0, callbacks=list(callbacks), **arguments)


@pytest.mark.parametrize(("known_input", "after"), [pytest.param(True, 3, marks=SMOKE), (False, 3), (True, None)])
def test_t_moves_after_the_given_epochs_or_at_once_and_the_base_model_at_once(known_input, after):
    release = [ReleaseTransition(after=after)] if after else []
    for _ in range(2):  # also with a callback that was used before
        layer = flips()
        record = Record(layer)
        fit(make_model(layer, known_input=known_input), *release, record)
        assert moved(record.transitions) == [not after] * 2 + [True] * 3
        assert all(moved(record.bases))


class Log(keras.callbacks.Callback):
    def __init__(self, values, name="score"):
        super().__init__()
        self.values, self.name = values, name

    def on_epoch_end(self, epoch, logs=None):
        logs[self.name] = self.values[epoch]


def test_a_later_fit_without_the_callback_learns_t():
    layer = flips()
    model = make_model(layer)
    with texts_of_warnings() as texts:
        fit(model, ReleaseTransition(after=100), epochs=2)
    assert "T was never released: training ended before after=100. Train longer, or lower `after`." in texts
    before = rows(layer).copy()
    fit(model, epochs=1)
    assert np.any(rows(layer) != before)


@pytest.mark.parametrize("interruption", ["saved", "early stopping"])
def test_a_closed_gate_is_not_kept(interruption, tmp_path):
    layer = flips()
    model = make_model(layer)
    if interruption == "saved":
        layer.gate.assign(0.0)  # as in a checkpoint of the first epochs
        model = common.reloaded(model, tmp_path)
    else:
        best = keras.callbacks.EarlyStopping("score", mode="min", restore_best_weights=True)
        fit(model, Log([0, 1, 2, 3]), best, ReleaseTransition(after=1), epochs=4)
        assert not layer.has_moved  # the weights of the first epoch
    fit(model, epochs=1)
    assert model.layers[-1].has_moved


@pytest.mark.parametrize("epoch", [2, pytest.param(5, marks=SMOKE)])
def test_a_resumed_run_equals_the_run_that_was_not_interrupted(epoch, tmp_path):
    def run(*others, folder):
        model = make_model(flips())
        model.layers[0].set_weights([np.random.default_rng(1).normal(size=(5, UNITS)), np.zeros(UNITS)])
        callbacks = [ReleaseTransition(after=4), keras.callbacks.BackupAndRestore(folder), *others]
        try:
            fit(model, *callbacks, epochs=8, shuffle=False)
        except common.StopError:
            return None
        return model.get_weights()

    whole = run(folder=tmp_path / "whole")
    assert run(common.StopAt(epoch), folder=tmp_path / "parts") is None
    assert_same_arrays(run(folder=tmp_path / "parts"), whole)


@pytest.mark.smoke
def test_the_monitor_logs_what_t_is_after_each_epoch():
    layer, reference = flips(), symmetric(UNITS, 0.3)
    record = Record(layer)
    history = fit(make_model(layer), TransitionMonitor(reference), record, epochs=3).history
    for epoch, matrix in enumerate(record.transitions):
        assert history["flips_trace"][epoch] == pytest.approx(np.trace(matrix), rel=1e-6)
        assert history["flips_condition"][epoch] == pytest.approx(np.linalg.cond(matrix.astype("float64")), rel=1e-4)
        distance = 0.5 * np.abs(matrix - reference).sum(axis=1).mean()
        assert history["flips_distance"][epoch] == pytest.approx(distance, rel=1e-5)
    assert "flips_outlier_fraction" not in history


def test_what_stands_behind_the_monitor_has_its_numbers_and_without_a_reference_the_distance_to_the_identity():
    seen = []
    behind = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs["flips_trace"]))
    assert fit(make_model(flips()), TransitionMonitor(), behind, epochs=2).history["flips_trace"] == seen
    # Of this T the eigenvalues are 1, and twice 1 - 0.5 * 3 / 2.
    layer = flips(transition=symmetric(UNITS, 0.5), trainable=False)
    history = fit(make_model(layer), TransitionMonitor(), epochs=1).history
    assert history["flips_distance"] == pytest.approx([0.5])
    assert history["flips_trace"] == pytest.approx([1.5])
    assert history["flips_condition"] == pytest.approx([4.0], rel=1e-5)


@pytest.mark.parametrize("order", [pytest.param(1, marks=SMOKE), -1], ids=["behind", "before"])
def test_weights_restored_at_the_end_leave_the_gate_open_whatever_the_order(order):
    # The weights are the first epoch's, gate closed.
    stop = keras.callbacks.EarlyStopping("loss", mode="max", patience=2, restore_best_weights=True)
    layer = flips()
    fit(make_model(layer), *[ReleaseTransition(after=1), stop][::order], TransitionMonitor(), epochs=4)
    assert float(ops.convert_to_numpy(layer.gate)) == 1.0


@pytest.mark.parametrize("callback", [lambda: ReleaseTransition(after=1), TransitionMonitor])
def test_a_loss_that_is_nan_from_the_start_is_warned_of(callback):
    """Of a model whose graph cannot be read, with probabilities for log-probabilities."""
    model = compiled(Subclassed(keras.layers.Dense(UNITS, "softmax"), flips()), "sgd", sparse_crossentropy())
    with texts_of_warnings() as texts:
        fit(model, callback(), epochs=2)
    (text,) = [each for each in texts if "The loss is nan after the first epoch" in each]
    assert "the inputs of 'flips' are not log-probabilities" in text


def swapped(count, seed):
    rng = np.random.default_rng(seed)
    clean = rng.integers(UNITS, size=count)
    x = (4 * np.eye(5)[clean] + rng.normal(size=(count, 5))).astype("float32")
    return x, corrupt(clean, pair_flip(UNITS, 0.4), seed=seed)


@pytest.mark.filterwarnings("ignore:T of .flips. has its largest entry off the diagonal")  # after one epoch
def test_noisy_validation_labels_from_a_data_set():
    (x, y), held_out = swapped(100, 0), swapped(50, 1)
    for data in (held_out, Batches(*held_out)):
        model = make_model(flips())
        history = model.fit(x, y, verbose=0, callbacks=[TransitionMonitor(validation_data=data)]).history
        assert history["val_noisy_nll"] == pytest.approx([noisy_nll(model, *held_out)], rel=1e-5)


def test_a_validation_loss_that_grows_is_warned_of_once():
    x, y = swapped(300, 0)
    for arguments, expected in (({}, 1), ({"validation_data": (x, y)}, 0)):
        layer = NoiseTransition(UNITS, transition=pair_flip(UNITS, 0.4), regularizer="l2", name="flips")
        model = make_model(layer, keras.optimizers.Adam(0.05))
        model.fit(x, y, verbose=0)
        monitor = TransitionMonitor(**arguments)
        monitor.set_model(model)
        with texts_of_warnings() as texts:
            monitor.on_train_begin()
            for epoch, (loss, val_loss) in enumerate([(3.0, 1.0), (2.0, 1.2), (1.0, 1.4), (0.5, 1.6)]):
                monitor.on_epoch_end(epoch, {"loss": loss, "val_loss": val_loss})
        found = [text for text in texts if "`val_loss` grew to 1.2 while" in text]
        assert len(found) == expected
        assert not any("grew to 1.4" in text for text in texts)
        assert all('EarlyStopping("val_noisy_nll", mode="min")' in text for text in found)


def test_only_a_fraction_without_labelled_outliers_collapses_and_is_warned_of():
    model = make_model(NoiseTransition(UNITS, outlier_class=True, name="flips"), keras.optimizers.SGD(1.0))
    with texts_of_warnings() as texts:
        history = fit(model, TransitionMonitor(), epochs=60).history
    (text,) = (text for text in texts if "off the diagonal" not in text)
    assert "'flips' has learned that only a fraction of" in text
    assert "It cannot learn this fraction without examples of label 3" in text
    assert history["flips_outlier_fraction"][-1] < 0.01
    # None with labelled outliers, or of a fixed fraction.
    labels = np.where(X[:, 0] > 0.5, UNITS, LABELS)
    for options in ({}, {"transition": outlier_class(UNITS, 0.0), "trainable": False}):
        layer = NoiseTransition(UNITS, outlier_class=True, **options)
        model = make_model(layer, keras.optimizers.SGD(0.1))
        callbacks = [ReleaseTransition(20), TransitionMonitor()]  # whose warning would be an error
        model.fit(X, labels, batch_size=16, epochs=60, verbose=0, callbacks=callbacks)
        assert layer.trainable_weights == [] or rows(layer)[-1, -1] > 0.5


def plain():
    return compiled(keras.Sequential([keras.layers.Dense(3)], name="plain"), "sgd", sparse_crossentropy())


test_errors_say_what_is_wrong = refusals([
    (lambda: ReleaseTransition(-1), "`after` must be an integer at least 0. Received: after=-1"),
    (lambda: ReleaseTransition("loss"), "`after` must be an integer at least 0. Received: after='loss'"),
    (lambda: TransitionMonitor([[0.5, 0.6], [0, 1]]), "`reference` must have rows that sum to one. Received: row 0 su"),
    (lambda: fit(make_model(flips()), TransitionMonitor(validation_data=(X, LABELS + 1)), epochs=1),
     "`validation_data` must be in [0, 3). Received: 3 at ["),
    (lambda: TransitionMonitor(validation_data=iter([])),
     "`validation_data` must be readable more than once: use arrays, a PyDataset or a tf.data.Dataset. Received: "),
    (lambda: fit(make_model(flips()), TransitionMonitor(validation_data=(X[:0], LABELS[:0])), epochs=1),
     "`validation_data` must have at least one example. Received: none"),
    (lambda: TransitionMonitor(validation_data=(X, LABELS, LABELS)),
     "`validation_data` must be (x, y) or a data set, without weights. Received: a tuple of 3"),
    (lambda: TransitionMonitor(validation_data=X), "without weights. Received: a ndarray"),
    (lambda: fit(make_model(flips()), TransitionMonitor(np.eye(2))), "`reference` must have shape (3, 3). Received: s"),
    *((lambda callback=callback: fit(plain(), callback), "have a NoiseTransition layer. Received: model='plain', which")
      for callback in (ReleaseTransition(1), TransitionMonitor())),
])  # fmt: skip
