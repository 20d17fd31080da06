"""Files of a model that four devices share, and the example of the page about several devices."""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[2]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(keras.config.backend() != "jax", reason="keras.distribution splits weights on JAX alone"),
]


def test_a_file_of_four_devices_goes_on_on_one_and_back(tmp_path):
    command = [sys.executable, "-m", "tests.distribution.checkpoint", str(tmp_path)]
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "4", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    four, one, later, again = (found[name] for name in ("four", "one", "one, later", "four again"))
    assert [state["clock"] for state in (four, one, found["one, weights alone"], later, again)] == [2, 2, 2, 4, 4]
    assert [state["split"] for state in (four, one, later, again)] == [7, 0, 0, 7]
    for first, second in ((four, one), (four, found["one, weights alone"]), (later, again)):
        np.testing.assert_allclose(second["predictions"], first["predictions"], atol=1e-6)
    assert np.abs(np.subtract(four["predictions"], later["predictions"])).max() > 1e-3  # two steps lie between
    np.testing.assert_allclose(one["losses"], four["losses"], atol=1e-5)
    np.testing.assert_allclose(again["losses"], later["losses"], atol=1e-5)


COLUMNS = 76


def test_the_example_of_the_page_runs():
    page = (ROOT / "docs" / "backends.md").read_text()
    (example,) = (block.split("```")[0] for block in page.split("```py\n")[1:] if "100_000" in block)
    assert max(map(len, example.splitlines())) <= COLUMNS
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "4", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", example.replace("100_000", "1_000")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "(None, 'model')" in done.stdout
