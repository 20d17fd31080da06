"""Record of a training run: margins and probabilities of the examples, optionally in a file."""

import os
import pathlib
from typing import Any

import numpy as np

from keras_het.base.batches import row_blocks
from keras_het.base.npz import read_arrays
from keras_het.base.refusal import refusal, refuse_if

MAX_VALUE = float(np.finfo("float16").max)  # bound of margins and losses
MIN_EPOCH_WEIGHT = 1e-6  # else the weights of a run without any loss would sum to zero
SUMS = ("margin_sum", "probability_sum")
ARRAYS = (*SUMS, "epoch_losses", "margins")


class TrainingRecord:
    """Sums over the epochs of a training run, for N examples of K classes.

    The weight of an epoch is the mean loss after it, w_t = L_t + 1e-6. Once the model has memorised the labels it
    agrees with all of them, and equal weights would let these epochs dominate.

    Args:
        labels: observed labels, integers in [0, K), `(N,)`.
        units: K.
        first: the first epoch, counted from 0.
        keeps_history: boolean, whether to keep the margins of every epoch.
    Attributes:
        margin_sum: weighted sum of z_y - max_{j != y} z_j, `(N,)`, float64.
        probability_sum: weighted sum of p(j | x), `(N, K)`, float32.
        epoch_losses: mean of -log p(y | x) over the examples, for each epoch.
        margins: margins of each epoch, a list of `(N,)`, float16; empty without history.
    """

    def __init__(self, labels: np.ndarray, units: int, *, first: int = 0, keeps_history: bool = True):
        count = len(labels)
        self.labels, self.units, self.first, self.keeps_history = labels, units, first, keeps_history
        self.epochs = 0
        self.margin_sum = np.zeros(count)
        self.probability_sum = np.zeros((count, units), "float32")
        self.epoch_losses: list[float] = []
        self.margins: list[np.ndarray] = []

    def update(self, log_p: np.ndarray) -> None:
        """Adds an epoch with its log-probabilities, `(N, K)`."""
        margins, losses = np.empty(len(log_p)), np.empty(len(log_p))
        parts = row_blocks(len(log_p))
        for part in parts:
            margins[part], losses[part] = margins_and_losses(log_p[part], self.labels[part])
        self.epoch_losses.append(float(losses.mean()))
        weight = self.weights[-1]
        for part in parts:
            self.probability_sum[part] += np.float32(weight) * np.exp(log_p[part])
        self.margin_sum += weight * margins
        self.epochs += 1
        if self.keeps_history:
            self.margins.append(margins.astype("float16"))

    @property
    def weights(self) -> np.ndarray:
        """Weight of each epoch, `(epochs,)`."""
        return np.array(self.epoch_losses) + MIN_EPOCH_WEIGHT

    @property
    def mean_margin(self) -> np.ndarray:
        """Weighted mean of the margins over the epochs, `(N,)`."""
        return self.margin_sum / self.weights.sum()

    @property
    def mean_probabilities(self) -> np.ndarray:
        """Weighted mean of p(j | x) over the epochs, `(N, K)`; rows sum to 1."""
        return self.probability_sum / self.probability_sum.sum(axis=1, keepdims=True)


def margins_and_losses(log_p: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the margins log p_y - max_{j != y} log p_j and the losses -log p_y, clipped to float16's range."""
    rows, rest = np.arange(len(log_p)), log_p.copy()
    log_p_label = log_p[rows, labels].astype("float64")
    rest[rows, labels] = -np.inf
    margins = np.clip(log_p_label - rest.max(axis=1), -MAX_VALUE, MAX_VALUE)
    return margins, np.clip(-log_p_label, 0.0, MAX_VALUE)


class RecordFile:
    """File of a record, beside a second file, `*.previous.npz`, without the last epoch.

    A run that stops between writing this file and the model's checkpoint resumes from the file that fits.
    """

    def __init__(self, path: str | os.PathLike, checksum: str):
        self.path, self.checksum = pathlib.Path(path), checksum
        self.previous = self._beside("previous")

    def _beside(self, word: str) -> pathlib.Path:
        """Returns the path with a word added; `with_suffix` would give "run.1" and "run.2" the same path."""
        name = self.path.name.removesuffix(".npz")
        return self.path.with_name(f"{name}.{word}{self.path.name[len(name) :]}")

    def write(self, record: TrainingRecord) -> None:
        """Writes a record atomically."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._beside("unfinished")
        parts = {name: getattr(record, name) for name in ARRAYS}
        with temporary.open("wb") as file:
            np.savez(file, checksum=self.checksum, span=[record.first, record.epochs], **parts)
        if self.path.exists():
            self.path.replace(self.previous)
        temporary.replace(self.path)

    def check(self) -> None:
        """Raises a ValueError for a file of other data or a damaged file, so that it is not replaced."""
        for file in (self.path, self.previous):
            self._arrays(file)

    def read(self, blank: TrainingRecord, epoch: int) -> TrainingRecord:
        """Fills an empty record with the epochs before this epoch.

        Raises:
            ValueError: if no file has these epochs, or a file belongs to other data or is damaged.
        """
        for file in (self.path, self.previous):
            arrays = self._arrays(file)
            if arrays is not None and int(arrays["span"].sum()) == epoch:
                return _fill(file, blank, arrays)
        rule = f"hold the epochs before epoch {epoch}, where `fit` continues: put the callback before BackupAndRestore"
        raise refusal("path", rule, f"path={str(self.path)!r} without them")

    def _arrays(self, file: pathlib.Path) -> dict[str, np.ndarray] | None:
        """Returns the arrays of a file; None without a file."""
        if not file.exists():
            return None
        arrays = read_arrays("path", file, ("checksum", "span", *ARRAYS))
        rule = "be a record of these examples, labels and classes: choose another path, or delete the file"
        refuse_if(str(arrays["checksum"]) != self.checksum, "path", rule, f"path={str(file)!r}, of other data")
        _check_array(file, "span", arrays["span"], (2,), "i")
        return arrays


def _fill(file: pathlib.Path, blank: TrainingRecord, stored: dict[str, Any]) -> TrainingRecord:
    """Fills a record with the arrays of a file, if their shapes and dtypes fit."""
    first, epochs = map(int, stored["span"])
    _check_array(file, "epoch_losses", stored["epoch_losses"], (epochs,), "f")
    blank.epoch_losses = stored["epoch_losses"].tolist()
    for name in SUMS:
        array = getattr(blank, name)
        _check_array(file, name, stored[name], array.shape, array.dtype.kind)
        setattr(blank, name, stored[name].astype(array.dtype))
    shape = (epochs, len(blank.labels)) if blank.keeps_history else (0,)
    _check_array(file, "margins", stored["margins"], shape, "f")
    blank.margins = list(stored["margins"].astype("float16"))
    blank.first, blank.epochs = first, epochs
    return blank


def _check_array(file: pathlib.Path, name: str, array: np.ndarray, shape: tuple[int, ...], kind: str) -> None:
    if array.shape != shape or array.dtype.kind != kind:
        rule = f"hold `{name}` of shape {shape} and kind {kind!r}: continue with the same `history`"
        raise refusal("path", rule, f"path={str(file)!r} with shape {array.shape}, {array.dtype}")
