"""A long training, and whether it loses memory, compiled programs, numbers or steps.

    python -m tests.soak --steps 10000

A small model with a head is trained by `fit` with the callbacks that a user has. After a tenth of the epochs the
resident memory, the number of traces and that of compilations must not grow any more. The losses must be finite. The
counter of the noise must be the number of steps. And a training of a fifth of the steps that is interrupted at a random
step, and resumed in a new model, must end with the same weights, to the bit.
"""

import argparse
import pathlib
import sys
import tempfile
import time
from typing import NamedTuple

import keras
import numpy as np

from keras_het.callbacks import HeteroscedasticMonitor, TrainingDynamics
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.metrics import ExpectedCalibrationError

UNITS, FEATURES, BATCH = 10, 16, 32
MEBIBYTES = 32  # by which the memory may grow after the warm-up, whatever the number of steps
WARM_UP = 0.1  # of the epochs
STEPS_OF_EPOCH = 200


class Traced(keras.layers.Layer):
    """Hands its inputs on, and counts how often Python runs it: once for each program where it is compiled."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.count = 0

    def call(self, inputs):
        self.count += 1
        return inputs


class Figures(NamedTuple):
    """What a training has shown.

    Attributes:
        steps: that were trained.
        counter: of the noise, at the end.
        memory: resident MiB after the warm-up, and the least of the last twentieth of the epochs.
        programs: traces and compilations after the warm-up and at the end; None where nothing is compiled.
        seconds: of the training.
    """

    steps: int
    counter: int
    memory: tuple[float, float]
    programs: tuple[tuple[int, int], tuple[int, int]] | None
    seconds: float

    def faults(self):
        """What is wrong, in words."""
        grown = self.memory[1] - self.memory[0]
        checks = {
            f"the memory has grown by {grown:.1f} MiB, above {MEBIBYTES}": grown < MEBIBYTES,
            f"programs were made again: {self.programs}": self.programs is None or self.programs[0] == self.programs[1],
            f"the counter is {self.counter} after {self.steps} steps": self.counter == self.steps,
        }
        return [words for words, holds in checks.items() if not holds]

    def __str__(self):
        before, after = self.memory
        programs = "nothing is compiled"
        if self.programs is not None:
            programs = "{} traces and {} compilations after the warm-up, {} and {} at the end".format(
                *self.programs[0], *self.programs[1]
            )
        return (
            f"{self.steps} steps in {self.seconds:.0f} s, counter {self.counter}; {before:.1f} MiB after the warm-up, "
            f"{after:.1f} MiB at the end; {programs}"
        )


class Watch(keras.callbacks.Callback):
    """Looks at memory, programs and losses after every epoch, and keeps the weights after one of them."""

    def __init__(self, epochs, kept_epoch, compilations):
        super().__init__()
        self.epochs, self.kept_epoch, self.compilations = epochs, kept_epoch, compilations
        self.memory, self.programs, self.weights = [], [], None

    def on_epoch_end(self, epoch, logs=None):
        if not np.isfinite([logs["loss"], logs["val_loss"]]).all():
            raise AssertionError(f"a loss of epoch {epoch} is not finite: {logs}")
        self.memory.append(resident())
        self.programs.append((self.model.get_layer("traced").count, len(self.compilations)))
        if epoch + 1 == self.kept_epoch:
            self.weights = self.model.get_weights()

    def warm(self, values):
        """The values after the warm-up."""
        return values[max(1, round(WARM_UP * self.epochs)) :]


class KilledError(Exception):
    """Stands for the end of a process."""


class KillAt(keras.callbacks.Callback):
    """Ends a training after a step."""

    def __init__(self, step):
        super().__init__()
        self.step, self.count = step, 0

    def on_train_batch_end(self, batch, logs=None):
        self.count += 1
        if self.count == self.step:
            raise KilledError


def resident():
    """The resident memory of this process, in MiB."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def count_compilations():
    """A list that grows by an entry with every program that JAX compiles; it stays empty on the other backends."""
    found = []
    if keras.config.backend() == "jax":
        import jax

        def listen(event, seconds, **others):
            if event.endswith("backend_compile_duration"):
                found.append(event)

        jax.monitoring.register_event_duration_secs_listener(listen)
    return found


