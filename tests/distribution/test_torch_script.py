"""The script for PyTorch: two processes train as one, and unequal batches are refused."""

import json
import os
import pathlib
import subprocess
import sys

import h5py
import keras
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = "guides/scripts/several_devices_torch.py"
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(keras.config.backend() != "torch", reason="the script is for PyTorch"),
]


def run(processes, *arguments):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)] * (processes > 1)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, SCRIPT, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def weights_of(path):
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, each: found.update({name: each[()]}) if isinstance(each, h5py.Dataset) else None)
    return found


def test_two_processes_train_as_one(tmp_path):
    found, ends = {}, {}
    for processes in (1, 2):
        losses, weights = tmp_path / f"{processes}.json", tmp_path / f"{processes}.weights.h5"
        done = run(processes, "--output", str(losses), "--weights", str(weights))
        assert done.returncode == 0, done.stderr[-3000:]
        found[processes] = json.loads(losses.read_text())
        ends[processes] = weights_of(weights)
    assert len(found[1]) == 30
    assert found[1][-1] < 0.9 * found[1][0]
    np.testing.assert_allclose(found[2], found[1], atol=1e-5)
    assert len(ends[1]) > 6
    assert list(ends[1]) == list(ends[2])
    for name, weight in ends[1].items():
        np.testing.assert_allclose(ends[2][name], weight, atol=2e-5, err_msg=name)


def test_ranks_of_unequal_batches_are_refused():
    done = run(2, "--batch-size", "33")
    assert done.returncode != 0
    rule = "`batch_size` must be divisible by the number of processes, in every step"
    assert f"ValueError: {rule}. Received: ranks of [17, 16] examples" in done.stderr
