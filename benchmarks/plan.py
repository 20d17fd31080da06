"""What `keras_het.plan` says beside what is measured: the time of a step and of a prediction as multiples of Dense's, and memory.

python benchmarks/plan.py [--backends jax tensorflow torch] [--quick] [--output FOLDER]

Every row has a fresh process. Memory is what the process holds at most during two steps, less what it held before the model was made.
"""

import json

import harness

BACKENDS = ["jax", "tensorflow", "torch"]
SIZES = [{"units": 1000, "features": 512, "batch": 128}, {"units": 20_000, "features": 256, "batch": 32}]
QUICK = [{"units": 50, "features": 16, "batch": 8}]


def make_model(row, units, features):
    """A compiled model whose head is that of a row; a layer before it makes the step compute the gradient of the features."""
    import keras

    from keras_het import integrators, layers

    if row["covariance"] is None:
        head = keras.layers.Dense(units)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    else:
        integrator = getattr(integrators, row["integrator"])(*([row["nodes"]] if row["nodes"] else []))
        head = layers.HeteroscedasticDense(units, covariance=row["covariance"], link=row["link"], integrator=integrator, seed=0)
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
    functions |= {(name, "predict"): lambda m=m: m.predict_on_batch(x) for name, m in (("own", model), ("dense", dense))}
    timings = {key: timing.median for key, timing in harness.measure(functions, repeats).items()}
    return {
        "memory": memory,
        **{mode: timings["own", mode] / timings["dense", mode] for mode in ("train", "predict")},
        "dense train": timings["dense", "train"],
        "machine": harness.describe(),
    }


def planned(sizes):
    """The rows of the plan, as what a process can be given."""
    import keras_het

    return [row._asdict() for row in keras_het.plan(**sizes).rows]


def main():
    parser = harness.command_line(__doc__, repeats=5)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(measure_row(**options.row)))
        return
    results = []
    for sizes in QUICK if options.quick else SIZES:
        for backend in options.backends:
            for row in planned(sizes)[1:]:
                job = {"row": row, "sizes": sizes, "repeats": options.repeats}
                found = harness.in_fresh_process(__file__, job, KERAS_BACKEND=backend, **harness.STEADY_MEMORY)
                results.append({"backend": backend, "sizes": sizes, "plan": row, "measured": found})
                print(backend, sizes, [row[name] for name in ("covariance", "link", "integrator")], found, flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "plan.json").write_text(json.dumps(results))
    text = report(results)
    (options.output / "plan.md").write_text(text)
    print(text)


def report(results):
    """A table for each size: what is planned, and in brackets what each backend measured."""
    parts = []
    for sizes in dict.fromkeys(json.dumps(result["sizes"]) for result in results):
        own = [result for result in results if json.dumps(result["sizes"]) == sizes]
        backends = list(dict.fromkeys(result["backend"] for result in own))
        lines = [["covariance", "link", "integrator", f"step, times Dense ({', '.join(backends)})", "predict, times Dense", "MiB"]]
        for row in (result for result in own if result["backend"] == backends[0]):
            plan = row["plan"]
            same = [r["measured"] for r in own if r["plan"] == plan]
            cells = [f"{plan[name]:.1f} ({', '.join(f'{m[key]:.1f}' for m in same)})" for name, key in COLUMNS[:2]]
            held = ", ".join(f"{measured['memory']:.0f}" for measured in same)
            memory = f"{plan['train_bytes'] / 2**20:.0f} ({held})"
            lines.append([plan["covariance"], plan["link"], plan["integrator"], *cells, memory])
        parts.append(f"### {sizes}\n\n{harness.markdown(lines)}")
    return "\n\n".join([*parts, results[0]["measured"]["machine"]]) + "\n"


COLUMNS = (("train_time", "train"), ("predict_time", "predict"))


if __name__ == "__main__":
    main()
