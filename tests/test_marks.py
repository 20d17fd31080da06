"""The marks: which tests the default check runs where."""

import pytest

from tests.marks import grid, runs_here

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("marks", "where"),
    [
        (set(), {"jax", "tensorflow", "torch"}),
        ({"once"}, {"torch"}),
        ({"refusal"}, {"torch"}),
        ({"once", "smoke"}, {"jax", "tensorflow", "torch"}),
        ({"thorough"}, set()),
        ({"thorough", "smoke"}, set()),
    ],
)
def test_where_a_test_runs(marks, where):
    assert {backend for backend in ("jax", "tensorflow", "torch") if runs_here(marks, backend)} == where


def test_a_grid_runs_whole_once_and_its_span_everywhere():
    first, second = grid(["full", "diagonal"], span=["full"])
    assert first == "full"
    assert (second.values, [mark.name for mark in second.marks]) == (("diagonal",), ["once"])
    with pytest.raises(ValueError, match=r"`span` must be of the cases. Received: \['other'\]"):
        grid(["full"], span=["other"])
