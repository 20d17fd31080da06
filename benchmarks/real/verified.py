"""Precision of `labels.find_issues` on three well-known test sets whose labels five people checked.

python -m benchmarks.real.verified [--data FOLDER] [--output FOLDER] [--render]

The out-of-sample probabilities come from the authors of the audit (Northcutt, Athalye and Mueller 2021, "Pervasive
label errors in test sets"); nothing is trained. People checked the labels that confident learning had flagged. A label
is an error if fewer than three of five people keep it. So precision covers labels that were flagged and checked, and
the number of errors among the other labels is unknown. "Worst scores" are as many labels as `find_issues` flags, with
the lowest probabilities.
"""

import importlib.util

import keras
import numpy as np

from benchmarks.lib import experiments, lines
from benchmarks.real import data, features
from benchmarks.real.issues import cleanlab_issues, first_choice, issues

SETS = {"cifar10": "CIFAR-10", "mnist": "MNIST", "news20": "20 newsgroups"}
KEPT = 3  # votes of five people that make a label correct


def finders(p, y):
    """Yields name and flags of each finder."""
    named, scores = issues(p, y)
    worst = np.zeros(len(y), bool)
    worst[np.argsort(scores, kind="stable")[: named.sum()]] = True
    yield "find_label_issues", named
    if importlib.util.find_spec("cleanlab"):
        yield "cleanlab", cleanlab_issues(y, p)[0]
    yield "as many worst scores", worst
    yield "argmax is not the label", first_choice(y, p)[0]


def table(records):
    """Returns a row for each data set and finder."""
    rows = [["data", "finder", "names", "of these checked", "wrong", "precision", "recall of the wrong ones"]]
    for name in lines.distinct(records, "set"):
        for line in lines.select(records, set=name):
            precision = f"{line['wrong'] / line['checked']:.2f}" if line["checked"] else ""
            title = f"{SETS[name]} ({line['labels']:,} labels, {line['errors']} wrong of {line['seen']} checked)"
            head = [title if line["finder"] == "find_label_issues" else "", line["finder"]]
            numbers = map(str, (line["named"], line["checked"], line["wrong"]))
            rows.append([*head, *numbers, precision, f"{line['wrong'] / line['errors']:.2f}"])
    return rows


def measured(options, name):
    """Yields a line for each finder of a data set."""
    arrays = data.arrays("verified", options.data)
    p, y, checked = (arrays[f"{name}_{part}"] for part in ("p", "y", "checked"))
    p, y = p.astype("float64"), y.astype(int)
    wrong = arrays[f"{name}_votes_for_label"] < KEPT
    count = {"labels": len(y), "seen": len(wrong), "errors": int(wrong.sum())}
    for finder, flags in finders(p / p.sum(axis=1, keepdims=True), y):
        seen = flags[checked]
        counts = {"named": int(flags.sum()), "checked": int(seen.sum()), "wrong": int((seen & wrong).sum())}
        yield {"finder": finder, **count, **counts}


def packages(records):
    """Returns the packages whose versions matter."""
    return [keras.config.backend(), "numpy"] + ["cleanlab"] * ("cleanlab" in lines.distinct(records, "finder"))


def tables(records):
    """Returns the only table."""
    return {"wrong labels of good data sets": table(records)}


def main():
    options = {"sets": tuple(SETS)} | features.FOLDERS
    experiments.run(__doc__, "real_verified", measured, tables, options, keys=("set",), packages=packages)


if __name__ == "__main__":
    main()
