"""Every loss and every metric of the package is correct on two replicas of TensorFlow, or refuses.

`python -m tests.distribution.test_replicas FILE` writes JSON, in a process that makes the devices before TensorFlow.
"""

import contextlib
import json
import pathlib
import sys

import keras
import numpy as np
import pytest

from keras_het import losses, metrics, models
from keras_het.losses.distribution_loss import DistributionLoss
from tests.common import attempt, python, sparse_crossentropy
from tests.distribution.training import replicas

BACKEND = keras.config.backend()
pytestmark = [pytest.mark.thorough, pytest.mark.skipif(BACKEND != "tensorflow", reason="only TensorFlow has replicas")]

EXAMPLES, UNITS, BATCH = 24, 3, 8
RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(EXAMPLES, 5)).astype("float32"), RNG.integers(UNITS, size=EXAMPLES)
OF_EACH = {
    "ForwardCorrectedCrossentropy": {"transition": 0.8 * np.eye(UNITS) + 0.2 / UNITS},
    "SmoothedCrossentropy": {"label_smoothing": 0.1},
}
LOSSES = {
    name: kind
    for name, kind in vars(losses).items()
    if name in losses.__all__ and isinstance(kind, type) and not issubclass(kind, DistributionLoss)
}
METRICS = {name: getattr(metrics, name) for name in metrics.__all__}
EARLY_LEARNING = "EarlyLearning"
OUTSIDE = "ExpectedCalibrationError"  # also made outside of the scope


def make_model(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(UNITS)])


def make(name):
    arguments = {} if name.startswith("Annotators") else {"from_logits": True, **OF_EACH.get(name, {})}
    return {**METRICS, **LOSSES}[name](**arguments)


def result(name, scope, made=None):
    with scope():
        model, loss, metrics = make_model(), sparse_crossentropy(), []
        if name in METRICS:
            metrics = [made or make(name)]
        elif name in LOSSES:
            loss = make(name)
        else:
            model = models.EarlyLearning(model.inputs, model.outputs[0], EXAMPLES)
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=metrics, jit_compile=False)
    if metrics:
        return list(model.evaluate(X, LABELS, batch_size=BATCH, verbose=0, return_dict=True).values())
    labels = LABELS[:, None] if name == "AnnotatorsLoss" else LABELS
    weight = models.with_index(EXAMPLES) if name == EARLY_LEARNING else None
    arguments = {"batch_size": BATCH, "epochs": 2, "shuffle": False, "verbose": 0}
    history = model.fit(X, labels, sample_weight=weight, **arguments).history["loss"]
    return history if weight is not None else np.concatenate([each.ravel() for each in model.get_weights()]).tolist()


def main(path):
    scope, results = replicas().scope, {}
    for name in (*METRICS, *LOSSES, EARLY_LEARNING):
        results[name] = [attempt(result, name, where) for where in (contextlib.nullcontext, scope)]
        if name == OUTSIDE:
            results[f"{name}, made outside"] = attempt(result, name, scope, make(name))
    pathlib.Path(path).write_text(json.dumps(results))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    path = tmp_path_factory.mktemp("replicas") / "found.json"
    python("-m", "tests.distribution.test_replicas", str(path), check=True)
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", sorted(METRICS))
def test_a_metric_is_that_of_one_replica(results, name):
    one, two = results[name]
    np.testing.assert_allclose(two, one, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_loss_without_a_state_trains_as_on_one_replica(results, name):
    one, two = results[name]
    np.testing.assert_allclose(two, one, atol=1e-6)


def test_a_model_with_a_memory_refuses(results):
    text = "must have one replica: each replica would store only a part of the examples. Received: a strategy of 2"
    assert text in results[EARLY_LEARNING][1]


def test_one_that_is_made_outside_the_scope_is_refused(results):
    text = "must be made inside `strategy.scope()`, like the model. Received: one that was made outside"
    assert text in results[f"{OUTSIDE}, made outside"]


if __name__ == "__main__":
    main(sys.argv[1])
