"""The trainings of the demo: early stopping, `keras_het.choose`, and a head whose covariance is looked at."""

import keras
import numpy as np
from keras_het.training import choose, tune

from benchmarks.demo.data import CLASSES
from keras_het.explain import confused_pairs
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense

UNITS, LEARNING_RATE, WEIGHT_DECAY, BATCH = 128, 4e-3, 1.0, 128
HEAD_EPOCHS, MOST_PAIRS = 20, 8


class Progress(keras.callbacks.Callback):
    """A progress bar over all trainings, with the time that is left; as a callback it counts them.

    Args:
        total: trainings.
        verbose: 0 for no bar.
    """

    def __init__(self, total, verbose=1):
        super().__init__()
        self._bar, self._total, self.done = keras.utils.Progbar(total, verbose=verbose, unit_name="training"), total, 0

    def on_train_end(self, logs=None):
        """Keras calls it."""
        self.reach(self.done + 1)

    def reach(self, done):
        """Goes on to a number of trainings: those that were not needed count as done."""
        if done != self.done:
            self.done = done
            self._bar.update(done, finalize=done == self._total)


def body():
    """The layers below the head."""
    return [keras.layers.Dense(UNITS, "relu") for _ in range(2)]


def make_model(data):
    """A new plain model with the optimizer of all trainings: kernels decay, and nothing else."""
    model = keras.Sequential([keras.Input(data.x.shape[1:]), *body(), keras.layers.Dense(CLASSES)])
    optimizer = keras.optimizers.AdamW(LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def early_stopping(data, settings, seed, progress):
    """The model of the start and the epoch of the best accuracy on noisy labels: a fifth of them, not trained on."""

    def make_start(start):
        keras.utils.set_random_seed(1000 * seed + start)
        return make_model(data)

    cut = 4 * len(data.x) // 5
    train, held_out = (data.x[:cut], data.labels[:cut]), (data.x[cut:], data.labels[cut:])
    found = tune(
        make_start, range(settings.starts), *train, validation_data=held_out, criterion="accuracy", extend=False,
        epochs=settings.epochs, batch_size=BATCH, callbacks=[progress], verbose=0,
    )  # fmt: skip
    return found.model


def chosen(data, settings, seed, progress):
    """The `Result` of `choose` by all noisy labels."""
    start = progress.done
    found = choose(
        lambda: make_model(data), data.x, data.labels, epochs=settings.epochs, batch_size=BATCH,
        folds=settings.folds, trainings=settings.trainings_of_choose, seed=1000 * seed, callbacks=[progress], verbose=0,
    )  # fmt: skip
    progress.reach(start + settings.trainings_of_choose)  # methods that fell behind had fewer
    return found


def confused(data, settings, seed, progress):
    """The pairs of classes that a head takes for each other: `ConfusedPair` with a negative covariance."""
    keras.utils.set_random_seed(seed)
    head = HeteroscedasticDense(CLASSES, temperature=5.0, integrator=QuasiMonteCarlo(64))
    model = keras.Sequential([keras.Input(data.x.shape[1:]), *body(), head])
    model.compile(keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    epochs = min(HEAD_EPOCHS, settings.epochs)
    model.fit(data.x, data.labels, batch_size=BATCH, epochs=epochs, verbose=0, callbacks=[progress])
    return [pair for pair in confused_pairs(model, data.x) if pair.covariance < 0][:MOST_PAIRS]


def accuracy(model, data):
    """The share of right predictions of clean test labels."""
    predicted = model.predict(data.test_x, batch_size=len(data.test_x), verbose=0).argmax(-1)
    return float(np.mean(predicted == data.test_y))
