"""The paper's tables in small: a run, its scores and the width of the equal control by hand, and the report."""

import numpy as np
import pytest
from scipy.special import logit
from sklearn.metrics import log_loss

from benchmarks.imagenet import paper, paper_report, paper_tables
from benchmarks.lib import tasks

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "row", ["Dense, equal parameters", "diagonal, Taylor", "full, 10 samples", "parameter-efficient, sigmoid"]
)
def test_a_run_is_measured_after_a_third_of_the_epochs_and_at_the_end(row, monkeypatch):
    monkeypatch.setitem(tasks.TASKS, "small", lambda seed: tasks.digits(0.4, seed)._replace(epochs=6))
    line = paper_tables.run("small", row, 1.0, 1)
    assert line["long clean accuracy"] > line["short clean accuracy"]
    assert line["long noisy NLL"] < line["short noisy NLL"]
    assert ("long noisy gAP" in line) == ("sigmoid" in row)


def test_the_width_of_the_equal_control_is_near_that_of_the_paper_and_right_on_digits():
    assert paper_tables.equal_width(2048, 1000, 15) == pytest.approx(11_500, rel=0.01)  # Appendix E rounds it up
    task = tasks.digits(0.4, 0)
    wide, full = (
        paper_tables.make_model(task, paper_tables.ROWS[row], 1.0, 0) for row in ("Dense, equal parameters", "full")
    )
    assert wide.count_params() == pytest.approx(full.count_params(), rel=0.005)


def test_scores_by_hand():
    p = np.array([[0.7, 0.1, 0.2], [0.3, 0.6, 0.1]])
    found = paper_tables.scores(np.log(p), np.array([0, 0]), "softmax")
    assert found == {"accuracy": 0.5, "NLL": pytest.approx(-np.log(0.7 * 0.3) / 2)}
    found = paper_tables.scores(logit(p), np.array([0, 0]), "sigmoid")
    assert found["NLL"] == pytest.approx(3 * log_loss(np.eye(3)[[0, 0]].ravel(), p.ravel()))
    assert found["gAP"] == pytest.approx((1 + 2 / 3) / 2)
    loss = paper_tables.loss_of("sigmoid")(np.array([[0], [0]]), logit(p).astype("float32"))
    assert np.mean(np.asarray(loss)) == pytest.approx(found["NLL"], rel=1e-5)


def test_every_row_that_the_paper_has_can_be_trained():
    reported = {row for rows in paper.REPORTED.values() for row in rows}
    assert reported <= set(paper_tables.ROWS)
    keys = paper_tables.wanted(["a", "b"], 2)
    assert len(keys) == len(set(keys)) == 2 * 2 * (9 * 4 + 4)


def line(row, temperature, seed, accuracy, nll):
    figures = {"noisy accuracy": accuracy, "clean accuracy": accuracy + 0.1, "noisy NLL": nll}
    both = {f"{length} {name}": value for length in paper_report.LENGTHS for name, value in figures.items()}
    return {"task": "t", "seed": seed, "row": row, "temperature": temperature, **both}


@pytest.fixture
def lines():
    """Dense is better at 5, full at 1; the noisy NLL says so."""
    return [
        made
        for seed in (0, 1)
        for made in (
            line("Dense", 1.0, seed, 0.5 + 0.1 * seed, 2.0),
            line("Dense", 5.0, seed, 0.6 + 0.1 * seed, 1.0),
            line("full", 1.0, seed, 0.7 + 0.2 * seed, 0.9),
            line("full", 5.0, seed, 0.1, float("nan")),
            line("diagonal", 1.0, seed, 0.6, 0.9),
        )
    ]


def test_the_report_has_each_row_at_its_own_temperature_as_gains_over_the_first(lines):
    head, dense, diagonal, full = paper_report.beside(lines, "table1")
    assert head[2:4] == ["noisy accuracy, short", "noisy accuracy, long"]
    assert dense[2] == "0.650 +- 0.050"
    assert dense[-1] == "5 (x2)"
    assert diagonal[2] == "-0.050 +- 0.050"
    assert full[2:] == [*["+0.150 +- 0.050"] * 4, *["-0.100 +- 0.000"] * 2, "1 (x2)"]


def test_the_report_says_what_the_temperature_of_the_control_decides(lines):
    _, diagonal, full = paper_report.controls(lines)
    assert full == ["full", *["+0.250 +- 0.050", "+0.250 +- 0.050", "+0.150 +- 0.050"] * 2]
    assert diagonal[1] == "+0.050 +- 0.050"


def test_the_report_leaves_out_seeds_that_are_not_finished(lines):
    tables = paper_report.describe([*lines, line("Dense", 1.0, 2, 0.0, 0.0)])
    assert list(tables) == [
        "t: table1, " + paper.TITLES["table1"],
        "t: the control's temperature",
        "t: every temperature",
    ]
    assert tables["t: every temperature"][1] == ["Dense", "1", *["0.550 +- 0.050"] * 2, *["0.650 +- 0.050"] * 2,
                                                 *["2.000 +- 0.000"] * 2]  # fmt: skip
