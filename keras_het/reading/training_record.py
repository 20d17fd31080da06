"""What a model said of its training examples after every epoch: margins, losses, changes, in a file if wanted."""

import os
import pathlib
from typing import Any

import numpy as np

from keras_het.base.batches import row_blocks
from keras_het.base.npz import read_arrays
from keras_het.base.refusal import refusal, refuse_if

LARGEST = float(np.finfo("float16").max)  # of a margin and of a loss
LEAST = 1e-6  # added to the weight of each epoch: those of a loss of zero count alike where there is no other
SUMS = ("margin_sum", "loss_sum", "probability_sum", "predicted", "forgotten", "changes", "epoch_losses")
HISTORIES = ("margins", "losses")


class TrainingRecord:
    """Sums over the epochs of a training, for N examples of K classes, and what each epoch adds to them.

    An epoch counts as much as the mean loss that the model has after it, w_t = L_t + 1e-6: a model that knows all
    labels by heart says of each that it is right, and with equal weights such epochs would outvote all others.

    Args:
        labels: labels of the examples, integers in [0, K), `(N,)`.
        units: K.
        first: the epoch that it begins with, counted from 0.
        keeps_history: boolean, whether to keep the margins and the losses of every epoch.
    Attributes:
        margin_sum: weighted sum of z_y - max_{j != y} z_j, `(N,)`, float64.
        loss_sum: weighted sum of -log p(y | x), `(N,)`, float64.
        probability_sum: weighted sum of p(j | x), `(N, K)`, float32.
        epoch_losses: mean of -log p(y | x) over the examples, for each epoch.
        predicted: the last prediction, `(N,)`, int32; -1 before the first epoch.
        forgotten: number of times that an example was right at one epoch and wrong at the next, `(N,)`, int32.
        changes: number of examples whose prediction changed, for each epoch after the first.
        margins: margins of each epoch, a list of `(N,)`, float16; empty without history.
        losses: losses of each epoch, as `margins`.
    """

    def __init__(self, labels: np.ndarray, units: int, *, first: int = 0, keeps_history: bool = True):
        count = len(labels)
        self.labels, self.units, self.first, self.keeps_history = labels, units, first, keeps_history
        self.epochs = 0
        self.margin_sum, self.loss_sum = np.zeros(count), np.zeros(count)
        self.probability_sum = np.zeros((count, units), "float32")
        self.predicted, self.forgotten = np.full(count, -1, "int32"), np.zeros(count, "int32")
        self.changes: list[int] = []
        self.epoch_losses: list[float] = []
        self.margins: list[np.ndarray] = []
        self.losses: list[np.ndarray] = []

    def update(self, log_p: np.ndarray) -> None:
        """Adds an epoch, by the log-probabilities after it, `(N, K)`."""
        predicted = log_p.argmax(axis=1).astype("int32")
        if self.epochs:
            self.changes.append(int(np.sum(predicted != self.predicted)))
        self.forgotten += (self.predicted == self.labels) & (predicted != self.labels)
        margins, losses = np.empty(len(log_p)), np.empty(len(log_p))
        parts = row_blocks(len(log_p))
        for part in parts:
            margins[part], losses[part] = margins_and_losses(log_p[part], self.labels[part])
        self.epoch_losses.append(float(losses.mean()))
        weight = self.weights[-1]
        for part in parts:
            self.probability_sum[part] += np.float32(weight) * np.exp(log_p[part])
        self.margin_sum += weight * margins
        self.loss_sum += weight * losses
        self.predicted, self.epochs = predicted, self.epochs + 1
        if self.keeps_history:
            self.margins.append(margins.astype("float16"))
            self.losses.append(losses.astype("float16"))

    @property
    def weights(self) -> np.ndarray:
        """The weight of each epoch, `(epochs,)`."""
        return np.array(self.epoch_losses) + LEAST

    @property
    def mean_margin(self) -> np.ndarray:
        """The weighted mean of the margins over the epochs, `(N,)`."""
        return self.margin_sum / self.weights.sum()

    @property
    def mean_loss(self) -> np.ndarray:
        """The weighted mean of the losses over the epochs, `(N,)`."""
        return self.loss_sum / self.weights.sum()

    @property
    def mean_probabilities(self) -> np.ndarray:
        """The weighted mean of p(j | x) over the epochs, `(N, K)`, each row of sum 1."""
        return self.probability_sum / self.probability_sum.sum(axis=1, keepdims=True)


