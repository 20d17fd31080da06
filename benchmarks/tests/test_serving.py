"""The benchmark of serving without noise: a run of an epoch, and its table by hand."""

import pytest

from benchmarks.labels import serving
from benchmarks.lib import tasks

pytestmark = pytest.mark.once


def test_a_run_has_a_line_for_each_way_to_serve(monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "small", lambda seed: tasks.digits(0.4, seed)._replace(epochs=2))
    lines = list(serving.rows("small", 1))
    assert [line["way"] for line in lines] == [serving.DENSE, serving.NOISY, serving.PLAIN]
    dense, noisy, plain = lines
    assert all(line["clean accuracy"] > 0.2 for line in lines)
    assert noisy["clean NLL"] != plain["clean NLL"] != dense["clean NLL"]
    assert noisy["clean NLL"] == pytest.approx(plain["clean NLL"], abs=0.2)  # the noise starts small


def test_the_table_says_what_leaving_out_the_noise_changes():
    figures = {serving.DENSE: (0.5, 0.7), serving.NOISY: (0.6, 0.8), serving.PLAIN: (0.8, 0.8)}
    lines = [
        {"task": "t", "seed": seed, "way": way, **dict.fromkeys(serving.COLUMNS, values[seed])}
        for way, values in figures.items()
        for seed in (0, 1)
    ]
    _, dense, noisy, plain, change = serving.table(lines)
    assert dense[:3] == ["t", "Dense", "0.600 +- 0.100"]
    assert (noisy[2], plain[2], change[2]) == ("0.700 +- 0.100", "0.800 +- 0.000", "+0.100 +- 0.100")
