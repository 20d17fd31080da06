"""Fraction of a ResNet-50 prediction that the head takes.

python -m benchmarks.cost.backbone [--quick] [--output FOLDER]              (on the backend of KERAS_BACKEND)

The time of the head alone, with its default settings, is divided by the time of the whole model. The backbone is the
ResNet-50 of keras.applications with random weights, on images of 224 x 224.
"""

import keras
import numpy as np

from benchmarks.lib import harness
from benchmarks.lib.results import publish
from keras_het.layers import HeteroscedasticDense

BATCH, UNITS, SIZE, QUICK_SIZE = 8, 1000, 224, 64
HEADS = {
    "Dense": keras.layers.Dense,
    "diagonal": lambda units: HeteroscedasticDense(units, num_factors=0, seed=0),
    "full": lambda units: HeteroscedasticDense(units, seed=0),
    "parameter-efficient": lambda units: HeteroscedasticDense(units, parameter_efficient=True, seed=0),
}


def calls(size):
    """Returns for each head functions that predict a batch: with the head alone, and with the whole model."""
    backbone = keras.applications.ResNet50(include_top=False, weights=None, pooling="avg", input_shape=(size, size, 3))
    images = np.random.default_rng(0).random((BATCH, size, size, 3), dtype="float32")
    features, functions = backbone.predict(images, verbose=0), {}
    for name, make in HEADS.items():
        head = make(UNITS)
        whole = keras.Model(backbone.inputs, head(backbone.outputs[0]))
        alone = keras.Sequential([keras.Input(features.shape[1:]), head])
        for model in (whole, alone):
            model.compile(jit_compile=keras.config.backend() != "torch")
        functions[name, "whole"] = lambda model=whole: model.predict_on_batch(images)
        functions[name, "alone"] = lambda model=alone: model.predict_on_batch(features)
    return functions


def main():
    options = harness.command_line(__doc__, repeats=9).parse_args()
    timings = harness.measure(calls(QUICK_SIZE if options.quick else SIZE), 3 if options.quick else options.repeats)
    lines = [["head", "whole ms", "head alone ms", "share"]]
    for name in HEADS:
        whole, alone = timings[name, "whole"].median, timings[name, "alone"].median
        lines.append([name, harness.milliseconds(whole), harness.milliseconds(alone), f"{alone / whole:.1%}"])
    name = f"backbone_{keras.config.backend()}"
    publish(options.output, name, {"share of the head in a prediction": lines}, seeds=[0])


if __name__ == "__main__":
    main()
