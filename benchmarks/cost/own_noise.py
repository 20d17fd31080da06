"""Errors of log p of trained heads, and milliseconds, by plain nodes, by own noise and by the quadrature.

python -m benchmarks.cost.own_noise [--quick] [--output FOLDER]              (on the backend that KERAS_BACKEND names)

Each kind of head is trained on the task of `tasks.grouped` (1000 classes, 40% of the labels flipped within groups of
five) with the default nodes. The error of a prediction is the root mean square distance of its log p, weighted by p,
from that of the same weights at 2^11 nodes with own noise, for the diagonal head at 128 points of the quadrature; how
far 2^14 plain nodes are from that is said beside.
"""

import json

from keras import ops

from benchmarks.cost import nodes
from benchmarks.lib import harness, tasks
from benchmarks.lib.results import publish
from keras_het.integrators import OwnNoise, Quadrature, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense

FULL = {"units": 1000, "per_class": 20, "num_factors": 15, "epochs": 8, "reference": 1 << 11}
QUICK = {"units": 50, "per_class": 10, "num_factors": 5, "epochs": 1, "reference": 1 << 8}
TEST = 128
RULES = {
    "nodes": (QuasiMonteCarlo, (16, 64, 256, 1024)),
    "own noise": (OwnNoise, (16, 64, 256)),
    "quadrature": (Quadrature, (12, 16, 24)),
}
REFERENCE_POINTS = 128


def heads(num_factors):
    """Arguments of the heads."""
    efficient = {"num_factors": num_factors, "parameter_efficient": True}
    return {"diagonal": {"num_factors": 0}, "parameter-efficient": efficient, "full": {"num_factors": num_factors}}


def columns_of():
    """The rules to compare, with their sizes."""
    return [(name, s) for name, (_, counts) in RULES.items() for s in counts]


def rows_of(kind, arguments, task, sizes, repeats):
    """Rows of one trained head."""
    head = HeteroscedasticDense(
        task.units, **arguments, temperature=nodes.TEMPERATURE, integrator=QuasiMonteCarlo(64), seed=0
    )
    model, x = nodes.compiled(task, head), task.test.x[:TEST]
    nodes.fit(model, task, sizes["epochs"])
    diagonal = kind == "diagonal"
    exact = nodes.predict(model, Quadrature(REFERENCE_POINTS) if diagonal else OwnNoise(sizes["reference"]), x)
    check = nodes.distance(nodes.predict(model, QuasiMonteCarlo(8 * sizes["reference"]), x), exact)
    rules = {
        (name, s): rule(s)
        for name, (rule, counts) in RULES.items()
        for s in counts
        if diagonal or rule is not Quadrature
    }
    batch = ops.convert_to_tensor(x[: nodes.BATCH])
    functions = {key: nodes.predictor(model, rule) for key, rule in rules.items()}
    timings = harness.measure({key: lambda f=function: f(batch) for key, function in functions.items()}, repeats)
    errors = {key: nodes.distance(nodes.predict(model, rule, x), exact) for key, rule in rules.items()}
    noise = nodes.relative_noise(model, x)
    columns = [f"{errors[key]:.4f} ({1e3 * timings[key].median:.0f})" if key in rules else "" for key in columns_of()]
    return [kind, f"{noise:.2f}", *columns, f"{check:.4f}"]


def main():
    options = harness.command_line(__doc__, repeats=3).parse_args()
    sizes = QUICK if options.quick else FULL
    task = tasks.grouped(sizes["units"], sizes["per_class"], 0.4, seed=0)
    lines = [["head", "sd", *(f"{name}, {s}" for name, s in columns_of()), "reference"]]
    for kind, arguments in heads(sizes["num_factors"]).items():
        lines.append(rows_of(kind, arguments, task, sizes, options.repeats))
        print(lines[-1], flush=True)
    tables = {f"error of log p (milliseconds of a batch of {nodes.BATCH})": lines, "sizes": json.dumps(sizes)}
    publish(options.output, "own_noise", tables, seeds=[0])


if __name__ == "__main__":
    main()
