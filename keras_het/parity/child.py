"""Work of one process on one backend: `python -m keras_het.parity.child JOB`, with a JSON file.

A job names a folder with "model.keras" and "batch.npz", which is made if it is missing, a label, and modules to import.
"records" is "numbers", "float64" or "roundings"; the model is recorded in a file such as "LABEL, numbers.npz". "parts",
"roundings" and "units" are arguments of `record`. With "saves", the trained model is written to "LABEL.keras". With
"loads", the trained model of another label is loaded.
"""

import contextlib
import importlib
import json
import pathlib
import re
import sys
import zipfile
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.internals import float64, layers_of
from keras_het.parity.arrays import ROUNDOFF
from keras_het.parity.batch import make_batch, unpack
from keras_het.parity.draws import equal_draws, reset_states
from keras_het.parity.probe import as_tensors, outputs_by_name, store_weights, weight_names
from keras_het.parity.recording import Recording
from keras_het.parity.run import describe_error, record

_BACKEND_OPTIMIZER = re.compile(r'keras\.src\.backend\.(\w+)\.optimizers[\w.]*",\s*"class_name":\s*"(\w+)"')


def main(path: str) -> int:
    """Does the job in a file, and writes the error to a file if there is one."""
    job = json.loads(pathlib.Path(path).read_text())
    if job.get("records") == "float64" and keras.config.backend() == "tensorflow":
        # float64 times float32 is float64, as elsewhere.
        tensorflow = sys.modules["tensorflow"]
        tensorflow.experimental.numpy.experimental_enable_numpy_behavior(dtype_conversion_mode="legacy")
    try:
        run(job)
    except Exception as error:
        pathlib.Path(job["folder"], "error.txt").write_text(describe_error(error))
        return 1
    return 0


def run(job: dict[str, Any]) -> None:
    """Does a job in this process."""
    for name in job["modules"]:
        importlib.import_module(name)
    if job.get("records"):
        with float64() if job["records"] == "float64" else contextlib.nullcontext():
            _record(job)
    if saver := job.get("loads"):
        keras.utils.clear_session()  # so that layers without a name are counted from the start
        try:
            model, _ = _load(f"{job['folder']}/{saver}.keras", is_float64=False)
        except Exception as error:
            raise RuntimeError(f"the model that {saver} saved does not load: {describe_error(error)}") from error
        _record_saved(model, job, "loaded")


def _record(job: dict[str, Any]) -> None:
    path, batch = f"{job['folder']}/{job['label']}", pathlib.Path(job["folder"], "batch.npz")
    model, notes = _load(f"{job['folder']}/model.keras", job["records"] == "float64")
    if not batch.exists():
        arrays, more = make_batch(model)
        notes += more
        np.savez(batch, **arrays)
    (x, y, sample_weight), second = unpack(dict(np.load(batch)))
    names = ("steps", "batch_size", "roundings", "units", "parts", "label")
    plan = {name: job[name] for name in names if job.get(name)}
    recording = record(model, x, y, sample_weight=sample_weight, second=second, **plan)
    recording.notes[:0] = notes
    recording.save(f"{path}, {job['records']}.npz")
    if job.get("saves"):
        changes = recording.arrays.get("training", {})
        for name, weight in zip(weight_names(model.weights), model.weights, strict=True):
            if name in changes:
                weight.assign(recording.arrays["weights"][name] + changes[name].astype(weight.dtype))
        for number, variable in enumerate(_optimizer_variables(model)):  # others than at the start
            if not variable.path.endswith("/learning_rate"):  # which is in the configuration, and can have bounds
                values = np.resize(np.cos(np.arange(1021.0, dtype="float32")), variable.shape)
                variable.assign(ops.cast(values + np.float32(number % 64), variable.dtype))
        model.save(f"{path}.keras")
        _record_saved(model, job, "saved")


def _load(path: str, is_float64: bool) -> tuple[Any, list[str]]:
    """Returns the model in a file, and notes on what was changed in it."""
    with zipfile.ZipFile(path) as archive:  # Keras 3.15 saves the class of PyTorch alone
        optimizers = _BACKEND_OPTIMIZER.findall(archive.read("config.json").decode())
    with keras.saving.custom_object_scope({name: getattr(keras.optimizers, name) for _, name in optimizers}):
        model = keras.saving.load_model(_rewrite_in_float64(path) if is_float64 else path)
    for layer in layers_of(model) if is_float64 else ():  # that have a dtype outside the configuration
        if layer.compute_dtype in ROUNDOFF and not getattr(layer, "quantization_mode", None):
            layer.dtype_policy = "float64"
    text = "the file names an optimizer of {} alone. To train on another backend, compile the model again"
    notes = [text.format(optimizers[0][0])] if optimizers else []
    if model.compiled and not hasattr(model, "optimizer"):  # Keras does not call an own `compile`
        model.compiled = False
        text = "the model is not compiled when it is loaded, because its own `compile` has no `compile_from_config`"
        notes.insert(0, f"{text}. So its own `train_step` and `test_step` are not compared")
    return model, notes


def _record_saved(model: Any, job: dict[str, Any], kind: str) -> None:
    """Records the weights, optimizer and predictions of a model that was "saved" or "loaded"."""
    (x, *_), _ = unpack(dict(np.load(f"{job['folder']}/batch.npz")))
    with equal_draws():
        reset_states(model)
        predictions = outputs_by_name(model(as_tensors(x), training=False))
    path, label = f"{job['folder']}/{job['label']}", f"{job['label']}, {kind}"
    rounding = {"saved predictions": Recording.load(f"{path}, numbers.npz").rounding.get("predictions", {})}
    arrays = {"saved weights": store_weights(model.weights), "saved predictions": predictions}
    arrays["saved optimizer"] = store_weights(_optimizer_variables(model))
    Recording(keras.config.backend(), arrays=arrays, rounding=rounding, label=label).save(f"{path}, {kind}.npz")


def _optimizer_variables(model: Any) -> list[Any]:
    """Returns the variables of the optimizer. One that Keras does not build when it loads a model has no state."""
    optimizer = model.optimizer if model.compiled else None
    return optimizer.variables if optimizer and optimizer.built else []


def _rewrite_in_float64(path: str) -> str:
    """Writes a copy of the model's file whose layers compute in float64, and returns the path."""
    target = f"{path.removesuffix('.keras')}-float64.keras"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as copy:
        for member in source.infolist():
            content = source.read(member)
            if member.filename == "config.json":
                content = json.dumps(json.loads(content, object_hook=_use_float64)).encode()
            copy.writestr(member, content)
    return target


def _use_float64(config: dict) -> dict:
    """Returns a part of a configuration with float64 for the dtype of a layer."""
    if str(config.get("class_name", "")).endswith("DTypePolicy") and "mode" not in config["config"]:  # not of int8
        return {**config, "config": {**config["config"], "name": "float64"}}
    return config | ({"dtype": "float64"} if str(config.get("dtype")) in ROUNDOFF else {})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
