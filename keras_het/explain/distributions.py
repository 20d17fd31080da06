"""Results of a `DistributionModel`: joint labels, sampled label maps, and scores of label maps and regressions."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops
from scipy.optimize import linear_sum_assignment
from scipy.special import expit, ndtr, ndtri

from keras_het.base.batches import as_numpy, check_same_index
from keras_het.base.refusal import refusal, refuse_first, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.tables import align_columns, number_of
from keras_het.base.tensor import Tensor
from keras_het.base.validation import check_integer, check_label_vectors, check_numbers
from keras_het.layers import JointHeteroscedasticDense
from keras_het.ops.joint import log_joint_labels
from keras_het.ops.nodes import Nodes, quasi_random
from keras_het.ops.normal import least_squares
from keras_het.ops.packed import packed_factors, unpack
from keras_het.ops.sigmoid import log_expected_sigmoid

BLOCK_ELEMENTS = 1 << 22  # logits that are held at once


@dataclasses.dataclass(frozen=True)
class JointLabels:
    """Joint distributions of the label vectors of N examples; see `joint_labels`.

    Attributes:
        probabilities: marginal probabilities of the labels, `(N, C)`.
        outputs: outputs of the head: the Gaussians of the logits, `(N, C (2 + R) + 1)`.
        num_samples: S, the number of nodes of an expectation over the factors.
    """

    probabilities: np.ndarray
    outputs: np.ndarray
    num_samples: int

    def log_prob(self, labels: Any) -> np.ndarray:
        """Computes the log-probability of a label vector for each example, `(N,)`.

        `labels` are `(N, C)`, or `(C,)` for all examples: 0, 1, or -1 to sum over a label.
        """
        y = self._broadcast(labels)
        return self._map_blocks(lambda normal, part: log_joint_labels(normal, part, self._nodes(normal)), y)

    def most_likely(self, candidates: Any) -> np.ndarray:
        """Returns the index of the most probable candidate for each example, `(N,)`.

        `candidates` are label vectors of zeros and ones, `(M, C)`; for example all in the data, `np.unique(y, axis=0)`.
        """
        vectors = np.asarray(as_numpy(candidates))
        has_shape = vectors.ndim == 2 and len(vectors) and vectors.shape[1] == self._units
        if not has_shape or not np.isin(vectors, (0, 1)).all():
            raise refusal("candidates", f"be 0 or 1, of shape (M, {self._units}), M > 0", shape=vectors)
        vectors = ops.convert_to_tensor(vectors, "float32")

        def best(normal: Any, _: np.ndarray) -> Tensor:
            log_p, log_q = _at_nodes(normal, self._nodes(normal))
            log_joint = ops.matmul(log_p, ops.transpose(vectors)) + ops.matmul(log_q, ops.transpose(1.0 - vectors))
            return ops.argmax(ops.logsumexp(log_joint, axis=-2), axis=-1)

        return self._map_blocks(best, self.probabilities, len(vectors))

    def conditional_probabilities(self, labels: Any) -> np.ndarray:
        """Computes the probability that each label is 1, given the other labels of the example, `(N, C)`.

            p(y_c = 1 | other labels) = E[w_c p(1 | e_R)] / E[w_c],     w_c = prod_{k != c} p(y_k | e_R)

        A label with a high marginal probability and a low conditional probability does not fit the labels beside it,
        and is probably an error. A missing label, -1, gets its probability from the known labels.
        """
        return self._map_blocks(lambda normal, y: _conditional(normal, y, self._nodes(normal)), self._broadcast(labels))

    def sample(self, num_samples: int = 1, seed: int = 0) -> np.ndarray:
        """Draws S = `num_samples` label vectors of each example from the joint distribution, `(S, N, C)`, int8."""
        rng, normal = random_generator(seed), unpack(ops.convert_to_tensor(self.outputs), self._units).normal
        draws = []
        loc, scale, factor = (ops.convert_to_numpy(x) for x in (normal.loc, normal.scale_diag, normal.scaled_factor()))
        for _ in range(check_integer("num_samples", num_samples, 1)):
            noise = rng.standard_normal((len(loc), factor.shape[-1])).astype("float32")
            u = loc + scale * rng.standard_normal(loc.shape) + np.einsum("ncr,nr->nc", factor, noise)
            draws.append(rng.random(loc.shape) < expit(u))
        return np.stack(draws).astype("int8")

    @property
    def _units(self) -> int:
        return self.probabilities.shape[1]

    def _broadcast(self, labels: Any) -> np.ndarray:
        y = check_label_vectors(labels, (self.probabilities.shape, (self._units,)))
        return np.broadcast_to(y, self.probabilities.shape)

    def _nodes(self, normal: Any) -> Nodes:
        factors = normal.size[1]
        return quasi_random((0, 0), self.num_samples if factors else 1, 0, factors, np)

    def _map_blocks(self, function: Any, labels: np.ndarray, width: int = 0) -> np.ndarray:
        """Applies a function of (Gaussian, labels) block by block; a node has max(C, `width`) numbers."""
        rows, parts = max(1, BLOCK_ELEMENTS // (self.num_samples * max(width, self._units))), []
        for start in range(0, len(labels), rows):
            part = slice(start, start + rows)
            normal = unpack(ops.convert_to_tensor(self.outputs[part]), self._units).normal
            parts.append(ops.convert_to_numpy(function(normal, labels[part])))
        return np.concatenate(parts)


def joint_labels(model: Any, x: Any, *, num_samples: int = 256, batch_size: int = 128) -> JointLabels:
    """Predicts the joint distributions of label vectors with a `layers.JointHeteroscedasticDense`.

        p(y | x) = E_{e_R}[ prod_c p(y_c | e_R, x) ]

    Marginal probabilities do not tell which labels occur together. Rounding each of them can give an improbable vector.

    Args:
        model: a `models.DistributionModel` that ends in the head, with a sigmoid link.
        x: argument of `predict`.
        num_samples: S, the number of nodes for the factors.
        batch_size: batch size of the predictions.
    Returns:
        `JointLabels`.
    Raises:
        ValueError: for another model.
    Source: Collier et al. 2021, section 2; Monteiro et al. 2020, section 3, for pixels.

    Example:
        >>> import keras
        >>> from keras_het.models import DistributionModel
        >>> inputs = keras.Input((4,))
        >>> model = DistributionModel(inputs, JointHeteroscedasticDense(3, num_factors=1)(inputs))
        >>> joint = joint_labels(model, np.zeros((5, 4)))
        >>> joint.log_prob([1, 0, 1]).shape, joint.sample(10).shape, joint.conditional_probabilities([1, 0, -1]).shape
        ((5,), (10, 5, 3), (5, 3))
    """
    head = getattr(model, "head", None)
    if not isinstance(head, JointHeteroscedasticDense) or head.link.activation != "sigmoid":
        raise refusal("model", "be a DistributionModel of a JointHeteroscedasticDense with a sigmoid link", kind=model)
    outputs = model.predict_distribution(x, batch_size=check_integer("batch_size", batch_size, 1), verbose=0)
    return JointLabels(
        ops.convert_to_numpy(head.predictions(ops.convert_to_tensor(outputs))),
        outputs,
        check_integer("num_samples", num_samples, 1, 1 << 20),
    )


def _conditional(normal: Any, labels: np.ndarray, nodes: Nodes) -> Tensor:
    log_p, log_q = _at_nodes(normal, nodes)
    y = ops.convert_to_tensor(labels)[..., None, :]
    log_label = ops.where(ops.equal(y, 1), log_p, ops.where(ops.equal(y, 0), log_q, 0.0))
    log_rest = ops.sum(log_label, axis=-1, keepdims=True) - log_label
    return ops.exp(ops.logsumexp(log_rest + log_p, axis=-2) - ops.logsumexp(log_rest, axis=-2))


def _at_nodes(normal: Any, nodes: Nodes) -> tuple[Tensor, Tensor]:
    """Computes the log-probabilities of the labels 1 and 0 at every node of the factors, `(B, S, C)`."""
    noise = ops.matmul(ops.convert_to_tensor(nodes.eps_factor), ops.swapaxes(normal.scaled_factor(), -1, -2))
    return log_expected_sigmoid(normal.loc[..., None, :] + noise, ops.square(normal.scale_diag)[..., None, :])


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


@dataclasses.dataclass(frozen=True)
class RegressionScores:
    """Scores of the predicted distributions of K targets, in the units of the targets; they print as a table.

    Attributes:
        nll: mean of -log p(y | x) over the examples, in nats, for all targets jointly.
        distance: mean of (y - mu)' Sigma^-1 (y - mu) / K: 1 if the covariances match the errors, more if they are too
            small.
        rmse: root mean square error of the predicted mean, `(K,)`.
        mae: mean absolute error of the predicted mean, `(K,)`.
        crps: continuous ranked probability score, `(K,)`; the absolute error if the standard deviation is 0.
        levels: L probabilities.
        coverage: fraction of the targets inside the central intervals of these probabilities, `(L, K)`.
        width: mean width of these intervals, `(L, K)`.
    """

    nll: float
    distance: float
    rmse: np.ndarray
    mae: np.ndarray
    crps: np.ndarray
    levels: tuple[float, ...]
    coverage: np.ndarray
    width: np.ndarray

    def __str__(self) -> str:
        names = [f"{part} {level:.0%}" for level in self.levels for part in ("inside", "width")]
        cells = [["target", "rmse", "mae", "crps", *names]]
        for index, errors in enumerate(zip(self.rmse, self.mae, self.crps, strict=True)):
            inside = (f"{part[index]:.3g}" for pair in zip(self.coverage, self.width, strict=True) for part in pair)
            cells.append([str(index), *(f"{error:.4g}" for error in errors), *inside])
        return "\n".join(
            [*align_columns(cells), f"nll {self.nll:.4g}, mean distance {self.distance:.3g} (calibrated: 1)"]
        )


def regression_scores(outputs: Any, targets: Any, levels: Sequence[float] = (0.5, 0.9, 0.95)) -> RegressionScores:
    """Computes the likelihood, the errors of the mean and the coverage of intervals of a `HeteroscedasticNormal` model.

        CRPS = integral of (F(t) - 1[y <= t])^2 dt = s (z (2 Phi(z) - 1) + 2 phi(z) - 1 / sqrt(pi)),  z = (y - mu) / s

    Read the likelihood together with the error of the mean: a large covariance can hide a poor mean.

    Args:
        outputs: outputs of `DistributionModel.predict_distribution`, `(N, K (2 + R) + 1)`.
        targets: `(N, K)`, or `(N,)` for a single target.
        levels: probabilities of the intervals, in (0, 1).
    Returns:
        `RegressionScores`.
    Raises:
        ValueError: for other shapes, numbers that are not finite, or no example.
    Source: Gneiting and Raftery, JASA 2007 (the score); its closed form for a Gaussian: Gneiting, Raftery, Westveld and
        Goldman, Monthly Weather Review 2005.

    Example:
        >>> outputs = [[0.0, 1.0, -1.0]] * 3  # one target with mu = 0 and d = 1
        >>> print(regression_scores(outputs, [-1.0, 0.0, 1.0], levels=[0.5]))
        target    rmse     mae    crps  inside 50%  width 50%
             0  0.8165  0.6667  0.4795       0.333       1.35
        nll 1.252, mean distance 0.667 (calibrated: 1)
    """
    values = check_numbers("levels", levels)
    is_wrong = values.ndim != 1 or not values.size or not ((values > 0.0) & (values < 1.0)).all()
    refuse_if(is_wrong, "levels", "be a sequence of numbers in (0, 1), at least one", value=levels)
    error, scale, distance, log_det = _residuals(outputs, targets)
    units, z = error.shape[1], error / scale
    density = np.exp(-0.5 * np.square(z)) / math.sqrt(2.0 * math.pi)
    crps = scale * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / math.sqrt(math.pi))
    quantiles = ndtri(0.5 + 0.5 * values)[:, None]
    return RegressionScores(
        nll=float(np.mean(distance + log_det + units * math.log(2.0 * math.pi))) / 2.0,
        distance=float(distance.mean()) / units,
        rmse=np.sqrt(np.square(error).mean(0)),
        mae=error.mean(0),
        crps=crps.mean(0),
        levels=tuple(values.tolist()),
        coverage=np.mean(z <= quantiles[..., None], axis=1),
        width=2.0 * quantiles * scale.mean(0),
    )


def _residuals(outputs: Any, targets: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns |y - mu|, the standard deviations, the distances and log det Sigma, in float64, of checked arguments."""
    check_same_index(outputs=outputs, targets=targets)
    outputs, targets = check_numbers("outputs", as_numpy(outputs)), check_numbers("targets", as_numpy(targets))
    y = targets[:, None] if targets.ndim == 1 else targets
    if outputs.ndim != 2 or y.ndim != 2 or len(y) != len(outputs) or not len(y):
        rule = "have shape (N, K) or (N,), and as many rows as `outputs`, (N, K (2 + R) + 1)"
        raise refusal("targets", rule, f"{targets.shape} and {outputs.shape}")
    factors = packed_factors(outputs.shape[1], y.shape[1])
    if factors is None or factors > y.shape[1]:
        rule = f"have {y.shape[1]} (2 + R) + 1 columns, where R is the number of factors, at most {y.shape[1]}"
        raise refusal("outputs", rule, shape=outputs)
    for name, array in (("outputs", outputs), ("targets", y)):
        refuse_first(~np.isfinite(array), name, "be finite", array)
    mean, d, factor = np.split(outputs[:, :-1], [y.shape[1], 2 * y.shape[1]], axis=1)
    rule = f"have standard deviations above 0 after the {number_of(y.shape[1], 'mean')}: use predict_distribution"
    refuse_if((d <= 0).any(), "outputs", rule, f"{d.min():g}")
    factor, error = factor.reshape(*y.shape, factors), y - mean
    residual, triangular = least_squares(factor / d[..., None], error / d, np)
    log_det = 2.0 * np.log(np.abs(np.diagonal(triangular, axis1=1, axis2=2))).sum(-1) + 2.0 * np.log(d).sum(-1)
    scale = np.sqrt(np.square(d) + np.square(factor).sum(-1))
    return np.abs(error), scale, np.square(residual).sum(-1), log_det
