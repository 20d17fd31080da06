"""Runs the tests of the package's losses again, with the cases of a baseline."""

import types

import pytest


def of_other_cases(module, name, cases, **options):
    """The tests of a module that have a parameter of this name, each with other cases: `{name of the test: function}`.

    Args:
        module: of tests.
        name: of the parameter, such as "case".
        cases: its values.
        options: other arguments of `pytest.mark.parametrize`.
    """
    found = {}
    for title, test in vars(module).items():
        marks = getattr(test, "pytestmark", [])
        if title.startswith("test_") and any(mark.args[:1] == (name,) for mark in marks):
            again = types.FunctionType(test.__code__, test.__globals__, title, test.__defaults__, test.__closure__)
            again.pytestmark = [mark for mark in marks if mark.args[:1] != (name,)]
            found[title] = pytest.mark.parametrize(name, cases, **options)(again)
    return found
