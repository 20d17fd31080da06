"""Seconds and memory of a model that stores a vector for each example.

python -m benchmarks.cost.example_memory [--quick] [--backends jax tensorflow torch] [--output FOLDER]

A training step of one dense layer, as an `EarlyLearning` model with N = 1,000,000 examples and K = 1000 classes, beside
the same step under plain crossentropy. Each runs in a new process. In float32 the stored vectors exceed the 2 GiB that
the model accepts, so the benchmark raises that limit. JAX writes to the stored vectors in place, while TensorFlow and
PyTorch copy them.
"""

import time

import numpy as np

from benchmarks.lib import harness
from benchmarks.lib.results import publish

BACKENDS, DTYPES = ("jax", "tensorflow", "torch"), (None, "float16", "float32")
EXAMPLES, CLASSES, BATCH, FEATURES = 1_000_000, 1000, 100, 16


def peak():
    """Returns the peak resident GiB of this process."""
    return harness.peak_memory() / 1024


def make(dtype, examples, classes):
    """Returns a compiled model, and whether the limit refuses it; plain crossentropy if `dtype` is None."""
    import keras

    from keras_het.models import early_learning

    inputs = keras.Input((FEATURES,))
    outputs = keras.layers.Dense(classes)(inputs)
    refused = dtype is not None and examples * classes * np.dtype(dtype).itemsize > early_learning.MAX_MEMORY_BYTES
    early_learning.MAX_MEMORY_BYTES = 1 << 40
    model = (
        keras.Model(inputs, outputs)
        if dtype is None
        else early_learning.EarlyLearning(inputs, outputs, examples, memory_dtype=dtype)
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, refused


def measure_row(row):
    """Returns peak GiB and the median milliseconds of a step, without the first step, which compiles."""
    rng = np.random.default_rng(0)
    dtype, examples, classes = row["dtype"], row["examples"], row["classes"]
    model, refused = make(dtype, examples, classes)
    x, y = rng.normal(size=(BATCH, FEATURES)).astype("float32"), rng.integers(classes, size=BATCH)
    seconds = []
    for _ in range(row["steps"] + 1):
        weights = np.stack([np.ones(BATCH), rng.choice(examples, BATCH, replace=False)], axis=1).astype("float32")
        start = time.perf_counter()
        model.train_on_batch(x, y, sample_weight=weights if dtype else None)
        seconds.append(time.perf_counter() - start)
    remembered = 0.0 if dtype is None else examples * classes * np.dtype(dtype).itemsize / 2**30
    return {"remembered": remembered, "peak": peak(), "ms": 1e3 * float(np.median(seconds[1:])), "refused": refused}


def table(rows):
    """Returns rows: the stored vectors, peak and time of a step, and both without stored vectors."""
    heads = ["backend", "kept in", "remembered, GiB", "peak, GiB", "ms per step", "accepted"]
    lines = [
        [
            row["backend"],
            row["dtype"] or "plain crossentropy",
            f"{row['remembered']:.2f}",
            f"{row['peak']:.1f}",
            f"{row['ms']:.1f}",
            "no, over 2 GiB" if row["refused"] else "yes",
        ]
        for row in rows
    ]
    return [heads, *lines]


def main():
    parser = harness.command_line(__doc__, repeats=10)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    arguments = parser.parse_args()
    if arguments.row:
        import json

        print(json.dumps(measure_row(arguments.row)))
        return
    examples = 10_000 if arguments.quick else EXAMPLES
    rows = []
    for backend in arguments.backends:
        for dtype in DTYPES:
            case = {
                "dtype": dtype,
                "examples": examples,
                "classes": CLASSES,
                "steps": 2 if arguments.quick else arguments.repeats,
            }
            measured = harness.in_fresh_process(__spec__.name, case, KERAS_BACKEND=backend, **harness.STEADY_MEMORY)
            rows.append({"backend": backend, **case, **measured})
            print(harness.markdown(table(rows[-1:])).splitlines()[-1], flush=True)
    title = f"N = {examples:,}, K = {CLASSES}, steps of {BATCH}"
    publish(arguments.output, "example_memory", {title: table(rows)}, [0], arguments.backends, harness.processor())


if __name__ == "__main__":
    main()
