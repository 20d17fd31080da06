"""Draws the picture of regressions: intervals of diabetes' targets, and a planted covariance beside the learned one.

KERAS_BACKEND=torch python docs/figures/regression.py
"""

import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import keras_het

HERE = pathlib.Path(__file__).parent


def planted(count=4000, seed=0):
    """Returns features, three targets whose errors have two factors, and their covariances, `(count, 3, 3)`."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2))
    factor = np.stack([np.outer(np.ones(count), [1.0, 0.6, -0.4]), np.outer(x[:, 0], [0.0, 0.5, 0.7])], axis=-1)
    noise = np.einsum("nkr,nr->nk", factor, rng.normal(size=(count, 2))) + 0.3 * rng.normal(size=(count, 3))
    y = np.sin(x @ rng.normal(size=(2, 3))) + noise
    return x, y, factor @ factor.swapaxes(1, 2) + 0.09 * np.eye(3)


def regression(x, y, train, held_out, num_factors):
    """Returns a model whose mean is fitted by the squared error, then its covariance, each with early stopping."""
    keras.utils.set_random_seed(0)
    mean = keras.Sequential([keras.Input(x.shape[1:]), keras.layers.Dense(16, "relu"), keras.layers.Dense(y.shape[1])])
    mean.compile(keras.optimizers.Adam(0.01), "mse")
    data = (x[train], y[train]), (x[held_out], y[held_out])
    fit(mean, *data)
    model = keras_het.models.heteroscedastic_regression(mean, *data[1], num_factors=num_factors, seed=0)
    fit(model, *data)
    return model


def fit(model, data, held_out):
    """Trains to the epoch with the best loss on held-out examples."""
    stopping = keras.callbacks.EarlyStopping(patience=20, restore_best_weights=True)
    model.fit(*data, validation_data=held_out, batch_size=32, epochs=200, callbacks=[stopping], verbose=0)


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=(3, 2))
x, y = load_diabetes(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
x, y = x[order], y[order, None]
x, y = ((part - part[:260].mean(0)) / part[:260].std(0) for part in (x, y))
model = regression(x, y, slice(260), slice(260, 350), 0)
rows = np.argsort(model.predict(x[350:], verbose=0)[:, 0])
place, test = np.arange(len(rows)), x[350:][rows]
for level, alpha in ((0.9, 0.25), (0.5, 0.45)):
    low, high = (end[:, 0] for end in model.predict_interval(test, level, verbose=0))
    left.fill_between(place, low, high, alpha=alpha, color="tab:blue", lw=0, step="mid", label=f"{level:.0%} interval")
left.plot(place, model.predict(test, verbose=0)[:, 0], color="tab:blue", label="mean")
left.plot(place, y[350:][rows, 0], ".", color="black", label="target")
left.set(xlabel="test patients, by predicted mean", ylabel="progress of diabetes, standardised")
left.legend(frameon=False, loc="upper left")

x, y, covariance = planted()
model = regression(x, y, slice(2000), slice(2000, 2500), 2)
learned = model.predict_covariance(x[2500:], verbose=0)
for first, second in ((0, 1), (0, 2), (1, 2)):
    pair = covariance[2500:, first, second], learned[:, first, second]
    right.plot(*pair, ".", ms=3, label=f"targets {first + 1} and {second + 1}")
ends = [covariance[2500:].min(), np.quantile(covariance[2500:, 1, 2], 0.999)]
right.plot(ends, ends, color="black", lw=0.8)
right.set(xlabel="planted covariance", ylabel="learned covariance")
right.legend(frameon=False, markerscale=3)
figure.savefig(HERE / "regression.png", dpi=110)
