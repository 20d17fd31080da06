"""Our intervals by verified labels beside those of ppi-python, the authors' own package, on the same data."""

import numpy as np
import pytest
from ppi_py import ppi_mean_ci, ppi_mean_pointestimate

from keras_het.labels import verify_accuracy

pytestmark = pytest.mark.once


def of_ppi(known, verdicts, number, estimate):
    """ppi-python takes verified examples and all others apart."""
    own, rest = verdicts[:number].astype(float), verdicts[number:].astype(float)
    return estimate(known[:number].astype(float), own, rest)


@pytest.mark.parametrize("seed", range(3))
def test_accuracy_and_interval_are_those_of_ppi(seed):
    """Both divide the examples by agreement: the width is equal by a twentieth, and each end by a tenth of it."""
    rng = np.random.default_rng(seed)
    true = rng.integers(2, size=20_000)
    predicted, labels = (np.where(rng.random(20_000) < rate, true, 1 - true) for rate in (0.75, 0.9))
    found = verify_accuracy(predicted, labels, dict(enumerate(true[:2000].tolist())))
    right, agrees = predicted == true, predicted == labels
    value = of_ppi(right, agrees, 2000, ppi_mean_pointestimate)
    low, high = of_ppi(right, agrees, 2000, lambda *given: ppi_mean_ci(*given, alpha=0.05))
    width = float(high[0] - low[0])
    assert found.accuracy.high - found.accuracy.low == pytest.approx(width, rel=0.05)
    ends = found.accuracy.value, found.accuracy.low, found.accuracy.high
    assert ends == pytest.approx((float(value[0]), float(low[0]), float(high[0])), abs=0.1 * width)
