"""Ratings by several raters and masks by several annotators: how to combine them, and which head to train.

python -m benchmarks.real.joint [--sets NAME ...] [--seeds 3] [--data FOLDER] [--output FOLDER] [--quick] [--render]

`benchmarks.real.raters` and `benchmarks.real.masks` describe the sets and the methods.
"""

from benchmarks.lib import experiments, lines
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
    for row in (row for row in SETS[name].ROWS if lines.select(records, row=row)):
        own = lines.select(records, row=row)
        others = [] if row == reference else lines.select(records, row=reference)
        rows.append([row, *lines.means(own, columns), lines.with_error(lines.paired(own, others, compared))])
    return rows


def measured(options, name, seed, row):
    """Returns the line of a set, seed and row."""
    return SETS[name].measured(options, seed, row)


def keys(options):
    """Returns the keys of all runs. Each set has its own rows."""
    return [key | {"row": row} for key in experiments.product(options, "set", "seed") for row in SETS[key["set"]].ROWS]


def tables(records):
    """Returns a table for each set."""
    return {name: table(records, name) for name in lines.distinct(records, "set")}


def main():
    options = {"sets": tuple(SETS), "seeds": 3} | features.FOLDERS
    quick = {"epochs": 2, "folds": 1, "steps": 20, "seeds": 1}
    fixed = {"epochs": raters.EPOCHS, "folds": masks.FOLDS, "steps": masks.STEPS}
    experiments.run(__doc__, "real_joint", measured, tables, options, quick, fixed, keys=keys)


if __name__ == "__main__":
    main()
