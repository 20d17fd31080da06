"""Demo: the trainings see noisy labels alone, and the table has the accuracies of the trainings."""

import re

import numpy as np
import pytest

from benchmarks import demo
from keras_het.labels import find_issues

pytestmark = pytest.mark.once


def test_thirty_percent_of_three_pairs_are_swapped():
    x, labels, true, x_test, y_test = demo.digits(seed=3)
    paired = np.isin(true, [1, 7, 3, 9, 5, 6])
    assert np.mean(labels[paired] != true[paired]) == pytest.approx(0.3, abs=0.04)
    np.testing.assert_array_equal(labels[~paired], true[~paired])
    wrong = labels != true
    np.testing.assert_array_equal(labels[wrong], demo.PARTNER[true[wrong]])
    assert (len(x), len(x_test)) == (len(labels), len(y_test)) == (1280, 517)


def test_the_trainings_see_the_noisy_labels_and_the_figures_are_printed(tmp_path, capsys, monkeypatch):
    seen, clean, trained = [], demo.clean, demo.trained
    monkeypatch.setattr(
        demo, "clean", lambda classifier, x, y, **options: [seen.append(y), clean(None, x, y, **options)][1]
    )
    monkeypatch.setattr(demo, "trained", lambda make, x, y, *others: [seen.append(y), trained(make, x, y, *others)][1])
    demo.main(["--quick", "--output", str(tmp_path)])
    _, labels, *_ = demo.digits(0)
    assert len(seen) == 3
    for each in seen:
        np.testing.assert_array_equal(each, labels)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert re.search(r"\| head +\| 0\.\d{3}", printed)
    assert re.search(r"precision 0\.[6-9]\d, recall 0\.[6-9]\d", printed)


def test_precision_and_recall_are_those_of_the_issues():
    _, labels, true, *_ = demo.digits(0)
    is_even, is_wrong = np.arange(len(true)) % 2 == 0, labels != true
    issues = find_issues(0.9 * np.eye(10)[np.where(is_even, true, labels)] + 0.01, labels)
    assert demo.precision_and_recall(issues, is_wrong) == (1.0, np.mean(is_even[is_wrong]))
    assert demo.precision_and_recall(issues, is_even)[0] == 1.0
    assert demo.precision_and_recall(issues, ~is_even) == (0.0, 0.0)


def test_the_table_has_the_best_and_the_last_epoch():
    assert demo.table({"Dense": [0.5, 0.7, 0.6]})[1] == ["Dense", "0.700", "0.600"]
