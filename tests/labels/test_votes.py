"""Votes from a long table, against a reading row by row with dicts."""

import numpy as np
import pandas as pd
import pytest

from keras_het.labels import votes_from_table
from tests.checks import refusals

pytestmark = pytest.mark.once

TABLE = {"item": [7, 7, 9, 9, 8], "who": ["Bob", "Ann", "Ann", "Cyn", None], "says": ["cat", "ant", "cat", None, None]}


def read(table, item="item", who="who", says="says", **options):
    return votes_from_table(table, item, who, says, **options)


def random_table(seed):
    """Rows in any order, of names or numbers, of which some have no label."""
    rng = np.random.default_rng(seed)
    examples, people, size = rng.integers(2, 9), rng.integers(1, 6), rng.integers(2, 5)
    cells = rng.permutation(examples * people)[: rng.integers(3, examples * people + 2)]
    labels = rng.integers(size, size=len(cells))
    labels[:2] = [0, 1]
    if seed % 2:
        says = np.array(["dog", "ant", "cat", "bee"], object)[labels]
        nothing = [None, np.nan, pd.NA][seed % 3]
    else:
        says, nothing = labels.astype(object), [None, -1, np.nan][seed % 3]
    says[2:][rng.random(len(cells) - 2) < 0.3] = nothing
    items = cells // people * 10 - 5
    who = np.array([f"who {m}" for m in cells % people], object) if seed % 4 < 2 else cells % people
    return pd.DataFrame({"says": says, "item": items, "who": who})


def slow(table):
    """Votes as a dict {(example, annotator): label}, one row at a time, and all names."""
    rows = list(table[["item", "who", "says"]].itertuples(index=False))
    missing = [row.says is None or row.says is pd.NA or row.says != row.says or row.says == -1 for row in rows]
    votes = {(row.item, row.who): row.says for row, none in zip(rows, missing, strict=True) if not none}
    return votes, sorted({row.item for row in rows}), sorted({row.who for row in rows}), sum(missing)


def as_dict(found):
    rows, columns = np.nonzero(found.votes >= 0)
    labels = found.classes[found.votes[rows, columns]].tolist()
    return dict(
        zip(zip(found.tasks[rows].tolist(), found.annotators[columns].tolist(), strict=True), labels, strict=True)
    )


@pytest.mark.parametrize("seed", range(24))
def test_random_tables(seed):
    table = random_table(seed)
    found, (votes, items, people, missing) = read(table), slow(table)
    assert as_dict(found) == votes
    assert (found.tasks.tolist(), found.annotators.tolist(), found.missing) == (items, people, missing)
    ordered = read(table, tasks=[*items[::-1], 999])
    np.testing.assert_array_equal(ordered.votes, np.concatenate([found.votes[::-1], np.full_like(found.votes[:1], -1)]))


@pytest.mark.parametrize(("says", "classes", "labels"), [
    ([2, 0, None], [0, 1, 2], [2, 0, -1]),
    ([2.0, 0.0, np.nan], [0, 1, 2], [2, 0, -1]),
    (pd.array([2, 0, None], dtype="Int64"), [0, 1, 2], [2, 0, -1]),
    (np.array([2, 0, -1], "int8"), [0, 1, 2], [2, 0, -1]),
    (pd.array(["b", "a", None], dtype="string"), ["a", "b"], [1, 0, -1]),
    (pd.Categorical(["lo", "hi", None], categories=["lo", "mid", "hi"]), ["lo", "hi"], [0, 1, -1]),
    (["b", "a", float("nan")], ["a", "b"], [1, 0, -1]),
    ([True, False, None], [False, True], [1, 0, -1]),
])  # fmt: skip
@pytest.mark.parametrize("form", [pd.DataFrame, dict])
def test_labels_of_every_type(says, classes, labels, form):
    if form is dict and isinstance(says, pd.Categorical):
        says = pd.Series(says)
    found = read(form({"item": [0, 1, 2], "who": ["Ann"] * 3, "says": says}))
    assert (found.classes.tolist(), found.votes[:, 0].tolist(), found.missing) == (classes, labels, 1)


@pytest.mark.parametrize("items", [
    pd.to_datetime(["2020-02-01", "2020-01-01", "2020-03-01"]),
    pd.Categorical(["b", "a", "c"]),
    [("text", 2), ("text", 1), ("text", 3)],
    [1.0, 0.0, 2.0],
    ["1", "0", "2"],
])  # fmt: skip
def test_names_of_examples_of_every_type(items):
    table = pd.DataFrame({"item": items, "who": [0, 0, 0], "says": [0, 1, 0]})
    found = read(table)
    assert found.votes[:, 0].tolist() == [1, 0, 0]
    assert found.tasks.shape == (3,)
    if not isinstance(items[0], tuple):
        assert read(table, tasks=pd.Series(items)).votes[:, 0].tolist() == [0, 1, 0]


