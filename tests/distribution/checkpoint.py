"""Files of a model on four devices, loaded on one, and back: `python -m tests.distribution.checkpoint FOLDER`.

Two steps on four devices that share data and classes, a file, and two more steps, on the four and on one that loads the
file; then a file of the one, loaded on the four. It prints what is compared as JSON.
"""

import json
import pathlib
import sys

import keras
import numpy as np

import keras_het
from tests.distribution import cases
from tests.distribution.training import is_split

NAME = "parameter-efficient softmax"


def train(model, steps):
    """The mean loss of two steps, after so many."""
    rows = slice(steps * cases.BATCH, (steps + 2) * cases.BATCH)
    return model.fit(cases.X[rows], cases.CLASSES[rows], cases.BATCH, shuffle=False, verbose=0).history["loss"]


def state(model):
    """Predictions, the clock, and the weights that devices share."""
    return {
        "predictions": np.asarray(model.predict(cases.X[:16], verbose=0)).tolist(),
        "clock": int(model.get_layer("head").clock.step.numpy()),
        "split": sum(is_split(weight.value) for weight in model.weights),
    }


def new_model():
    keras.utils.set_random_seed(0)
    return cases.CASES[NAME]().model


def main(folder):
    folder, mesh = pathlib.Path(folder), keras.distribution.DeviceMesh((2, 2), ("batch", "model"))
    layout = keras_het.distribution.layout_map(new_model(), mesh)
    four = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch").scope
    found = {}
    with four():
        model = new_model()
        train(model, 0)
        model.save(folder / "four.keras")
        model.save_weights(folder / "four.weights.h5")
        found["four"] = {**state(model), "losses": train(model, 2)}
    loaded = keras.saving.load_model(folder / "four.keras")
    found["one"] = {**state(loaded), "losses": train(loaded, 2)}
    other = new_model()
    other.load_weights(folder / "four.weights.h5")
    found["one, weights alone"] = state(other)
    loaded.save(folder / "one.keras")
    found["one, later"] = state(loaded)
    with four():
        back = keras.saving.load_model(folder / "one.keras")
        found["four again"] = {**state(back), "losses": train(back, 4)}
    found["one, later"]["losses"] = train(loaded, 4)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
