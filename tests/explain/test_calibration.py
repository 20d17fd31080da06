"""The expected calibration error, by hand and beside the metric."""

import keras
import numpy as np
import pytest

from keras_het.explain import calibration
from keras_het.metrics import ExpectedCalibrationError
from tests.checks import refusals

pytestmark = pytest.mark.once


def test_gaps_of_bins_do_not_cancel_and_confidence_one_has_a_bin():
    p = np.array([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0], [1.0, 0.0]])
    # 2 right of 4 at a mean confidence of .75, in one bin.
    assert calibration(p, [0, 0, 1, 1], num_bins=2).error == 0.25
    assert calibration(p, [0, 0, 1, 1], num_bins=4).error == 0.75
    assert calibration(p, [0, 1, 0, 0], num_bins=4).error == 0.0


NOT_SUMS = "must be in [0, 1] with rows that sum to 1: use np.exp of the log-prob"
test_errors_say_what_is_wrong = refusals([
    (lambda: calibration(np.ones(3), [0] * 3), "`probabilities` must be (N, K)"),
    (lambda: calibration(keras.Sequential(), np.ones((3, 2)), [0] * 3), "keras_het.explain.predict_probabilities("),
    (lambda: calibration(np.ones((3, 2)), [0]), "`probabilities` must be (N, K)"),
    (lambda: calibration(np.ones((0, 2)), []), "`probabilities` must be (N, K)"),
    (lambda: calibration([[0.5, 0.5]], [0], 0), "`num_bins` must be an integer at least 1"),
    (lambda: calibration([[0.5, 0.5]], [0], np.zeros(500, int)), "Received: num_bins=a ndarray of shape (500,)"),
    (lambda: calibration([[0.5, 0.5]], [0], [0] * 500), f"Received: num_bins=[{66 * '0, '}0..."),
    (lambda: calibration([[0.5, 0.5]], [2]), "`labels` must be in [0, 2). Received: 2 at [0]"),
    (lambda: calibration(np.log([[0.5, 0.5]]), [0]), NOT_SUMS),
    (lambda: calibration([[4.0, -1.0]], [0]), NOT_SUMS),
    (lambda: calibration([[np.nan, 1.0]], [0]), NOT_SUMS),
    (lambda: calibration([[0.2, 0.2]], [0]), NOT_SUMS),
])  # fmt: skip


def predictions(parts=20, count=500, classes=4):
    """Probabilities that are multiples of 1 / parts, so with many ties, and labels."""
    rng = np.random.default_rng(0)
    p = [rng.multinomial(parts, shares) / parts for shares in rng.dirichlet(np.ones(classes), count)]
    return np.array(p, "float32"), rng.integers(classes, size=count)


def test_the_bins_of_calibration_hold_what_is_in_them():
    p, y = predictions(parts=997)
    found = calibration(p, y, num_bins=10)
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
    assert found.error == pytest.approx(gaps.sum() / 500) == calibration(p, y, num_bins=10).error
    assert found.error == pytest.approx(float(ExpectedCalibrationError(num_bins=10)(y, p)), abs=1e-6)
