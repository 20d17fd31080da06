"""Heads from the weights of edward2's layers predict what edward2's formulas do."""

import numpy as np
import pytest
from keras import ops

from benchmarks.baselines import from_edward2
from benchmarks.tests.baselines.edward2_formulas import (
    FACTORS,
    FEATURES,
    LAYERS,
    UNITS,
    make_weights,
    moments,
    probabilities,
)
from keras_het.integrators import MonteCarlo

pytestmark = pytest.mark.once

X = 0.5 * np.random.default_rng(3).normal(size=(3, FEATURES)).astype("float32")
TEMPERATURE = 0.8


@pytest.mark.parametrize("layer", LAYERS)
def test_logits_have_the_mean_and_covariance_of_edward2(layer):
    weights = make_weights(layer)
    head = from_edward2(weights, link=LAYERS[layer][1], temperature=TEMPERATURE)
    normal = head.logit_distribution(X)
    mean, covariance = moments(weights, X)
    np.testing.assert_allclose(ops.convert_to_numpy(normal.loc), mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(normal.covariance()), covariance, rtol=1e-4, atol=1e-5)


@pytest.mark.smoke
@pytest.mark.parametrize("layer", LAYERS)
def test_probabilities_are_those_of_edward2(layer):
    """Both sides sample (the sigmoid here does not): six standard errors of either, a false alarm below 1e-6."""
    weights, link = make_weights(layer), LAYERS[layer][1]
    integrator = None if link == "sigmoid" else MonteCarlo(1 << 17)
    head = from_edward2(weights, link=link, temperature=TEMPERATURE, integrator=integrator)
    expected, error = probabilities(weights, link, X, TEMPERATURE)
    assert np.all(np.abs(ops.convert_to_numpy(head.probabilities(X)) - expected) < 6 * np.sqrt(2) * error + 1e-4)


@pytest.mark.planted
def test_planted_dropped_bias_on_the_factor_is_caught():
    weights = make_weights("MCSoftmaxDenseFA parameter-efficient")
    dropped = {name: np.zeros_like(w) if name.endswith("homoscedastic/bias:0") else w for name, w in weights.items()}
    mean = ops.convert_to_numpy(from_edward2(dropped).logit_distribution(X).loc)
    assert np.abs(mean - moments(weights, X)[0]).max() > 0.1


def test_kinds_are_told_from_the_names():
    for layer in LAYERS:
        head = from_edward2(make_weights(layer), link=LAYERS[layer][1])
        assert (head.units, head.num_factors) == (
            UNITS,
            0 if "diagonal" in layer or layer == "MCSoftmaxDense" else FACTORS,
        )
        assert head.parameter_efficient == ("efficient" in layer)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda w: w | {"other_layer/kernel:0": np.zeros((6, 4))}, "Received: the name 'other_layer/kernel:0'"),
        (
            lambda w: {n: a for n, a in w.items() if "diag" not in n} | {"x_scale_layer/kernel:0": np.zeros((6, 8))},
            "kernel (D, N)",
        ),
        (lambda w: {n: a for n, a in w.items() if "hetero" not in n}, "those of one layer"),
        (lambda w: {n: a for n, a in w.items() if "loc_layer/bias" not in n}, "a bias (N,) of loc_layer"),
        (
            lambda w: (
                w | {n.replace("MCSoftmaxDenseFA_", "MCSoftmaxDenseFA_1_"): 0 * a for n, a in w.items() if "loc" in n}
            ),
            "one layer. Received: 'MCSoftmaxDenseFA_loc_layer/kernel:0' and 'MCSoftmaxDenseFA_1_loc_layer/kernel:0'",
        ),
        (lambda w: w | {n[:-2]: a for n, a in w.items()}, "`weights` must be those of one layer. Received: "),
        (lambda w: w | {0: np.zeros(3)}, "`weights` must have names that are strings. Received: the name 0"),
        (
            lambda w: {n: a[..., :0] for n, a in w.items()},
            "`weights` must have numbers in every array. Received: shape (2, 0) of ",
        ),
        (
            lambda w: {n: np.where(a > 1, np.nan, a) for n, a in w.items()},
            "`weights` must be finite numbers. Received: ",
        ),
        (
            lambda w: {n: a + 0j for n, a in w.items()},
            "`weights` must be finite numbers. Received: an array of complex",
        ),
        (
            lambda w: {n: a.astype(str) for n, a in w.items()},
            "`weights` must be finite numbers. Received: an array of <U",
        ),
    ],
)
def test_other_weights_are_refused(change, text):
    with pytest.raises(ValueError) as error:
        from_edward2(change(make_weights("MCSoftmaxDenseFA parameter-efficient")))
    assert text in str(error.value)
