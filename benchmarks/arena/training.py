"""One training of the arena: what a method sees, its stages, and the figures after every epoch."""

import functools
import time

import keras
import numpy as np
from scipy.special import log_softmax

from benchmarks.arena.trial import BATCH, Trial
from benchmarks.lib import noises
from keras_het.explain import calibration


class Record(keras.callbacks.Callback):
    """The figures after every epoch: of noisy validation labels and of clean test labels."""

    def __init__(self, task, outputs):
        super().__init__()
        self.x, self.outputs = np.concatenate([task.validation.x, task.test.x]), outputs
        self.parts = {
            "noisy": (slice(len(task.validation.y)), task.validation.y),
            "clean": (slice(len(task.validation.y), None), task.test.y),
        }
        self.epochs = []

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        predicted = keras.ops.convert_to_numpy(self.outputs(self.model.predict_on_batch(self.x)))
        log_p = log_softmax(predicted.astype("float64"), axis=-1)
        self.epochs.append(
            {
                f"{name} {key}": value
                for name, (part, y) in self.parts.items()
                for key, value in scores(log_p[part], y).items()
            }
        )


def scores(log_p, y):
    """Accuracy, NLL and ECE of log-probabilities."""
    return {
        "accuracy": float((log_p.argmax(-1) == y).mean()),
        "NLL": float(-log_p[np.arange(len(y)), y].mean()),
        "ECE": calibration(np.exp(log_p), y).error,
    }


@functools.lru_cache(1)
def task_of(data, noise, seed, epochs):
    """The task, with its test and its truth."""
    task = noises.make(data, noise, seed)
    return task._replace(epochs=epochs) if epochs else task


def seen_by(method, task):
    """The task as a method may see it: only the part of the truth that it is told, and no test data."""
    return task._replace(test=None, truth=method.told(task.truth))


def run(method, key, epochs=None):
    """One line of the results, of a training."""
    start, used = time.perf_counter(), time.process_time()
    task = task_of(key["data"], key["noise"], key["seed"], epochs)
    plan = method.make(Trial(seen_by(method, task), key["head"], key["strength"], key["seed"]))
    record = Record(task, plan.outputs)
    train(plan, task.epochs, record)
    figures = {name: [round(epoch[name], 4) for epoch in record.epochs] for name in record.epochs[0]}
    traits = {
        "source": method.source,
        "knows": method.knows,
        "stops early": method.stops_early,
        "trials": len(method.strengths),
    }
    spent = {"seconds": round(time.perf_counter() - start, 2), "processor": round(time.process_time() - used, 2)}
    return {**key, **traits, **spent, **figures}


def train(plan, epochs, record):
    """`fit`, a stage after the other; of the batch size of all, where the data are no batches."""
    done = 0
    for stage in plan.stages:
        until = max(done + 1, round(stage.until * epochs))
        arguments = {"batch_size": BATCH} if len(stage.data) > 1 else {}
        arguments |= {**stage.arguments, "callbacks": [*stage.arguments.get("callbacks", []), record]}
        plan.model.fit(*stage.data, initial_epoch=done, epochs=until, verbose=0, **arguments)
        done = until
