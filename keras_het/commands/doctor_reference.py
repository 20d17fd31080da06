"""The noise and the outputs of one small head with fixed weights, as computed here and as stored from a sound machine.

`python -m keras_het.commands.doctor_reference` writes `doctor_reference.json` anew. That is right only after a change
of the noise itself.
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
    """The head, whose weights follow a formula."""
    head = layers.HeteroscedasticDense(UNITS, NUM_FACTORS, temperature=1.0, seed=SEED, integrator=INTEGRATOR)
    head.build((None, FEATURES))
    for weight in head.trainable_weights:
        weight.assign(np.cos(np.arange(np.prod(weight.shape))).reshape(weight.shape))
    return head


def noise() -> np.ndarray:
    """The nodes of the first training step, as bits, `(NUM_SAMPLES, UNITS + NUM_FACTORS)`."""
    nodes = INTEGRATOR.draw((SEED, 0), NUM_SAMPLES, UNITS, NUM_FACTORS)
    return np.concatenate([keras.ops.convert_to_numpy(part) for part in nodes], axis=-1).view("uint32")


def outputs(modes: Iterable[bool] = (True, False)) -> np.ndarray:
    """The outputs of the head for two inputs, `(modes, 2, UNITS)`.

    Args:
        modes: values of `training`.
    """
    head, x = make_head(), np.linspace(-1.0, 1.0, 2 * FEATURES, dtype="float32").reshape(2, FEATURES)
    return np.stack([keras.ops.convert_to_numpy(head(x, training=training)) for training in modes])


def stored() -> dict[str, np.ndarray]:
    """The arrays in the file: `noise` and `outputs`."""
    found = json.loads(FILE.read_text())
    return {"noise": np.array(found["noise"], "uint32"), "outputs": np.array(found["outputs"], "float32")}


def write() -> None:
    """Writes the numbers that this machine computes."""
    FILE.write_text(json.dumps({"noise": noise().tolist(), "outputs": outputs().tolist()}) + "\n")


if __name__ == "__main__":
    write()
