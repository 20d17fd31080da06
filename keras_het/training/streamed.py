"""Features of a trained model, batch by batch: in memory, or in a file from which a later call goes on."""

import contextlib
import operator
import pathlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, TextIO

import keras
import numpy as np

from keras_het.base.batches import Arrays, as_arrays, batches, count_examples, triples
from keras_het.base.fingerprint import fingerprint
from keras_het.base.progress import Progress
from keras_het.training import networks


def streamed(model: keras.Model, x: Any, y: Any, name: str, path: pathlib.Path | None, verbose: int) -> Arrays:
    """Features, labels and weights of a data set, which is read once.

    Args:
        model: the trained model.
        x: the data set.
        y: None: the labels are those of the data set.
        name: name of the argument, for errors.
        path: `.npy` file for the features, which are then a memory map of it; None keeps them in memory.
        verbose: 1 for a bar where it takes more than ten seconds.
    Raises:
        ValueError: as `as_arrays`.
    """
    with _store(model, path) as store:
        found = as_arrays(_rows_of_nothing(store, x, verbose), y, name)
    return found._replace(x=store.found())


def _rows_of_nothing(store: "_Store", x: Any, verbose: int) -> Iterator[tuple[np.ndarray, Any, Any]]:
    """Labels and weights of a data set, batch by batch, whose features go into a store."""
    bar = Progress(operator.length_hint(x), "batch", verbose)
    for inputs, labels, weights in triples(x, 1):
        yield np.empty((store.add(inputs), 0), "float32"), labels, weights
        bar.add()


def features(model: keras.Model, x: Any, batch_size: int, path: pathlib.Path | None, verbose: int) -> np.ndarray:
    """The features of a trained model, `(N, D)`: the inputs of its head, or its outputs if it has none.

    Args:
        model: the trained model.
        x: examples, arrays.
        batch_size: size of the batches.
        path: argument of `streamed`.
        verbose: argument of `streamed`.
    """
    bar = Progress(-(-count_examples(x) // batch_size), "batch", verbose)
    with _store(model, path) as store, bar:
        for inputs, _ in batches(x, batch_size):
            store.add(inputs)
            bar.add()
    return store.found()


class _Batch(NamedTuple):
    """A batch in a file of features.

    Attributes:
        checksum: checksum of its examples, and of the model.
        stop: row behind its last one.
    """

    checksum: str
    stop: int


class _Store:
    """Features in memory.

    Args:
        model: the trained model.
    """

    def __init__(self, model: keras.Model):
        self.predict = networks.features_by_batch(model)
        self.parts: list[np.ndarray] = []

    def __enter__(self) -> "_Store":
        return self

    def __exit__(self, *error: Any) -> None:
        if isinstance(error[1], KeyboardInterrupt):
            error[1].add_note(self.kept())

    def kept(self) -> str:
        """What a Ctrl-C leaves, in a sentence."""
        return "No features are kept. With a folder `resume_path` the same call goes on from those of whole batches."

    def add(self, inputs: Any) -> int:
        """Takes the features of the next examples; returns how many these are."""
        self.parts.append(self.predict(inputs))
        return len(self.parts[-1])

    def found(self) -> np.ndarray:
        """The features of all examples."""
        return np.concatenate(self.parts)


class _FileStore(_Store):
    """Features in a `.npy` file, and beside it a file of lines with the checksum of each batch.

    As long as the batches are those of the files, their features are taken from there.

    Args:
        model: the trained model.
        path: the file of features.
    """

    def __init__(self, model: keras.Model, path: pathlib.Path):
        super().__init__(model)
        self.path = path
        self.model = fingerprint({"layers": networks.described_layers(model), "weights": model.get_weights()})
        self.before, self.stored = self._read()
        self.done: list[_Batch] = []
        self.files: tuple[BinaryIO, TextIO] | None = None  # once a batch is another one than before

    def _read(self) -> tuple[list[_Batch], Any]:
        """The batches and the features of an earlier call; none if there is none, or half of one."""
        try:
            stored = np.load(self.path, mmap_mode="r")
            words = (line.split() for line in _checksums(self.path).read_text().splitlines())
            found = [_Batch(checksum, int(stop)) for checksum, stop in words]
        except (OSError, ValueError, EOFError):
            return [], None
        return [batch for batch in found if batch.stop <= len(stored)], stored

    def __exit__(self, *error: Any) -> None:
        for file in self.files or ():
            file.close()
        super().__exit__(*error)

    def kept(self) -> str:
        return f"The features of {self._count()} examples are kept in {self.path}: the same call goes on from there."

    def _count(self) -> int:
        return self.done[-1].stop if self.done else 0

    def add(self, inputs: Any) -> int:
        number, checksum = len(self.done), fingerprint({"model": self.model, "inputs": inputs})
        start = self._count()
        if self.files is None and number < len(self.before) and self.before[number].checksum == checksum:
            self.done.append(self.before[number])
        else:
            self._write(checksum, self.predict(inputs))
        return self._count() - start

    def _write(self, checksum: str, rows: np.ndarray) -> None:
        """Appends a batch to the files, which then are new ones, with what was as before."""
        if self.files is None:
            same, self.done = self.done, []
            _checksums(self.path).unlink(missing_ok=True)
            self.path = _unused(self.path)
            self.files = self.path.open("wb"), _checksums(self.path).open("w")
            for batch in same:
                self._append(batch.checksum, self.stored[self._count() : batch.stop])
        self._append(checksum, rows)

    def _append(self, checksum: str, rows: np.ndarray) -> None:
        features, lines = self.files  # type: ignore[misc]
        stop = self._count() + len(rows)
        _write_header(features, stop, rows.shape[1])
        features.write(np.ascontiguousarray(rows).data)
        features.flush()  # first, so that no checksum is of rows that are not there
        lines.write(f"{checksum} {stop}\n")
        lines.flush()
        self.done.append(_Batch(checksum, stop))

    def found(self) -> np.ndarray:
        stored = self.stored if self.files is None else np.load(self.path, mmap_mode="r")
        return stored[: self._count()]


def _store(model: keras.Model, path: pathlib.Path | None) -> _Store:
    return _Store(model) if path is None else _FileStore(model, path)


def _checksums(path: pathlib.Path) -> pathlib.Path:
    """The file of checksums of a file of features."""
    return path.with_suffix(".checksums")


def _unused(path: pathlib.Path) -> pathlib.Path:
    """The path, without a file, or one with a number: Windows keeps what is still a memory map of somebody."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for own in [path, *(path.with_stem(f"{path.stem}_{number}") for number in range(2, 100))]:
        with contextlib.suppress(PermissionError):
            own.unlink(missing_ok=True)
            return own
    path.unlink()  # which raises the error
    return path


def _write_header(file: BinaryIO, rows: int, width: int) -> None:
    """Writes the header at the beginning; NumPy leaves room in it for any number of rows."""
    file.seek(0)
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
    file.seek(0, 2)
