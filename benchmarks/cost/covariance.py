"""Seconds and memory of `explain.covariance` and `explain.confused_pairs` with very many classes.

python -m benchmarks.cost.covariance [--tasks NAME ...] [--quick]

The heads are not trained. One pair of classes is planted to be confused, and `confused_pairs` must return that pair
alone. Memory is the peak of the process, with the backend, the model, and one batch of data, which is made on reading.
"""

import argparse
import json
import subprocess
import sys
import time

from benchmarks.lib import harness
from benchmarks.lib.results import publish

TASKS = {
    "covariance, K=1000": {"units": 1000, "features": 512, "factors": 15, "efficient": False, "examples": 50_000},
    "pairs, K=1000": {"units": 1000, "features": 512, "factors": 15, "efficient": False, "examples": 50_000},
    "pairs, K=21,843": {"units": 21_843, "features": 2048, "factors": 50, "efficient": True, "examples": 10_000},
}
QUICK = {"units": 40, "features": 64, "factors": 15, "examples": 300}


def make_model(units, features, factors, efficient):
    """Returns a model whose classes 3 and 7 share a row of the factor, with opposite signs."""
    import keras
    import numpy as np

    from keras_het.layers import HeteroscedasticDense

    head = HeteroscedasticDense(units, factors, parameter_efficient=efficient, seed=0)
    model = keras.Sequential([keras.Input((features,)), head])
    weights = keras.ops.convert_to_numpy(head.covariance.factor_layer.kernel).reshape(-1, units, factors).copy()
    weights += 1e-3 * np.random.default_rng(1).standard_normal(weights.shape, dtype="float32")
    weights[:, 3] = 5 * max(np.abs(weights).max(), 0.02) * np.sign(weights[:, 3] + 1e-9)
    weights[:, 7] = -weights[:, 3]
    head.covariance.factor_layer.kernel.assign(weights.reshape(head.covariance.factor_layer.kernel.shape))
    return model


def examples(count, features, batch_size=500):
    """Returns a data set of normal features, which are made on reading."""
    import keras
    import numpy as np

    class Normal(keras.utils.PyDataset):
        def __len__(self):
            return -(-count // batch_size)

        def __getitem__(self, index):
            size = min(batch_size, count - index * batch_size)
            return np.random.default_rng(index).standard_normal((size, features), dtype="float32"), np.zeros(size)

    return Normal()


def measure(name, settings):
    """Returns seconds, MiB and the result of a task."""
    from keras_het.explain import confused_pairs, covariance

    settings = dict(settings)
    data = examples(settings.pop("examples"), settings["features"])
    model = make_model(**settings)
    before, start = harness.peak_memory(), time.perf_counter()
    if name.startswith("covariance"):
        result = str(covariance(model, data).shape)
    else:
        result = ", ".join(f"{pair.first}-{pair.second}" for pair in confused_pairs(model, data))
    return {"seconds": time.perf_counter() - start, "before": before, "peak": harness.peak_memory(), "found": result}


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--measure", choices=list(TASKS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, {**TASKS[options.measure], **(QUICK if options.quick else {})})))
        return
    lines = [["task", "seconds", "MiB before", "MiB at most", "found"]]
    for name in options.tasks:
        command = [sys.executable, "-m", __spec__.name, "--measure", name, *(["--quick"] if options.quick else [])]
        row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        lines.append([name, *(f"{row[key]:.0f}" for key in ("seconds", "before", "peak")), row["found"]])
        print(" | ".join(lines[-1]), flush=True)
    publish(options.output, "covariance", {"seconds and memory": lines}, [0])


if __name__ == "__main__":
    main()
