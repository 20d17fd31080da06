"""The finished folds of a run, as files in a folder, from which a later call goes on."""

import os
import pathlib
from typing import NoReturn

import numpy as np

from keras_het.base.npz import read_arrays
from keras_het.base.validation import check_rows


class FoldFiles:
    """Keeps the finished folds as files, or keeps nothing if `path` is None.

    Args:
        path: the folder.
        checksum: of the data and the settings that the folds belong to.
    """

    def __init__(self, path: str | os.PathLike | None, checksum: str):
        self.folder, self.checksum = None if path is None else pathlib.Path(path), checksum

    def read(self, fold: int, count: int) -> np.ndarray | None:
        """The probabilities of a fold of so many examples, `(count, K)`, or None if it is not done.

        Raises:
            ValueError: for a file of other data or settings, or one that is damaged.
        """
        if self.folder is None or not (file := self.folder / f"fold_{fold}.npz").exists():
            return None
        try:
            stored = read_arrays("path", file, ("probabilities", "checksum"))
        except ValueError as error:
            self._refuse(file, str(error))
        if str(stored["checksum"]) != self.checksum:
            rule = "be a folder of its own for other data or settings"
            raise ValueError(f"`path` must {rule}. Received: path={str(self.folder)!r}, whose {file.name} is of others")
        return self._checked(file, stored["probabilities"], count)

    def write(self, fold: int, probabilities: np.ndarray) -> None:
        """Writes a fold, all of it or nothing."""
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        half = self.folder / f"unfinished_{fold}.npz"
        np.savez(half, probabilities=probabilities, checksum=self.checksum)
        half.replace(self.folder / f"fold_{fold}.npz")

    def _checked(self, file: pathlib.Path, probabilities: np.ndarray, count: int) -> np.ndarray:
        if probabilities.dtype != "float32" or probabilities.ndim != 2 or len(probabilities) != count:
            found = f"{probabilities.dtype} of shape {probabilities.shape}"
            self._refuse(file, f"`probabilities` must be float32 of shape ({count}, K). Received: {found}")
        try:
            check_rows(probabilities, "probabilities")
        except ValueError as error:
            self._refuse(file, str(error))
        return probabilities

    def _refuse(self, file: pathlib.Path, fault: str) -> NoReturn:
        rule = f"hold folds as they were written: delete {file}, and it is trained anew"
        raise ValueError(f"`path` must {rule}. Received: {fault}")
