"""The examples in the docstrings of the baselines run, and its table of contents is complete."""

import doctest
import importlib
import pkgutil

import pytest

from benchmarks import baselines

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(baselines.__path__)])
def test_the_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(f"benchmarks.baselines.{name}")).failed == 0


def test_the_table_of_contents_is_sorted_and_complete():
    assert baselines.__all__ == sorted(baselines.__all__)
    kinds = {
        name for name, value in vars(baselines).items() if getattr(value, "__module__", "").startswith("benchmarks.")
    }
    assert kinds == set(baselines.__all__)
