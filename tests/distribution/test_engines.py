"""Several devices train as one does: every head and link, layers and losses beside them, on each engine.

`tests.distribution.training` runs them, in `nox -s "integrations(devices)"` and with `--thorough`: each starts several
processes.
"""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.distribution.cases import CASES, STEPS
from tests.distribution.training import LAYOUTS, OWN_NOISE

pytestmark = pytest.mark.thorough

ROOT, BACKEND = pathlib.Path(__file__).parents[2], keras.config.backend()
SEVERAL = list(LAYOUTS) if BACKEND == "jax" else ["replicas"]
REMEMBERS = {"early learning"}  # and refuses replicas


def run(path, *arguments):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"] if BACKEND == "torch" else []
    command = [sys.executable, *launcher, "-m", "tests.distribution.training", BACKEND, str(path), *arguments]
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "4", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What every case did on one device and on several, and the planted bug."""
    return run(tmp_path_factory.mktemp("devices") / "found.json", "--names", *CASES, OWN_NOISE)


def check(result, steps):
    """Losses and weights are those of one device, copies agree, and counters count the steps."""
    one = result["one"]
    for several in set(result) - {"one"}:
        there = result[several]
        np.testing.assert_allclose(there["losses"], one["losses"], rtol=0, atol=1e-5, err_msg=several)
        for weight, other in zip(one["weights"], there["weights"], strict=True):
            np.testing.assert_allclose(other, weight, rtol=0, atol=2e-5, err_msg=several)
        assert there["differ"] == []
        assert set(there["steps"]) == ({steps} if one["steps"] else set())


def test_a_head_trains_on_several_devices_as_on_one(tmp_path):
    result = run(tmp_path / "found.json", "--steps", "3", "--names", "full softmax")["full softmax"]
    assert list(result) == ["one", *SEVERAL]
    check(result, 3)
    assert result["one"]["steps"] == [3]
    if BACKEND == "jax":
        assert len(result["both"]["split"]) == len(result["classes"]["split"]) == 6
        assert result["data"]["split"] == result["one"]["split"] == []


@pytest.mark.parametrize("name", CASES)
def test_every_case_trains_on_several_devices_as_on_one(found, name):
    if BACKEND != "jax" and name in REMEMBERS:
        assert "must have one replica: each replica would store only a part of the examples" in found[name]
    else:
        check(found[name], STEPS)


@pytest.mark.skipif(BACKEND == "jax", reason="JAX runs one program on all devices, which draws the nodes once")
def test_replicas_with_noise_of_their_own_are_caught(found):
    """One device draws nodes for the whole batch: equal nodes on all replicas are what equals it."""
    assert np.abs(np.subtract(*[found[OWN_NOISE][key]["losses"] for key in ("one", "replicas")])).max() > 1e-4
