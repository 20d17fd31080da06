"""Demo: no training sees a correct label, the picture is drawn, and the table has every kind of noise."""

import keras
import numpy as np
import pytest

from benchmarks import demo
from benchmarks.labels.cleaning import planted
from keras_het.labels import find_issues

pytestmark = pytest.mark.once


@pytest.fixture
def trained(monkeypatch):
    """Replaces the trainings by a table of pixels and labels, and returns the labels that they saw."""
    seen = {}

    def early_stopping(task, seed, starts):
        seen["early stopping"] = np.concatenate([task.train.y, task.validation.y])
        return 0.7

    class Choice:
        name, reason = "forward correction", "it predicts most."

        def __init__(self, labels):
            self.probabilities = 0.9 * np.eye(10)[np.roll(labels, 1)] + 0.01
            self.model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])

    def choose(make_model, x, labels, **arguments):
        seen["choose"] = labels
        return Choice(labels)

    monkeypatch.setattr(demo, "early_stopping", early_stopping)
    monkeypatch.setattr(demo, "choose", choose)
    return seen


def test_the_trainings_see_the_noisy_labels_alone(trained, tmp_path, capsys):
    demo.main(["--output", str(tmp_path), "--seed", "3"])
    _, true, labels = planted("look-alike", 3)
    for finding in trained.values():
        np.testing.assert_array_equal(finding, labels)
    assert np.mean(labels != true) == pytest.approx(0.4, abs=0.04)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert all(f"{name}: it predicts most." in printed for name in demo.NAMES.values())


def test_precision_and_recall_are_those_of_the_flagged_labels(trained):
    finding = demo.find("pair", 0)
    _, true, labels = planted("pair", 0)
    issues = find_issues(0.9 * np.eye(10)[np.roll(labels, 1)] + 0.01, labels)
    flagged = issues.index[issues.is_issue]
    assert finding.precision == pytest.approx(np.mean((labels != true)[flagged]))
    assert finding.recall == pytest.approx(np.sum((labels != true)[flagged]) / np.sum(labels != true))
    assert demo.table([finding])[1][:2] == ["swapped pairs", "0.700"]
