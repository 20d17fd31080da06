"""What every test starts from: no display, one seed, and a Keras without state of earlier tests (names, dtype policy).

With one seed a test is the same in every run; and heads that draw their own seed are one program on JAX, which is
compiled once.

Folders of tests for a package that is no dependency are collected only where it is installed: each has its own nox
session.
"""

import importlib.util
import os

import keras
import pytest

try:
    import matplotlib
except ImportError:  # an extra
    pass
else:
    matplotlib.use("agg")

EXPORTER = {"jax": "jax2onnx", "tensorflow": "tf2onnx", "torch": "openvino"}[keras.config.backend()]
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


@pytest.fixture(autouse=True)
def clear_keras_session():
    keras.utils.set_random_seed(0)
    yield
    keras.utils.clear_session(free_memory=False)
