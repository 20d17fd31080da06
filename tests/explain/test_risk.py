"""The curve of risk and coverage, and the bins of calibration, beside what is known by hand and beside the metrics."""

import numpy as np
import pytest

from keras_het.explain import calibration, risk_coverage
from keras_het.metrics import ExpectedCalibrationError
from tests.checks import refusals

pytestmark = pytest.mark.once


def predictions(parts=20, count=500, classes=4):
    """Probabilities that are multiples of 1 / parts, so with many ties, and labels."""
    rng = np.random.default_rng(0)
    p = [rng.multinomial(parts, shares) / parts for shares in rng.dirichlet(np.ones(classes), count)]
    return np.array(p, "float32"), rng.integers(classes, size=count)


def area_by_hand(labels, p):
    """The mean over random orders of equal confidences, by the mean number of errors at every place."""
    confidence, wrong = p.max(1).astype("float32"), p.argmax(1) != labels
    mean = np.array([wrong[confidence == c].mean() for c in confidence])[np.argsort(-confidence, kind="stable")]
    return np.mean(np.cumsum(mean) / np.arange(1, len(p) + 1))


def test_the_area_is_that_by_hand_with_ties_in_any_order():
    p, y = predictions()
    assert len(np.unique(p.max(axis=1))) < 30
    assert risk_coverage(p, y).area == pytest.approx(area_by_hand(y, p), abs=1e-6)
    order = np.random.default_rng(1).permutation(len(y))
    found, again = risk_coverage(p, y), risk_coverage(p[order], y[order])
    np.testing.assert_allclose(found.risk, again.risk)
    assert found.risk[-1] == pytest.approx(np.mean(p.argmax(axis=1) != y))
    np.testing.assert_allclose(found.coverage, np.arange(1, 501) / 500)


def test_two_ties_by_hand():
    p = [[0.9, 0.1], [0.8, 0.2], [0.8, 0.2], [0.6, 0.4]]
    found = risk_coverage(p, [0, 0, 1, 1])
    np.testing.assert_allclose(found.risk, [0, 0.5 / 2, 1 / 3, 2 / 4])  # half an error for each of the two of .8
    assert found.area == pytest.approx((0.25 + 1 / 3 + 0.5) / 4)


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


def test_one_bin_is_the_difference_of_accuracy_and_mean_confidence():
    p, y = predictions()
    assert calibration(p, y, bins=1).error == pytest.approx(abs(np.mean(p.argmax(1) == y) - p.max(1).mean()), abs=1e-6)


def test_gaps_of_bins_do_not_cancel_and_confidence_one_has_a_bin():
    p = np.array([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0], [1.0, 0.0]])
    # 2 right of 4 at a mean confidence of .75, in one bin.
    assert calibration(p, [0, 0, 1, 1], bins=2).error == 0.25
    assert calibration(p, [0, 0, 1, 1], bins=4).error == 0.75
    assert calibration(p, [0, 1, 0, 0], bins=4).error == 0.0


SHAPES, LABELS = "`probabilities` must be (N, K)", "`labels` must be in [0, 2). Received: 2 at [0]"
NO_P = "must be in [0, 1] and sum to 1, such as the exp of what a head predicts"
test_errors_say_what_is_wrong = refusals([
    (lambda: calibration(np.ones(3), [0] * 3), SHAPES),
    (lambda: calibration(np.ones((3, 2)), [0]), SHAPES),
    (lambda: calibration(np.ones((0, 2)), []), SHAPES),
    (lambda: calibration([[0.5, 0.5]], [0], 0), "`bins` must be an integer at least 1"),
    (lambda: calibration([[0.5, 0.5]], [2]), LABELS),
    (lambda: calibration(np.log([[0.5, 0.5]]), [0]), NO_P),
    (lambda: calibration([[4.0, -1.0]], [0]), NO_P),
    (lambda: calibration([[np.nan, 1.0]], [0]), NO_P),
    (lambda: calibration([[0.2, 0.2]], [0]), NO_P),
    (lambda: risk_coverage([[0.5, 0.5]], [2]), LABELS),
    (lambda: risk_coverage(np.ones((0, 2)), []), "with N > 0. Received: (0, 2) and (0,)"),
])  # fmt: skip
