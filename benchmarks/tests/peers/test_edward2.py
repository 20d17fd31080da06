"""A head with the weights of each layer of edward2 predicts as the layer does."""

import os
import sys

import numpy as np
import pytest

from keras_het.covariances import Diagonal, LowRank, ParameterEfficient
from keras_het.integrators import MonteCarlo
from keras_het.layers import HeteroscedasticDense

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # before edward2 is imported
SAMPLES, DRAWS, TEMPERATURE = 1 << 14, 8, 0.8
FEATURES, UNITS, FACTORS = 6, 4, 2
MIN_SCALE = 1e-3  # edward2's MIN_SCALE_MONTE_CARLO
pytestmark = pytest.mark.filterwarnings("ignore")  # of edward2 and of the old Keras that it needs
X = 0.5 * np.random.default_rng(3).normal(size=(3, FEATURES)).astype("float32")
LAYERS = {  # by layer and covariance: the link, and the names of edward2's maps
    "MCSoftmaxDense diagonal": ("softmax", {"loc": "loc_layer", "scale_diag": "scale_layer"}),
    "MCSoftmaxDenseFA full": ("softmax", {"loc": "loc_layer", "scale_diag": "diag_layer", "factor": "scale_layer"}),
    "MCSoftmaxDenseFA efficient": (
        "softmax",
        {
            "loc": "loc_layer",
            "scale_diag": "diag_layer",
            "factor": "scale_layer_homoscedastic",
            "row_scale": "scale_layer_heteroscedastic",
        },
    ),
}
LAYERS |= {
    "MCSigmoidDenseFA diagonal": ("sigmoid", {"loc": "loc_layer", "scale_diag": "diag_layer"}),
    "MCSigmoidDenseFA full": ("sigmoid", LAYERS["MCSoftmaxDenseFA full"][1]),
    "MCSigmoidDenseFA efficient": ("sigmoid", LAYERS["MCSoftmaxDenseFA efficient"][1]),
}
UNIT = {"min_scale": MIN_SCALE, "initial_scale": (1.0 + MIN_SCALE) / TEMPERATURE}  # so that d = softplus + min_scale
WITH_FACTORS = {**UNIT, "initial_scale": np.sqrt(2.0) * UNIT["initial_scale"]}
COVARIANCES = {
    "diagonal": lambda: Diagonal(**UNIT),
    "full": lambda: LowRank(FACTORS, **WITH_FACTORS),
    "efficient": lambda: ParameterEfficient(FACTORS, **WITH_FACTORS),
}


def make_layer(name):
    """Returns edward2's layer with random weights and biases, called once."""
    sys.modules["scipy"] = None  # without SciPy edward2 leaves out its NumPy backend, which breaks on today's SciPy
    import edward2

    del sys.modules["scipy"]
    options = {"temperature": TEMPERATURE, "test_mc_samples": SAMPLES, "logits_only": True}
    if not name.startswith("MCSoftmaxDense "):
        options |= {
            "num_factors": 0 if name.endswith("diagonal") else FACTORS,
            "parameter_efficient": name.endswith("efficient"),
        }
    layer = getattr(edward2.layers, name.split()[0])(UNITS, **options)
    layer(X)
    rng = np.random.default_rng(0)
    layer.set_weights([rng.normal(size=weight.shape) for weight in layer.get_weights()])
    return layer


def make_head(name, weights):
    """Returns a head with these weights, `{name: array}`.

    The parameter-efficient layer has a bias b on V, u = mu + d * e_K + v * (V e_R + b), which moves the mean by v * b.
    v is an affine map of the input, so the moved mean is also affine.
    """
    link, names = LAYERS[name]
    maps = {
        ours: [array_of(weights, f"{theirs}/{kind}:0") for kind in ("kernel", "bias")] for ours, theirs in names.items()
    }
    if "row_scale" in maps:
        shift = maps["factor"][1]
        maps["loc"] = [mean + shift * scale for mean, scale in zip(maps["loc"], maps["row_scale"], strict=True)]
        maps["factor"] = [maps["factor"][0].T]
    elif "factor" in maps:  # ours divides the map by sqrt(R)
        maps["factor"] = [np.sqrt(FACTORS) * array for array in maps["factor"]]
    integrator = None if link == "sigmoid" else MonteCarlo(1 << 17)
    head = HeteroscedasticDense(
        UNITS,
        covariance=COVARIANCES[name.split()[1]](),
        link=link,
        temperature=TEMPERATURE,
        integrator=integrator,
    )
    head.build((None, FEATURES))
    assert head.covariance.scale_unit == pytest.approx(1.0)
    for ours, arrays in maps.items():
        getattr(head if ours == "loc" else head.covariance, f"{ours}_layer").set_weights(arrays)
    return head


def array_of(weights, end):
    """Returns the array whose name has this end."""
    return next(array for name, array in weights.items() if name.endswith(end))


@pytest.mark.parametrize("name", LAYERS)
def test_a_head_of_its_weights_predicts_as_the_layer_does(name):
    """Six standard errors of a mean of eight draws of edward2, for each of twelve probabilities."""
    layer, (link, _) = make_layer(name), LAYERS[name]
    head = make_head(name, {weight.name: weight.numpy() for weight in layer.weights})
    logits = np.stack([layer(X, training=False).numpy() for _ in range(DRAWS)])
    theirs = np.exp(logits) if link == "softmax" else 1 / (1 + np.exp(-logits))
    error = np.maximum(theirs.std(axis=0) / np.sqrt(DRAWS - 1), 0.3 / np.sqrt(SAMPLES * DRAWS))
    assert np.all(np.abs(np.asarray(head.probabilities(X)) - theirs.mean(axis=0)) < 6 * np.sqrt(2) * error)
