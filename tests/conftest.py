"""What every test starts from: no display, one seed, and a Keras without state of earlier tests (names, dtype policy).

With one seed a test is the same in every run; and heads that draw their own seed are one program on JAX, which is
compiled once. Folders of tests for a package that is no dependency are collected only where it is installed: each has
its own nox session. `tests/marks.py` says which tests run on which backend.
"""

import importlib.util
import os

import keras
import pytest

from tests.marks import runs_here

try:
    import matplotlib
except ImportError:  # an extra
    pass
else:
    matplotlib.use("agg")

EXPORTER = {"jax": "jax2onnx", "tensorflow": "tf2onnx", "torch": "openvino"}[keras.config.backend()]
APART = 10_000  # the seeds of one run of a statistical test from those of the next
NEEDED = {
    "hub": "keras_hub",
    "cv": "keras_cv",
    "peers": "edward2",
    "browser": "playwright",
    "site": "mkdocs",
    "cleanlab": "cleanlab",
    "export": EXPORTER,
}
collect_ignore = [folder for folder, package in NEEDED.items() if importlib.util.find_spec(package) is None]
if importlib.util.find_spec("torchmetrics") is None:  # it comes with the tests on PyTorch
    collect_ignore.append("metrics/test_torchmetrics.py")

if os.environ.get("KERAS_TORCH_DEVICE") != "pretended":  # `-p tests.pretended_accelerator`
    collect_ignore.append("test_pretended_accelerator.py")


def pytest_addoption(parser):
    parser.addoption(
        "--thorough", action="store_true", help="run every test on this backend, as `nox -s thorough` does"
    )
    parser.addoption(
        "--seeds", nargs=2, type=int, default=(0, 0), metavar=("FIRST", "LAST"), help="of the statistical tests"
    )


def pytest_generate_tests(metafunc):
    """Gives a statistical test its first seed: 0, or those of `--seeds`, far enough apart for all that it draws."""
    if "base_seed" in metafunc.fixturenames:
        first, last = metafunc.config.getoption("--seeds")
        seeds = range(first, last + 1)
        metafunc.parametrize("base_seed", [APART * seed for seed in seeds], ids=[f"seed {seed}" for seed in seeds])


def pytest_collection_modifyitems(config, items):
    """Leaves out what the default check does not run on this backend."""
    if config.getoption("--thorough"):
        return
    chosen = {True: [], False: []}
    for item in items:
        chosen[runs_here({mark.name for mark in item.iter_markers()}, keras.config.backend())].append(item)
    items[:] = chosen[True]
    config.hook.pytest_deselected(items=chosen[False])


@pytest.fixture(autouse=True)
def clear_keras_session():
    keras.utils.set_random_seed(0)
    yield
    keras.utils.clear_session(free_memory=False)
