"""Reads damaged or untrusted .npz files: runs nothing in them, and allocates no more than they hold."""

import contextlib
import math
import os
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from keras_het.base.refusal import refusal, refuse_if

MAX_BYTES = 4 << 30  # of all arrays, unless the file is larger: a few bytes could unpack to any size
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_arrays(
    argument: str, path: str | os.PathLike, needed: tuple[str, ...], optional: tuple[str, ...] = ()
) -> dict[str, np.ndarray]:
    """Reads the arrays of a .npz file.

    Raises:
        ValueError: for a damaged file, other arrays, or Python objects; for arrays of more than 4 GiB, unless the file
            is as large; and for a header that does not match the bytes. Nothing is allocated before these checks.
    """
    with _damage_refused(argument, path):
        archive = zipfile.ZipFile(path)
    with archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        _check_names(argument, path, names, needed, optional)
        size = sum(member.file_size for member in archive.infolist())  # zipfile unpacks no more
        rule = f"have at most {MAX_BYTES >> 30} GiB, or be saved without compression"
        refuse_if(size > max(MAX_BYTES, os.path.getsize(path)), argument, rule, f"{path} with {size / 2**30:.4g} GiB")
        present = set(names)
        return {name: read_array(argument, path, archive, name) for name in needed + optional if name in present}


@contextlib.contextmanager
def _damage_refused(argument: str, path: str | os.PathLike) -> Iterator[None]:
    """Converts the many errors of zipfile, its decompressors and NumPy to one ValueError."""
    try:
        yield
    except Exception as error:
        raise refusal(argument, "be an undamaged .npz file", f"{path}; {error}") from error


def _check_names(
    argument: str, path: str | os.PathLike, names: list[str], needed: tuple[str, ...], optional: tuple[str, ...]
) -> None:
    if not set(needed) <= set(names):
        raise refusal(argument, f"have {' and '.join(needed)}", f"{path} with {', '.join(names) or 'nothing'}")
    known = {*needed, *optional}
    if unknown := [name for name in names if name not in known]:
        rule = f"have only the arrays {', '.join(needed + optional)}"
        raise refusal(argument, rule, f"{path} with {', '.join(unknown)}")


def read_array(argument: str, path: str | os.PathLike, archive: zipfile.ZipFile, name: str) -> np.ndarray:
    """Reads one array of a .npz file, with the checks of `read_arrays`."""
    with _damage_refused(argument, path), archive.open(f"{name}.npy") as member:
        shape, _, dtype = _HEADERS[np.lib.format.read_magic(member)](member)
        num_bytes = archive.getinfo(member.name).file_size - member.tell()
    _check_header(name, path, shape, dtype, num_bytes)
    with _damage_refused(argument, path), archive.open(f"{name}.npy") as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _check_header(name: str, path: str | os.PathLike, shape: tuple[int, ...], dtype: Any, num_bytes: int) -> None:
    """Raises a ValueError if a header is for Python objects, or does not match the number of bytes after it."""
    if dtype.hasobject:
        rule = "hold no Python objects, which could run code: save strings as np.array(names, str)"
        raise refusal(name, rule, f"an array of Python objects in {path}")
    if not dtype.itemsize or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != num_bytes:
        rule = "have as many bytes as its header requires"
        raise refusal(name, rule, f"shape {shape}, {dtype}, in {num_bytes} bytes of {path}")
