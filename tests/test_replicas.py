"""Every loss and every metric of the package is correct on two replicas, or refuses: `tests.replicas` runs them."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.marks import grid
from tests.replicas import EARLY_LEARNING, LOSSES, METRICS, OUTSIDE

pytestmark = pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="only TensorFlow has such replicas")

# One of each kind by default, and all by `nox -s thorough`.
SPAN = ["ExpectedCalibrationError", EARLY_LEARNING, "SymmetricCrossentropy"]


def cases(names):
    return grid(sorted(names), span=set(names) & set(SPAN), beyond=pytest.mark.thorough)


@pytest.fixture(scope="module")
def results(tmp_path_factory, pytestconfig):
    """Returns the results of losses and metrics on one replica, and on two."""
    names = [] if pytestconfig.getoption("--thorough") else SPAN
    path, root = tmp_path_factory.mktemp("replicas") / "found.json", pathlib.Path(__file__).parent.parent
    command = [sys.executable, "-m", "tests.replicas", str(path), *names]
    run = subprocess.run(command, cwd=root, env=os.environ, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", cases(METRICS))
def test_a_metric_is_that_of_one_replica(results, name):
    one, two = results[name]
    np.testing.assert_allclose(two, one, rtol=1e-5)


@pytest.mark.parametrize("name", cases(LOSSES))
def test_a_loss_without_a_state_trains_as_on_one_replica(results, name):
    one, two = results[name]
    np.testing.assert_allclose(two, one, atol=1e-6)


def test_a_model_with_a_memory_refuses(results):
    text = "must have one replica: each replica would store only a part of the examples. Received: a strategy of 2"
    assert text in results[EARLY_LEARNING][1]


@pytest.mark.parametrize("name", sorted(OUTSIDE))
def test_one_that_is_made_outside_the_scope_is_refused(results, name):
    text = "must be made inside `strategy.scope()`, like the model. Received: one that was made outside"
    assert text in results[f"{name}, made outside"]
