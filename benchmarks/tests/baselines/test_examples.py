"""The examples in docstrings of the benchmarks run, and the table of contents of the baselines is complete."""

import doctest
import importlib
import pkgutil

import pytest

from benchmarks import baselines

pytestmark = pytest.mark.once


OTHERS = ("imagenet.disagreement", "lib.corruption", "lib.members")


@pytest.mark.parametrize(
    "name", [*(f"baselines.{each.name}" for each in pkgutil.iter_modules(baselines.__path__)), *OTHERS]
)
def test_the_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(f"benchmarks.{name}")).failed == 0


def test_the_table_of_contents_is_sorted_and_complete():
    assert baselines.__all__ == sorted(baselines.__all__)
    kinds = {
        name for name, value in vars(baselines).items() if getattr(value, "__module__", "").startswith("benchmarks.")
    }
    assert kinds == set(baselines.__all__)
