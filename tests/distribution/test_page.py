"""The example of the page runs, with fewer classes: on JAX and four devices, where the other pages' examples do not."""

import os
import pathlib
import subprocess
import sys

import keras
import pytest

ROOT = pathlib.Path(__file__).parents[2]
COLUMNS = 76


@pytest.mark.thorough
@pytest.mark.skipif(keras.config.backend() != "jax", reason="keras.distribution splits weights on JAX alone")
def test_the_example_of_the_page_runs():
    page = (ROOT / "docs" / "several-devices.md").read_text()
    (example,) = (block.split("```")[0] for block in page.split("```py\n")[1:])
    assert "100_000" in example
    assert max(map(len, example.splitlines())) <= COLUMNS
    environment = {**os.environ, "JAX_NUM_CPU_DEVICES": "4", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", example.replace("100_000", "1_000")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "(None, 'model')" in done.stdout
