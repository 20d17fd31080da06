"""Reads .npz files that may be damaged or untrusted: runs nothing in them, and allocates no more than they hold."""

import contextlib
import hashlib
import math
import os
import zipfile
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import as_numpy
from keras_het.base.refusal import refusal, refuse_if

MAX_BYTES = 4 << 30  # of all arrays of a file that is smaller itself: a few bytes may unpack to any number
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def checksum(*arrays: Any) -> str:
    """Returns a checksum of arrays, or of lists and dicts of them: equal for equal numbers, types and shapes.

    Example:
        >>> checksum(np.arange(3)) == checksum(np.arange(3)), checksum(np.arange(3)) == checksum(np.arange(3.0))
        (True, False)
    """
    total = hashlib.sha256()
    for part in keras.tree.flatten(arrays):
        array = np.ascontiguousarray(as_numpy(part))
        total.update(f"{array.dtype} {array.shape}".encode())
        total.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.data.cast("B"))
    return total.hexdigest()


def read_arrays(
    argument: str, path: str | os.PathLike, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """The arrays of a .npz file, which must have these names.

    Args:
        argument: the name of the argument that gave the file, for the errors.
        path: the file.
        needed: names of arrays that it must have.
        optional: names of arrays that it may have.
    Raises:
        ValueError: for a file that is not whole, other arrays, or Python objects; also for arrays of more than 4 GiB,
            unless the file itself is as large, and for a header that asks for other bytes than the file has. Nothing is
            allocated before.
    """
    with _whole(argument, path):
        archive = zipfile.ZipFile(path)
    with archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        _check_names(argument, path, names, needed, optional)
        _check_size(argument, path, archive)
        return {name: _array(argument, path, archive, name) for name in needed + optional if name in names}


@contextlib.contextmanager
def _whole(argument: str, path: str | os.PathLike) -> Iterator[None]:
    """Gives one text to the errors of zipfile, of its decompressors and of NumPy, which are of many kinds."""
    try:
        yield
    except Exception as error:
        raise refusal(argument, "be a .npz file that is whole", f"{path}; {error}") from error


def _check_names(
    argument: str, path: str | os.PathLike, names: list[str], needed: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    if not set(needed) <= set(names):
        raise refusal(argument, f"have {' and '.join(needed)}", f"{path} with {', '.join(names) or 'nothing'}")
    if unknown := [name for name in names if name not in needed + optional]:
        rule = f"have no arrays but {', '.join(needed + optional)}"
        raise refusal(argument, rule, f"{path} with {', '.join(unknown)}")


def _check_size(argument: str, path: str | os.PathLike, archive: zipfile.ZipFile) -> None:
    """Raises a ValueError for too many bytes; zipfile unpacks no more of them than it says here."""
    size = sum(member.file_size for member in archive.infolist())
    rule = f"keep within {MAX_BYTES >> 30} GiB, or be saved without compression"
    refuse_if(size > max(MAX_BYTES, os.path.getsize(path)), argument, rule, f"{path} with {size / 2**30:.4g} GiB")


def _array(argument: str, path: str | os.PathLike, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    with _whole(argument, path), archive.open(f"{name}.npy") as member:
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(member)](member)
        held = archive.getinfo(member.name).file_size - member.tell()
    _check_header(name, path, shape, dtype, held)
    with _whole(argument, path), archive.open(f"{name}.npy") as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _check_header(name: str, path: str | os.PathLike, shape: tuple[int, ...], dtype: Any, held: int) -> None:
    """Raises a ValueError if the header of an array is for Python objects, or for other bytes than are behind it."""
    if dtype.hasobject:
        rule = (
            "hold numbers and texts, and no Python objects, which could run code; make texts an array of them: "
            "np.array(names, str)"
        )
        raise refusal(name, rule, f"an array of Python objects in {path}")
    if not dtype.itemsize or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != held:
        raise refusal(name, "have the bytes that its header says", f"shape {shape}, {dtype}, in {held} bytes of {path}")
