"""Narrow beside LowRank: the start, the gradients of its two kernels, penalties, and pairs of classes."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_het.covariances import LowRank, Narrow
from keras_het.explain import confused_pairs
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense, HeteroscedasticNormal
from tests.common import built, to_numpy
from tests.gradients import layer_gradients
from tests.layers.heads import FEATURES, LABELS, UNITS, X, make_loss, set_random_weights

pytestmark = pytest.mark.once

FACTORS, WIDTH = 2, 3


def make(covariance):
    head = HeteroscedasticDense(UNITS, covariance=covariance, integrator=QuasiMonteCarlo(32), seed=1, name="head")
    return built(head, (None, FEATURES))


def gradients(head):
    result = layer_gradients(head, lambda outputs: make_loss(head.link)(LABELS, outputs), X)[1]
    return {name.split("covariance/")[-1]: gradient for name, gradient in result.items()}


@pytest.mark.smoke
@pytest.mark.on_tensorflow
def test_it_starts_with_the_noise_of_the_full_covariance_and_all_weights_learn_from_the_second_step_on():
    narrow, full = make(Narrow(FACTORS, WIDTH)), make(LowRank(FACTORS))
    np.testing.assert_array_equal(*to_numpy(narrow.logit_covariance(X), full.logit_covariance(X)))
    first = gradients(narrow)
    assert not np.any(first["factor_features/kernel"])
    assert np.any(first["factor/kernel"])
    narrow.covariance.factor_layer.kernel.assign(-first["factor/kernel"])
    assert np.any(gradients(narrow)["factor_features/kernel"])


def test_the_narrow_kernel_starts_at_the_size_of_glorot_and_with_directions_of_its_own():
    head = built(HeteroscedasticDense(8, covariance=Narrow(8, width=8), seed=3), (None, 512))
    kernel, start = (to_numpy(layer) for layer in (head.covariance.weights[2], head.covariance.factor_layer.bias))
    assert np.sqrt(np.square(kernel).mean()) == pytest.approx(np.sqrt(2 / (512 + 8)), rel=1e-5)
    assert np.linalg.matrix_rank(kernel) == 8
    directions = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (kernel[:8], start.reshape(8, 8))]
    assert np.abs(directions[0] - directions[1]).max() > 0.1


def test_the_regularizer_is_of_all_kernels_and_of_no_bias():
    head = make(Narrow(FACTORS, WIDTH, regularizer=keras.regularizers.L1(1.0)))
    set_random_weights(head)
    kernels = [weight for weight in head.covariance.weights if weight.path.endswith("kernel")]
    assert len(kernels) == 3
    penalties = sorted(np.abs(to_numpy(kernel)).sum() for kernel in kernels)
    np.testing.assert_allclose(sorted(map(to_numpy, head.losses)), penalties, rtol=1e-5)
    head = built(HeteroscedasticNormal(UNITS, covariance=Narrow(FACTORS, WIDTH)), (None, FEATURES))
    head.covariance.restart_at(np.arange(1.0, UNITS + 1))  # the noise of a head of numbers starts where it is told
    variance = to_numpy(head.covariance.distribution(ops.convert_to_tensor(X), ops.zeros((len(X), UNITS))).variance())
    np.testing.assert_allclose(variance, np.square(np.arange(1.0, UNITS + 1)) * np.ones((len(X), 1)), rtol=1e-4)


def test_pairs_of_classes_are_told_from_chance():
    """Of twenty heads with random weights, some seem to confuse a pair of classes."""
    rng, false = np.random.default_rng(0), 0
    x = rng.normal(size=(100, 64)).astype("float32")
    for seed in range(20):
        model = keras.Sequential([keras.Input((64,)), HeteroscedasticDense(12, covariance=Narrow(3, WIDTH), seed=seed)])
        for weight in model.layers[-1].covariance.weights:
            weight.assign(rng.normal(size=weight.shape))
        false += bool(confused_pairs(model, x, draws=19, seed=seed))
    assert false < 8  # each with probability 1 / 20: 8 or more once in 350,000 runs