def make_model():
    """A compiled model with a head, equal whenever it is made."""
    keras.utils.set_random_seed(0)
    integrator = QuasiMonteCarlo(32)
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            Traced(name="traced"),
            keras.layers.Dense(32, "relu"),
            HeteroscedasticDense(UNITS, 3, integrator=integrator, seed=0, name="head"),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metrics = ["accuracy", ExpectedCalibrationError(from_logits=True)]
    model.compile(keras.optimizers.Adam(1e-3), loss, metrics=metrics)
    return model


def data(steps_of_epoch):
    """Examples and noisy labels of an epoch, and of the validation."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH * steps_of_epoch + 64, FEATURES)).astype("float32")
    y = (x @ rng.normal(size=(FEATURES, UNITS))).argmax(-1)
    y = np.where(rng.random(len(y)) < 0.2, rng.integers(UNITS, size=len(y)), y)
    return (x[64:], y[64:]), (x[:64], y[:64])


def fit(model, examples, epochs, folder, first=(), last=()):
    """Trains a model as a user does.

    Args:
        model: a compiled model.
        examples: those of the training and those of the validation, as `data` gives them.
        epochs: of the training.
        folder: for the files of the callbacks.
        first: callbacks that are called before the others.
        last: callbacks that are called after them.
    """
    training, validation = examples
    log = keras.callbacks.CSVLogger(folder / "log.csv", append=True)
    callbacks = [
        *first,
        HeteroscedasticMonitor(validation),
        TrainingDynamics(*training, history=False, path=folder / "dynamics.npz"),
        log,
        keras.callbacks.ModelCheckpoint(folder / "best.keras", save_best_only=True),
        keras.callbacks.ReduceLROnPlateau(patience=50),
        keras.callbacks.BackupAndRestore(folder / "backup"),
        *last,
    ]
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0}  # an order that the resumed training has, too
    try:
        model.fit(*training, epochs=epochs, validation_data=validation, callbacks=callbacks, **options)
    finally:
        log.csv_file.close()


def watched(epochs, steps_of_epoch, kept_epoch, planted=()):
    """The figures of a training, and the weights after an epoch of it.

    Args:
        epochs: of the training.
        steps_of_epoch: how many steps an epoch has.
        kept_epoch: after which the weights are kept.
        planted: further callbacks.
    """
    watch, model = Watch(epochs, kept_epoch, count_compilations()), make_model()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        fit(model, data(steps_of_epoch), epochs, pathlib.Path(folder), first=[watch], last=planted)
    memory, programs = watch.warm(watch.memory), watch.warm(watch.programs)
    figures = Figures(
        steps=epochs * steps_of_epoch,
        counter=int(keras.ops.convert_to_numpy(model.get_layer("head").clock.step)),
        memory=(memory[0], min(memory[-max(1, epochs // 20) :])),
        programs=None if keras.config.backend() == "torch" else (programs[0], programs[-1]),
        seconds=time.monotonic() - start,
    )
    return figures, watch.weights


def resumed(epochs, steps_of_epoch, step, planted=()):
    """The weights of a training that is ended after a step, and goes on in a new model.

    Args:
        epochs: of the training.
        steps_of_epoch: how many steps an epoch has.
        step: after which it is ended.
        planted: further callbacks of the training that goes on.
    """
    examples = data(steps_of_epoch)
    with tempfile.TemporaryDirectory() as folder:
        try:
            fit(make_model(), examples, epochs, pathlib.Path(folder), last=[KillAt(step)])
        except KilledError:
            model = make_model()
            fit(model, examples, epochs, pathlib.Path(folder), last=planted)
            return model.get_weights()
    raise ValueError(f"`step` must be one of the training. Received: {step}")


def same(weights, others):
    """Whether two lists of weights are equal to the bit."""
    return all(map(np.array_equal, weights, others))


def main(arguments=None):
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000, help="of the training (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the interruption (default: %(default)s)")
    options = parser.parse_args(arguments)
    steps_of_epoch = max(1, min(STEPS_OF_EPOCH, options.steps // 10))
    epochs = options.steps // steps_of_epoch
    kept = max(2, epochs // 5)
    step = int(np.random.default_rng(options.seed).integers(steps_of_epoch, kept * steps_of_epoch))
    figures, weights = watched(epochs, steps_of_epoch, kept)
    faults = figures.faults()
    end = "the same weights"
    if not same(resumed(kept, steps_of_epoch, step), weights):
        end = "other weights"
        faults.append(f"the training that was resumed after step {step} ended elsewhere")
    print(f"{keras.config.backend()}: {figures}; interrupted after step {step} and resumed: {end}", flush=True)
    print("".join(f"FAILED: {fault}\n" for fault in faults), end="", flush=True)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
