"""What `choose` and `clean_labels` return proposes labels by the indices and names that the user gave."""

import numpy as np
import pandas as pd
import pytest

from keras_het.analysis import diagnose_noise, next_labels, read_verified_labels
from keras_het.training.data import read
from keras_het.training.result import Result, Score

pytestmark = pytest.mark.once

NAMES = np.array(["cat", "cow", "dog"])
P = np.random.default_rng(0).dirichlet(np.ones(3), 40)
LABELS = np.where(np.arange(40) < 30, P.argmax(axis=1), np.arange(40) % 3)


def result(x, y, verified=None, rows=slice(None)):
    """A result without its trainings."""
    task = read(x, y, None, verified)
    best = Score("plain", None, 0.5)
    return Result(None, best, [best], "accuracy", "", diagnose_noise(P[rows], task.y), P[rows], data=task)


def test_verified_labels_are_left_out_and_names_are_those_of_the_labels(tmp_path):
    x, index = np.zeros((40, 2)), [f"row {place}" for place in range(40)]
    found = result(x, NAMES[LABELS]).next_labels(10)
    expected = next_labels(P, LABELS, 10)
    assert found.index.tolist() == expected.index.tolist()
    assert found.to_frame()["given"].tolist() == NAMES[expected.given].tolist()
    framed = result(pd.DataFrame(x, index), NAMES[LABELS]).next_labels(10)
    assert framed.to_frame().index.tolist() == [f"row {place}" for place in expected.index]
    framed.to_csv(path := tmp_path / "check.csv")
    path.write_text(path.read_text().replace(",,", ",,cow"))
    verified = read_verified_labels(path).labels
    again = result(pd.DataFrame(x, index), NAMES[LABELS], verified).next_labels(30, goal="random")
    assert sorted([*again.index, *expected.index]) == list(range(40))
    assert set(again.inclusion) == {1.0}


def test_indices_count_examples_without_a_label():
    votes = np.where(np.arange(40)[:, None] < 10, -1, LABELS[:, None].repeat(2, axis=1))
    names = pd.Index([f"row {place}" for place in range(40)])
    for x, expected in ((np.zeros((40, 2)), range(10, 40)), (pd.DataFrame(np.zeros((40, 2)), names), names[10:])):
        found = result(x, votes, rows=slice(10, None)).next_labels(30)
        assert sorted(found.index) == list(range(10, 40))
        assert sorted(found.to_frame().index) == sorted(expected)
