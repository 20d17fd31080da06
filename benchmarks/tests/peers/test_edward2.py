"""The formulas of `edward2_formulas.py`, and the heads made of the weights, against edward2 itself."""

import sys

import numpy as np
import pytest

from benchmarks.baselines import from_edward2
from benchmarks.tests.baselines.edward2_formulas import FACTORS, FEATURES, LAYERS, UNITS
from keras_het.integrators import MonteCarlo

SAMPLES, DRAWS, TEMPERATURE = 1 << 14, 8, 0.8
pytestmark = pytest.mark.filterwarnings("ignore")  # of edward2 and of the old Keras that it needs
X = 0.5 * np.random.default_rng(3).normal(size=(3, FEATURES)).astype("float32")


def make_layer(name):
    """edward2's layer, called once, with random weights, biases too."""
    sys.modules["scipy"] = None  # without SciPy edward2 leaves out its NumPy backend, which breaks on today's SciPy
    import edward2

    del sys.modules["scipy"]
    options = {"temperature": TEMPERATURE, "test_mc_samples": SAMPLES, "logits_only": True}
    if name != "MCSoftmaxDense":
        options |= {
            "num_factors": 0 if name.endswith("diagonal") else FACTORS,
            "parameter_efficient": name.endswith("efficient"),
        }
    layer = getattr(edward2.layers, name.split()[0])(UNITS, **options)
    layer(X)
    rng = np.random.default_rng(0)
    layer.set_weights([rng.normal(size=weight.shape) for weight in layer.get_weights()])
    return layer


@pytest.mark.parametrize("name", LAYERS)
def test_a_head_of_its_weights_predicts_as_the_layer_does(name):
    """Six standard errors of a mean of eight draws of edward2, for each of twelve probabilities."""
    layer, link = make_layer(name), LAYERS[name][1]
    weights = {weight.name: weight.numpy() for weight in layer.weights}
    integrator = None if link == "sigmoid" else MonteCarlo(1 << 17)
    head = from_edward2(weights, link=link, temperature=TEMPERATURE, integrator=integrator)
    logits = np.stack([layer(X, training=False).numpy() for _ in range(DRAWS)])
    theirs = np.exp(logits) if link == "softmax" else 1 / (1 + np.exp(-logits))
    error = np.maximum(theirs.std(axis=0) / np.sqrt(DRAWS - 1), 0.3 / np.sqrt(SAMPLES * DRAWS))
    assert np.all(np.abs(np.asarray(head.probabilities(X)) - theirs.mean(axis=0)) < 6 * np.sqrt(2) * error)
