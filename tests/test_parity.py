"""Comparison of backends: differences that it must catch, and differences that it must allow, on one backend."""

import collections

import numpy as np
import pytest

from keras_het.parity import Recording
from tests import parity

pytestmark = pytest.mark.once

SHAPE = (5, 7)
CASE, DETAIL = "full softmax", "detail"


def recording(name="first", spoil=lambda kind, array: array):
    """Returns a recording with an array of each kind, with entries from 1e-3 to 100 and both signs."""
    signs = np.random.default_rng(0).choice([-1, 1], SHAPE)
    array = (signs * np.geomspace(1e-3, 100, 35).reshape(SHAPE)).astype("float32")
    return Recording(name, arrays={f"{kind}: {CASE}": {DETAIL: spoil(kind, array.copy())} for kind in parity.LIMITS})


def planted(kind, change):
    """Returns a second recording. The function returns one kind's array after a change, or changes it in place."""

    def spoil(this, array):
        changed = change(array) if this == kind else None
        return array if changed is None else changed

    return recording("second", spoil)


def adding(entry, size):
    def change(array):
        array[entry] += np.float32(size)

    return change


def failures(first, second):
    """Returns the rows above their limits, and the texts of missing kinds."""
    comparison = parity.compare(first, second)
    assert comparison.is_equal == (not comparison.different and not comparison.failures)
    return [*comparison.different, *comparison.failures]


def test_equal_recordings_pass():
    assert failures(recording(), recording("second")) == []


@pytest.mark.parametrize(("kind", "entry", "allowed"), [
    ("outputs", (0, 0), 1e-5),  # the absolute part, at an entry of 1e-3
    ("outputs", (-1, -1), 1e-5 * 101),  # the relative part, at an entry of 100
    ("gradients", (0, 0), 1e-4 * 100),  # relative to the largest entry
    ("gradients", (-1, 0), 1e-4 * 100),
    ("fit", (0, 0), 1e-4),
])  # fmt: skip
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_difference_above_the_limit_is_caught_and_one_below_is_not(kind, entry, allowed, sign):
    assert failures(recording(), planted(kind, adding(entry, sign * 0.9 * allowed))) == []
    (row,) = failures(recording(), planted(kind, adding(entry, sign * 1.1 * allowed)))
    assert row[:4] == (f"{kind}: {CASE}", DETAIL, "first", "second")
    assert row.ratio == pytest.approx(1.1, rel=0.02)


@pytest.mark.parametrize(("one", "other"), [(1, np.nextafter(np.float32(1), 2)), (1, 1 - 2**-24), (0, -0.0)])
def test_noise_that_differs_in_one_bit_or_in_the_sign_of_zero_is_caught(one, other):
    first, second = (
        planted("noise", lambda array, value=value: array.__setitem__((0, 0), value)) for value in (one, other)
    )
    (row,) = failures(first, second)
    assert row.part == f"noise: {CASE}"
    assert row.difference == 1


@pytest.mark.parametrize("kind", parity.LIMITS)
@pytest.mark.parametrize("spoil", [
    lambda x: np.where(np.arange(7) == 3, np.nan, x).astype("float32"),
    lambda x: np.where(np.arange(7) == 3, np.inf, x).astype("float32"),
    lambda x: x[:-1],
    lambda x: x[None],
    lambda x: x.astype("float64"),
], ids=["nan", "infinity", "fewer", "axis", "dtype"])  # fmt: skip
def test_values_that_are_not_finite_and_other_shapes_and_dtypes_are_caught(kind, spoil):
    spoiled = planted(kind, spoil)
    assert len(failures(recording(), spoiled)) == 1
    array = spoiled.arrays[f"{kind}: {CASE}"][DETAIL]
    if array.shape == SHAPE and array.dtype == "float32":  # caught even if backends agree on it
        assert len(failures(spoiled, spoiled)) == 1


@pytest.mark.parametrize("kind", parity.LIMITS)
def test_a_missing_array_is_caught(kind):
    whole, part = recording(), recording("second")
    del part.arrays[f"{kind}: {CASE}"]
    for pair in ((whole, part), (part, whole)):
        (row,) = failures(*pair)
        assert row.difference == np.inf
    assert failures(part, part) == [f"no {kind} in any recording"]


def test_one_backend_of_three_that_differs_is_named():
    other = planted("fit", lambda array: array + np.float32(1))
    comparison = parity.compare(recording(), recording("same"), other)
    assert [(row.first, row.second) for row in comparison.different] == [("first", "second"), ("same", "second")]
    expected = (
        f"second differs from first and same, first in fit: {CASE}, `{DETAIL}`: difference 1.0e+00, limit 1.0e-04."
    )
    assert comparison.answer() == expected
    assert parity.table(comparison)[-1] == ["fit", "0.0e+00", "1.0e+00", "1.0e+00", "0.0001"]


def test_the_worst_array_of_a_kind_is_in_its_table_and_the_first_one_in_the_answer():
    first, second = recording(), planted("fit", adding((0, 0), 2e-4))
    for each, size in ((first, 0.0), (second, 5e-4)):
        each.arrays[f"fit: {CASE}"]["other"] = np.full(SHAPE, size, "float32")
    comparison = parity.compare(first, second)
    assert parity.table(comparison)[-1] == ["fit", "5.0e-04", "0.0001"]
    assert (comparison.worst.name, comparison.different[0].name) == ("other", DETAIL)


@pytest.mark.parametrize("difference", [0.0, 1.0])
def test_the_command_prints_the_table_and_reports_failure(tmp_path, capsys, difference):
    paths = [str(tmp_path / f"{name}.npz") for name in ("one", "two")]
    recording("one").save(paths[0])
    planted("outputs", lambda array: array + np.float32(difference)).save(paths[1])
    assert parity.main(["compare", *paths]) == (difference > 0)
    out = capsys.readouterr().out
    assert "one - second" in out
    assert ("agree: 4 differences are within their limits" in out) == (difference == 0.0)


def test_writing_gives_every_weight_a_gradient_and_repeats_itself():
    recordings = [Recording(name, arrays=collections.defaultdict(dict)) for name in ("first", "second")]
    for each in recordings:
        parity.write_outputs_and_gradients(each.arrays, "parameter-efficient", "softmax")
    outputs, gradients = recordings[0].arrays.values()
    names = {name.rsplit(", ", 1)[-1] for name in gradients}
    assert names == {
        f"{part}/{w}" for part in ("loc", "covariance/scale_diag", "covariance/row_scale") for w in ("kernel", "bias")
    } | {"covariance/factor/kernel"}
    assert len(outputs) == 4
    assert all(a.dtype == "float32" and np.all(np.isfinite(a)) for a in (*outputs.values(), *gradients.values()))
    assert failures(*recordings) == ["no noise in any recording", "no fit in any recording"]
