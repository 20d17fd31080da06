"""Noise and outputs of one small head with fixed weights: computed on this machine, and stored as a reference.

`python -m keras_het.commands.doctor_reference` rewrites `doctor_reference.json`. Do this only after a change of the
noise itself.
"""

import json
import pathlib
from collections.abc import Iterable

import keras
import numpy as np

from keras_het import integrators, layers

FILE = pathlib.Path(__file__).with_suffix(".json")
UNITS, NUM_FACTORS, FEATURES, SEED, NUM_SAMPLES = 4, 2, 3, 2021, 16
INTEGRATOR = integrators.QuasiMonteCarlo(NUM_SAMPLES)


def make_head() -> layers.HeteroscedasticDense:
    """Makes the head; a formula gives its weights."""
    head = layers.HeteroscedasticDense(UNITS, NUM_FACTORS, temperature=1.0, seed=SEED, integrator=INTEGRATOR)
    head.build((None, FEATURES))
    for weight in head.trainable_weights:
        weight.assign(np.cos(np.arange(np.prod(weight.shape))).reshape(weight.shape))
    return head


def noise() -> np.ndarray:
    """Returns the nodes of the first training step, as bits, `(NUM_SAMPLES, UNITS + NUM_FACTORS)`."""
    nodes = INTEGRATOR.draw((SEED, 0), NUM_SAMPLES, UNITS, NUM_FACTORS)
    return np.concatenate([keras.ops.convert_to_numpy(part) for part in nodes], axis=-1).view("uint32")


def outputs(modes: Iterable[bool] = (True, False)) -> np.ndarray:
    """Returns the outputs of the head for two inputs, `(modes, 2, UNITS)`."""
    head, x = make_head(), np.linspace(-1.0, 1.0, 2 * FEATURES, dtype="float32").reshape(2, FEATURES)
    return np.stack([keras.ops.convert_to_numpy(head(x, training=training)) for training in modes])


def stored() -> dict[str, np.ndarray]:
    """Returns the arrays in the file: `noise` and `outputs`."""
    content = json.loads(FILE.read_text())
    return {"noise": np.array(content["noise"], "uint32"), "outputs": np.array(content["outputs"], "float32")}


def write() -> None:
    """Writes the file with the values of this machine."""
    FILE.write_text(json.dumps({"noise": noise().tolist(), "outputs": outputs().tolist()}) + "\n")


if __name__ == "__main__":
    write()
