"""Votes of several annotators, from a long table with a row for each vote, and back."""

import dataclasses
import numbers
from collections.abc import Hashable
from typing import Any

import numpy as np

from keras_het.base.batches import as_numpy
from keras_het.base.classes import encode, is_missing
from keras_het.base.extras import import_extra
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tables import Titled
from keras_het.base.validation import check_choice

MOST_COUNTED = 10  # classes whose labels are counted in print


@dataclasses.dataclass(frozen=True)
class Votes(Titled):
    """Labels of several annotators. It prints as what was found in the table; `to_frame` makes the table again.

    Attributes:
        votes: label of each annotator for each example, the place of a class in `classes`, `(N, M)`; -1 for none.
        tasks: names of the examples, `(N,)`.
        annotators: names of the annotators, sorted, `(M,)`.
        classes: the K classes: names, sorted or in the order of a pandas Categorical, or the integers themselves.
        columns: names of the three columns of the table: of the examples, the annotators and the labels.
        missing: number of rows of the table without a label.
    """

    votes: np.ndarray
    tasks: np.ndarray
    annotators: np.ndarray
    classes: np.ndarray
    columns: tuple[Hashable, Hashable, Hashable]
    missing: int

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of each line."""
        given = self.votes >= 0
        by_task, by_annotator = given.sum(axis=1), given.sum(axis=0)
        counts = np.bincount(self.votes[given], minlength=len(self.classes))
        classes = [f"{name} {count}" for name, count in zip(self.classes, counts, strict=True)]
        more = len(classes) - MOST_COUNTED
        found = [
            ("labels", f"{given.sum()}, of {len(by_task)} examples by {len(by_annotator)} annotators"),
            ("classes", ", ".join(classes[:MOST_COUNTED]) + f" and {more} others" * (more > 0)),
            ("each", f"an example has {_range(by_task)} labels, an annotator gave {_range(by_annotator)}"),
        ]
        without = {"examples": sum(by_task == 0), "annotators": sum(by_annotator == 0), "rows": self.missing}
        text = ", ".join(f"{count} of the {name}" for name, count in without.items() if count)
        return [*found, ("without a label", text)] if text else found

    def to_frame(self) -> Any:
        """The long table as a `pandas.DataFrame`, a row for each vote, by example and annotator.

        Whoever has no vote, an example or an annotator, has one row without a label, so that nobody is lost:
        `votes_from_table(found.to_frame(), *found.columns, tasks=found.tasks)` has the same votes.

        Raises:
            ImportError: without pandas.
        """
        pandas = import_extra("pandas", "The table of votes")
        given = self.votes >= 0
        shown = given | (~given.any(axis=1, keepdims=True) & (np.arange(given.shape[1]) == 0))
        shown[0] |= ~given.any(axis=0)
        rows, columns = np.nonzero(shown)
        labels = pandas.Series(self.classes[self.votes[rows, columns]]).where(given[rows, columns])
        found = (self.tasks[rows], self.annotators[columns], labels)
        return pandas.DataFrame(dict(zip(self.columns, found, strict=True)))


def _range(counts):
    return f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else str(counts.min())


def votes_from_table(frame: Any, task: Hashable, annotator: Hashable, label: Hashable, tasks: Any = None) -> Votes:
    """Reads votes from a long table, which has a row for each label of an annotator for an example.

    A row without a label, nan, None, NA, "" or -1, is no vote. It is counted, and its example and its annotator are
    among those of the table, with nothing but -1 if they have no other. Integers are classes as they are, from 0 on;
    names are numbered, as labels are everywhere. Numbers without a fraction are integers, as pandas makes floats of
    integers in a column that lacks some.

    Args:
        frame: a `pandas.DataFrame`, or anything that gives a column by its name, such as a dict of lists.
        task: name of the column of the examples.
        annotator: name of the column of the annotators.
        label: name of the column of the labels.
        tasks: names of all examples in the order of your inputs, such as `x.index`, or `range(len(x))` if the column
            numbers their rows: row n of `votes` is then of row n of x. None sorts the examples of the table.
    Returns:
        `Votes`; print it.
    Raises:
        ValueError: for a column that is not there, no label at all or of one class, a label without an example or
            annotator, two labels of one annotator for one example, or a label of an example that `tasks` lacks.

    Example:
        >>> table = {"item": [7, 7, 9, 9], "who": ["Bob", "Ann", "Ann", "Bob"], "says": ["cat", "cat", "dog", None]}
        >>> found = votes_from_table(table, "item", "who", "says", tasks=[9, 7, 8])
        >>> print(found)
        labels: 3, of 3 examples by 2 annotators
        classes: cat 2, dog 1
        each: an example has 0 to 2 labels, an annotator gave 1 to 2
        without a label: 1 of the examples, 1 of the rows
        >>> found.votes.tolist(), found.annotators.tolist(), found.classes.tolist()
        ([[1, -1], [0, 0], [-1, -1]], ['Ann', 'Bob'], ['cat', 'dog'])
    """
    arguments = {"task": task, "annotator": annotator, "label": label}
    columns = {argument: _column(frame, argument, name) for argument, name in arguments.items()}
    sizes = {argument: len(values) for argument, values in columns.items()}
    refuse_if(len(set(sizes.values())) > 1, "frame", "have columns of one length", sizes)
    none = _minus_one(columns["label"])
    given = ~(none | _blank(columns["label"]))
    refuse_if(not given.any(), "frame", f"have a label in column {label!r}", f"none in {len(given)} rows")
    only_one = none.any() and np.all(columns["label"][given] == 1)
    refuse_if(only_one, "label", "be 0 or 1, or names, for two classes: -1 is no label", "only -1 and 1")
    classes, labels = encode(_filled(frame[label], columns["label"], given), alone=True, name="label")
    names, rows = _numbered(columns["task"], given, "task")
    who, by = _numbered(columns["annotator"], given, "annotator")
    if tasks is not None:
        names, rows = _among(tasks, names, rows, given, task)
    _check_single(rows, by, given, names, who, classes[labels], [task, annotator])
    votes = np.full((len(names), len(who)), -1)
    votes[rows[given], by[given]] = labels[given]
    return Votes(votes, names, who, classes, (task, annotator, label), int(np.sum(~given)))


def _column(frame, argument, name):
    """A column as an array `(R,)`, of objects if it has texts."""
    known = frame.keys() if hasattr(frame, "keys") else getattr(frame, "columns", ())
    refuse_if(not len(known), "frame", "be a pandas frame or a dict of columns", kind=frame)
    check_choice(argument, name, list(known))
    values = np.asarray(as_numpy(frame[name]))
    refuse_if(values.ndim != 1, argument, "be a column of one entry a row", shape=values)
    return np.array(list(frame[name]), object) if values.dtype.kind in "SU" else values  # nan would be a text


def _blank(values):
    """Where a column has no entry, `(R,)`."""
    if values.dtype.kind != "O":
        return values != values  # nan, and NaT
    return np.fromiter((is_missing(value) or value == "" for value in values.tolist()), bool, len(values))


def _minus_one(values):
    """Where a column of labels has the number -1, `(R,)`."""
    if values.dtype.kind != "O":
        return values == -1
    return np.fromiter((isinstance(x, numbers.Real) and x == -1 for x in values.tolist()), bool, len(values))


def _filled(column, values, given):
    """A column of labels with the first one wherever there is none, which no reader must see."""
    first = int(given.argmax())
    if hasattr(column, "iloc"):  # of pandas: it may be a Categorical
        return column.where(given, column.iloc[first])
    return np.where(given, values, values[first])


def _numbered(values, given, argument):
    """The distinct entries of a column, sorted, and the place of each row's among them, -1 where it has none."""
    blank = _blank(values)
    if (wrong := np.flatnonzero(blank & given)).size:
        raise refusal(argument, "be a column with an entry for each label", f"none in row {wrong[0]}")
    places, kept = np.full(len(values), -1), values[~blank]
    if kept.dtype.kind == "f" and np.all(kept == np.floor(kept)):
        kept = kept.astype("int64")
    if kept.dtype.kind != "O":
        names, places[~blank] = np.unique(kept, return_inverse=True)
        return names, places
    listed = kept.tolist()
    try:
        order = sorted(set(listed))
    except TypeError as error:
        kinds = " and ".join(sorted({type(value).__name__ for value in listed}))
        raise refusal(argument, "be a column with entries of one type", kinds) from error
    index = {value: place for place, value in enumerate(order)}
    places[~blank] = [index[value] for value in listed]
    return np.fromiter(order, object, len(order)), places


