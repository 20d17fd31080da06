"""Memory of a training step on one device and on four that share the classes, and what they exchange.

python -m benchmarks.cost.devices [--quick] [--output FOLDER]

On virtual devices of a processor, by what XLA allocates on each for the compiled step: the step does not run. Every
row has a fresh process. The last table has what `keras_het.estimate_cost` says of a million classes.
"""

import collections
import json
import re

from benchmarks.lib import harness
from benchmarks.lib.results import publish

DEVICES = (1, 4)
SIZES, QUICK = {"units": 100_000, "features": 64, "batch": 128}, {"units": 800, "features": 16, "batch": 8}
HEADS = ["diagonal", "parameter_efficient", "latent", "narrow", "low_rank"]
MILLION = {"units": 1_000_000, "features": 512, "batch": 128, "num_samples": 128}  # more nodes: too large a table
MANY = (8, 64, 512)
# An operation of devices in a compiled program: shapes, and kind.
KINDS = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
EXCHANGE = re.compile(rf"= (\(?[a-z0-9]+\[.*?) ({KINDS})(?:-start)?\(")
ENVIRONMENT = {"KERAS_BACKEND": "jax", "JAX_NUM_CPU_DEVICES": str(max(DEVICES))}


def make_model(covariance, units, features):
    """A compiled model that ends in the head, with the default nodes."""
    import keras

    from keras_het import covariances, layers

    kind = getattr(covariances, covariance.title().replace("_", ""))
    head = layers.HeteroscedasticDense(units, covariance=kind(), seed=0, name="head")
    model = keras.Sequential([keras.Input((features,)), keras.layers.LayerNormalization(), head])
    model.compile(keras.optimizers.Adam(1e-3), head.link.loss())
    model.optimizer.build(model.trainable_variables)
    return model


def compiled_step(model, x, y):
    """A training step of a model, compiled by JAX for the devices that have its weights."""
    import jax

    variables = [model.trainable_variables, model.non_trainable_variables, model.optimizer.variables]

    def loss_of(trainable, others):
        outputs, others = model.stateless_call(trainable, others, x, training=True)
        return model.loss(y, outputs), others

    def step(trainable, others, optimizer):
        (loss, others), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, others)
        return loss, *model.optimizer.stateless_apply(optimizer, gradients, trainable), others

    values = [[variable.value for variable in each] for each in variables]
    return jax.jit(step, donate_argnums=(0, 1, 2)).lower(*values).compile()


def exchanged(step):
    """The operations by which devices exchange tensors: `{kind: {shapes: number}}`."""
    found = collections.defaultdict(collections.Counter)
    for shapes, kind in EXCHANGE.findall(step.as_text()):
        found[kind][re.sub(r"\{.*?\}|/\*.*?\*/", "", shapes)] += 1
    return {kind: dict(shapes) for kind, shapes in found.items()}


def bytes_of_device(step):
    """What a device holds at most: weights and optimizer, which the step overwrites, and all that is between."""
    memory = step.memory_analysis()
    return memory.argument_size_in_bytes + memory.temp_size_in_bytes


def measure_row(covariance, devices, units, features, batch):
    """MiB of each device, and what the devices exchange."""
    import contextlib

    import keras
    import numpy as np

    import keras_het

    scope = contextlib.nullcontext()
    if devices > 1:
        mesh = keras.distribution.DeviceMesh((1, devices), ("batch", "model"))
        head = keras_het.layers.HeteroscedasticDense(
            units, covariance=getattr(keras_het.covariances, covariance.title().replace("_", ""))(), name="head"
        )
        layout = keras_het.distribution.layout_map(head, mesh)
        scope = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch").scope()
    with scope:
        model = make_model(covariance, units, features)
        step = compiled_step(model, np.zeros((batch, features), "float32"), np.zeros(batch, "int32"))
    return {"MiB": bytes_of_device(step) / 2**20, "exchanged": exchanged(step)}


def estimated(devices, sizes):
    """`{covariance: row}` of `estimate_cost`, with classes that the devices can share."""
    import keras_het

    units = -(-sizes["units"] // devices) * devices
    rows = keras_het.estimate_cost(**{**sizes, "units": units}, devices=devices).rows
    return {row.covariance: vars(row) for row in rows[1:]}


def main():
    parser = harness.command_line(__doc__, repeats=1)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(estimated(**options.row) if "sizes" in options.row else measure_row(**options.row)))
        return
    sizes, found = QUICK if options.quick else SIZES, {}
    for covariance in HEADS:
        for devices in DEVICES:
            row = {"covariance": covariance, "devices": devices, **sizes}
            found[covariance, devices] = harness.in_fresh_process(__spec__.name, row, **ENVIRONMENT)
            print(covariance, devices, found[covariance, devices], flush=True)
    estimates = {
        (devices, units["units"]): harness.in_fresh_process(
            __spec__.name, {"devices": devices, "sizes": units}, **ENVIRONMENT
        )
        for units, numbers in ((sizes, DEVICES), (MILLION, MANY))
        for devices in numbers
    }
    tables = {
        f"MiB of each device, {json.dumps(sizes)}": memory(found, estimates, sizes["units"]),
        f"a million classes, GiB of each device, {json.dumps(MILLION)}": million(estimates),
    }
    publish(options.output, "devices", tables, [0], ["jax"], harness.processor())


def memory(found, estimates, units):
    """A row for each head: measured, and in brackets estimated; the share; what four devices exchange."""
    rows = [["covariance", *(f"{count} device{'s' * (count > 1)}" for count in DEVICES), "share", "exchanged by four"]]
    for covariance in HEADS:
        one, four = (found[covariance, devices]["MiB"] for devices in DEVICES)
        cells = [
            f"{found[covariance, devices]['MiB']:.0f} ({bytes_ / 2**20:.0f})"
            for devices, bytes_ in ((count, estimates[count, units][covariance]["train_bytes"]) for count in DEVICES)
        ]
        kinds = found[covariance, max(DEVICES)]["exchanged"]
        rows.append([covariance, *cells, f"{four / one:.3f}", ", ".join(sorted(kinds))])
    return rows


def million(estimates):
    """A row for each head: weights, and what a device of 8, of 64 and of 512 holds."""
    units = MILLION["units"]
    rows = [["covariance", "weights", *(f"{devices} devices" for devices in MANY)]]
    for covariance in HEADS:
        cells = [f"{estimates[devices, units][covariance]['train_bytes'] / 2**30:.3g}" for devices in MANY]
        rows.append([covariance, f"{estimates[MANY[0], units][covariance]['parameters'] / 1e9:.3g} billion", *cells])
    return rows


if __name__ == "__main__":
    main()
