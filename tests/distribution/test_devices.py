"""Several devices train as one does: every head and link, layers and losses beside them, files, and the page's example.

They run in `nox -s "integrations(devices)"` and with `--thorough`: each starts several processes.
"""

import json
import re

import keras
import numpy as np
import pytest

import keras_het
from tests.common import ROOT, python
from tests.distribution import compiled
from tests.distribution.cases import CASES, STEPS
from tests.distribution.training import LAYOUTS

pytestmark = pytest.mark.thorough

BACKEND = keras.config.backend()
SEVERAL = list(LAYOUTS) if BACKEND == "jax" else ["replicas"]
REMEMBERS = {"early learning"}  # and refuses replicas
SCRIPT = "guides/scripts/several_devices_torch.py"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
on_jax = pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution splits weights on JAX alone")
on_torch = pytest.mark.skipif(BACKEND != "torch", reason="the script is for PyTorch")


def output_of(*arguments):
    return python(*arguments, JAX_NUM_CPU_DEVICES="4", OMP_NUM_THREADS="1", check=True).stdout


def train(path, *arguments):
    launcher = TORCHRUN if BACKEND == "torch" else ()
    output_of(*launcher, "-m", "tests.distribution.training", BACKEND, str(path), *arguments)
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return train(tmp_path_factory.mktemp("devices") / "results.json")


def check(result, steps):
    """Losses and weights are as on one device, copies agree, and counters count the steps."""
    one = result["one"]
    for several in set(result) - {"one"}:
        there = result[several]
        np.testing.assert_allclose(there["losses"], one["losses"], rtol=0, atol=1e-5, err_msg=several)
        for weight, other in zip(one["weights"], there["weights"], strict=True):
            np.testing.assert_allclose(other, weight, rtol=0, atol=2e-5, err_msg=several)
        assert there["differ"] == []
        assert set(there["steps"]) == ({steps} if one["steps"] else set())


def test_a_head_trains_on_several_devices_as_on_one(tmp_path):
    result = train(tmp_path / "result.json", "--steps", "3", "--names", "full softmax")["full softmax"]
    assert list(result) == ["one", *SEVERAL]
    check(result, 3)
    assert result["one"]["steps"] == [3]
    if BACKEND == "jax":
        assert len(result["both"]["split"]) == len(result["classes"]["split"]) == 6
        assert result["data"]["split"] == result["one"]["split"] == []


@pytest.mark.parametrize("name", CASES)
def test_every_case_trains_on_several_devices_as_on_one(results, name):
    if BACKEND != "jax" and name in REMEMBERS:
        assert "must have one replica: each replica would store only a part of the examples" in results[name]
    else:
        check(results[name], STEPS)


@on_jax
def test_a_file_of_four_devices_goes_on_on_one_and_back(tmp_path):
    result = json.loads(output_of("-m", "tests.distribution.training", "files", str(tmp_path)).splitlines()[-1])
    four, one, later, again = (result[name] for name in ("four", "one", "one, later", "four again"))
    assert [state["clock"] for state in (four, one, result["one, weights alone"], later, again)] == [2, 2, 2, 4, 4]
    assert [state["split"] for state in (four, one, later, again)] == [7, 0, 0, 7]
    for first, second in ((four, one), (four, result["one, weights alone"]), (later, again)):
        np.testing.assert_allclose(second["predictions"], first["predictions"], atol=1e-6)
    assert np.abs(np.subtract(four["predictions"], later["predictions"])).max() > 1e-3  # two steps lie between
    np.testing.assert_allclose(one["losses"], four["losses"], atol=1e-5)
    np.testing.assert_allclose(again["losses"], later["losses"], atol=1e-5)


@on_jax
def test_the_example_of_the_page_runs():
    page = (ROOT / "docs" / "backends.md").read_text()
    (example,) = (block.split("```")[0] for block in page.split("```py\n")[1:] if "100_000" in block)
    assert max(map(len, example.splitlines())) <= 76
    assert "(None, 'model')" in output_of("-c", example.replace("100_000", "1_000"))


@on_torch
def test_the_script_trains_in_two_processes_as_in_one(tmp_path):
    losses = []
    for number, launcher in enumerate(((), TORCHRUN)):
        output_of(*launcher, SCRIPT, "--output", str(tmp_path / f"{number}.json"))
        losses.append(json.loads((tmp_path / f"{number}.json").read_text()))
    assert len(losses[0]) == 30
    assert losses[0][-1] < 0.9 * losses[0][0]
    np.testing.assert_allclose(losses[1], losses[0], atol=1e-5)


@on_torch
def test_ranks_of_unequal_batches_are_refused():
    done = python(*TORCHRUN, SCRIPT, "--batch-size", "33")
    rule = "`batch_size` must be divisible by the number of processes, in every step"
    assert f"ValueError: {rule}. Received: ranks of [17, 16] examples" in done.stderr


SIZES = {"units": 100_000, "features": 64, "batch": 128}
AS_USERS = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "false", "XLA_FLAGS": ""}


def measured(covariance, count, **sizes):
    row = json.dumps({"covariance": covariance, "devices": count, **SIZES, **sizes})
    return json.loads(python("-m", compiled.__name__, row, check=True, **compiled.ENVIRONMENT, **AS_USERS).stdout)


def estimated(covariance, count):
    rows = keras_het.estimate_cost(**SIZES, devices=count).rows
    (found,) = [row for row in rows if row.covariance == covariance]
    return found.train_bytes / 2**20


@on_jax
@pytest.mark.parametrize("covariance", ["low_rank", "parameter_efficient"])
def test_each_of_four_devices_holds_a_quarter_and_gathers_no_classes(covariance):
    """What XLA compiles: K = 100,000, D = 64, R = 15; and the estimates are within 30%."""
    one, four = (measured(covariance, count) for count in compiled.DEVICES)
    assert one["exchanged"] == {}
    assert four["MiB"] == pytest.approx(one["MiB"] / 4, rel=0.2)
    assert not large(four["exchanged"], SIZES["units"] // 4)
    for count, found in zip(compiled.DEVICES, (one, four), strict=True):
        assert estimated(covariance, count) == pytest.approx(found["MiB"], rel=0.3)


@on_jax
@pytest.mark.parametrize("covariance", ["diagonal", "narrow", "latent"])
def test_the_other_heads_gather_no_classes(covariance):
    assert not large(measured(covariance, 4, units=8000, batch=32)["exchanged"], 2000)


def large(exchanged, size):
    shapes = [shape for kind in exchanged.values() for shape in kind]
    return [shape for shape in shapes if any(int(axis) >= size for axis in re.findall(r"(?<=[\[,])\d+", shape))]
