"""Marks that say where a test runs in the default check. `python -m nox -s thorough` runs all tests on all backends.

* no mark: on all three backends. For numbers that a backend computes: ops, layers, losses, metrics.
* `once`: on PyTorch alone, which compiles nothing. For results that are the same on every backend: texts, signatures,
  NumPy, plots, pages, the reading of graphs, and tests of the checkers.
* `refusal`: the same, for errors that are raised before a tensor is touched.
* `on_jax`, `on_tensorflow`: on PyTorch and on the backend of the two that compiles faster. For trainings of whole
  models that take seconds to compile and reach no code for a single backend.
* `smoke`: on all three backends, in a module that is otherwise `once`, to show that a backend works at all. The session
  `quick` runs only these tests, and `versions` runs them on untested versions.
* `thorough`: not by default. For slow tests that seldom break: memory, compilers.

A further mark moves no test: `statistical` marks tests that fail by chance, at a stated rate. They use the fixture
`base_seed`, which is 0, and `redraws`, which cuts the number of their draws to a tenth by default. `pytest -m
statistical --thorough --seeds 0 99` runs them whole, with a hundred seeds, as `nox -s fuzz -- --seeds 0 99` does.

Mark a module or a test. `grid` marks the further cases of a table with `once`. Folders of tests for an optional package
are collected only if it is installed, and each has a nox session.
"""

import importlib.util

import keras
import pytest

ONCE = "torch"
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


def runs_here(marks, backend):
    """Returns whether the default check runs a test with these marks, a set of names, on a backend."""
    if "thorough" in marks:
        return False
    named = marks & {"on_jax", "on_tensorflow"}
    one_is_enough = marks & {"once", "refusal"} and "smoke" not in marks
    return backend == ONCE or (not one_is_enough and (not named or f"on_{backend}" in named))


def grid(cases, span, beyond=pytest.mark.once):
    """Returns values for `parametrize` or a fixture. Values in `span` run on every backend, all other values once.

    Args:
        cases: all values, such as names.
        span: those that together reach every branch of the code; each must be a case.
        beyond: mark of the other cases; `thorough` if PyTorch skips the test.
    """
    cases, span = list(cases), set(span)
    if not span <= set(cases):
        raise ValueError(f"`span` must be of the cases. Received: {sorted(span - set(cases))}")
    return [case if case in span else pytest.param(case, marks=beyond) for case in cases]
