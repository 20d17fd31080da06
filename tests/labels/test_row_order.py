"""Columns of pandas that belong together are paired by their index, in every call, and never by their place."""

import keras
import numpy as np
import pandas
import pytest

import keras_het
from keras_het import callbacks, explain, models
from keras_het.labels import choose, clean, find_issues
from keras_het.labels.diagnosis import diagnose
from keras_het.labels.report.findings import collect
from keras_het.labels.synthetic import look_alike_transitions
from tests.checks import refusals
from tests.common import Batches

pytestmark = pytest.mark.once

LABELS = np.arange(30) % 3
P = 0.85 * np.eye(3)[LABELS] + 0.05
FEW = {"epochs": 1, "verbose": 0}


def model(last=None):
    made = keras.Sequential([keras.Input((3,)), last or keras.layers.Dense(3, "softmax")])
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made


def scale(*data):
    models.scale_temperature(model(keras_het.HeteroscedasticDense(3)), *data)


def classifier(y, x=P, **arguments):
    return keras_het.labels.Classifier(epochs=1).fit(x, y, **arguments)


CALLS = {
    "calibration": explain.calibration,
    "diagnose": diagnose,
    "find_issues": find_issues,
    "a model's issues": lambda p, y: find_issues(model(), y, p),
    "regression_scores": explain.regression_scores,
    "look_alike_transitions": lambda p, y: look_alike_transitions(p, y, 0.1),
    "report": lambda p, y: collect(model(), p, y),
    "temperature": scale,
    "TrainingDynamics": callbacks.TrainingDynamics,
    "choose": lambda p, y: choose(model, p, y, methods=[], folds=2, **FEW),
    "clean": lambda p, y: clean(model, p, y, probabilities=P, **FEW),
    "probabilities": lambda p, y: clean(model, P, y, probabilities=p, **FEW),
    "weights": lambda p, y: clean(model, p, LABELS, probabilities=P, sample_weight=y, **FEW),
    "Classifier": lambda p, y: classifier(y, p),
    "weights of a Classifier": lambda p, y: classifier(LABELS, p, sample_weight=y),
}


@pytest.mark.parametrize("call", CALLS)
def test_rows_in_another_order_are_refused(call):
    p, y = pandas.DataFrame(P), pandas.Series(LABELS)[::-1]
    with pytest.raises(ValueError, match=r"`[\w\[\]]+` must have the index of `[\w\[\]]+`.*\. Received: \d+ at"):
        CALLS[call](p, y)


NO_LABEL = np.where(np.arange(30) == 1, -1, LABELS)
BLANK = "at [1], no label: leave such examples out (keep those of y != -1)"
test_weights_and_missing_labels_that_do_not_count_are_refused = refusals([
    (lambda: classifier(NO_LABEL), BLANK),
    (lambda: scale(Batches(P, LABELS, np.full(30, 2.0))),
     "`x` must be (x, y), for weights do not count. Received: a data set with weights"),
])  # fmt: skip
