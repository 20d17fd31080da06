"""Losses and metrics on two replicas of TensorFlow, beside one: `python -m tests.replicas FILE [NAMES]` writes JSON.

It needs a new process, because the devices must be made before TensorFlow starts.
"""

import contextlib
import json
import pathlib
import sys

import keras
import numpy as np

from keras_het import losses, metrics, models
from keras_het.losses.distribution_loss import DistributionLoss
from tests.common import attempt, compiled

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


if __name__ == "__main__":
    main(*sys.argv[1:])
