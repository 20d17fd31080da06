"""Losses that keep a share, on two replicas of TensorFlow: `benchmarks.tests.baselines.replicas` runs them."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import pytest

pytestmark = pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="only TensorFlow has such replicas")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the losses did, or their errors."""
    path, root = tmp_path_factory.mktemp("replicas") / "found.json", pathlib.Path(__file__).parents[3]
    command = [sys.executable, "-m", "benchmarks.tests.baselines.replicas", str(path)]
    run = subprocess.run(command, cwd=root, env=os.environ, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(path.read_text())


@pytest.mark.parametrize("name", ["CoTeaching", "SelfPacedCrossentropy"])
def test_what_a_loss_holds_is_whole_and_the_same_on_both_replicas(found, name):
    assert found[name]["differ"] == []
    assert found[name]["state"]["kept_share"] == 0.5  # as assigned, and not shared out
    assert found[name]["finite"]


def test_one_that_is_made_outside_the_scope_is_refused(found):
    text = "must be made inside `strategy.scope()`, as the model is. Received: one that was made outside"
    assert text in found["outside"]
