"""Votes of several annotators, from a long table with a row for each vote."""

import dataclasses
from collections.abc import Hashable
from typing import Any

import numpy as np

from keras_het.base.classes import encode
from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import Titled
from keras_het.base.validation import check_choice

SHOWN_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Votes(Titled):
    """Labels of several annotators. It prints as a summary of the table.

    Attributes:
        votes: number of the class that each annotator gave to each example, `(N, M)`; -1 for none.
        tasks: names of the examples, `(N,)`.
        annotators: names of the annotators, sorted, `(M,)`.
        classes: the K classes: names, sorted or in the order of a pandas Categorical, or the integers themselves.
        missing: number of rows of the table without a label.
    """

    votes: np.ndarray
    tasks: np.ndarray
    annotators: np.ndarray
    classes: np.ndarray
    missing: int

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of each line."""
        is_given = self.votes >= 0
        by_task, by_annotator = is_given.sum(axis=1), is_given.sum(axis=0)
        counts = np.bincount(self.votes[is_given], minlength=len(self.classes))
        classes = [f"{name} {count}" for name, count in zip(self.classes, counts, strict=True)]
        more = len(classes) - SHOWN_CLASSES
        without = {"examples": sum(by_task == 0), "annotators": sum(by_annotator == 0), "rows": self.missing}
        return [
            ("labels", f"{is_given.sum()}, of {len(by_task)} examples by {len(by_annotator)} annotators"),
            ("classes", ", ".join(classes[:SHOWN_CLASSES]) + f" and {more} others" * (more > 0)),
            ("labels of an example", f"{by_task.min()} to {by_task.max()}"),
            ("labels of an annotator", f"{by_annotator.min()} to {by_annotator.max()}"),
            ("without a label", ", ".join(f"{count} {name}" for name, count in without.items())),
        ]


def votes_from_table(frame: Any, task: Hashable, annotator: Hashable, label: Hashable, tasks: Any = None) -> Votes:
    """Returns the votes of a long table, which has a row for each label of an annotator for an example.

    A row without a label, nan, None, NA, "" or -1, is no vote, but its example and its annotator count as part of the
    table. Integers are classes as they are, from 0 on; names are numbered in sorted order.

    Args:
        frame: a `pandas.DataFrame`, or a dict of columns.
        task: name of the column of the examples.
        annotator: name of the column of the annotators.
        label: name of the column of the labels.
        tasks: names of all examples in the order of your inputs, such as `x.index`, or `range(len(x))` if the column
            has row numbers: row n of `votes` is then of row n of x. None sorts the examples of the table.
    Returns:
        `Votes`; print it.
    Raises:
        ImportError: without pandas.
        ValueError: for a column that is missing, labels of one class or none, a label without an example or annotator,
            two labels of one annotator for one example, or a label of an example that `tasks` lacks.

    Example:
        >>> table = {"item": [7, 7, 9, 9], "who": ["Bob", "Ann", "Ann", "Bob"], "says": ["cat", "cat", "dog", None]}
        >>> found = votes_from_table(table, "item", "who", "says", tasks=[9, 7, 8])
        >>> print(found)
        labels: 3, of 3 examples by 2 annotators
        classes: cat 2, dog 1
        labels of an example: 0 to 2
        labels of an annotator: 1 to 2
        without a label: 1 examples, 0 annotators, 1 rows
        >>> found.votes.tolist(), found.annotators.tolist(), found.classes.tolist()
        ([[1, -1], [0, 0], [-1, -1]], ['Ann', 'Bob'], ['cat', 'dog'])
    """
    pandas = import_extra("pandas", "The table of votes")
    names = {"task": task, "annotator": annotator, "label": label}
    known = list(frame.keys()) if hasattr(frame, "keys") else []
    refuse_if(not known, "frame", "be a pandas frame or a dict of columns", kind=frame)
    table = pandas.DataFrame({key: frame[check_choice(key, name, known)] for key, name in names.items()}).reset_index(
        drop=True
    )
    is_given = table["label"].notna() & ~table["label"].isin([-1, ""])
    refuse_if(not is_given.any(), "frame", f"have a label in column {label!r}", f"none in {len(table)} rows")
    is_signed = table["label"].isin([-1]).any() and table["label"][is_given].isin([1]).all()
    refuse_if(is_signed, "label", "be 0 or 1, or names, for two classes: -1 is no label", "only -1 and 1")
    filled = table["label"].where(is_given, table["label"][is_given].iloc[0])  # no reader sees these rows
    classes, labels = encode(filled, alone=True, name="label")
    for key in ("task", "annotator"):
        if (is_lost := is_given & table[key].isna()).any():
            raise refusal(key, "be a column with an entry for each label", f"none in row {is_lost.idxmax()}")
    _check_single(table[is_given], classes[labels[is_given]], [task, annotator])
    annotators, all_tasks = _distinct(table["annotator"], "annotator"), _distinct(table["task"], "task")
    rows = _in_order(all_tasks, tasks, table["task"][is_given].unique(), task)
    places = rows.get_indexer(table["task"]), annotators.get_indexer(table["annotator"])
    votes = np.full((len(rows), len(annotators)), -1)
    votes[tuple(place[is_given] for place in places)] = labels[is_given]
    return Votes(votes, rows.to_numpy(), annotators.to_numpy(), classes, int((~is_given).sum()))


def _distinct(column: Any, name: str) -> Any:
    """Returns the sorted entries of a column as a `pandas.Index`; numbers without a fraction as integers."""
    try:
        found = import_extra("pandas", "The table of votes").Index(column.dropna().unique()).sort_values()
    except TypeError as error:
        raise refusal(name, "be a column with entries of one type", str(error)) from error
    is_whole = found.dtype.kind == "f" and np.all(found == np.floor(found))
    return found.astype("int64") if is_whole else found


def _in_order(known: Any, tasks: Any, needed: Any, column: Hashable) -> Any:
    """Returns the names of all examples as a `pandas.Index`, in the order of `tasks`."""
    if tasks is None:
        return known
    refuse_if(np.ndim(tasks) != 1, "tasks", "be the names of the examples, such as x.index", shape=tasks)
    order = import_extra("pandas", "The table of votes").Index(tasks)
    refuse_if(not order.is_unique, "tasks", "name each example once", f"{order.nunique()} of {len(order)} are distinct")
    lost = [name for name in needed.tolist() if name not in order]
    if lost:
        rule = f"name every example with a label (or leave the others out: frame[frame[{column!r}].isin(tasks)])"
        received = f"{len(order)} names without {lost[0]!r}, one of {len(lost)} that are not there"
        raise refusal("tasks", rule, received)
    return order


def _name(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)


def _check_single(table: Any, labels: np.ndarray, columns: list) -> None:
    """Raises a ValueError for two labels of one annotator for one example."""
    is_again = table.duplicated(["task", "annotator"], keep=False)
    if not is_again.any():
        return
    first = table[is_again].iloc[0].to_dict()
    is_pair = (table["task"] == first["task"]) & (table["annotator"] == first["annotator"])
    said, rows = labels[is_pair].tolist()[:2], table.index[is_pair].tolist()[:2]
    rule = f"have one label of an annotator for an example (frame.drop_duplicates({columns}) keeps the first)"
    received = f"{said[0]!r} and {said[1]!r} of {_name(first['annotator'])} for {_name(first['task'])}, in rows {rows}"
    raise refusal("frame", rule, received)
