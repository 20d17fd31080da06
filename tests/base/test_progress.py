"""A bar with the time left, where a call takes long."""

import pytest

from keras_het.base import progress
from keras_het.base.progress import Progress

pytestmark = pytest.mark.once


def test_a_short_call_and_verbose_0_show_nothing_and_an_error_leaves_the_bar_where_it_is(capsys):
    with Progress(3, "block") as bar:
        bar.add(3)
    assert capsys.readouterr().out == ""
    with Progress(2, "block", verbose=0, after=0.0) as bar:
        bar.add()
    assert capsys.readouterr().out == ""

    with pytest.raises(ZeroDivisionError), Progress(2, "block", after=0.0) as bar:
        bar.add(1 // (bar.done or bar.add() or 0))
    shown = capsys.readouterr().out
    assert shown.endswith("\n")
    assert "2/2" not in shown


def test_a_long_call_shows_the_time_left_and_ends_its_line(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Progress(4, "block") as bar:
        bar._bar._start -= 11.0  # as if it had begun eleven seconds ago
        now[0] += 9.0
        bar.add()
        assert capsys.readouterr().out == ""
        now[0] += 2.0
        bar.add()
        shown = capsys.readouterr().out
        assert "2/4" in shown
        assert "11s" in shown  # the two that are left take as long as the two that are done
    assert capsys.readouterr().out.endswith("/block\n")  # the bar is finished, although two were not needed
