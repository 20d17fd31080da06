"""What JAX compiles for a training step on several devices: bytes on each, and what they exchange.

`python -m tests.distribution.compiled JSON` prints `measure_row` of these arguments. On virtual devices of a processor,
by what XLA allocates for the compiled step: the step does not run.
"""

import collections
import contextlib
import json
import re
import sys

import keras
import numpy as np

from keras_het import covariances, distribution, layers

DEVICES = (1, 4)
# Matches an exchange in a compiled program: shapes, and kind.
KINDS = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
EXCHANGE = re.compile(rf"= (\(?[a-z0-9]+\[.*?) ({KINDS})(?:-start)?\(")
ENVIRONMENT = {"KERAS_BACKEND": "jax", "JAX_NUM_CPU_DEVICES": str(max(DEVICES))}


def make_head(covariance, units):
    kind = getattr(covariances, covariance.title().replace("_", ""))
    return layers.HeteroscedasticDense(units, covariance=kind(), seed=0, name="head")


def make_model(covariance, units, features):
    head = make_head(covariance, units)
    model = keras.Sequential([keras.Input((features,)), keras.layers.LayerNormalization(), head])
    model.compile(keras.optimizers.Adam(1e-3), head.link.loss())
    model.optimizer.build(model.trainable_variables)
    return model


def compiled_step(model, x, y):
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
    found = collections.defaultdict(collections.Counter)
    for shapes, kind in EXCHANGE.findall(step.as_text()):
        found[kind][re.sub(r"\{.*?\}|/\*.*?\*/", "", shapes)] += 1
    return {kind: dict(shapes) for kind, shapes in found.items()}


def bytes_of_device(step):
    """What a device holds at most: weights and optimizer, which the step overwrites, and all that is between."""
    memory = step.memory_analysis()
    return memory.argument_size_in_bytes + memory.temp_size_in_bytes


def measure_row(covariance, devices, units, features, batch):
    scope = contextlib.nullcontext()
    if devices > 1:
        mesh = keras.distribution.DeviceMesh((1, devices), ("batch", "model"))
        layout = distribution.layout_map(make_head(covariance, units), mesh)
        scope = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch").scope()
    with scope:
        model = make_model(covariance, units, features)
        step = compiled_step(model, np.zeros((batch, features), "float32"), np.zeros(batch, "int32"))
    return {"MiB": bytes_of_device(step) / 2**20, "exchanged": exchanged(step)}


if __name__ == "__main__":
    print(json.dumps(measure_row(**json.loads(sys.argv[1]))))
