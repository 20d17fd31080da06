"""Images of a folder with a folder for each class, and batches that depend only on the seed, the epoch and the step."""

import csv
import math
import pathlib
from typing import NamedTuple

import keras
import numpy as np

AREA, ASPECT, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10  # limits of an Inception crop
ORDER, CROP = 0, 1  # streams of random numbers


class Images(NamedTuple):
    """Paths of images, their classes (a tuple of indices each), and the names of all classes."""

    paths: list
    classes: list
    names: list


def read(data):
    """Returns the images for training and for validation, from the folders `train` and `validation`."""
    names = sorted(path.name for path in (pathlib.Path(data) / "train").iterdir() if path.is_dir())
    return [read_part(pathlib.Path(data) / part, names) for part in ("train", "validation")]


def read_part(folder, names):
    """Returns the images in `folder/CLASS/`, in the order of their names.

    An image has the class of its folder. If there is a `labels.csv`, the image has the classes listed there: lines of a
    path and of class names, divided by blanks.
    """
    if (folder / "labels.csv").exists():
        with (folder / "labels.csv").open(newline="") as file:
            rows = sorted((folder / path, labels.split()) for path, labels in csv.reader(file))
    else:
        rows = [(path, [path.parent.name]) for path in sorted(folder.glob("*/*"))]
    numbers = {name: number for number, name in enumerate(names)}
    return Images([path for path, _ in rows], [[numbers[label] for label in labels] for _, labels in rows], names)


class Batches(keras.utils.PyDataset):
    """Images, `(B, size, size, 3)` in [-1, 1], and their classes as ones of `(B, K)`.

    With (seed, epoch) they are for training: these two set the order, and with the step the crops. The examples that do
    not fill a batch are left out. Without, they are the middles of all images, in order.
    """

    def __init__(self, images, config, key=None, workers=1):
        super().__init__(workers=workers, max_queue_size=2 * workers)
        self.images, self.config, self.key = images, config, key
        count = len(images.paths)
        self.order = np.random.default_rng([ORDER, *key]).permutation(count) if key else np.arange(count)

    def __len__(self):
        batches = len(self.order) / self.config.batch
        return math.floor(batches) if self.key else math.ceil(batches)

    def __getitem__(self, step):
        rows = self.order[step * self.config.batch :][: self.config.batch]
        y = np.zeros((len(rows), len(self.images.names)), "float32")
        for target, row in zip(y, rows, strict=True):
            target[self.images.classes[row]] = 1.0
        rng = np.random.default_rng([CROP, *self.key, step]) if self.key else None
        return np.stack([pixels(self.images.paths[row], self.config, rng) for row in rows]), y


def pixels(path, config, rng):
    """Returns a random part of an image, flipped half of the time, or its middle without random numbers."""
    image = keras.utils.load_img(path)
    box = crop_box(*image.size, rng) if rng else middle_box(*image.size, 7 / 8)
    part = image.resize((config.size, config.size), config.interpolation, box=tuple(map(float, box)))
    x = np.asarray(part, "float32") / 127.5 - 1.0
    return x[:, ::-1] if rng and rng.random() < 0.5 else x


def crop_box(width, height, rng):
    """Returns left, upper, right and lower edge of an Inception crop, or the middle square if ten tries fail.

    Source: Szegedy et al., CVPR 2015, "Going deeper with convolutions", section 6.
    """
    for _ in range(TRIES):
        area, aspect = width * height * rng.uniform(*AREA), np.exp(rng.uniform(*np.log(ASPECT)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = rng.integers(width - w + 1), rng.integers(height - h + 1)
            return left, top, left + w, top + h
    return middle_box(width, height, 1.0)


def middle_box(width, height, share):
    """Returns the edges of the middle square, whose side is a fraction of the shorter side."""
    side = share * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def generate(folder, classes=3, train=40, validation=15, side=20):
    """Writes a folder of small random images, coloured by class, unless it exists, and returns the folder."""
    rng = np.random.default_rng(0)
    for part, count in {"train": train, "validation": validation}.items():
        for i in range(count):
            x = rng.integers(0, 128, size=(side, side + i % 5, 3))
            x[..., i % classes] += 96
            place = folder / part / f"class_{i % classes}"
            place.mkdir(parents=True, exist_ok=True)
            keras.utils.save_img(place / f"{i:03}.png", x, scale=False)
    return folder
