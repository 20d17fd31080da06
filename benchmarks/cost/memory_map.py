"""Seconds and peak memory of functions that read probabilities from a memory map.

python -m benchmarks.cost.memory_map [--examples N ...] [--classes K] [--functions NAME ...] [--quick] [--output FOLDER]

The probabilities are float32 in a temporary file, and a fifth of the labels is wrong. Each function runs in a new
process, which reports processor seconds, seconds, and its peak GiB before the call and at the end. The peak includes
the pages of the file that were read, which the system takes back if other processes need memory. So the peak is at most
the size of the file plus the memory of the call.
"""

import json
import pathlib
import tempfile

import keras
import numpy as np

from benchmarks.cost import answer
from benchmarks.lib import harness
from benchmarks.lib.results import publish

EXAMPLES, CLASSES, ROWS, WRONG = (100_000, 1_000_000), 1000, 8192, 0.2


def issues(p, labels):
    from keras_het.labels import find_issues

    find_issues(p, labels)


def diagnosis(p, labels):
    from keras_het.labels import diagnose

    diagnose(p, labels)


def next_labels(p, labels):
    from keras_het.labels import next_labels

    next_labels(p, labels, 100)


def page(p, labels):
    """Writes a report; the model does not matter, because the probabilities are passed."""
    import keras_het

    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(p.shape[1], "softmax")(inputs))
    with tempfile.TemporaryDirectory() as folder:
        keras_het.labels.report(model, np.zeros((len(p), 2), "float32"), labels, path=folder, probabilities=p)


FUNCTIONS = {
    "find_issues": issues,
    "diagnose": diagnosis,
    "next_labels": next_labels,
    "report": page,
}


def write(folder, examples, classes):
    """Writes probabilities of a fair model, and labels, as files."""
    rng = np.random.default_rng(0)
    true = rng.integers(classes, size=examples)
    labels = np.where(rng.random(examples) < WRONG, rng.integers(classes, size=examples), true)
    p = np.lib.format.open_memmap(folder / "p.npy", "w+", "float32", (examples, classes))
    for start in range(0, examples, ROWS):
        own = true[start : start + ROWS]
        logits = rng.standard_normal((len(own), classes), dtype="float32")
        logits[np.arange(len(own)), own] += rng.gamma(4.0, 2.0, len(own)).astype("float32")
        odds = np.exp(logits)
        p[start : start + ROWS] = odds / odds.sum(axis=1, keepdims=True)
    p.flush()
    np.save(folder / "labels.npy", labels)


def measure_row(row):
    """Returns processor seconds, seconds, and the peak GiB before the call and at its end."""
    import keras_het.labels  # noqa: F401  the package is no part of the call

    folder = pathlib.Path(row["folder"])
    p, labels = np.load(folder / "p.npy", mmap_mode="r"), np.load(folder / "labels.npy")
    before = answer.usage()
    FUNCTIONS[row["function"]](p, labels)
    after = answer.usage()
    taken = {name: after[name] - before[name] for name in ("processor", "seconds")}
    return {**taken, "before": before["memory"], "peak": after["memory"]}


def table(rows):
    heads = ["function", "examples", "classes", "GiB of the file", "processor seconds", "seconds", "before", "peak GiB"]
    return [heads, *map(_line, rows)]


def _line(row):
    size = row["examples"] * row["classes"] * 4 / 2**30
    figures = [f"{row['processor']:.1f}", f"{row['seconds']:.1f}", f"{row['before']:.2f}", f"{row['peak']:.2f}"]
    return [row["function"], f"{row['examples']:,}", f"{row['classes']:,}", f"{size:.2f}", *figures]


def main():
    parser = harness.command_line(__doc__)
    parser.add_argument("--examples", nargs="+", type=int, default=EXAMPLES)
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=[*FUNCTIONS])
    arguments = parser.parse_args()
    if arguments.row:
        print(json.dumps(measure_row(arguments.row)))
        return
    rows = []
    for examples in (5000,) if arguments.quick else arguments.examples:
        with tempfile.TemporaryDirectory() as folder:
            classes = 20 if arguments.quick else arguments.classes
            write(pathlib.Path(folder), examples, classes)
            for name in arguments.functions:
                case = {"function": name, "examples": examples, "classes": classes}
                rows.append({**case, **harness.in_fresh_process(__spec__.name, {**case, "folder": folder})})
                print(harness.markdown(table(rows)).splitlines()[-1], flush=True)
    publish(
        arguments.output,
        "memory_map",
        {"A memory map in float32": table(rows)},
        [0],
        [keras.config.backend(), "numpy"],
        harness.processor(),
    )


if __name__ == "__main__":
    main()
