"""Hashes of settings: equal for what is equal, and others for others."""

import numpy as np
import pytest

from keras_het.base.fingerprint import fingerprint

pytestmark = pytest.mark.once

VALUES = [
    None, True, 1, 1.0, "1", b"1", [1], [[1]], {"a": 1}, {"b": 1}, {"a": [1]}, {1, 2}, {1, 3}, range(3), range(4),
    np.arange(3), np.arange(3.0), np.array(["a"]), np.array(["b"], object),
]  # fmt: skip


def test_different_values_have_different_hashes():
    assert len({fingerprint(value) for value in VALUES}) == len(VALUES)


@pytest.mark.parametrize(
    ("one", "other"), [({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1, 2}, {2, 1}), ((1, 2), [1, 2]), (np.int64(1), 1)]
)
def test_equal_values_have_equal_hashes(one, other):
    assert fingerprint(one) == fingerprint(other)
