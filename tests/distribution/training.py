"""Steps on one device and on several: `python -m tests.distribution.training ENGINE FILE [--steps N] [--names NAMES]`.

It writes JSON, in a process of its own, since devices must be made before a backend starts. ENGINE is `jax`, on four
devices, with the layouts of `LAYOUTS`; `tensorflow`, on two replicas; or `torch`, in each of two processes that
torchrun starts. The engine `files` prints what `files` compares, on JAX.
"""

import argparse
import collections
import contextlib
import functools
import json
import os
import pathlib
import sys

import keras
import numpy as np

import keras_het
from keras_het.layers.noisy_dense import NoisyDense
from tests.common import attempt
from tests.distribution import cases

FILE_CASE = "parameter-efficient softmax"
LAYOUTS = {"data": None, "classes": (1, 4), "both": (2, 2)}  # of the four devices: batch, model


def make(name):
    keras.utils.set_random_seed(0)
    return cases.CASES[name]()


class Losses(keras.callbacks.Callback):
    """The loss of every step; Keras would log the mean of an epoch."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(float(logs["loss"]))
        if keras.config.backend() == "jax":
            self.model.jax_state_sync()  # else the step goes on with the state that it has
        self.model.reset_metrics()


def trained(name, steps, scope=contextlib.nullcontext):
    with scope():
        case, record, count = make(name), Losses(), steps * cases.BATCH
        x, y, weight = (None if data is None else data[:count] for data in (case.x, case.y, case.weight))
        case.model.fit(x, y, cases.BATCH, sample_weight=weight, shuffle=False, verbose=0, callbacks=[record])
    return case.model, record.losses


def found(model, losses):
    parts = {weight.path: copies_of(weight.value) for weight in model.weights}
    return {
        "losses": losses,
        "weights": [np.asarray(keras.ops.convert_to_numpy(weight), "float64").tolist() for weight in model.weights],
        "steps": [int(weight.numpy()) for weight in model.weights if weight.path.endswith("clock/step")],
        "differ": [path for path, each in parts.items() if any(len(set(copies)) > 1 for copies in each)],
        "split": [path for path, weight in zip(parts, model.weights, strict=True) if is_split(weight.value)],
    }


def copies_of(value):
    """The bytes of the copies of each part of a tensor; of PyTorch's processes `check_in_sync` compares them."""
    if hasattr(value, "addressable_shards"):
        parts = collections.defaultdict(list)
        for shard in value.addressable_shards:
            parts[str(shard.index)].append(np.asarray(shard.data).tobytes())
        return list(parts.values())
    return [[copy.numpy().tobytes() for copy in value.values]] if hasattr(value, "distribute_strategy") else []


def is_split(value):
    return not getattr(getattr(value, "sharding", None), "is_fully_replicated", True)


def layout_of(name, mesh_shape):
    if mesh_shape is None:
        return keras.distribution.DataParallel()
    mesh, model = keras.distribution.DeviceMesh(mesh_shape, ("batch", "model")), make(name).model
    has_head = any(isinstance(layer, NoisyDense) for layer in model.layers)
    layout = keras_het.distribution.layout_map(model, mesh) if has_head else keras.distribution.LayoutMap(mesh)
    return keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")


def on_jax(name, steps):
    scopes = {key: layout_of(name, shape).scope for key, shape in LAYOUTS.items()}
    return {
        key: found(*trained(name, steps, scope)) for key, scope in {"one": contextlib.nullcontext, **scopes}.items()
    }


@functools.cache
def replicas():
    """The strategy with two replicas: several strategies in one process would mix up what they exchange."""
    import tensorflow as tf

    processor = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(processor, [tf.config.LogicalDeviceConfiguration()] * 2)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def on_tensorflow(name, steps):
    strategy, one = replicas(), found(*trained(name, steps))
    return {"one": one, "replicas": found(*trained(name, steps, strategy.scope))}


def on_torch(name, steps):
    """The case in one process, and in all that torchrun started, by the script that users are shown."""
    from guides.scripts import several_devices_torch as script

    if not script.torch.distributed.is_initialized():
        script.start()
    one = found(*trained(name, steps))
    case, count = make(name), steps * cases.BATCH
    weight = None if case.weight is None else case.weight[:count]
    losses = script.train(case.model, case.x[:count], case.y[:count], cases.BATCH, weight)
    script.check_in_sync(case.model)
    return {"one": one, "replicas": found(case.model, losses)}


def train_on(model, steps):
    rows = slice(steps * cases.BATCH, (steps + 2) * cases.BATCH)
    return model.fit(cases.X[rows], cases.CLASSES[rows], cases.BATCH, shuffle=False, verbose=0).history["loss"]


def state(model):
    return {
        "predictions": np.asarray(model.predict(cases.X[:16], verbose=0)).tolist(),
        "clock": int(model.get_layer("head").clock.step.numpy()),
        "split": sum(is_split(weight.value) for weight in model.weights),
    }


def files(folder):
    """Files of a model on four devices, loaded on one, and back; returns what is compared.

    Two steps on four devices that share data and classes, a file, and two more steps, on the four and on one that loads
    the file; then a file of the one, loaded on the four.
    """
    mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"))
    layout = keras_het.distribution.layout_map(make(FILE_CASE).model, mesh)
    four = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch").scope
    parts = {}
    with four():
        model = make(FILE_CASE).model
        train_on(model, 0)
        model.save(folder / "four.keras")
        model.save_weights(folder / "four.weights.h5")
        parts["four"] = {**state(model), "losses": train_on(model, 2)}
    loaded = keras.saving.load_model(folder / "four.keras")
    parts["one"] = {**state(loaded), "losses": train_on(loaded, 2)}
    other = make(FILE_CASE).model
    other.load_weights(folder / "four.weights.h5")
    parts["one, weights alone"] = state(other)
    loaded.save(folder / "one.keras")
    parts["one, later"] = state(loaded)
    with four():
        back = keras.saving.load_model(folder / "one.keras")
        parts["four again"] = {**state(back), "losses": train_on(back, 4)}
    parts["one, later"]["losses"] = train_on(loaded, 4)
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("engine", choices=["jax", "tensorflow", "torch", "files"])
    parser.add_argument("file", type=pathlib.Path, help="of the results; a folder for the engine `files`")
    parser.add_argument("--steps", type=int, default=cases.STEPS)
    parser.add_argument("--names", nargs="*", help="of cases; all if none is given")
    options = parser.parse_args()
    if options.engine == "files":
        print(json.dumps(files(options.file)))
        return
    run, results = {"jax": on_jax, "tensorflow": on_tensorflow, "torch": on_torch}[options.engine], {}
    for name in options.names or cases.CASES:
        results[name] = attempt(run, name, options.steps)
        print(name, flush=True)
        if os.environ.get("RANK", "0") == "0":
            options.file.write_text(json.dumps(results))
    if options.engine == "torch":  # processes that end with the group open can abort
        sys.modules["torch"].distributed.destroy_process_group()


if __name__ == "__main__":
    main()