def test_an_order_of_examples_of_the_index_of_a_frame_and_what_it_says_of_the_table():
    """Those without a label become rows of -1, also those that the table has."""
    x = pd.DataFrame({"size": [1.0, 2.0, 3.0, 4.0]}, index=[8, 9, 3, 7])
    found = read(TABLE, tasks=x.index)
    assert found.tasks.tolist() == [8, 9, 3, 7]
    assert found.votes.tolist() == [[-1, -1, -1], [1, -1, -1], [-1, -1, -1], [0, 1, -1]]
    assert found.annotators.tolist() == ["Ann", "Bob", "Cyn"]
    assert str(read(TABLE)).splitlines() == [
        "labels: 3, of 3 examples by 3 annotators",
        "classes: ant 1, cat 2",
        "labels of an example: 0 to 2",
        "labels of an annotator: 0 to 2",
        "without a label: 1 examples, 1 annotators, 2 rows",
    ]
    many = read({"item": range(12), "who": [0] * 12, "says": range(12)})
    text = "0 1, 1 1, 2 1, 3 1, 4 1, 5 1, 6 1, 7 1, 8 1, 9 1 and 2 others"
    assert str(many).splitlines()[1] == f"classes: {text}"


def changed(**columns):
    return {**TABLE, **columns}


test_errors_say_what_is_wrong = refusals([
    (lambda: read(TABLE, item="task"), "`task` must be one of 'item', 'who', 'says'. Received: task='task'"),
    (lambda: read(TABLE, who="whom"), "`annotator` must be one of 'item', 'who', 'says'. Received: annotator='whom'"),
    (lambda: read(np.eye(3)), "`frame` must be a pandas frame or a dict of columns. Received: a ndarray"),
    (lambda: read(changed(says=[None] * 5)), "`frame` must have a label in column 'says'. Received: none in 5 rows"),
    (lambda: read(pd.DataFrame(columns=["item", "who", "says"])),
     "`frame` must have a label in column 'says'. Received: none in 0 rows"),
    (lambda: read(changed(says=["cat", "ant", "cat", "ant", "cat"])),
     "`annotator` must be a column with an entry for each label. Received: none in row 4"),
    (lambda: read(changed(says=["a", None, "a", "a", None])), "`label` must be of at least two classes. Received: 1"),
    (lambda: read(changed(says=[0.5, 1, 0, 0, 0])),
     "`label` must be integers of shape (N,). Received: shape (5,), dtype float64"),
    (lambda: read(changed(says=[1, 2, 1, 2, None])),
     ("`label` must begin with 0 (label - 1, for labels that begin with 1; texts, for names that are numbers). "
      "Received: integers from 1 to 2")),
    (lambda: read(changed(says=[0, None, 0, -7, 1])), "`label` must be in [0, 16777216). Received: -7 at [3]"),
    (lambda: read(changed(says=[1, -1, 1, -1, None])),
     "`label` must be 0 or 1, or names, for two classes: -1 is no label. Received: only -1 and 1"),
    (lambda: read(changed(item=[7, None, 9, 9, 8])),
     "`task` must be a column with an entry for each label. Received: none in row 1"),
    (lambda: read(changed(item=[7, "x", 9, 9, 8])),
     ("`task` must be a column with entries of one type. Received: '<' not supported between instances of 'str' and "
      "'int'")),
    (lambda: read(changed(who=["Bob", "Bob", "Ann", "Ann", None], says=["cat", "ant", "cat", "cat", None])),
     ("`frame` must have one label of an annotator for an example (frame.drop_duplicates(['item', 'who']) keeps the "
      "first). Received: 'cat' and 'ant' of 'Bob' for 7, in rows [0, 1]")),
    (lambda: read(TABLE, tasks=[7, 8]),
     ("`tasks` must name every example with a label (or leave the others out: frame[frame['item'].isin(tasks)]). "
      "Received: 2 names without 9, one of 1 that are not there")),
    (lambda: read(TABLE, tasks=[7, 8, 9, 7]), "`tasks` must name each example once. Received: 3 of 4 are distinct"),
    (lambda: read(TABLE, tasks=np.eye(3)),
     "`tasks` must be the names of the examples, such as x.index. Received: shape (3, 3)"),
], whole=True)  # fmt: skip