def margins_and_losses(log_p: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The margins log p_y - max_{j != y} log p_j, and the losses -log p_y, within the range of float16."""
    rows, others = np.arange(len(log_p)), log_p.copy()
    own = log_p[rows, labels].astype("float64")
    others[rows, labels] = -np.inf
    return np.clip(own - others.max(axis=1), -LARGEST, LARGEST), np.clip(-own, 0.0, LARGEST)


class RecordFile:
    """A file that holds a record, and one beside it, `*.previous.npz`, that holds the record before the last epoch.

    A run that is stopped between this file and the checkpoint of the model is resumed by the one that fits.

    Args:
        path: the file.
        checksum: checksum of the data that the record is of.
    """

    def __init__(self, path: str | os.PathLike, checksum: str):
        self.path, self.checksum = pathlib.Path(path), checksum
        self.previous = self._beside("previous")

    def _beside(self, word: str) -> pathlib.Path:
        """The path of a file beside it; not by `with_suffix`, by which "run.1" and "run.2" would share it."""
        name = self.path.name.removesuffix(".npz")
        return self.path.with_name(f"{name}.{word}{self.path.name[len(name) :]}")

    def write(self, record: TrainingRecord) -> None:
        """Writes a record, all of it or nothing."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        half = self._beside("unfinished")
        parts = {name: getattr(record, name) for name in SUMS + HISTORIES}
        parts["changes"] = np.array(record.changes, int)  # also if there is none, which would make it floats
        with half.open("wb") as file:
            np.savez(file, checksum=self.checksum, span=[record.first, record.epochs], **parts)
        if self.path.exists():
            self.path.replace(self.previous)
        half.replace(self.path)

    def check(self) -> None:
        """Raises a ValueError if there are files that are of other data, or damaged: they are not replaced."""
        for file in (self.path, self.previous):
            self._stored(file)

    def read(self, blank: TrainingRecord, epoch: int) -> TrainingRecord:
        """The record of the epochs before an epoch, for the examples of a record without epochs.

        Raises:
            ValueError: if no file holds it, or one is of other data, or damaged.
        """
        for file in (self.path, self.previous):
            stored = self._stored(file)
            if stored is not None and int(stored["span"].sum()) == epoch:
                return _filled(file, blank, stored)
        rule = f"hold the epochs before epoch {epoch}, where `fit` goes on: put the callback before BackupAndRestore"
        raise refusal("path", rule, f"path={str(self.path)!r}, which does not")

    def _stored(self, file: pathlib.Path) -> dict[str, np.ndarray] | None:
        """The arrays of a file, None if there is none."""
        if not file.exists():
            return None
        stored = read_arrays("path", file, ("checksum", "span", *SUMS, *HISTORIES))
        rule = "be a file of its own for other examples, labels or classes"
        refuse_if(str(stored["checksum"]) != self.checksum, "path", rule, f"path={str(file)!r}, which is of others")
        _check_array(file, "span", stored["span"], (2,), "i")
        return stored


def _filled(file: pathlib.Path, blank: TrainingRecord, stored: dict[str, Any]) -> TrainingRecord:
    """The record with the arrays of a file, if they have the shapes and types that were written."""
    first, epochs = map(int, stored["span"])
    _check_array(file, "changes", stored["changes"], (max(epochs - 1, 0),), "i")
    blank.changes = stored["changes"].tolist()
    _check_array(file, "epoch_losses", stored["epoch_losses"], (epochs,), "f")
    blank.epoch_losses = stored["epoch_losses"].tolist()
    for name in SUMS[:-2]:
        own = getattr(blank, name)
        _check_array(file, name, stored[name], own.shape, own.dtype.kind)
        setattr(blank, name, stored[name].astype(own.dtype))
    for name in HISTORIES:
        shape = (epochs, len(blank.labels)) if blank.keeps_history else (0,)
        _check_array(file, name, stored[name], shape, "f")
        setattr(blank, name, list(stored[name].astype("float16")))
    blank.first, blank.epochs = first, epochs
    return blank


def _check_array(file: pathlib.Path, name: str, array: np.ndarray, shape: tuple[int, ...], kind: str) -> None:
    if array.shape != shape or array.dtype.kind != kind:
        rule = f"have `{name}` as it was written with the same `history`: shape {shape}, kind {kind!r}"
        raise refusal("path", rule, f"path={str(file)!r} with shape {array.shape}, {array.dtype}")
