"""The metrics that torchmetrics has, too, against it."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torchmetrics.functional.classification import multiclass_calibration_error

from keras_het import metrics

pytestmark = pytest.mark.once


@pytest.mark.parametrize("seed", range(5))
def test_calibration_error(seed):
    rng = np.random.default_rng(seed)
    labels, p = rng.integers(6, size=200), softmax(2.0 * rng.normal(size=(200, 6)), axis=1).astype("float32")
    ece = metrics.ExpectedCalibrationError(num_bins=15)
    ece.update_state(labels, p)
    theirs = multiclass_calibration_error(torch.tensor(p), torch.tensor(labels), num_classes=6, n_bins=15, norm="l1")
    assert float(ece.result()) == pytest.approx(float(theirs), abs=1e-6)
