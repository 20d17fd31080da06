"""The search of neighbours: its time, memory and recall, and how they grow with the number of examples.

python -m benchmarks.cost.neighbors [--examples N ...] [--features D] [--quick] [--output FOLDER]

Ten neighbours of each example, by the cosine, as `find_label_issues(features=...)` searches them: all with all up to
20,000 examples, by a graph beyond. Each size has a process of its own: processor seconds (of both cores), GiB beside
the features, and the recall on 10,000 examples whose neighbours are searched among all. `growth` is the power of N by
which processor seconds grew from the row before. Features are those of `cost.answer`, of a hundred classes.
"""

import json
import math
import pathlib
import tempfile

import keras
import numpy as np

from benchmarks.cost import answer
from benchmarks.lib import harness
from benchmarks.lib.results import publish

EXAMPLES, FEATURES, CLASSES, COUNT, ASKED = (10_000, 20_000, 50_000, 200_000, 1_000_000), 384, 100, 10, 10_000


def measure_row(row):
    """Processor seconds, seconds and GiB of a search, and its recall."""
    from keras_het.analysis import neighbors

    with tempfile.TemporaryDirectory() as folder:
        answer.draw(pathlib.Path(folder), row["examples"], row["features"], CLASSES)
        x = np.load(pathlib.Path(folder) / "x.npy")
    before = answer.usage()
    unit = neighbors._unit_rows(x)
    found = neighbors.nearest(unit, COUNT)
    after = answer.usage()
    asked = np.random.default_rng(1).permutation(len(x))[:ASKED]
    right = neighbors.exact(unit, asked, COUNT)
    recall = np.mean([np.isin(own, other).mean() for own, other in zip(right, found[asked], strict=True)])
    return {name: after[name] - before[name] for name in before} | {"recall": float(recall)}


def table(rows):
    """Rows of text."""
    heads = ["examples", "features", "processor seconds", "seconds", "GiB", "recall", "growth"]
    return [heads, *(_line(row, other) for row, other in zip(rows, [None, *rows[:-1]], strict=True))]


def _line(row, before):
    sizes = [f"{row[name]:,}" for name in ("examples", "features")]
    figures = [f"{row['processor']:.1f}", f"{row['seconds']:.1f}", f"{row['memory']:.2f}", f"{row['recall']:.3f}"]
    return [*sizes, *figures, "" if before is None else f"{growth(before, row):.2f}"]


def growth(first, second):
    """The power of N by which processor seconds grow."""
    return math.log(second["processor"] / first["processor"]) / math.log(second["examples"] / first["examples"])


def main():
    parser = harness.command_line(__doc__, repeats=1)
    parser.add_argument("--examples", nargs="+", type=int, default=EXAMPLES)
    parser.add_argument("--features", type=int, default=FEATURES)
    arguments = parser.parse_args()
    if arguments.row:
        print(json.dumps(measure_row(arguments.row)))
        return
    rows = []
    for examples in (1000, 2000) if arguments.quick else sorted(arguments.examples):
        case = {"examples": examples, "features": arguments.features}
        rows.append({**case, **harness.in_fresh_process(__spec__.name, case)})
        print(harness.markdown(table(rows)).splitlines()[-1], flush=True)
    publish(
        arguments.output,
        "neighbors",
        {f"{COUNT} neighbours": table(rows)},
        [0],
        [keras.config.backend(), "faiss-cpu", "numpy"],
        harness.processor(),
    )


if __name__ == "__main__":
    main()
