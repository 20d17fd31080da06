"""The work of one process, on one backend: `python -m keras_het.parity.child JOB`, with a file of JSON.

A job has the model's file and may have names of modules to import, a file with a batch (which is made if it is
missing), files for the recording and for the trained model, and the trained model of another backend to load.
"""

import importlib
import json
import pathlib
import sys
import zipfile
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.parity.batch import make_inputs, make_labels
from keras_het.parity.recording import Recording
from keras_het.parity.run import packed, record, unpacked, weight_names


def main(path: str) -> None:
    """Does a job."""
    job = json.loads(pathlib.Path(path).read_text())
    for name in job["modules"]:
        importlib.import_module(name)
    if job.get("recording"):
        _record(job)
    if job.get("other"):
        model = keras.saving.load_model(job["other"], compile=False)
        x = unpacked("x", dict(np.load(job["batch"])))
        _saved(model, x).save(job["loaded"])


def _record(job: dict[str, Any]) -> None:
    if job.get("float64"):
        keras.config.set_floatx("float64")
    model = keras.saving.load_model(in_float64(job["model"]) if job.get("float64") else job["model"])
    batch = pathlib.Path(job["batch"])
    if not batch.exists():
        x = make_inputs(model)
        arrays: Any = packed("x", x) | packed("y", make_labels(model, x))
        np.savez(batch, **arrays)
    data = dict(np.load(batch))
    x, y, sample_weight = (unpacked(name, data) for name in ("x", "y", "sample_weight"))
    recording = record(model, x, y, sample_weight=sample_weight, steps=job["steps"])
    recording.save(job["recording"])
    if job.get("saved"):
        changes = recording.arrays.get("training", {})
        for name, weight in zip(weight_names(model.weights), model.weights, strict=True):
            if name in changes:
                weight.assign(recording.arrays["weights"][name] + changes[name].astype(weight.dtype))
        model.save(job["saved"])
        _saved(model, x).save(job["as_saved"])


def _saved(model: Any, x: Any) -> Recording:
    """Returns the weights of a model and its predictions, as a recording."""
    values = [np.array(ops.convert_to_numpy(weight)) for weight in model.weights]
    outputs = keras.tree.flatten(model(keras.tree.map_structure(ops.convert_to_tensor, x), training=False))
    predictions = {"" if len(outputs) == 1 else f"output {i}": ops.convert_to_numpy(y) for i, y in enumerate(outputs)}
    weights = dict(zip(weight_names(model.weights), values, strict=True))
    return Recording(keras.config.backend(), arrays={"saved weights": weights, "saved predictions": predictions})


def in_float64(path: str) -> str:
    """Writes the model's file again with float64 for the dtype of every layer; returns the new path."""
    target = f"{path.removesuffix('.keras')}-float64.keras"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as copy:
        for member in source.infolist():
            content = source.read(member)
            if member.filename == "config.json":
                content = json.dumps(_in_float64(json.loads(content))).encode()
            copy.writestr(member, content)
    return target


def _in_float64(config: Any) -> Any:
    if isinstance(config, list):
        return [_in_float64(entry) for entry in config]
    if not isinstance(config, dict):
        return config
    if str(config.get("class_name", "")).endswith("DTypePolicy"):
        return {**config, "config": {**config["config"], "name": "float64"}}
    is_dtype = {key for key, value in config.items() if key == "dtype" and value in ("float32", "float16", "bfloat16")}
    return {key: "float64" if key in is_dtype else _in_float64(value) for key, value in config.items()}


if __name__ == "__main__":
    main(sys.argv[1])
