"""Comparison of backends: differences that it must catch, and differences that it must allow, on one backend."""

import numpy as np
import pytest

from tests import parity

pytestmark = pytest.mark.once

SHAPE = (5, 7)


def quantities():
    """Returns one quantity of each kind, with entries from 1e-3 to 100 and both signs."""
    signs = np.random.default_rng(0).choice([-1, 1], SHAPE)
    return {
        f"{kind}/full softmax/detail": (signs * np.geomspace(1e-3, 100, 35).reshape(SHAPE)).astype("float32")
        for kind in parity.LIMITS
    }


def failures(first, second):
    return parity.above_limit(parity.compare({"first": first, "second": second}))


def planted(kind, entry, size):
    """Returns the failures after adding `size` to one entry of one kind's quantity."""
    first, second = quantities(), quantities()
    second[f"{kind}/full softmax/detail"][entry] += np.float32(size)
    return failures(first, second)


def test_equal_files_pass():
    assert failures(quantities(), quantities()) == []


@pytest.mark.planted
@pytest.mark.parametrize(("kind", "entry", "allowed"), [
    ("outputs", (0, 0), 1e-5),  # the absolute part, at an entry of 1e-3
    ("outputs", (-1, -1), 1e-5 * 101),  # the relative part, at an entry of 100
    ("gradients", (0, 0), 1e-4 * 100),  # relative to the largest entry
    ("gradients", (-1, 0), 1e-4 * 100),
    ("fit", (0, 0), 1e-4),
])  # fmt: skip
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_difference_above_the_limit_is_caught_and_one_below_is_not(kind, entry, allowed, sign):
    assert planted(kind, entry, sign * 0.9 * allowed) == []
    (line,) = planted(kind, entry, sign * 1.1 * allowed)
    assert line.startswith(f"{kind}, full softmax, detail: first and second differ by 1.1")


@pytest.mark.planted
@pytest.mark.parametrize(("one", "other"), [(1, np.nextafter(np.float32(1), 2)), (1, 1 - 2**-24), (0, -0.0)])
def test_noise_that_differs_in_one_bit_or_in_the_sign_of_zero_is_caught(one, other):
    first, second = quantities(), quantities()
    first["noise/full softmax/detail"][0, 0], second["noise/full softmax/detail"][0, 0] = one, other
    (line,) = failures(first, second)
    assert line.startswith("noise")


@pytest.mark.planted
@pytest.mark.parametrize("kind", parity.LIMITS)
@pytest.mark.parametrize("spoil", [
    lambda x: np.where(np.arange(7) == 3, np.nan, x).astype("float32"),
    lambda x: np.where(np.arange(7) == 3, np.inf, x).astype("float32"),
    lambda x: x[:-1],
    lambda x: x[None],
    lambda x: x.astype("float64"),
], ids=["nan", "infinity", "fewer", "axis", "dtype"])  # fmt: skip
def test_values_that_are_not_finite_and_other_shapes_and_dtypes_are_caught(kind, spoil):
    first, second = quantities(), quantities()
    name = f"{kind}/full softmax/detail"
    second[name] = spoil(second[name])
    assert len(failures(first, second)) == 1
    if second[name].shape == SHAPE and second[name].dtype == "float32":  # caught even if backends agree on it
        first[name] = second[name]
        assert len(failures(first, second)) == 1


@pytest.mark.planted
@pytest.mark.parametrize("kind", parity.LIMITS)
def test_a_missing_quantity_is_caught(kind):
    whole, part = quantities(), quantities()
    del part[f"{kind}/full softmax/detail"]
    for pair in ((whole, part), (part, whole)):
        (line,) = failures(*pair)
        assert "inf" in line
    assert failures(part, part) == [f"no {kind} in any file"]


@pytest.mark.planted
def test_one_backend_of_three_that_differs_is_named_twice():
    files = {"jax": quantities(), "tensorflow": quantities(), "torch": quantities()}
    files["torch"]["fit/full softmax/detail"] += np.float32(1)
    rows = parity.compare(files)
    lines = parity.above_limit(rows)
    assert [line.split(": ")[1].split(" differ")[0] for line in lines] == ["jax and torch", "tensorflow and torch"]
    row = next(line for line in parity.table(rows).splitlines() if line.startswith("| fit: full softmax"))
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["0.0e+00", "1.0e+00", "1.0e+00", "0.0001"]


def test_the_worst_of_several_details_is_the_one_reported():
    first, second = quantities(), quantities()
    for files in (first, second):
        files["fit/full softmax/other"] = np.zeros(SHAPE, "float32")
    second["fit/full softmax/other"][2, 2] = 5e-4
    second["fit/full softmax/detail"][0, 0] += np.float32(2e-4)
    (line,) = failures(first, second)
    assert line == "fit, full softmax, other: first and second differ by 5.00e-04 (limit 1e-04)"


@pytest.mark.parametrize("difference", [0.0, 1.0])
def test_the_command_prints_the_table_and_reports_failure(tmp_path, capsys, difference):
    first, second = quantities(), quantities()
    second["outputs/full softmax/detail"] += np.float32(difference)
    paths = [str(tmp_path / f"{name}.npz") for name in ("one", "two")]
    for path, files in zip(paths, (first, second), strict=True):
        np.savez(path, **files)
    status = parity.main(["compare", *paths])
    out = capsys.readouterr().out
    assert "one - two" in out
    assert "| outputs: full softmax" in out
    assert (status is None) == (difference == 0.0)  # sys.exit: None is success, text is printed and exits 1


def test_writing_gives_every_weight_a_gradient_and_repeats_itself():
    results = []
    for _ in range(2):
        result = {}
        parity.write_outputs_and_gradients(result, "parameter-efficient", "softmax")
        results.append(result)
    names = {name.rsplit(", ", 1)[-1] for name in results[0] if name.startswith("gradients")}
    assert names == {
        f"{part}/{w}" for part in ("loc", "covariance/scale_diag", "covariance/row_scale") for w in ("kernel", "bias")
    } | {"covariance/factor/kernel"}
    assert all(array.dtype == "float32" and np.all(np.isfinite(array)) for array in results[0].values())
    assert [line for line in failures(*results) if not line.startswith("no ")] == []
