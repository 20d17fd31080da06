"""Ratings by several raters and masks by several annotators: how to combine them, and which head to train.

python -m benchmarks.real.joint [--sets NAME ...] [--seeds 3] [--data FOLDER] [--output FOLDER] [--quick] [--render]

`benchmarks.real.raters` and `benchmarks.real.masks` describe the sets and the methods.
"""

import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import features, masks, raters

SETS = {"MovieReviews": raters, "BU-BIL 4": masks}
COMPARED = {  # a column, and the row beside which it is shown
    "MovieReviews": ("RMSE", "mean of the ratings, ridge"),
    "BU-BIL 4": ("IoU", "each pixel by itself, majority"),
}


def table(records, name):
    """Returns a row for each method: means over the seeds, and differences of a column to the reference."""
    records, columns, (compared, reference) = lines.select(records, set=name), SETS[name].COLUMNS, COMPARED[name]
    rows = [["trained on, by", *columns, f"{compared} beside {reference}"]]
    base = {line["seed"]: line[compared] for line in lines.select(records, row=reference)}
    for row in (row for row in SETS[name].ROWS if lines.select(records, row=row)):
        own = lines.select(records, row=row)
        beside = [line[compared] - base[line["seed"]] for line in own if line["seed"] in base and row != reference]
        values = [[line[column] for line in own] for column in columns]
        rows.append([row, *map(lines.with_error, values), lines.with_error(beside or [np.nan])])
    return rows


def main():
    """Runs the missing rows, and makes the tables."""
    quick = {"epochs": 2, "folds": 1, "steps": 20, "seeds": 1}
    parser = features.experiment(__doc__, tuple(SETS), quick, seeds=3)
    parser.set_defaults(epochs=raters.EPOCHS, folds=masks.FOLDS, steps=masks.STEPS)
    options = parser.parse_args()
    keys = [
        {"set": name, "seed": seed, "row": row}
        for name in options.sets
        for seed in range(options.seeds)
        for row in SETS[name].ROWS
    ]

    def make(name, seed, row):
        return SETS[name].measured(options, seed, row)

    records = features.records(options, "real_joint", keys, make)
    tables = {name: table(records, name) for name in lines.distinct(records, "set")}
    publish(options.output, "real_joint", tables, sorted(lines.distinct(records, "seed")))


if __name__ == "__main__":
    main()
