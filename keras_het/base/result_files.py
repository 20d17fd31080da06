"""The finished parts of a long run, as files from which a later call goes on.

Files may be damaged or hostile: nothing in them is run, and no more is allocated than they hold.
"""

import contextlib
import math
import os
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import numpy as np

from keras_het.base.fingerprint import fingerprint
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_rows

Form = tuple[tuple[int, ...], tuple[str, ...]]  # the shape of an array, and the types that it may have
MAX_BYTES = 4 << 30  # of all arrays of a file that is smaller itself: a few bytes may unpack to any number
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


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


class ResultFiles:
    """Keeps the finished parts of a run as .npz files, or keeps nothing if `path` is None.

    Args:
        path: the folder.
        settings: a function that returns the data and settings that the parts belong to, by the names of arguments.
        part: the word for a part in errors, such as "fold".
    Raises:
        ValueError: for settings that cannot be compared with those of another run.
    """

    def __init__(self, path: str | os.PathLike | None, settings: Callable[[], Mapping[str, Any]], part: str):
        self.folder, self.part = None if path is None else pathlib.Path(path), part
        self._checksum = "" if path is None else fingerprint(settings())

    def read(self, name: str, forms: Mapping[str, Form]) -> dict[str, np.ndarray] | None:
        """The arrays of a part, or None if it is not done.

        Args:
            name: name of the part.
            forms: shape and types of each array; one named "probabilities" has rows that sum to 1.
        Raises:
            ValueError: for a file of other data or settings, or of another part, or one that is damaged.
        """
        if self.folder is None or not (file := self.folder / f"{name}.npz").exists():
            return None
        try:
            stored = read_arrays("resume_path", file, (*forms, "checksum"))
        except ValueError as error:
            self._refuse(name, str(error))
        if str(stored.pop("checksum")) != self._checksum_of(name):
            rule = "be a folder of its own for other data or settings"
            found = f"resume_path={str(self.folder)!r}, whose {file.name} is of others, or had another name"
            raise ValueError(f"`resume_path` must {rule}. Received: {found}")
        for key, (shape, dtypes) in forms.items():
            if stored[key].shape != shape or stored[key].dtype not in dtypes:
                rule = f"`{key}` must have shape {shape} and be {' or '.join(dtypes)}"
                self._refuse(name, f"{rule}. Received: shape {stored[key].shape}, {stored[key].dtype}")
        try:
            check_rows(stored["probabilities"], "probabilities")
        except ValueError as error:
            self._refuse(name, str(error))
        for key in forms:
            if not np.isfinite(stored[key]).all():
                self._refuse(name, f"`{key}` must be finite. Received: nan or infinity")
        return stored

    def write(self, name: str, **arrays: Any) -> None:
        """Writes a part, all of it or nothing."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / f"{name}.unfinished.npz"
        np.savez(half, allow_pickle=False, checksum=self._checksum_of(name), **arrays)
        half.replace(self.folder / f"{name}.npz")

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Says behind a Ctrl-C what is kept."""
        try:
            yield
        except KeyboardInterrupt as error:
            if self.folder is None:
                note = f"No {self.part} is kept. With a folder `resume_path` the same call goes on from finished ones."
            else:
                count = sum(not file.stem.endswith(".unfinished") for file in self.folder.glob("*.npz"))
                note = f"{count} finished {self.part}s are kept in {self.folder}: the same call goes on from there."
            error.add_note(note)
            raise

    def _checksum_of(self, name: str) -> str:
        """The checksum of a part, with its name: a file that was renamed is of another part."""
        return fingerprint({"run": self._checksum, "part": name})

    def _refuse(self, name: str, fault: str) -> NoReturn:
        """Raises a ValueError for a part with this fault."""
        rule = f"hold {self.part}s as they were written: delete {self.folder}/{name}.npz, and it is trained anew"
        raise refusal("resume_path", rule, fault)
