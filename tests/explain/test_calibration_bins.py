"""The bins of calibration, beside what is known by hand and beside the metric."""

import numpy as np
import pytest

from keras_het.explain import calibration
from keras_het.metrics import ExpectedCalibrationError

pytestmark = pytest.mark.once


def predictions(parts=20, count=500, classes=4):
    """Probabilities that are multiples of 1 / parts, so with many ties, and labels."""
    rng = np.random.default_rng(0)
    p = [rng.multinomial(parts, shares) / parts for shares in rng.dirichlet(np.ones(classes), count)]
    return np.array(p, "float32"), rng.integers(classes, size=count)


def test_the_bins_of_calibration_hold_what_is_in_them():
    p, y = predictions(parts=997)
    found = calibration(p, y, bins=10)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    for b in range(10):
        inside = (confidence >= found.edges[b]) & (confidence < found.edges[b + 1] + (b == 9))
        assert found.count[b] == inside.sum()
        if inside.any():
            assert found.confidence[b] == pytest.approx(confidence[inside].mean())
            assert found.accuracy[b] == pytest.approx(right[inside].mean())
        else:
            assert np.isnan(found.accuracy[b])
            assert np.isnan(found.confidence[b])
    filled = found.count > 0
    gaps = np.abs(found.accuracy - found.confidence)[filled] * found.count[filled]
    assert found.error == pytest.approx(gaps.sum() / 500) == calibration(p, y, bins=10).error
    assert found.error == pytest.approx(float(ExpectedCalibrationError(bins=10)(y, p)), abs=1e-6)


@pytest.mark.parametrize(
    ("p", "y", "text"),
    [
        ([[0.5, 0.5]], [2], r"`labels` must be in \[0, 2\). Received: 2 at \[0\]"),
        (np.ones((0, 2)), [], r"with N > 0. Received: \(0, 2\) and \(0,\)"),
    ],
)
def test_wrong_labels_and_no_examples_are_refused(p, y, text):
    with pytest.raises(ValueError, match=text):
        calibration(p, y)
