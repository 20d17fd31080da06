"""Every loss and every metric of the package is correct on two replicas of TensorFlow, or refuses.

`python -m tests.test_replicas FILE [NAMES]` writes JSON, in a new process: the devices must be made before TensorFlow
starts.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from keras_het import losses, metrics, models
from keras_het.losses.distribution_loss import DistributionLoss
from tests.common import attempt, compiled
from tests.marks import grid

pytestmark = pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="only TensorFlow has such replicas")

EXAMPLES, UNITS, BATCH = 24, 3, 8
RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(EXAMPLES, 5)).astype("float32"), RNG.integers(UNITS, size=EXAMPLES)
OF_EACH = {
    "ForwardCorrectedCrossentropy": {"transition": 0.8 * np.eye(UNITS) + 0.2 / UNITS},
    "SmoothedCrossentropy": {"label_smoothing": 0.1},
    "AnnotatorsLoss": {},
}
LOSSES = {
    name: kind
    for name, kind in vars(losses).items()
    if name in losses.__all__ and isinstance(kind, type) and not issubclass(kind, DistributionLoss)
}
METRICS = {name: getattr(metrics, name) for name in metrics.__all__}
EARLY_LEARNING = "EarlyLearning"
OUTSIDE = ("ExpectedCalibrationError",)  # also made outside of the scope


def make_model(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(UNITS)])


def make(name, kinds):
    if name in LOSSES:
        return LOSSES[name](**OF_EACH.get(name, {}), **({} if name == "AnnotatorsLoss" else {"from_logits": True}))
    return kinds[name](**({} if name == "AnnotatorsMetric" else {"from_logits": True}))


def metric_results(name, scope, made=None):
    with scope():
        model = make_model()
        loss, metric = keras.losses.SparseCategoricalCrossentropy(from_logits=True), made or make(name, METRICS)
        model.compile("sgd", loss, metrics=[metric], jit_compile=False)
    return list(model.evaluate(X, LABELS, batch_size=BATCH, verbose=0, return_dict=True).values())


def loss_weights(name, scope, made=None):
    with scope():
        model = compiled(make_model(), keras.optimizers.SGD(0.1), made or make(name, LOSSES), jit_compile=False)
    labels = LABELS[:, None] if name == "AnnotatorsLoss" else LABELS
    model.fit(X, labels, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    return np.concatenate([weight.ravel() for weight in model.get_weights()]).tolist()


def early_learning_losses(name, scope):
    with scope():
        plain = make_model()
        model = models.EarlyLearning(plain.inputs, plain.outputs[0], EXAMPLES)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False)
    weight = models.with_index(EXAMPLES)
    return model.fit(X, LABELS, sample_weight=weight, batch_size=BATCH, epochs=2, verbose=0).history["loss"]


def main(path, *names):
    """Writes the results of these losses and metrics, or of all, on one replica and on two."""
    import tensorflow as tf

    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    scope, results = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope, {}
    for kinds, function in (
        (METRICS, metric_results),
        (LOSSES, loss_weights),
        ({EARLY_LEARNING: None}, early_learning_losses),
    ):
        for name in set(kinds) & set(names) if names else kinds:
            results[name] = [attempt(function, name, where) for where in (contextlib.nullcontext, scope)]
            if name in OUTSIDE:
                results[f"{name}, made outside"] = attempt(function, name, scope, make(name, kinds))
    pathlib.Path(path).write_text(json.dumps(results))


# One of each kind by default, and all by `nox -s thorough`.
SPAN = ["ExpectedCalibrationError", EARLY_LEARNING, "SymmetricCrossentropy"]


def cases(names):
    return grid(sorted(names), span=set(names) & set(SPAN), beyond=pytest.mark.thorough)


@pytest.fixture(scope="module")
def results(tmp_path_factory, pytestconfig):
    """Returns the results of losses and metrics on one replica, and on two."""
    names = [] if pytestconfig.getoption("--thorough") else SPAN
    path, root = tmp_path_factory.mktemp("replicas") / "found.json", pathlib.Path(__file__).parent.parent
    command = [sys.executable, "-m", "tests.test_replicas", str(path), *names]
    run = subprocess.run(command, cwd=root, env=os.environ, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", cases(METRICS))
def test_a_metric_is_that_of_one_replica(results, name):
    one, two = results[name]
    np.testing.assert_allclose(two, one, rtol=1e-5)


@pytest.mark.parametrize("name", cases(LOSSES))
def test_a_loss_without_a_state_trains_as_on_one_replica(results, name):
    one, two = results[name]
    np.testing.assert_allclose(two, one, atol=1e-6)


def test_a_model_with_a_memory_refuses(results):
    text = "must have one replica: each replica would store only a part of the examples. Received: a strategy of 2"
    assert text in results[EARLY_LEARNING][1]


@pytest.mark.parametrize("name", sorted(OUTSIDE))
def test_one_that_is_made_outside_the_scope_is_refused(results, name):
    text = "must be made inside `strategy.scope()`, like the model. Received: one that was made outside"
    assert text in results[f"{name}, made outside"]


if __name__ == "__main__":
    main(*sys.argv[1:])
