import numpy as np
import pytest
from keras import ops

from benchmarks.demo.findings import top_pairs

pytestmark = pytest.mark.once


def test_top_pairs_are_sorted_by_magnitude_and_never_more_than_there_are():
    covariance = ops.array([[9.0, 0.1, -3.0], [0.1, 9.0, 2.0], [-3.0, 2.0, 9.0]])
    assert [(i, j) for i, j, _ in top_pairs(covariance)] == [(0, 2), (1, 2), (0, 1)]
    assert top_pairs(covariance, count=1) == [(0, 2, -3.0)]


def test_top_pairs_takes_one_matrix_and_no_negative_count():
    with pytest.raises(
        ValueError, match=r"`covariance` must be one matrix of shape \(K, K\). Received: shape \(2, 3, 3\)"
    ):
        top_pairs(np.zeros((2, 3, 3)))
    with pytest.raises(ValueError, match=r"`count` must be at least 0. Received: count=-1"):
        top_pairs(np.eye(3), count=-1)
