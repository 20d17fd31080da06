"""Images and their classes, by index: a folder with a folder for each class, or a data set of TFDS.

A source has `classes`, the number of classes, a length, and `example(i)`, which returns an image of PIL and a tuple of
classes. The order of its examples is fixed, so that a resumed training sees the same data.
"""

import csv
import pathlib

import numpy as np


class Folder:
    """Images in `folder/CLASS/`, in the order of their names.

    An image has the class of its folder. If the folder has a `labels.csv`, the image has the classes listed there:
    lines of a path and of class names, divided by blanks.
    """

    def __init__(self, folder, names=None):
        folder = pathlib.Path(folder)
        own = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
        if not own:
            raise ValueError(f"`folder` must have a folder for each class. Received: folder={str(folder)!r}")
        self.names = own if names is None else names
        if unknown := sorted(set(own) - set(self.names)):
            raise ValueError(f"`folder` must only have classes of the training data. Received: {unknown}")
        numbers, table = {name: k for k, name in enumerate(self.names)}, folder / "labels.csv"
        if table.exists():
            with table.open(newline="") as lines:
                rows = sorted((folder / path, tuple(labels.split())) for path, labels in csv.reader(lines))
        else:
            rows = [(path, (name,)) for name in own for path in sorted((folder / name).iterdir())]
        self.examples = [(path, tuple(numbers[label] for label in labels)) for path, labels in rows]

    @property
    def classes(self):
        """Number of classes."""
        return len(self.names)

    def __len__(self):
        return len(self.examples)

    def example(self, i):
        """Returns the image and its classes."""
        from PIL import Image

        path, labels = self.examples[i]
        with Image.open(path) as image:
            return image.convert("RGB"), labels


class Tfds:
    """Split of a data set of TFDS with random access to its records (the format array_record)."""

    def __init__(self, name, split):
        try:
            import tensorflow_datasets as tfds
        except ImportError as error:
            raise ImportError(
                "A data set of TFDS needs the package tensorflow-datasets: `pip install tensorflow-datasets "
                f"array_record`. Received: data='tfds:{name}'"
            ) from error
        self.records = tfds.data_source(name, split=split)
        self.classes = self.records.dataset_info.features["label"].num_classes

    def __len__(self):
        return len(self.records)

    def example(self, i):
        """Returns the image and its class."""
        from PIL import Image

        record = self.records[int(i)]
        pixels = np.asarray(record["image"])
        return Image.fromarray(pixels.squeeze()).convert("RGB"), (int(record["label"]),)


def sources(data):
    """Returns the sources of training and of validation.

    data: a folder with the folders `train` and `validation`, or `tfds:NAME`.
    """
    if data.startswith("tfds:"):
        return tuple(Tfds(data.removeprefix("tfds:"), split) for split in ("train", "validation"))
    train = Folder(pathlib.Path(data) / "train")
    return train, Folder(pathlib.Path(data) / "validation", train.names)


def generate(folder, classes=3, train=40, validation=15, side=20):
    """Writes a folder of small random images, coloured by class, unless it exists."""
    from PIL import Image

    folder = pathlib.Path(folder)
    if folder.exists():
        return
    rng, unfinished = np.random.default_rng(0), folder.with_name(f"{folder.name}.unfinished")
    for part, count in {"train": train, "validation": validation}.items():
        for i in range(count):
            place = unfinished / part / f"class_{i % classes}"
            place.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 128, size=(side, side + i % 5, 3))
            pixels[..., i % classes] += 96
            Image.fromarray(pixels.astype("uint8")).save(place / f"{i:03}.png")
    unfinished.rename(folder)
