"""What is logged of the noise of a head: against dense matrices, and seen by the other callbacks."""

import csv

import keras
import numpy as np
import pytest

from keras_het.callbacks import HeteroscedasticMonitor
from keras_het.explain import calibration, covariance
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from tests.checks import refusals

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 6)).astype("float32"), RNG.integers(5, size=40)


def make_model(*behind, **arguments):
    head = HeteroscedasticDense(5, **{"num_factors": 2, "name": "head", "seed": 0, **arguments})
    model = keras.Sequential([keras.Input((6,)), head, *behind])
    for weight in head.trainable_weights:
        weight.assign(0.5 * RNG.normal(size=weight.shape))
    model.compile("sgd", head.link.loss())
    return model, head


def monitored(model, x=X, y=Y, **arguments):
    return model.fit(x, y, epochs=2, batch_size=20, verbose=0, **arguments).history


@pytest.mark.parametrize(
    "arguments", [{}, {"parameter_efficient": True}, {"num_factors": 0}], ids=["full", "efficient", "diagonal"]
)
def test_the_figures_are_those_of_the_dense_matrix_after_the_epoch(arguments):
    model, head = make_model(**arguments)
    history = monitored(model, callbacks=[HeteroscedasticMonitor((X[:30], Y[:30]), batch_size=16)])
    matrix = covariance(model, X[:30])
    variances, squares = np.diagonal(matrix), np.square(matrix).sum()
    d = (
        np.square(keras.ops.convert_to_numpy(head.logit_distribution(X[:30]).scale_diag)).mean(axis=0)
        / head.temperature**2
    )
    expected = {
        "head_noise_sd": np.sqrt(variances.mean()),
        "head_diagonal_fraction": d.sum()
        * 0.8
        / variances.sum(),  # centred, a variance of one of five classes keeps 4/5
        "head_off_diagonal_fraction": 1 - np.square(variances).sum() / squares,
        "head_effective_rank": variances.sum() ** 2 / squares,
        "val_ece": calibration(np.exp(model.predict(X[:30], verbose=0)), Y[:30]).error,
    }
    assert {name: history[name][-1] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert len(history["val_ece"]) == 2
    eigenvalues = np.linalg.eigvalsh(matrix)
    assert history["head_effective_rank"][-1] == pytest.approx(
        eigenvalues.sum() ** 2 / np.square(eigenvalues).sum(), rel=1e-4
    )


@pytest.mark.smoke
def test_a_logger_behind_it_sees_the_figures(tmp_path):
    model, _ = make_model()
    callbacks = [HeteroscedasticMonitor((X, Y)), keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))]
    history = monitored(model, callbacks=callbacks)
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [float(row["head_noise_sd"]) for row in rows] == pytest.approx(history["head_noise_sd"])


def test_before_flips_and_of_labels_that_are_not_exclusive():
    model, _ = make_model(NoiseTransition(5))
    assert "val_ece" in monitored(model, callbacks=[HeteroscedasticMonitor((X, Y))])
    model, _ = make_model(link="sigmoid")
    vectors = np.eye(5)[Y]
    history = monitored(model, y=vectors, callbacks=[HeteroscedasticMonitor((X, vectors))])
    assert "head_noise_sd" in history
    assert "val_ece" not in history


def fitted(model):
    model.compile("sgd", "sparse_categorical_crossentropy")
    monitored(model, callbacks=[HeteroscedasticMonitor((X, Y))])


test_errors_say_what_is_wrong = refusals([
    (lambda: HeteroscedasticMonitor(None),
     "`validation_data` must be (x, y) or a data set. Received: validation_data=None"),
    (lambda: HeteroscedasticMonitor((X, Y, Y)),
     "`validation_data` must be (x, y), for weights do not count. Received: three parts"),
    (lambda: fitted(make_model()[0]), "`loss` must take log-probabilities"),
    (lambda: fitted(keras.Sequential([keras.Input((6,)), keras.layers.Dense(5, "softmax")])),
     "must end in a HeteroscedasticDense layer"),
])  # fmt: skip
