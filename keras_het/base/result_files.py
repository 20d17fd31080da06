"""The finished parts of a long run, as files in a folder, from which a later call goes on."""

import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from keras_het.base.fingerprint import fingerprint
from keras_het.base.npz import read_arrays
from keras_het.base.validation import check_rows

Form = tuple[tuple[int, ...], tuple[str, ...]]  # the shape of an array, and the types that it may have


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
            name: of the part.
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

    def _checksum_of(self, name: str) -> str:
        """The checksum of a part, with its name: a file that was renamed is of another part."""
        return fingerprint({"run": self._checksum, "part": name})

    def _refuse(self, name: str, fault: str) -> NoReturn:
        """Raises a ValueError for a part with this fault."""
        rule = f"hold {self.part}s as they were written: delete {self.folder}/{name}.npz, and it is trained anew"
        raise ValueError(f"`resume_path` must {rule}. Received: {fault}")
