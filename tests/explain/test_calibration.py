"""The expected calibration error, by hand."""

import numpy as np
import pytest

from keras_het.explain import calibration

pytestmark = pytest.mark.once


def test_one_bin_is_the_difference_of_accuracy_and_mean_confidence():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=100)
    y = rng.integers(3, size=100)
    assert calibration(p, y, bins=1).error == pytest.approx(abs(np.mean(p.argmax(1) == y) - p.max(1).mean()))


def test_gaps_of_bins_do_not_cancel_and_confidence_one_has_a_bin():
    p = np.array([[0.5, 0.5], [0.5, 0.5], [1.0, 0.0], [1.0, 0.0]])
    # 2 right of 4 at a mean confidence of .75, in one bin.
    assert calibration(p, [0, 0, 1, 1], bins=2).error == 0.25
    assert calibration(p, [0, 0, 1, 1], bins=4).error == 0.75
    assert calibration(p, [0, 1, 0, 0], bins=4).error == 0.0


@pytest.mark.parametrize(
    ("p", "y", "bins"),
    [(np.ones(3), [0] * 3, 5), (np.ones((3, 2)), [0], 5), (np.ones((0, 2)), [], 5), (np.ones((1, 2)), [0], 0)],
)
def test_errors_say_what_is_wrong(p, y, bins):
    with pytest.raises(ValueError, match=r"`probabilities` must be \(N, K\)|`bins` must be an integer at least 1"):
        calibration(p, y, bins)


def test_labels_of_no_class_are_refused():
    with pytest.raises(ValueError, match=r"`labels` must be in \[0, 2\). Received: 2 at \[0\]"):
        calibration([[0.5, 0.5]], [2])


@pytest.mark.parametrize("p", [np.log([[0.5, 0.5]]), [[4.0, -1.0]], [[np.nan, 1.0]], [[0.2, 0.2]]])
def test_what_are_no_probabilities_is_refused(p):
    with pytest.raises(ValueError, match="must be in \\[0, 1\\] and sum to 1, such as the exp of what a head predicts"):
        calibration(p, [0])
