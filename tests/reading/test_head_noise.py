"""The noise of a head at examples, as far as its link sees it, against dense matrices."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_het.base.validation import as_float64
from keras_het.covariances import Latent, LowRank
from keras_het.layers import HeteroscedasticDense
from keras_het.reading.head_noise import covariance_with, head_noise, standardized, variances
from tests.layers.heads import with_covariance

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 6)).astype("float32")
HEADS = {
    "full": {"num_factors": 3},
    "parameter_efficient": {"num_factors": 3, "parameter_efficient": True},
    "diagonal": {"num_factors": 0},
    "latent": {"covariance": Latent},
    "sigmoid": {"num_factors": 3, "link": "sigmoid"},
    "normalized": {"num_factors": 3, "link": "NormalCDF"},
}


def make_head(units=7, **arguments):
    head = HeteroscedasticDense(units, temperature=2.0, **with_covariance(**{"seed": 0, **arguments}))
    head.build((None, 6))
    for weight in head.trainable_weights:
        weight.assign(0.5 * RNG.normal(size=weight.shape))
    return head


@pytest.mark.parametrize("kind", HEADS)
def test_rows_and_variances_are_those_of_the_dense_matrix(kind):
    head = make_head(**HEADS[kind])
    normal, classes = standardized(head, X), np.array([0, 3, 6, 1, 1])
    dense = as_float64(head.logit_covariance(X)) / 4.0  # centred where the link is blind to it
    np.testing.assert_allclose(
        covariance_with(head, normal, classes), dense[np.arange(5), classes], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(variances(head, normal), np.diagonal(dense, axis1=1, axis2=2), rtol=1e-4, atol=1e-5)


def test_a_large_shift_hides_nothing():
    """A part of V that all classes share, a thousand times the rest: no difference of large numbers is taken."""
    head = make_head(num_factors=3)
    expected = variances(head, standardized(head, X))
    bias = ops.convert_to_numpy(head.covariance.factor_layer.bias).reshape(7, 3)
    head.covariance.factor_layer.bias.assign((bias + 1000.0).ravel())
    np.testing.assert_allclose(variances(head, standardized(head, X)), expected, rtol=1e-2)


@pytest.mark.smoke
def test_a_shift_of_all_logits_is_no_noise_for_softmax():
    """All classes have one factor: a softmax does not see it, a sigmoid does."""
    for link, expected in (("softmax", 0.0), ("sigmoid", 1.0)):
        head = HeteroscedasticDense(
            4, covariance=LowRank(1, min_scale=0.0, initial_scale=1e-6), link=link, temperature=1.0, seed=0
        )
        head.build((None, 6))
        head.covariance.factor_layer.bias.assign(np.ones(4))
        found = variances(head, standardized(head, X))
        np.testing.assert_allclose(found, np.full((5, 4), expected), atol=1e-6)


def test_masked_steps_have_no_part_in_the_mean():
    x = np.concatenate([X, np.zeros_like(X)])[None]
    head, inputs = make_head(num_factors=3), keras.Input((10, 6))
    masked = keras.Model(inputs, head(keras.layers.Masking()(inputs)))
    plain = keras.Model(inputs := keras.Input((6,)), head(inputs))
    for found, expected in zip(head_noise(masked, x)[1:], head_noise(plain, X)[1:], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)
