"""The noise of the training path has the distribution that the weights say, and the tests that say so can fail.

The logits are taken where the link receives them, inside `layer(x, training=True)`. Then four bugs that other
implementations have shipped are planted one at a time, and the same checks must object.
"""

import numpy as np
import pytest
from keras import ops

from keras_het import integrators
from keras_het.layers import HeteroscedasticDense
from keras_het.layers.noisy_dense import make_covariance
from keras_het.ops import nodes
from keras_het.ops import softmax as expected_softmax
from keras_het.ops.low_rank import ScaledLowRankNormal
from keras_het.ops.nodes import pseudo_random
from tests import reference
from tests.checks import check_independent, check_moments
from tests.common import to_numpy
from tests.ops.expected import PLAIN, log_expected_softmax
from tests.ops.test_softmax import check_hard_example

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


def check_head(monkeypatch, options, seed=0, rule=integrators.MonteCarlo):
    """Asserts the mean and covariance of the logits that the link receives, in units of the temperature."""
    integrator = rule(SAMPLES, chunk_size=SAMPLES)
    # Both kinds are large enough to be seen beside each other.
    covariance = make_covariance(**options, initial_scale=1.0, initializer="random_normal")
    head = HeteroscedasticDense(UNITS, covariance=covariance, seed=seed, temperature=0.8, integrator=integrator)
    x = np.random.default_rng(seed).normal(size=(1, 40)).astype("float32") * 4
    logits, normal = training_logits(monkeypatch, head, x) * 0.8, head.logit_distribution(x)
    loc, scale_diag, factor = (to_numpy(part)[0] for part in (normal.loc, normal.scale_diag, normal.scaled_factor()))
    check_moments(logits, softmax_center(loc), reference.noise_covariance(scale_diag, factor))


def softmax_center(loc):
    return loc - np.log(np.sum(np.exp(loc)))


def check_nodes(seed=0):
    """Asserts that e_K and e_R are independent with K = R and a seed given."""
    check_independent(*map(to_numpy, integrators.MonteCarlo().draw((seed, 0), SAMPLES, UNITS, UNITS)))


@pytest.mark.statistical
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("seed", range(3))
def test_the_training_noise_has_the_covariance_of_the_weights(monkeypatch, name, seed, base_seed):
    check_head(monkeypatch, HEADS[name], base_seed + seed)


@pytest.mark.statistical
@pytest.mark.parametrize("name", HEADS)
def test_quasi_random_noise_has_the_same_covariance(monkeypatch, name, base_seed):
    # The error of this rule is smaller than the check assumes.
    check_head(monkeypatch, HEADS[name], base_seed, integrators.QuasiMonteCarlo)


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(3))
def test_the_two_noises_are_independent(seed, base_seed):
    check_nodes(base_seed + seed)


def test_planted_one_scalar_for_all_classes_is_caught(monkeypatch):
    def one_scalar(*args):
        eps_diag, eps_factor = pseudo_random(*args)
        return nodes.Nodes(eps_diag[:, :1] + 0 * eps_diag, eps_factor)

    monkeypatch.setattr(nodes, "pseudo_random", one_scalar)
    for name in HEADS:
        with pytest.raises(AssertionError, match="covariance"):
            check_head(monkeypatch, HEADS[name])


def test_planted_equal_noises_are_caught(monkeypatch):
    def equal(*args):
        eps_diag, eps_factor = pseudo_random(*args)
        return nodes.Nodes(eps_diag, eps_factor if eps_factor.shape[1] > UNITS else eps_diag[:, : eps_factor.shape[1]])

    monkeypatch.setattr(nodes, "pseudo_random", equal)
    with pytest.raises(AssertionError, match="correlation"):
        check_nodes()
    with pytest.raises(AssertionError, match="covariance"):
        check_head(monkeypatch, HEADS["as many factors as classes"])


def test_planted_biased_factor_is_caught(monkeypatch):
    """A bias on V shifts the mean of the noise by v(x) * b."""
    logits = ScaledLowRankNormal.logits
    monkeypatch.setattr(
        ScaledLowRankNormal, "logits", lambda self, nodes: logits(self, nodes) + 0.1 * self.row_scale[..., None, :]
    )
    with pytest.raises(AssertionError, match="mean"):
        check_head(monkeypatch, HEADS["parameter-efficient"])


def test_planted_clip_before_log_is_caught(monkeypatch):
    """Clipping p at 1e-7 caps the loss at 16.1 and zeroes the gradient of exactly the mislabelled examples."""
    result = expected_softmax.SoftmaxMean.result
    monkeypatch.setattr(
        expected_softmax.SoftmaxMean,
        "result",
        lambda self, terms: ops.log(ops.clip(ops.exp(result(self, terms)), 1e-7, 1.0)),
    )
    drawn = pseudo_random((0, 0), 64, 3, 0)
    with pytest.raises(AssertionError):
        check_hard_example(lambda loc: log_expected_softmax(loc, ops.ones_like(loc), None, drawn, **PLAIN))
