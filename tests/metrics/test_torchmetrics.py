"""The metrics that torchmetrics has, too, against it."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torchmetrics.functional.classification import multiclass_calibration_error, multilabel_average_precision

from keras_het import metrics

pytestmark = pytest.mark.once


@pytest.mark.parametrize("seed", range(5))
def test_calibration_error_and_global_average_precision(seed):
    rng = np.random.default_rng(seed)
    labels, p = rng.integers(6, size=200), softmax(2.0 * rng.normal(size=(200, 6)), axis=1).astype("float32")
    ece, gap = metrics.ExpectedCalibrationError(bins=15), metrics.GlobalAveragePrecision()
    for metric in (ece, gap):
        metric.update_state(labels, p)
    theirs = multiclass_calibration_error(torch.tensor(p), torch.tensor(labels), num_classes=6, n_bins=15, norm="l1")
    assert float(ece.result()) == pytest.approx(float(theirs), abs=1e-6)
    vectors = torch.nn.functional.one_hot(torch.tensor(labels), 6)
    theirs = multilabel_average_precision(torch.tensor(p), vectors, num_labels=6, average="micro")
    assert float(gap.result()) == pytest.approx(float(theirs), abs=1e-6)
