"""What every call keeps: forms of data, rows in their order, random states and what it prints."""

import random
import subprocess
import sys

import keras
import numpy as np
import pandas
import pytest

import keras_het
from keras_het import callbacks, explain, models
from keras_het.base.seeds import preserve_random_states
from keras_het.labels import choose, clean, find_issues
from keras_het.labels.methods import EarlyStopping
from keras_het.labels.synthetic import look_alike_transitions
from tests.checks import refusals
from tests.common import Batches, compiled
from tests.labels.tasks import SHORT_TRAININGS, TRUE, X, Y, make_model

pytestmark = [pytest.mark.once, SHORT_TRAININGS]

ONCE = {"epochs": 5, "batch_size": 32, "verbose": 0, "folds": 2}
VERBS = {
    "choose": lambda make, x=X, y=Y, **more: choose(make, x, y, methods=[EarlyStopping()], **ONCE | more),
    "list": lambda make, x=X, y=Y, **more: choose([make], x, y, **ONCE | more),
    "clean": lambda make, x=X, y=Y, **more: clean(make, x, y, **ONCE | more),
}


def arrays():
    return X, Y


def frames():
    index = [f"row {i}" for i in range(len(X))]
    return pandas.DataFrame(X, index=index), pandas.Series(Y, index=index)


def data_set():
    return Batches(X, Y), None


def is_right(model, x=X):
    return np.mean(model.predict(x, verbose=0).argmax(axis=1) == TRUE)


@pytest.mark.parametrize("data", [arrays, frames, data_set])
@pytest.mark.parametrize("verb", VERBS)
def test_one_function_goes_through_every_call(verb, data):
    assert is_right(VERBS[verb](make_model, *data()).model) > 0.6


def draws_after(call):
    keras.utils.set_random_seed(3)
    keras.random.uniform(())  # makes Keras' generator of draws without a seed
    call()
    return random.random(), np.random.random(), float(keras.ops.convert_to_numpy(keras.random.uniform(())))


@pytest.mark.smoke
def test_random_states_are_given_back():
    def seed():
        keras.utils.set_random_seed(9)
        keras.random.uniform(())

    kept = draws_after(lambda: None)
    assert draws_after(preserve_random_states()(seed)) == kept
    assert not set(draws_after(seed)) & set(kept)


@pytest.mark.parametrize("verb", VERBS)
def test_no_global_random_state_changes(verb):
    torch = pytest.importorskip("torch")
    assert draws_after(lambda: VERBS[verb](make_model)) == draws_after(lambda: None)
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    VERBS[verb](make_model)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("verb", VERBS)
def test_verbose_means_the_same_in_all(verb, capsys):
    lines = []
    for verbose in (0, 1, 2):
        VERBS[verb](make_model, verbose=verbose)
        shown = capsys.readouterr().out
        lines.append(("Epoch 1/5" in shown, bool(shown)))
    assert lines == [(False, False), (False, True), (True, True)]


LABELS = np.arange(30) % 3
P, FEW = 0.85 * np.eye(3)[LABELS] + 0.05, {"epochs": 1, "verbose": 0}


def model(last=None):
    made = keras.Sequential([keras.Input((3,)), last or keras.layers.Dense(3, "softmax")])
    return compiled(made, "sgd", "sparse_categorical_crossentropy")


def scale(*data):
    models.scale_temperature(model(keras_het.HeteroscedasticDense(3)), *data)


def classifier(y, x=P, **arguments):
    return keras_het.labels.Classifier(epochs=1).fit(x, y, **arguments)


CALLS = {
    "calibration": explain.calibration,
    "find_issues": find_issues,
    "regression_scores": explain.regression_scores,
    "look_alike_transitions": lambda p, y: look_alike_transitions(p, y, 0.1),
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
BLANK = "at [1], a missing label: keep only the examples with y != -1"
test_weights_and_missing_labels_that_do_not_count_are_refused = refusals([
    (lambda: classifier(NO_LABEL), BLANK),
    (lambda: scale(Batches(P, LABELS, np.full(30, 2.0))),
     "`x` must be (x, y), without weights. Received: a data set with weights"),
])  # fmt: skip


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(["sklearn", "pandas", "jinja2"]))
import keras_het
keras_het.HeteroscedasticDense(3)
try:
    keras_het.labels
except ImportError as error:
    print(error)
"""


def test_the_head_needs_no_package_of_the_labels_and_an_error_names_these():
    result = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    text = "keras_het.labels needs more packages: pip install scikit-learn pandas jinja2. "
    assert result.stdout.startswith(text), result.stdout
