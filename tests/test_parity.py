"""Comparison of backends: differences that it must catch, and differences that it must allow, on one backend."""

import collections

import numpy as np
import pytest

from keras_het.parity import Recording
from tests import parity

pytestmark = pytest.mark.once

SHAPE = (5, 7)
CASE, DETAIL = "full softmax", "detail"


def recording(name="first", kind=None, change=None):
    """Returns a recording with an array of each kind, of 1e-3 to 100 and both signs; that of one kind is changed."""
    signs = np.random.default_rng(0).choice([-1, 1], SHAPE)
    array = (signs * np.geomspace(1e-3, 100, 35).reshape(SHAPE)).astype("float32")
    arrays = {each: change(array.copy()) if each == kind else array for each in parity.LIMITS}
    return Recording(name, arrays={f"{each}: {CASE}": {DETAIL: array} for each, array in arrays.items()})


def failures(first, second):
    """Returns the rows above their limits, and the texts of missing kinds."""
    comparison = parity.compare(first, second)
    return [*comparison.different, *comparison.failures]


@pytest.mark.parametrize(("kind", "entry", "allowed"), [
    ("outputs", (0, 0), 1e-5),  # the absolute part, at an entry of 1e-3
    ("outputs", (-1, -1), 1e-5 * 101),  # the relative part, at an entry of 100
    ("gradients", (0, 0), 1e-4 * 100),  # relative to the largest entry
    ("fit", (0, 0), 1e-4),
])  # fmt: skip
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_difference_above_the_limit_is_caught_and_one_below_is_not(kind, entry, allowed, sign):
    def adding(size):
        step = np.zeros(SHAPE, "float32")
        step[entry] = size
        return recording("second", kind, lambda array: array + step)

    assert failures(recording(), adding(sign * 0.9 * allowed)) == []
    (row,) = failures(recording(), adding(sign * 1.1 * allowed))
    assert row[:4] == (f"{kind}: {CASE}", DETAIL, "first", "second")
    assert row.ratio == pytest.approx(1.1, rel=0.02)


@pytest.mark.parametrize("kind", parity.LIMITS)
@pytest.mark.parametrize("change", [
    lambda x: np.where(np.arange(7) == 3, np.nan, x).astype("float32"),
    lambda x: x[:-1],
    lambda x: x.astype("float64"),
], ids=["nan", "fewer", "dtype"])  # fmt: skip
def test_nan_and_other_shapes_and_dtypes_and_missing_arrays_are_caught(kind, change):
    assert len(failures(recording(), recording("second", kind, change))) == 1
    part = recording("second")
    del part.arrays[f"{kind}: {CASE}"]
    (row,) = failures(recording(), part)
    assert row.difference == np.inf
    assert failures(part, part) == [f"no {kind} in any recording"]


@pytest.mark.parametrize(("one", "other"), [(1, np.nextafter(np.float32(1), 2)), (1, 1 - 2**-24), (0, -0.0)])
def test_noise_that_differs_in_one_bit_or_in_the_sign_of_zero_is_caught(one, other):
    first, second = (recording("noise", "noise", lambda x, each=each: np.full_like(x, each)) for each in (one, other))
    (row,) = failures(first, second)
    assert row.difference == np.prod(SHAPE)
    comparison = parity.compare(recording(), recording("same"), recording("other", "fit", lambda x: x + np.float32(1)))
    assert parity.table(comparison)[-1] == ["fit", "0.0e+00", "1.0e+00", "1.0e+00", "0.0001"]


def test_writing_gives_every_weight_a_gradient_and_repeats_itself():
    recordings = [Recording(name, arrays=collections.defaultdict(dict)) for name in ("first", "second")]
    for each in recordings:
        parity.write_outputs_and_gradients(each.arrays, "parameter-efficient", "softmax")
    assert failures(*recordings) == ["no noise in any recording", "no fit in any recording"]
