"""What every loss for noisy labels keeps, a baseline keeps, too: the tests of the package, with other cases."""

import numpy as np
import pytest
from keras import ops

from benchmarks.baselines import (
    ActivePassiveCrossentropy,
    AdaptivelyRegularizedCrossentropy,
    BackwardCorrectedCrossentropy,
    BootstrappedCrossentropy,
    CoTeaching,
    DataParametersCrossentropy,
    EpsilonSoftmaxCrossentropy,
    JoCoR,
    SelfPacedCrossentropy,
)
from benchmarks.tests.baselines.rerun import of_other_cases
from tests.losses import test_contract, test_impossible_classes
from tests.losses.cases import CASES, EXAMPLES, UNITS, Case, T, crossentropy, reverse
from tests.losses.test_impossible_classes import OF_NOISY_LABELS, WITH_STATE, attached, with_indices

pytestmark = pytest.mark.once


def hard(t, log_p):
    return crossentropy(0.7 * t + 0.3 * np.eye(log_p.shape[-1])[log_p.argmax(-1)], log_p)


def epsilon_softmax(t, log_p, m=2.0, alpha=0.7, beta=0.4, smallest=1e-8):
    p = np.exp(log_p)
    q = (p + m * np.eye(p.shape[-1])[p.argmax(-1)]) / (m + 1)
    return -alpha * (t * np.log(np.maximum(q, smallest))).sum(-1) + 2 * beta * (t * (1 - p)).sum(-1)


OWN = {
    "soft": Case(
        lambda **kwargs: BootstrappedCrossentropy(0.7, **kwargs),
        lambda t, log_p: crossentropy(0.7 * t + 0.3 * np.exp(log_p), log_p),
    ),
    "hard": Case(lambda **kwargs: BootstrappedCrossentropy(0.7, hard=True, **kwargs), hard),
    "active_passive": Case(
        lambda **kwargs: ActivePassiveCrossentropy(2.0, 0.5, log_of_zero=-5.0, **kwargs),
        lambda t, log_p: 2.0 * crossentropy(t, log_p) / -log_p.sum(-1) + 0.5 * reverse(t, log_p, -5.0),
    ),
    "backward": Case(
        lambda **kwargs: BackwardCorrectedCrossentropy(T, **kwargs),
        lambda t, log_p: crossentropy(t @ np.linalg.inv(T), log_p),
    ),
    "epsilon_softmax": Case(lambda **kwargs: EpsilonSoftmaxCrossentropy(2.0, 0.7, 0.4, **kwargs), epsilon_softmax),
}
OF_NOISY = {"backward": lambda t, log_p, kept: crossentropy((t @ np.linalg.inv(T))[kept], log_p)}


def of_two(loss):
    return lambda labels, logits: attached(loss)(labels, ops.stack([logits, 0.5 * logits], axis=1))


OWN_WITH_STATE = {
    "self-paced": lambda: attached(SelfPacedCrossentropy(0.6, from_logits=True)),
    "co-teaching": lambda: of_two(CoTeaching(0.6, from_logits=True)),
    "JoCoR": lambda: of_two(JoCoR(0.6, from_logits=True)),
    "data parameters": lambda: with_indices(DataParametersCrossentropy(EXAMPLES, UNITS, from_logits=True)),
    "adaptive": lambda: with_indices(AdaptivelyRegularizedCrossentropy(np.ones(EXAMPLES), from_logits=True)),
}


@pytest.fixture
def case(request):
    return OWN[request.param]


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """The tests of the package look their cases up by name."""
    for cases, own in ((CASES, OWN), (OF_NOISY_LABELS, OF_NOISY), (WITH_STATE, OWN_WITH_STATE)):
        for name, made in own.items():
            monkeypatch.setitem(cases, name, made)


globals().update(of_other_cases(test_contract, "case", list(OWN), indirect=True))


class TestImpossibleClasses:
    """A logit of -inf."""

    @pytest.mark.parametrize("name", OWN)
    def test_values_gradients_and_one_possible_class(self, name):
        test_impossible_classes.test_values_over_the_possible_classes_and_finite_gradients(name)
        test_impossible_classes.test_one_possible_class_is_certain(name)

    @pytest.mark.parametrize("name", ["soft", "active_passive"])
    def test_an_impossible_label(self, name):
        test_impossible_classes.test_a_label_that_is_impossible_has_an_infinite_loss(name)

    @pytest.mark.parametrize("name", OWN_WITH_STATE)
    def test_losses_with_a_state(self, name):
        test_impossible_classes.test_losses_with_a_state_are_those_of_a_very_small_logit(name)
