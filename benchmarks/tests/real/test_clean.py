"""Benchmark of `labels.clean` on features: planted sets, and fractions of flagged labels."""

import numpy as np
import pytest

from benchmarks.real import clean

pytestmark = pytest.mark.once


@pytest.mark.parametrize("flips", [0, 1])
def test_planted_sets_have_a_rare_class_and_flips_if_they_are_named(flips):
    x, labels, truth, queries, truth_test = clean.planted(0.1, flips, seed=0)
    assert len(x) == len(labels) == 1000
    assert len(queries) == len(truth_test) == 10_000
    assert truth_test.mean() == pytest.approx(0.1, abs=0.01)
    assert np.mean(labels != truth) == pytest.approx(0.1 * flips, abs=0.03 * flips)


def test_the_fraction_of_flagged_labels_is_by_precision_recall_and_label_errors():
    # Of 100 labels, 20 are errors; the model disagrees with 30 labels, 15 of them errors, and no issue is an error.
    line = {"wrong": 0.2, "precision, disagreements": 0.5, "recall, disagreements": 0.75}
    line |= {"precision, issues": 0.0, "recall, issues": 0.0}
    assert [*clean.flagged(line)][:3] == pytest.approx([0.3, 0.5, 0.75])
    assert np.isnan([*clean.flagged(line)][3])
