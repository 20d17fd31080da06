"""Errors of log p of trained heads, and milliseconds, by nodes and by the quadrature.

python -m benchmarks.cost.quadrature [--quick] [--output FOLDER]              (on the backend that KERAS_BACKEND names)

A diagonal head is trained on the task of `tasks.grouped` (1000 classes, 40% of the labels flipped within groups of
five) with the default nodes. The error of a prediction is the root mean square distance of its log p, weighted by p,
from that of the same weights at 128 points of the quadrature; how far 2^14 nodes are from that is said beside.
"""

import json

from keras import ops

from benchmarks.cost import nodes
from benchmarks.lib import harness, tasks
from benchmarks.lib.results import publish
from keras_het.integrators import Quadrature, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense

FULL = {"units": 1000, "per_class": 20, "epochs": 8, "reference": 1 << 14}
QUICK = {"units": 50, "per_class": 10, "epochs": 1, "reference": 1 << 11}
TEST = 128
RULES = {
    "nodes": (QuasiMonteCarlo, (16, 64, 256, 1024)),
    "quadrature": (Quadrature, (12, 16, 24)),
}
REFERENCE_POINTS = 128


def columns_of():
    """The rules to compare, with their sizes."""
    return [(name, s) for name, (_, counts) in RULES.items() for s in counts]


def row_of(task, sizes, repeats):
    """The row of the trained head."""
    head = HeteroscedasticDense(
        task.units, num_factors=0, temperature=nodes.TEMPERATURE, integrator=QuasiMonteCarlo(64), seed=0
    )
    model, x = nodes.compiled(task, head), task.test.x[:TEST]
    nodes.fit(model, task, sizes["epochs"])
    exact = nodes.predict(model, Quadrature(REFERENCE_POINTS), x)
    check = nodes.distance(nodes.predict(model, QuasiMonteCarlo(sizes["reference"]), x), exact)
    rules = {(name, s): RULES[name][0](s) for name, s in columns_of()}
    batch = ops.convert_to_tensor(x[: nodes.BATCH])
    functions = {key: nodes.predictor(model, rule) for key, rule in rules.items()}
    timings = harness.measure({key: lambda f=function: f(batch) for key, function in functions.items()}, repeats)
    errors = {key: nodes.distance(nodes.predict(model, rule, x), exact) for key, rule in rules.items()}
    columns = [f"{errors[key]:.4f} ({1e3 * timings[key].median:.0f})" for key in columns_of()]
    return ["diagonal", f"{nodes.relative_noise(model, x):.2f}", *columns, f"{check:.4f}"]


def main():
    options = harness.command_line(__doc__, repeats=3).parse_args()
    sizes = QUICK if options.quick else FULL
    task = tasks.grouped(sizes["units"], sizes["per_class"], 0.4, seed=0)
    lines = [["head", "sd", *(f"{name}, {s}" for name, s in columns_of()), "reference"]]
    lines.append(row_of(task, sizes, options.repeats))
    tables = {f"error of log p (milliseconds of a batch of {nodes.BATCH})": lines, "sizes": json.dumps(sizes)}
    publish(options.output, "quadrature", tables, seeds=[0])


if __name__ == "__main__":
    main()
