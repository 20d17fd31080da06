"""BU-BIL 4: masks of cells under a microscope by seven people, ways to combine them, and models trained on them.

61 images in five folds; the truth comes from experts. All rows train one small network for equal numbers of steps.
Nothing is chosen except the threshold, by the majority.
"""

import functools
import time

import keras
import numpy as np

from benchmarks.real import data

FOLDS, STEPS, IMAGES, DRAWN = 5, 300, 8, 16
ONE, VOTE, SHARES, ALL, TRUE = "one person's", "majority", "shares of the seven", "all seven", "true masks"
ROWS = {  # row: what the network is trained on, and its head
    "the seven people themselves": (ALL, "people"),
    "threshold, majority": (VOTE, "threshold"),
    "each pixel by itself, one person's": (ONE, "Dense"),
    "each pixel by itself, majority": (VOTE, "Dense"),
    "each pixel by itself, shares of the seven": (SHARES, "Dense"),
    "HeteroscedasticDense, all seven": (ALL, "HeteroscedasticDense"),
    "StochasticSegmentation, all seven": (ALL, "StochasticSegmentation"),
    "each pixel by itself, true masks": (TRUE, "Dense"),
}
COLUMNS = ("IoU", "IoU with the majority", "NLL", "GED", "diversity")


def random_batch(dataset, rows, trained_on, count, rng):
    """Returns training images, turned and mirrored at random, with masks of a person, the majority, or fractions."""
    rows, people = rng.choice(rows, count), rng.integers(dataset.masks.shape[1], size=count)
    if trained_on == ONE:
        people = rows % dataset.masks.shape[1]
    masks = {
        VOTE: lambda: dataset.masks[rows].mean(axis=1) > 0.5,
        SHARES: lambda: dataset.masks[rows].mean(axis=1),
        TRUE: lambda: dataset.truth[rows],
    }.get(trained_on, lambda: dataset.masks[rows, people])()
    turns, mirrors = rng.integers(4, size=count), rng.integers(2, size=count)
    both = np.stack([scaled(dataset.images[rows]), masks.astype("float32")], axis=-1)
    both = np.stack([np.rot90(each, k)[:, :: 1 - 2 * m] for each, k, m in zip(both, turns, mirrors, strict=True)])
    return both[..., :1], both[..., 1]


def scaled(images):
    """Returns images, each with median 0 and mean square 1."""
    x = images.astype("float32") - np.median(images, axis=(1, 2), keepdims=True).astype("float32")
    return x / np.sqrt(np.mean(x**2, axis=(1, 2), keepdims=True))


def segmenter(kind, seed):
    """Returns a network of a few convolutions at two scales, and its head."""
    from keras_het.integrators import QuasiMonteCarlo
    from keras_het.layers import HeteroscedasticDense, StochasticSegmentation
    from keras_het.losses import JointSegmentationCrossentropy
    from keras_het.models import DistributionModel

    keras.utils.set_random_seed(seed)
    conv = functools.partial(keras.layers.Conv2D, kernel_size=3, padding="same", activation="relu")
    inputs = keras.Input((None, None, 1))
    fine = conv(8)(inputs)
    coarse = conv(24)(keras.layers.MaxPooling2D()(fine))
    for dilation in (2, 4):
        coarse = conv(24, dilation_rate=dilation)(coarse)
    outputs = conv(8)(keras.layers.Concatenate()([fine, keras.layers.UpSampling2D()(conv(8)(coarse))]))
    if kind == "StochasticSegmentation":
        head = StochasticSegmentation(2, num_factors=5, seed=seed)
        model, loss = DistributionModel(inputs, head(outputs)), JointSegmentationCrossentropy(2)
    elif kind == "HeteroscedasticDense":
        head = HeteroscedasticDense(2, 1, temperature=1.0, integrator=QuasiMonteCarlo(20), seed=seed)
        model, loss = keras.Model(inputs, head(outputs)), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    else:
        model = keras.Model(inputs, keras.layers.Dense(1)(outputs)[..., 0])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(3e-3), loss)
    return model


