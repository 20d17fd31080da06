"""Features of a trained model, batch by batch: in memory, or in a file from which a later call goes on."""

import contextlib
import math
import operator
import pathlib
import secrets
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

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
        path: file for the features, which are then a memory map of it, without the name of the call and the suffix;
            None keeps them in memory.
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
    """A batch in a file of features, and its line in the list beside it.

    Attributes:
        inputs: checksum of the model and of what it takes.
        examples: number of rows.
        width: length of a row.
        rows: checksum of the features.
    """

    inputs: str
    examples: int
    width: int
    rows: str

    def line(self) -> str:
        """Its line."""
        return f"{self.inputs} {self.examples} {self.width} {self.rows}\n"


class _Store:
    """Features in memory.

    Args:
        model: the trained model.
    """

    def __init__(self, model: keras.Model):
        self.part, self.preprocess = networks.below_head(model)
        self.parts: list[np.ndarray] = []

    def __enter__(self) -> "_Store":
        return self

    def __exit__(self, *error: Any) -> None:
        if isinstance(error[1], KeyboardInterrupt):
            error[1].add_note(self.kept())

    def kept(self) -> str:
        """What a Ctrl-C leaves, in a sentence."""
        return "No features are kept. With a folder `resume_path` the same call computes those that are missing."

    def predict(self, inputs: Any) -> np.ndarray:
        """The features of a batch that is preprocessed, `(B, D)`, float32."""
        return keras.ops.convert_to_numpy(self.part.predict_on_batch(inputs)).astype("float32")

    def add(self, inputs: Any) -> int:
        """Takes the features of the next examples; returns how many these are."""
        self.parts.append(self.predict(self.preprocess(inputs)))
        return len(self.parts[-1])

    def found(self) -> np.ndarray:
        """The features of all examples, `(N, D)`, float32, before the store is closed."""
        return np.concatenate(self.parts)


class _FileStore(_Store):
    """Features in a file of float32, and beside it a list of the batches with checksums.

    Features of batches that an earlier call had are taken from its file. The first of these are computed all the same:
    what a model does is not all in its config and weights. Files have a name of their own for each call, so that none
    changes under a memory map; in the end those are deleted that have no other batches.

    Args:
        model: the trained model.
        path: the files, without the name of the call and the suffix.
    """

    def __init__(self, model: keras.Model, path: pathlib.Path):
        super().__init__(model)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path.with_name(f"{path.name}-{secrets.token_hex(4)}.float32")
        self.model = _checksum(lambda: networks.described_graph(self.part))
        self.before = {file: _read_list(file) for file in path.parent.glob(f"{path.name}-????????.float32")}
        self.known = {batch.inputs: place for file in self.before for batch, place in self._places(file)}
        self.is_tried, self.done = False, dict[str, _Batch]()
        self.count = 0

    def _places(self, file: pathlib.Path) -> Iterator[tuple[_Batch, tuple[pathlib.Path, int, _Batch]]]:
        """The batches of a file with their first bytes."""
        start = 0
        for batch in self.before[file]:
            yield batch, (file, start, batch)
            start += 4 * batch.examples * batch.width

    def __enter__(self) -> "_FileStore":
        self.features, self.list = self.path.open("x+b"), _list(self.path).open("x", encoding="ascii")
        return self

    def __exit__(self, *error: Any) -> None:
        self.features.close()
        self.list.close()
        for file, own in self.before.items():
            if all(batch.inputs in self.done for batch in own):
                with contextlib.suppress(PermissionError):  # Windows keeps what is still a memory map
                    _list(file).unlink(missing_ok=True)
                    file.unlink(missing_ok=True)
        super().__exit__(*error)

    def kept(self) -> str:
        others = sum(batch.examples for _, _, batch in self.known.values() if batch.inputs not in self.done)
        rest = "the same call computes those of the others"
        return f"The features of {self.count + others} examples are kept in {self.path.parent}: {rest}."

    def add(self, inputs: Any) -> int:
        inputs = self.preprocess(inputs)
        checksum = _checksum(lambda: {"model": self.model, "inputs": inputs})
        rows = self._stored(checksum)
        if rows is None or not self.is_tried:
            computed = self.predict(inputs)
            if rows is not None and not _are_near(rows, computed):
                self.known.clear()
            self.is_tried |= rows is not None
            rows = computed if rows is None or not self.known else rows
        batch = _Batch(checksum, len(rows), rows.shape[1], _checksum_of_rows(rows))
        self.features.write(np.ascontiguousarray(rows).data)
        self.features.flush()  # first, so that no line is of rows that are not there
        self.list.write(batch.line())
        self.list.flush()
        self.done[checksum], self.count = batch, self.count + len(rows)
        return len(rows)

    def _stored(self, checksum: str) -> np.ndarray | None:
        """The features of a batch of an earlier call, `(B, D)`; None if there are none, or damaged ones."""
        if checksum not in self.known:
            return None
        file, start, batch = self.known[checksum]
        shape = batch.examples, batch.width
        try:
            rows = np.fromfile(file, "<f4", math.prod(shape), offset=start).reshape(shape)
        except (OSError, ValueError):
            return None
        return rows if _checksum_of_rows(rows) == batch.rows else None

    def found(self) -> np.ndarray:
        (width,) = {batch.width for batch in self.done.values()}
        return np.memmap(self.features, "<f4", "r", shape=(self.count, width))


def _store(model: keras.Model, path: pathlib.Path | None) -> _Store:
    return _Store(model) if path is None else _FileStore(model, path)


def _list(path: pathlib.Path) -> pathlib.Path:
    """The list of the batches of a file of features."""
    return path.with_suffix(".txt")


def _read_list(path: pathlib.Path) -> list[_Batch]:
    """The batches of a file of features, as far as their list is whole."""
    found: list[_Batch] = []
    with contextlib.suppress(OSError, ValueError, TypeError):
        for line in _list(path).read_text("ascii").splitlines(keepends=True):
            inputs, count, width, rows = line.split()
            batch = _Batch(inputs, int(count), int(width), rows)
            if batch.line() != line or min(batch.examples, batch.width) < 1:
                break
            found.append(batch)
    return found


def _are_near(stored: np.ndarray, computed: np.ndarray) -> bool:
    """Whether features are the same but for the rounding of another device."""
    return stored.shape == computed.shape and np.allclose(stored, computed, rtol=0.0, atol=0.01 * np.abs(stored).max())


def _checksum(make: Callable[[], Any]) -> str:
    """The checksum of what a function returns; one that nothing else has if there is none."""
    try:
        return fingerprint({"of": make()})
    except Exception:  # of a user's layer, which may have no config, or of inputs that are no arrays
        return secrets.token_hex(32)


def _checksum_of_rows(rows: np.ndarray) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(rows).data):08x}"
