"""Saved models on a backend that only predicts: `python -m tests.layers.predictions FOLDER`, in a process of its own.

It prints JSON: the largest difference of each model's predictions from those saved beside it, the error of `fit`, and
the exit status of the doctor.
"""

import contextlib
import json
import pathlib
import sys

import keras
import numpy as np
import pytest

from keras_het.commands import doctor
from tests.common import python
from tests.layers.heads import HEADS, X, make_head, set_random_weights


def save_models(folder):
    for name, head in {**{kind: make_head(kind) for kind in HEADS}, "Dense": keras.layers.Dense(4)}.items():
        model = keras.Sequential([keras.Input(X.shape[1:]), head])
        set_random_weights(model)
        model.save(folder / f"{name}.keras")
        np.save(folder / f"{name}.npy", model.predict(X, verbose=0))


def on_backend(folder, backend):
    done = python("-m", "tests.layers.predictions", str(folder), check=True, KERAS_BACKEND=backend)
    return json.loads(done.stdout.splitlines()[-1])


def compare(folder):
    differences = {}
    for path in sorted(folder.glob("*.keras")):
        result = keras.models.load_model(path).predict(X, verbose=0)
        differences[path.stem] = float(np.max(np.abs(result - np.load(path.with_suffix(".npy")))))
    model = keras.models.load_model(folder / "full.keras")
    model.compile("sgd", model.layers[-1].link.loss())
    with pytest.raises(NotImplementedError) as refusal:
        model.fit(X, np.zeros(len(X)), verbose=0)
    with contextlib.redirect_stdout(sys.stderr):
        status = doctor.run()
    return {"differences": differences, "fit": str(refusal.value), "doctor": status}


if __name__ == "__main__":
    print(json.dumps(compare(pathlib.Path(sys.argv[1]))))
