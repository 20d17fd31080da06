"""What the views share: the words of the tasks, and the cells and rows of a table."""

import re

TASKS = {  # label errors and data, in plain words
    "digits, 40%": "40% look-alike, digits",
    "MNIST, 40%": "40% look-alike, 3,000 images of MNIST",
    "images, 20%": "20% look-alike, drawn images, 20 classes",
    "digits, 20%": "20% look-alike, digits",
    "groups, 1000 classes, 20 each": "40% within groups of five, 1,000 classes, 20 examples each",
    "groups, 100 classes, 100 each": "40% within groups of five, 100 classes, 100 examples each",
    "digits, 40% symmetric": "40% symmetric, digits",
    "words, 45% of every second": "45% of every second class, one way, words of 12 languages",
    "digits, 0%": "none, digits",
}


def by_task(table):
    """`{(task, method): {column: cell}}` of a table whose rows name the task only where it changes."""
    found, task = {}, ""
    for row in table[1:]:
        task = re.sub(r" \(\d+%\)$", "", row[0]) or task  # without the share of wrong labels that was counted
        found[task, row[1]] = dict(zip(table[0], row, strict=True))
    return found


def value(cell):
    """A cell without its standard error."""
    return cell.replace("*", "").split(" +- ")[0]


def columns_of(table):
    """`{(first cell of a row, column): cell}`."""
    return {(row[0], column): cell for row in table[1:] for column, cell in zip(table[0][1:], row[1:], strict=True)}


def dicts(table):
    return [dict(zip(table[0], row, strict=True)) for row in table[1:]]


def bold(cell):
    mean, error = map(float, cell.split(" +- "))
    return f"**{cell}**" if abs(mean) > 2.0 * error else cell


def in_points(cell):
    """Returns a difference of accuracies and its standard error, in points."""
    mean, error = cell.replace("*", "").split(" +- ")
    return f"{100 * float(mean):+.1f} +- {100 * float(error):.1f}"
