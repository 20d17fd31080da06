"""Long training without leaks of memory, compiled programs, numbers or steps: `python -m tests.soak`.

A small model with a head is trained by `fit` with a user's callbacks. After a tenth of the epochs, neither the resident
memory nor the numbers of traces and compilations may grow. The losses must be finite, and the counter of the noise must
equal the number of steps. A training of a fifth of the steps that is interrupted at a random step, and resumed in a new
model, must end with the same weights, to the bit.
"""

import argparse
import pathlib
import sys
import tempfile
import time

import keras
import numpy as np

from keras_het.callbacks import TrainingDynamics
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.metrics import ExpectedCalibrationError

UNITS, FEATURES, BATCH = 10, 16, 32
MOST_MEBIBYTES = 32  # by which the memory may grow after the warm-up, whatever the number of steps
WARM_UP = 0.1  # fraction of the epochs
STEPS_OF_EPOCH = 200


class Traced(keras.layers.Layer):
    """Layer that returns its inputs, and counts how often Python runs it: once for each compiled program."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.count = 0

    def call(self, inputs):
        self.count += 1
        return inputs


class Watch(keras.callbacks.Callback):
    """Callback that checks memory, programs and losses after every epoch, and keeps the weights of one epoch."""

    def __init__(self, kept_epoch):
        super().__init__()
        self.kept_epoch, self.compilations = kept_epoch, compilations()
        self.memory, self.programs, self.weights = [], [], None

    def on_epoch_end(self, epoch, logs=None):
        if not np.isfinite([logs["loss"], logs["val_loss"]]).all():
            raise AssertionError(f"a loss of epoch {epoch} is not finite: {logs}")
        self.memory.append(resident_mebibytes())
        self.programs.append((self.model.get_layer("traced").count, len(self.compilations)))
        if epoch + 1 == self.kept_epoch:
            self.weights = self.model.get_weights()

    def faults(self, steps):
        # Callbacks of Keras compile their comparisons as late as in the third epoch.
        warm = min(len(self.memory) - 1, max(2, round(WARM_UP * len(self.memory))))
        grown = min(self.memory[-max(1, len(self.memory) // 20) :]) - self.memory[warm]
        counter = int(keras.ops.convert_to_numpy(self.model.get_layer("head").clock.step))
        before, after = self.programs[warm], self.programs[-1]
        holds = {
            f"the memory has grown by {grown:.1f} MiB, above {MOST_MEBIBYTES}": grown < MOST_MEBIBYTES,
            f"programs were made again: {before}, then {after}": keras.config.backend() == "torch" or before == after,
            f"the counter is {counter} after {steps} steps": counter == steps,
        }
        return [words for words, right in holds.items() if not right]


class KilledError(Exception):
    """Stand-in for the end of a process."""


class KillAt(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step, self.count = step, 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        if self.count == self.step:
            raise KilledError


def resident_mebibytes():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def compilations():
    """Returns a list that grows with every program that JAX compiles. It stays empty on other backends."""
    events = []
    if keras.config.backend() == "jax":
        import jax

        def listen(event, seconds, **others):
            if event.endswith("backend_compile_duration"):
                events.append(event)

        jax.monitoring.register_event_duration_secs_listener(listen)
    return events


def make_model():
    keras.utils.set_random_seed(0)
    head = HeteroscedasticDense(UNITS, 3, integrator=QuasiMonteCarlo(32), seed=0, name="head")
    layers = [keras.Input((FEATURES,)), Traced(name="traced"), keras.layers.Dense(32, "relu"), head]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = ["accuracy", ExpectedCalibrationError(from_logits=True)]
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=metrics)
    return model


def data(steps_of_epoch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH * steps_of_epoch + 64, FEATURES)).astype("float32")
    y = (x @ rng.normal(size=(FEATURES, UNITS))).argmax(-1)
    y = np.where(rng.random(len(y)) < 0.2, rng.integers(UNITS, size=len(y)), y)
    return (x[64:], y[64:]), (x[:64], y[:64])


def fit(model, examples, epochs, folder, first=(), last=()):
    training, validation = examples
    log = keras.callbacks.CSVLogger(folder / "log.csv", append=True)
    watching = [keras.callbacks.ReduceLROnPlateau(patience=50), log]
    record = TrainingDynamics(*training, history=False)
    best = keras.callbacks.ModelCheckpoint(folder / "best.keras", save_best_only=True)
    callbacks = [*first, *watching, record, best, keras.callbacks.BackupAndRestore(folder / "backup"), *last]
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}  # the resumed training has the same order
    try:
        model.fit(*training, epochs=epochs, validation_data=validation, callbacks=callbacks, **options)
    finally:
        log.csv_file.close()


def watched(epochs, steps_of_epoch, kept_epoch, planted=()):
    """Returns the faults of a training, and the weights after an epoch of it."""
    watch = Watch(kept_epoch)
    with tempfile.TemporaryDirectory() as folder:
        fit(make_model(), data(steps_of_epoch), epochs, pathlib.Path(folder), first=[watch], last=planted)
    return watch.faults(epochs * steps_of_epoch), watch.weights


def resumed(epochs, steps_of_epoch, step, planted=()):
    """Returns the weights of a training that is stopped after a step and resumed in a new model."""
    examples = data(steps_of_epoch)
    with tempfile.TemporaryDirectory() as folder:
        try:
            fit(make_model(), examples, epochs, pathlib.Path(folder), last=[KillAt(step)])
        except KilledError:
            model = make_model()
            fit(model, examples, epochs, pathlib.Path(folder), last=planted)
            return model.get_weights()
    raise ValueError(f"`step` must be one of the training. Received: {step}")


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000, help="of the training (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the interruption (default: %(default)s)")
    options = parser.parse_args(arguments)
    steps_of_epoch = max(1, min(STEPS_OF_EPOCH, options.steps // 10))
    epochs = options.steps // steps_of_epoch
    kept = max(2, epochs // 5)
    step = int(np.random.default_rng(options.seed).integers(steps_of_epoch, kept * steps_of_epoch))
    start = time.monotonic()
    faults, weights = watched(epochs, steps_of_epoch, kept)
    print(f"{keras.config.backend()}: {epochs * steps_of_epoch} steps in {time.monotonic() - start:.0f} s", flush=True)
    if not all(map(np.array_equal, resumed(kept, steps_of_epoch, step), weights)):
        faults.append(f"the training that was resumed after step {step} ended elsewhere")
    print(*(f"FAILED: {fault}" for fault in faults), sep="\n", flush=True)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
