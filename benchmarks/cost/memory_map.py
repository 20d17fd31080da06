"""Seconds and peak memory of functions that read probabilities from a memory map.

python -m benchmarks.cost.memory_map [--examples N ...] [--classes K] [--functions NAME ...] [--quick] [--output FOLDER]

The probabilities are float32 in a temporary file, and a fifth of the labels is wrong. Each function runs in a new
process, which reports processor seconds, seconds, and its peak GiB before the call and at the end. The peak includes
the pages of the file that were read, which the system takes back if other processes need memory. So the peak is at most
the size of the file plus the memory of the call.
"""

import json
import pathlib
import resource
import tempfile
import time

import keras
import numpy as np

from benchmarks.lib import harness
from benchmarks.lib.results import publish

EXAMPLES, CLASSES, ROWS, WRONG = (100_000, 1_000_000), 1000, 8192, 0.2


def page(tools, p, labels):
    """Writes a report."""
    with tempfile.TemporaryDirectory() as folder:
        tools.report(tools.find_issues(p, labels), folder)


FUNCTIONS = {  # by name, functions of `keras_het.labels`, probabilities and labels
    "find_issues": lambda tools, p, labels: tools.find_issues(p, labels),
    'find_issues, ranking="transition"': lambda tools, p, labels: tools.find_issues(p, labels, ranking="transition"),
    "find_issues, and its transition": lambda tools, p, labels: tools.find_issues(p, labels).transition,
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


def usage():
    """Returns processor seconds, seconds, and the peak GiB of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    memory = harness.peak_memory() / 1024
    return {"processor": used.ru_utime + used.ru_stime, "seconds": time.perf_counter(), "memory": memory}


def measure_row(row):
    """Returns processor seconds, seconds, and the peak GiB before the call and at its end."""
    from keras_het import labels as tools  # the import is no part of the call

    folder = pathlib.Path(row["folder"])
    p, labels = np.load(folder / "p.npy", mmap_mode="r"), np.load(folder / "labels.npy")
    before = usage()
    FUNCTIONS[row["function"]](tools, p, labels)
    after = usage()
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
