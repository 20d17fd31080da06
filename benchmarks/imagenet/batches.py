"""Batches of images that depend only on the seed and the number of the step."""

import collections
import concurrent.futures
import math

import keras
import numpy as np

AREA, ASPECT, TRIES = (0.08, 1.0), (3 / 4, 4 / 3), 10  # limits of an Inception crop
ORDER, CROP = 0, 1  # streams of random numbers


class Training(keras.utils.PyDataset):
    """Batches of an epoch from `first` on, shuffled by (seed, epoch), cropped and flipped by (seed, step).

    The examples that do not fill a batch are left out; those are others in every epoch.
    """

    def __init__(self, source, config, seed, epoch, first=0, workers=1):
        super().__init__(workers=workers, max_queue_size=2 * workers)
        self.source, self.config, self.seed, self.epoch, self.first = source, config, seed, epoch, first
        self.order = np.random.default_rng([seed, ORDER, epoch]).permutation(len(source))

    def __len__(self):
        return steps_of(self.source, self.config) - self.first

    def __getitem__(self, index):
        number = self.first + index
        rng = np.random.default_rng([self.seed, CROP, self.epoch * steps_of(self.source, self.config) + number])
        rows = self.order[number * self.config.batch :][: self.config.batch]
        examples = [self.source.example(row) for row in rows]
        return stacked([(random_crop(image, rng, self.config), y) for image, y in examples], self.source, self.config)


class InOrder(keras.utils.PyDataset):
    """All examples, in order, the middle of each image. The last batch may be smaller."""

    def __init__(self, source, config):
        super().__init__()
        self.source, self.config = source, config

    def __len__(self):
        return math.ceil(len(self.source) / self.config.batch)

    def __getitem__(self, index):
        rows = range(len(self.source))[index * self.config.batch :][: self.config.batch]
        examples = [self.source.example(row) for row in rows]
        return stacked([(central_crop(image, self.config), y) for image, y in examples], self.source, self.config)


def steps_of(source, config):
    """Returns the number of whole batches in an epoch."""
    return len(source) // config.batch


def prefetched(batches, workers):
    """Yields the batches in order, while several threads read ahead."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        ahead = collections.deque(pool.submit(batches.__getitem__, i) for i in range(min(workers + 1, len(batches))))
        for i in range(len(batches)):
            if i + workers + 1 < len(batches):
                ahead.append(pool.submit(batches.__getitem__, i + workers + 1))
            yield ahead.popleft().result()


def stacked(examples, source, config):
    """Returns images, `(B, size, size, 3)`, and labels, `(B,)`, or targets of sigmoids, `(B, K)`."""
    images = np.stack([image for image, _ in examples])
    if config.link == "softmax":
        return images, np.array([labels[0] for _, labels in examples], "int32")
    targets = np.zeros((len(examples), source.classes), "float32")
    for row, (_, labels) in enumerate(examples):
        targets[row, list(labels)] = 1.0
    return images, targets


def random_crop(image, rng, config):
    """Returns a part of random area and shape, resized, and flipped half of the time."""
    pixels = resized(image, crop_box(*image.size, rng), config)
    return pixels[:, ::-1] if rng.random() < 0.5 else pixels


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


def central_crop(image, config):
    """Returns the middle square, seven eighths of the shorter side, resized."""
    return resized(image, middle_box(*image.size, 7 / 8), config)


def middle_box(width, height, share):
    """Returns the edges of the middle square, whose side is a fraction of the shorter side."""
    side = share * min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def resized(image, box, config):
    """Returns a part of the image as an array of `(size, size, 3)` in [-1, 1]."""
    from PIL import Image

    method = Image.Resampling.BICUBIC if config.bicubic else Image.Resampling.BILINEAR
    part = image.resize((config.size, config.size), method, box=tuple(map(float, box)))
    return np.asarray(part, "float32") / 127.5 - 1.0