def _among(tasks, names, rows, given, column):
    """The names of all examples as the caller orders them, and the place of each row's among them."""
    order = np.asarray(as_numpy(tasks))
    refuse_if(order.ndim != 1, "tasks", "be the names of the examples, such as x.index", shape=order)
    index = {name: place for place, name in enumerate(order.tolist())}
    refuse_if(len(index) < len(order), "tasks", "name each example once", f"{len(index)} of {len(order)} are distinct")
    places = np.array([index.get(name, -1) for name in names.tolist()])
    lost = names[np.unique(rows[given])[places[np.unique(rows[given])] < 0]]
    if len(lost):
        rule = f"name every example with a label (or leave the others out: frame[frame[{column!r}].isin(tasks)])"
        raise refusal(
            "tasks", rule, f"{len(order)} names without {lost.tolist()[0]!r}, one of {len(lost)} that are not there"
        )
    return order, np.where(rows < 0, -1, places[rows])


def _check_single(rows, by, given, names, who, labels, keys):
    """Raises a ValueError for two labels of one annotator for one example."""
    own = np.flatnonzero(given)
    cells = rows[own] * len(who) + by[own]
    order = np.argsort(cells, kind="stable")
    again = np.flatnonzero(np.diff(cells[order]) == 0)
    if not len(again):
        return
    pair = own[order[again[0] :][:2]]
    said, (who, *_), (name, *_) = (array[pair].tolist() for array in (labels, who[by], names[rows]))
    raise refusal(
        "frame",
        f"have one label of an annotator for an example (frame.drop_duplicates({keys}) keeps the first)",
        f"{said[0]!r} and {said[1]!r} of {who!r} for {name!r}, in rows {pair[0]} and {pair[1]}; {len(again)} too many",
    )
