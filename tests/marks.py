"""Marks that say where a test runs in the default check. `python -m nox -s thorough` runs all tests on all backends.

* no mark: on all three backends. For numbers that a backend computes: ops, layers, losses. The tests in the folders of
  `SECOND` train whole models or call finished layers, and run on PyTorch and the backend named there.
* `once`: on PyTorch alone, which compiles nothing. For results that are the same on every backend: texts, signatures,
  NumPy, plots, pages, the reading of graphs, and tests of the checkers.
* `refusal`: the same, for errors that are raised before a tensor is touched.
* `on_jax`, `on_tensorflow`: on PyTorch and this backend. For tests that take seconds on the other one and reach no code
  of a single backend, and for code of this backend.
* `smoke`: as without a mark, in a module that is otherwise `once`. The session `quick` runs only these tests, and
  `versions` runs them on the newest ones.
* `thorough`: not by default. For slow tests that seldom break: memory, compilers, what a long training learns.

`statistical` moves no test. Such tests fail by chance, at a stated rate, and use the fixtures `base_seed`, which is 0,
and `redraws`, which cuts the number of draws to a tenth by default. `nox -s fuzz -- --seeds 0 99` runs a hundred seeds.

Mark a module or a test. `grid` marks the further cases of a table with `once`. Tests for an optional package are
collected only if it is installed, and each has a nox session.
"""

import importlib.util

import keras
import pytest

ONCE = "torch"
SECOND = dict.fromkeys(("callbacks", "labels", "models", "parity_check"), "jax")  # which trains in a way of its own
SECOND |= dict.fromkeys(("explain", "metrics", "reading"), "tensorflow")  # which is faster where nothing is trained
EXPORTER = {"jax": "jax2onnx", "tensorflow": "tf2onnx", "torch": "openvino"}
NEEDED = {
    "tests/integrations/hub": "keras_hub",
    "tests/integrations/cv": "keras_cv",
    "benchmarks/tests/peers": "edward2",
    "benchmarks/tests/real/test_weights.py": "efficientnet_lite_pytorch",
    "tests/integrations/others": "cleanlab",
    "tests/integrations/others/test_ppi.py": "ppi_py",
    "tests/integrations/export": EXPORTER.get(keras.config.backend(), "onnx"),
}


def not_collected():
    """Returns files and folders that pytest skips here, because a package is missing."""
    return [name for name, package in NEEDED.items() if importlib.util.find_spec(package) is None]


def runs_here(marks, backend, folder):
    """Returns whether the default check runs a test with these marks, a set of names, in a folder, on a backend."""
    if "thorough" in marks:
        return False
    named = {name for name in ("jax", "tensorflow") if f"on_{name}" in marks}
    is_second = backend in named if named else SECOND.get(folder, backend) == backend
    one_is_enough = marks & {"once", "refusal"} and "smoke" not in marks
    return backend == ONCE or (not one_is_enough and is_second)


def grid(cases, span, beyond=pytest.mark.once):
    """Returns values for `parametrize` or a fixture. Values in `span` run on every backend, all other values once.

    Args:
        cases: all values, such as names.
        span: those that together reach every branch of the code; each must be a case.
        beyond: mark of the other cases; `thorough` if PyTorch skips the test.
    """
    cases = list(cases)
    if others := [case for case in span if case not in cases]:
        raise ValueError(f"`span` must be of the cases. Received: {others}")
    return [case if case in span else pytest.param(case, marks=beyond) for case in cases]
