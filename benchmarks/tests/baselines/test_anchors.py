"""A transition matrix by anchors."""

import numpy as np
import pytest

from benchmarks.baselines import estimate_by_anchors
from keras_het.labels import pair_flip
from keras_het.ops.transition import total_variation

pytestmark = pytest.mark.once


def test_it_finds_the_transition():
    matrix = pair_flip(4, 0.3)
    clean = np.random.default_rng(6).dirichlet(np.full(4, 0.02), size=20_000)  # nearly sure of one class each
    assert total_variation(estimate_by_anchors(clean @ matrix), matrix) < 1e-3
    p = np.linspace(0, 1, 101)[:, None]  # the 97% quantile of 101 examples is the fourth from the end
    np.testing.assert_allclose(estimate_by_anchors(np.hstack([p, 1 - p]), 0.97), [[0.97, 0.03], [0.03, 0.97]])


def test_a_quantile_out_of_range_is_refused():
    with pytest.raises(ValueError, match="`quantile` must be in"):
        estimate_by_anchors(np.eye(2), 1.5)