def probabilities(model, x):
    """Returns p(cell) of each pixel, `(N, H, W)`."""
    outputs = np.asarray(model.predict(x, verbose=0), "float64")
    if outputs.ndim == 3:
        return 1.0 / (1.0 + np.exp(-outputs))
    return outputs[..., 1] if hasattr(model, "head") else np.exp(outputs[..., 1])


def measured(options, seed, row):
    """Returns the line of a row. Every image is a test image once."""
    start, dataset = time.process_time(), data.cells(options.data)
    fold = np.random.default_rng([seed, 7]).permutation(len(dataset.images)) % FOLDS
    p, samples = np.zeros(dataset.truth.shape), np.zeros((DRAWN, *dataset.truth.shape), int)
    for place in range(options.folds):
        test = np.flatnonzero(fold == place)
        p[test], samples[:, test] = fitted(dataset, np.flatnonzero(fold != place), test, row, seed, options.steps)
    keras.utils.clear_session(free_memory=False)
    yield {**map_scores(p, samples, dataset, fold < options.folds), "processor": time.process_time() - start}


def fitted(dataset, train, test, row, seed, steps):
    """Returns probabilities and sampled masks of the test images."""
    from keras_het.explain import sample_segmentations

    trained_on, kind = ROWS[row]
    rng, x = np.random.default_rng([seed, 8]), scaled(dataset.images[test])[..., None]
    if kind == "people":
        return dataset.masks[test].mean(axis=1), dataset.masks[test][:, rng.integers(7, size=DRAWN)].swapaxes(0, 1)
    if kind == "threshold":
        p = threshold_masks(dataset, train, test)
        return p, np.repeat(p[None] > 0.5, DRAWN, axis=0)
    model = segmenter(kind, seed)
    x_train, masks = random_batch(dataset, train, trained_on, steps * IMAGES, rng)
    model.fit(x_train, masks if kind == "Dense" else masks.astype("int32"), batch_size=IMAGES, verbose=0)
    p = probabilities(model, x)
    if kind == "StochasticSegmentation":
        return p, sample_segmentations(model, x, DRAWN, seed)
    return p, rng.random((DRAWN, *p.shape)) < p


def threshold_masks(dataset, train, test):
    """Returns pixels of a smoothed image farther from its median than the threshold with the best majority IoU."""
    from scipy.ndimage import uniform_filter

    far = np.abs([uniform_filter(each, 5) for each in scaled(dataset.images)])
    vote = dataset.masks[train].mean(axis=1) > 0.5
    best = max(np.arange(0.2, 2.0, 0.1), key=lambda least: overlap(far[train] > least, vote).mean())
    return np.where(far[test] > best, 0.99, 0.01)


def overlap(predicted, truth):
    """Returns IoU of masks, `(N,)`."""
    return np.sum(predicted & truth, axis=(1, 2)) / np.maximum(np.sum(predicted | truth, axis=(1, 2)), 1)


def map_scores(p, samples, dataset, rows):
    """Returns IoU with true masks and with the majority, NLL, and how close samples are to people's masks."""
    from keras_het.explain import segmentation_scores

    truth, masks = dataset.truth[rows] > 0, dataset.masks[rows]
    likelihood = np.where(truth, p[rows], 1.0 - p[rows]).clip(1e-6)
    near = segmentation_scores(samples[:, rows].astype(int), masks.swapaxes(0, 1).astype(int))
    return {
        "IoU": float(overlap(p[rows] > 0.5, truth).mean()),
        "IoU with the majority": float(overlap(p[rows] > 0.5, masks.mean(axis=1) > 0.5).mean()),
        "NLL": float(-np.log(likelihood).mean()),
        "GED": float(near.energy_distance),
        "diversity": float(near.diversity),
    }
