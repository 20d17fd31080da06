"""What `choose` and `clean_labels` return proposes labels by the indices and names that the user gave."""

import numpy as np
import pandas as pd
import pytest

from keras_het.analysis import next_labels, read_verified_labels
from keras_het.labels.diagnosis import diagnose
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
    return Result(None, best, [best], "accuracy", "", diagnose(P[rows], task.y), P[rows], data=task)


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


def test_a_result_is_judged_by_labels_as_they_were(tmp_path):
    """Verified labels that a call has put in the place of the given ones would make all of these look right."""
    names = NAMES[LABELS]
    some = {place: str(NAMES[P[place].argmax()]) for place in (1, 3, 20, 31, 33, 36, 38)}
    plain = result(np.zeros((40, 2)), names).verified_performance(some)
    again = result(np.zeros((40, 2)), names, some).verified_performance(some)
    assert again.accuracy == plain.accuracy
    assert again.label_accuracy == plain.label_accuracy
    assert plain.label_accuracy.value < 1.0
    index = [f"row {place}" for place in range(40)]
    named = {index[place]: label for place, label in some.items()}
    framed = result(pd.DataFrame(np.zeros((40, 2)), index), names, named)
    assert framed.verified_performance(named).accuracy == plain.accuracy
    assert not set(framed.next_labels(30, verified_labels={"row 0": "cat"}).names) & {"row 0", *named}


def test_votes_of_examples_that_have_none_are_left_out():
    votes = np.stack([LABELS, LABELS, np.roll(LABELS, 1)], axis=1)
    votes[:4] = -1
    some = {place: int(P[place].argmax()) for place in (2, 5, 9, 31, 36)}
    task = read(np.zeros((40, 2)), votes)
    best = Score("plain", None, 0.5)
    p = P[4:]
    found = Result(None, best, [best], "accuracy", "", diagnose(p, task.y), p, data=task)
    judged = found.verified_performance(some)
    assert judged.index.tolist() == [1, 5, 27, 32]  # of the 36 with votes
    inclusion = np.linspace(0.1, 0.9, 40)
    assert found.verified_performance(some, inclusion).index.tolist() == judged.index.tolist()
