"""Crossentropy with labels that are mixed with predictions."""

import pytest

from benchmarks.baselines import BootstrappedCrossentropy


def test_the_default_weights_are_those_of_the_paper():
    assert BootstrappedCrossentropy().beta == 0.95
    assert BootstrappedCrossentropy(hard=True).beta == 0.8


@pytest.mark.refusal
@pytest.mark.parametrize("beta", [-0.1, 1.5])
def test_errors_say_what_is_wrong(beta):
    with pytest.raises(ValueError) as error:
        BootstrappedCrossentropy(beta)
    rule = "be in [0, 1]" if beta > 0 else "be a finite float32 number at least 0"
    assert str(error.value) == f"`beta` must {rule}. Received: beta={beta}"
