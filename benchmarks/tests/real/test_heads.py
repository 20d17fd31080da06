"""Baselines of the heads on real labels, by hand."""

import keras
import numpy as np
import pytest
from scipy.special import softmax

from benchmarks.real.heads import drainage, relaxed


def test_the_loss_of_drainage_is_its_formula():
    labels, logits = np.array([0, 2]), np.array([[1.0, 0.5, -1.0, 0.2], [0.0, 2.0, 1.0, -0.5]], "float32")
    expected = []
    for label, p in zip(labels, softmax(logits.astype("float64"), axis=1), strict=True):
        true, drain, others = p[label], p[3], p[:3].sum() - p[label]
        expected.append(np.log(1.0 + 3.0 * drain / true + others / true + others / drain / 3.0))
    loss = drainage(3.0)(labels, keras.ops.convert_to_tensor(logits))
    assert np.allclose(keras.ops.convert_to_numpy(loss), expected, atol=1e-5)


@pytest.mark.once
def test_examples_of_large_losses_lose_half_of_their_weights_to_the_least_one():
    losses = np.array([0.1, 3.0, 1.0, 5.0])
    weights = relaxed(np.ones(4), losses, gamma=2.0)
    assert weights.tolist() == [2.0, 0.5, 1.0, 0.5]
    assert relaxed(weights, losses, gamma=2.0).tolist() == [2.5, 0.25, 1.0, 0.25]
