"""Hyperparameter value and epoch with the lowest loss on validation labels."""

import time
from typing import Any, NamedTuple

import keras
import numpy as np


class Tuned(NamedTuple):
    """Best value, its epoch from 1 and validation loss, the model at that epoch, and the seconds of each value."""

    value: Any
    epoch: int
    loss: float
    model: keras.Model
    seconds: list[float]


def tune(make_model, values, x, y, validation_data, **fit):
    """Trains a model for each value, and keeps the weights of its best epoch."""
    results, seconds = [], []
    for value in values:
        model, start = make_model(value), time.perf_counter()
        stop = keras.callbacks.EarlyStopping("val_loss", patience=fit["epochs"], restore_best_weights=True)
        arguments = {"validation_data": tuple(validation_data), "callbacks": [stop], "verbose": 0, **fit}
        losses = np.nan_to_num(model.fit(x, y, **arguments).history["val_loss"], nan=np.inf)
        seconds.append(time.perf_counter() - start)
        results.append(Tuned(value, int(np.argmin(losses)) + 1, float(np.min(losses)), model, seconds))
    return min(results, key=lambda tuned: tuned.loss)
