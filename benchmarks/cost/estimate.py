"""Memory and times by `keras_het.estimate_cost` beside measured ones; times of a step and a prediction by Dense's.

python -m benchmarks.cost.estimate [--backends jax tensorflow torch] [--quick] [--output FOLDER]

Every row has a fresh process. Memory is what the process holds at most during two steps, less what it held before the
model was made.
"""

import json

from benchmarks.lib import harness
from benchmarks.lib.results import publish

BACKENDS = ["jax", "tensorflow", "torch"]
SIZES = [{"units": 1000, "features": 512, "batch": 128}, {"units": 20_000, "features": 256, "batch": 32}]
QUICK = [{"units": 50, "features": 16, "batch": 8}]


def make_model(row, units, features):
    """A compiled model whose head is that of a row.

    A layer before the head makes the step compute the gradient of the features.
    """
    import keras

    from keras_het import covariances, integrators, layers

    if row["covariance"] is None:
        head = keras.layers.Dense(units)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    else:
        integrator = getattr(integrators, row["integrator"])(*([row["nodes"]] if row["nodes"] else []))
        kind = getattr(covariances, row["covariance"].title().replace("_", ""))
        head = layers.HeteroscedasticDense(units, covariance=kind(), link=row["link"], integrator=integrator, seed=0)
        loss = head.link.loss()
    model = keras.Sequential([keras.Input((features,)), keras.layers.LayerNormalization(), head])
    model.compile(keras.optimizers.Adam(1e-3), loss, jit_compile=keras.config.backend() != "torch")
    return model


def measure_row(row, sizes, repeats):
    """Seconds and memory of a row, and the seconds of Dense in turn with it."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = rng.standard_normal((sizes["batch"], sizes["features"]), dtype="float32")
    y = rng.integers(sizes["units"], size=sizes["batch"])
    make_model({"covariance": None}, 2, sizes["features"]).train_on_batch(x[:2], y[:2] % 2)  # loads the backend
    before = harness.peak_memory()
    model = make_model(row, sizes["units"], sizes["features"])
    for _ in range(2):
        model.train_on_batch(x, y)
    memory = harness.peak_memory() - before
    dense = make_model({"covariance": None}, sizes["units"], sizes["features"])

    def train(model):
        model.train_on_batch(x, y)
        return harness.wait(model.optimizer.iterations)

    functions = {(name, "train"): lambda m=m: train(m) for name, m in (("own", model), ("dense", dense))}
    functions |= {
        (name, "predict"): lambda m=m: m.predict_on_batch(x) for name, m in (("own", model), ("dense", dense))
    }
    timings = {key: timing.median for key, timing in harness.measure(functions, repeats).items()}
    return {
        "memory": memory,
        **{mode: timings["own", mode] / timings["dense", mode] for mode in ("train", "predict")},
        "dense train": timings["dense", "train"],
    }


def estimated(sizes):
    """The estimated rows for the active backend, without Dense's, as what a process can be given."""
    import keras_het

    return [vars(row) for row in keras_het.estimate_cost(**sizes).rows[1:]]


def main():
    parser = harness.command_line(__doc__, repeats=5)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measure_row(**options.row) if "row" in options.row else estimated(**options.row)))
        return
    found = []
    for sizes in QUICK if options.quick else SIZES:
        for backend in options.backends:
            for row in harness.in_fresh_process(__spec__.name, {"sizes": sizes}, KERAS_BACKEND=backend):
                job = {"row": row, "sizes": sizes, "repeats": options.repeats}
                measured = harness.in_fresh_process(__spec__.name, job, KERAS_BACKEND=backend, **harness.STEADY_MEMORY)
                found.append({"backend": backend, "sizes": sizes, "estimate": row, "measured": measured})
                print(*key_of(found[-1]), backend, sizes, measured, flush=True)
    publish(options.output, "estimate", report(found), [0], options.backends, harness.processor())
    (options.output / "estimate.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))


def report(found):
    """A table for each size: what is estimated, and in brackets what was measured, on each backend."""
    tables = {}
    for sizes in dict.fromkeys(json.dumps(line["sizes"]) for line in found):
        own = [line for line in found if json.dumps(line["sizes"]) == sizes]
        backends = list(dict.fromkeys(line["backend"] for line in own))
        rows = [
            ["covariance", "link", "integrator", *(f"{name}: {backend}" for name in COLUMNS for backend in backends)]
        ]
        for key in dict.fromkeys(key_of(line) for line in own):
            of_backend = {line["backend"]: line for line in own if key_of(line) == key}
            cells = [cell(of_backend.get(backend)) for cell in COLUMNS.values() for backend in backends]
            rows.append([*key, *cells])
        tables[sizes] = rows
    return tables


def key_of(line):
    """The key of a row of the table."""
    return tuple(line["estimate"][name] for name in ("covariance", "link", "integrator"))


def times(estimated, measured):
    """A cell: a multiple of Dense's time, estimated and measured."""
    return lambda line: f"{line['estimate'][estimated]:.1f} ({line['measured'][measured]:.1f})" if line else ""


def mebibytes(line):
    """A cell: memory, estimated and measured."""
    return f"{line['estimate']['train_bytes'] / 2**20:.0f} ({line['measured']['memory']:.0f})" if line else ""


COLUMNS = {"step": times("train_time", "train"), "predict": times("predict_time", "predict"), "MiB": mebibytes}


if __name__ == "__main__":
    main()
