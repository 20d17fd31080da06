"""The finished parts of a long run, as files in a folder, from which a later call goes on."""

import os
import pathlib
from typing import Any, NoReturn

import numpy as np

from keras_het.base.fingerprint import fingerprint
from keras_het.base.npz import read_arrays


class ResultFiles:
    """Keeps the finished parts of a run as .npz files, or keeps nothing if `path` is None.

    Args:
        path: the folder.
        checksum: of the data and the settings that the parts belong to.
        part: the word for a part in errors, such as "fold".
    """

    def __init__(self, path: str | os.PathLike | None, checksum: str, part: str):
        self.folder, self.checksum, self.part = None if path is None else pathlib.Path(path), checksum, part

    def read(self, name: str, arrays: tuple[str, ...]) -> dict[str, np.ndarray] | None:
        """The arrays of a part, or None if it is not done.

        Raises:
            ValueError: for a file of other data or settings or of another part, or one that is damaged.
        """
        if self.folder is None or not (file := self.folder / f"{name}.npz").exists():
            return None
        try:
            stored = read_arrays("path", file, (*arrays, "checksum"))
        except ValueError as error:
            self.refuse(name, str(error))
        if str(stored.pop("checksum")) != self._checksum_of(name):
            rule = "be a folder of its own for other data or settings"
            found = f"path={str(self.folder)!r}, whose {file.name} is of others, or had another name"
            raise ValueError(f"`path` must {rule}. Received: {found}")
        return stored

    def write(self, name: str, **arrays: Any) -> None:
        """Writes a part, all of it or nothing."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / f"{name}.unfinished.npz"
        np.savez(half, allow_pickle=False, checksum=self._checksum_of(name), **arrays)
        half.replace(self.folder / f"{name}.npz")

    def _checksum_of(self, name: str) -> str:
        """The checksum of a part: with its name, for a file that has another one is of another part."""
        return fingerprint([self.checksum, name])

    def refuse(self, name: str, fault: str) -> NoReturn:
        """Raises a ValueError for a part with this fault."""
        rule = f"hold {self.part}s as they were written: delete {self.folder}/{name}.npz, and it is trained anew"
        raise ValueError(f"`path` must {rule}. Received: {fault}")
