"""Damaged and untrusted .npz files are refused with a text, before anything is allocated."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from keras_het.base.npz import MAX_BYTES, read_arrays
from tests.common import refuses

pytestmark = pytest.mark.once


def array(header, data=b""):
    """Returns the bytes of a .npy file with any header."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"fortran_order": False, **header})
    return file.getvalue() + data


def pack(path, *members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def declare(path, size):
    """Writes a number of unpacked bytes into the directory of a file of one array, as a hostile file may have it."""
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02") + 24
    content[place : place + 4] = size.to_bytes(4, "little")
    path.write_bytes(content)
    return path


def truncated(path):
    np.savez(path, x=np.arange(1000))
    path.write_bytes(path.read_bytes()[:-200])
    return path


def damaged(path):
    np.savez_compressed(path, x=np.arange(1000))
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(60)
    path.write_bytes(content)
    return path


def with_objects(path):
    np.savez(path, x=np.array([{}]))
    return path


def other_text(path):
    path.write_text("no file of arrays")
    return path


def bomb(path):
    return declare(pack(path, ("x.npy", HUGE), method=zipfile.ZIP_DEFLATED), (1 << 32) - 2)


HUGE = array({"descr": "<f8", "shape": (2 << 40,)}, bytes(64))
NO_LETTERS = array({"descr": "<U0", "shape": (1 << 40,)})
NEGATIVE = array({"descr": "<f8", "shape": (-2, -4)}, bytes(64))
UNDAMAGED = "`data` must be an undamaged .npz file. Received: "
AS_ITS_HEADER = "`x` must have as many bytes as its header requires. Received: "
FILES = {
    "truncated": (truncated, UNDAMAGED),
    "damaged": (damaged, UNDAMAGED),
    "text": (other_text, UNDAMAGED),
    "no array": (lambda path: pack(path, ("x.npy", b"nothing")), UNDAMAGED),
    "objects": (with_objects, "`x` must hold no Python objects, which could run code"),
    "other names": (lambda path: pack(path, ("y.npy", b"")), "`data` must have x. Received: "),
    "further names": (lambda path: pack(path, ("x.npy", b""), ("y.npy", b"")), "`data` must have only the arrays x."),
    "16 TiB": (lambda path: pack(path, ("x.npy", HUGE)), AS_ITS_HEADER + "shape (2199023255552,), float64, in 64"),
    "texts of no letter": (lambda path: pack(path, ("x.npy", NO_LETTERS)), AS_ITS_HEADER),
    "negative": (lambda path: pack(path, ("x.npy", NEGATIVE)), AS_ITS_HEADER),
    "bomb": (bomb, AS_ITS_HEADER),
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_wrong_is_said_and_nothing_is_allocated(name, tmp_path):
    make, text = FILES[name]
    path = make(tmp_path / "d.npz")
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
