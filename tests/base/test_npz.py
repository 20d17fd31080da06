"""Damaged and untrusted .npz files are refused with a text, before anything is allocated."""

import tracemalloc
import zipfile

import numpy as np
import pytest

from keras_het.base.npz import MAX_BYTES, read_arrays
from tests.common import refuses
from tests.fuzz.damage import CONTENTS, npy, with_header, zipped

pytestmark = pytest.mark.once


def of_members(*members, method=zipfile.ZIP_STORED):
    return zipped([(f"{name}.npy", content()) for name, content in members], method)


def declare(content, size):
    """Writes a number of unpacked bytes into the directory of a file of one array, as a hostile file may have it."""
    place = content.index(b"PK\x01\x02") + 24
    return content[:place] + size.to_bytes(4, "little") + content[place + 4 :]


ARRAY = of_members(("x", lambda: npy(np.arange(1000))), method=zipfile.ZIP_DEFLATED)
BOMB = of_members(("x", CONTENTS["huge"]), method=zipfile.ZIP_DEFLATED)
NO_LETTERS = "{'descr': '<U0', 'fortran_order': False, 'shape': (1099511627776,), }\n"
UNDAMAGED = "`data` must be an undamaged .npz file. Received: "
AS_ITS_HEADER = "`x` must have as many bytes as its header requires. Received: "
FILES = {
    "truncated": (ARRAY[:-200], UNDAMAGED),
    "damaged": (ARRAY[:200] + bytes(60) + ARRAY[260:], UNDAMAGED),
    "text": (b"no file of arrays", UNDAMAGED),
    "no array": (of_members(("x", lambda: b"nothing")), UNDAMAGED),
    "objects": (of_members(("x", CONTENTS["pickle"])), "`x` must hold no Python objects, which could run code"),
    "other names": (of_members(("y", CONTENTS["nothing"])), "`data` must have x. Received: "),
    "further names": (of_members(*[(name, CONTENTS["nothing"]) for name in "xy"]), "must have only the arrays x."),
    "8 TiB": (of_members(("x", CONTENTS["huge"])), AS_ITS_HEADER + "shape (1099511627776,), float64, in 64"),
    "texts of no letter": (of_members(("x", lambda: with_header(NO_LETTERS))), AS_ITS_HEADER),
    "negative": (of_members(("x", CONTENTS["negative"])), AS_ITS_HEADER),
    "bomb": (declare(BOMB, (1 << 32) - 2), AS_ITS_HEADER),
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_wrong_is_said_and_nothing_is_allocated(name, tmp_path):
    content, text = FILES[name]
    path = tmp_path / "d.npz"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as error:
            read_arrays("data", path, ("x",))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert text in str(error.value)
    assert str(path) in str(error.value)
    assert peak < 5e6


def test_a_small_file_that_unpacks_to_more_than_the_limit(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros(1 << 17))
    monkeypatch.setattr("keras_het.base.npz.MAX_BYTES", 1 << 19)
    with refuses(r"`data` must have at most 0 GiB, or be saved without compression. Received: "):
        read_arrays("data", tmp_path / "bomb.npz", ("x",))
    np.savez(tmp_path / "large.npz", x=np.zeros(1 << 17))
    assert read_arrays("data", tmp_path / "large.npz", ("x",))["x"].shape == (1 << 17,)
    assert MAX_BYTES == 4 << 30


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back_as_they_were(save, tmp_path):
    x = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    arrays = {"x": x, "y": np.array(["ä", "bc"]), "empty": np.zeros((0, 2))}
    save(tmp_path / "d.npz", number=np.float32(2), **arrays)
    read = read_arrays("data", tmp_path / "d.npz", ("x", "number"), ("y", "empty", "other"))
    assert list(read) == ["x", "number", "y", "empty"]
    for name, expected in {**arrays, "number": np.float32(2)}.items():
        np.testing.assert_array_equal(read[name], expected)
        assert read[name].dtype == expected.dtype
