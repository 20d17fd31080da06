"""Samples of label maps from a segmentation model, and their distance to the label maps of annotators."""

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from keras_het.base.refusal import refusal, refuse_first, refuse_if
from keras_het.base.validation import check_integer
from keras_het.layers import JointHeteroscedasticDense


@dataclasses.dataclass(frozen=True)
class SegmentationScores:
    """Scores of sampled label maps, means over the images; d = 1 - IoU, and 0 if both maps lack the class.

    Attributes:
        energy_distance: GED^2 = 2 E d(x, y) - E d(x, x') - E d(y, y'), at least 0; x and x' are samples, y and y'
            references, and E is the mean over all pairs, which include each map with itself.
        diversity: E d(x, x'), in [0, 1 - 1/S] for S samples.
        matched_iou: mean IoU after the best matching of samples and references, repeated to equal numbers.
        num_samples: number of samples of each image, on which all scores depend.
        num_references: number of references of each image.
    """

    energy_distance: float
    diversity: float
    matched_iou: float
    num_samples: int
    num_references: int


def sample_segmentations(model: Any, x: Any, num_samples: int, seed: int = 0, batch_size: int = 32) -> np.ndarray:
    """Draws label maps from a model: the largest logit of each pixel, with noise that the pixels of an image share.

    Args:
        model: a `models.DistributionModel` that ends in a `layers.StochasticSegmentation`.
        x: images, as for `predict`.
        num_samples: S, the number of maps of each image.
        seed: seed of the noise, in [0, 2^31).
        batch_size: batch size of the predictions.
    Returns:
        integer classes, `(S, N, ...)`, for example `(S, N, H, W)`.
    Raises:
        ValueError: for another model, or arguments outside these ranges.
    Source: Monteiro et al. 2020, section 3.

    Example:
        >>> import keras
        >>> from keras_het.layers import StochasticSegmentation
        >>> from keras_het.models import DistributionModel
        >>> inputs = keras.Input((8, 8, 3))
        >>> model = DistributionModel(inputs, StochasticSegmentation(2)(inputs))
        >>> sample_segmentations(model, np.zeros((5, 8, 8, 3)), num_samples=4).shape
        (4, 5, 8, 8)
    """
    num_samples = check_integer("num_samples", num_samples, 1, 1 << 20)
    rng = np.random.default_rng(check_integer("seed", seed, 0, (1 << 31) - 1))
    head = getattr(model, "head", None)
    if not isinstance(head, JointHeteroscedasticDense) or head.link.activation != "softmax":
        raise refusal("model", "be a DistributionModel of a StochasticSegmentation", kind=model)
    units = head.units
    packed = model.predict_distribution(x, batch_size=check_integer("batch_size", batch_size, 1), verbose=0)
    loc, scale = packed[..., :units], packed[..., units : 2 * units]
    factor = packed[..., 2 * units : -1].reshape(*loc.shape, -1)
    samples = np.empty((num_samples, *loc.shape[:-1]), "int32")
    for sample in samples:  # one by one: the logits of all samples would take S times the memory
        noise = rng.normal(size=(len(loc), factor.shape[-1])).astype(loc.dtype)
        pixel_noise = scale * rng.normal(size=loc.shape).astype(loc.dtype)
        sample[:] = np.argmax(loc + pixel_noise + np.einsum("n...r,nr->n...", factor, noise), axis=-1)
    return samples


def segmentation_scores(samples: Any, references: Any, num_classes: int = 2) -> SegmentationScores:
    """Computes the distance between the distributions of sampled label maps and of the annotators' label maps.

    Args:
        samples: sampled label maps, integers `(S, N, ...)`.
        references: the annotators' label maps of the same images, `(M, N, ...)`.
        num_classes: C; d is the mean over the classes 1 to C - 1, because class 0 is the background.
    Returns:
        `SegmentationScores`.
    Raises:
        ValueError: for label maps of different shapes, with a label that is no class, or without a map, an image or a
            pixel.
    Source: Kohl et al. 2018 (energy distance) and 2019 (matched IoU).

    Example:
        >>> on, off = np.ones((1, 1, 4), int), np.zeros((1, 1, 4), int)
        >>> segmentation_scores(np.concatenate([on, off]), np.concatenate([off, on])).energy_distance
        0.0
    """
    samples, references = np.asarray(samples), np.asarray(references)
    classes = range(check_integer("num_classes", num_classes, 2, 1 << 20))
    for name, maps in (("samples", samples), ("references", references)):
        rule = "be maps of shape (S, N, ...): at least one map of one image"
        refuse_if(maps.ndim < 2 or not maps.size, name, rule, shape=maps)
        rule = f"be integers in [0, {num_classes}), or pass `num_classes`"
        refuse_first(~np.isin(maps, classes), name, rule, maps)
    if samples.shape[1:] != references.shape[1:]:
        rule = f"have the shape of `samples` after the first axis, {samples.shape[1:]}"
        raise refusal("references", rule, shape=references)
    count = math.lcm(len(samples), len(references))
    rows = []
    for image in range(samples.shape[1]):
        x, y = (maps[:, image].reshape(len(maps), -1) for maps in (samples, references))
        d_xy, d_xx, d_yy = (_distances(*pair, classes[1:]) for pair in ((x, y), (x, x), (y, y)))
        repeated = np.repeat(np.repeat(d_xy, count // len(x), axis=0), count // len(y), axis=1)
        matched = 1.0 - repeated[linear_sum_assignment(repeated)].mean()
        rows.append([2.0 * d_xy.mean() - d_xx.mean() - d_yy.mean(), d_xx.mean(), matched])
    energy, diversity, iou = (float(mean) for mean in np.mean(rows, axis=0))
    return SegmentationScores(energy, diversity, iou, len(samples), len(references))


def _distances(first: np.ndarray, second: np.ndarray, classes: Any) -> np.ndarray:
    """Computes 1 - IoU of every pair of flat label maps, the mean over the classes, `(S, M)`."""
    total = np.zeros((len(first), len(second)))
    for label in classes:
        a, b = ((maps == label).astype("float64") for maps in (first, second))
        common = a @ b.T
        union = a.sum(1)[:, None] + b.sum(1) - common
        total += np.where(union > 0, 1.0 - common / np.maximum(union, 1.0), 0.0)
    return total / len(classes)
