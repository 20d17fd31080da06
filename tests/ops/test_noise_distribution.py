"""The noise of the training path, where the link receives the logits, has the distribution that the weights say."""

import numpy as np
import pytest

from keras_het import integrators
from keras_het.layers import HeteroscedasticDense
from keras_het.layers.noisy_dense import make_covariance
from keras_het.ops import softmax as expected_softmax
from tests import reference
from tests.checks import check_moments
from tests.common import to_numpy

pytestmark = pytest.mark.once

UNITS, SAMPLES = 5, 1 << 16
HEADS = {
    "diagonal": {"num_factors": 0},
    "full": {"num_factors": 2},
    "as many factors as classes": {"num_factors": UNITS},
    "parameter-efficient": {"num_factors": 3, "parameter_efficient": True},
}


def training_logits(monkeypatch, head, x):
    """Logits of the nodes of one training step for one example, (S, K)."""
    seen, log_terms = [], expected_softmax.SoftmaxMean.log_terms

    def record(self, logits, axis):
        seen.append(to_numpy(logits))
        return log_terms(self, logits, axis)

    with monkeypatch.context() as patch:
        patch.setattr(expected_softmax.SoftmaxMean, "log_terms", record)
        head(x, training=True)
    (logits,) = seen
    return logits[0]


@pytest.mark.statistical
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("seed", range(3))
def test_the_training_noise_has_the_mean_and_covariance_of_the_weights(monkeypatch, name, seed, base_seed):
    """In the logits that the link receives, in units of the temperature."""
    seed += base_seed
    for rule in (
        integrators.MonteCarlo,
        integrators.QuasiMonteCarlo,
    ):  # the latter errs less
        # Both kinds of noise are large enough to be seen beside each other.
        covariance = make_covariance(**HEADS[name], initial_scale=1.0, initializer="random_normal")
        rule = rule(SAMPLES, chunk_size=SAMPLES)
        head = HeteroscedasticDense(UNITS, covariance=covariance, seed=seed, temperature=0.8, integrator=rule)
        x = np.random.default_rng(seed).normal(size=(1, 40)).astype("float32") * 4
        logits, normal = training_logits(monkeypatch, head, x) * 0.8, head.logit_distribution(x)
        loc, scale_diag, factor = (to_numpy(x)[0] for x in (normal.loc, normal.scale_diag, normal.scaled_factor()))
        mean = loc - np.log(np.sum(np.exp(loc)))
        check_moments(logits, mean, reference.noise_covariance(scale_diag, factor))
