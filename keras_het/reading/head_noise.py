"""Mean noise of a model's head over a data set, in one pass and without a matrix for each example."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches_with_weights
from keras_het.base.graph import has_graph
from keras_het.base.internals import layers_of
from keras_het.base.masks import drop_masked, masked_predictor
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import as_float64, check_integer
from keras_het.layers import HeteroscedasticDense
from keras_het.reading.ending import NOISY_HEADS, Ending, find_ending


class MeanNoise(NamedTuple):
    """Head, the mean of d^2 over a data set, `(K,)`, and the `factor_moment` of its covariance."""

    head: HeteroscedasticDense
    diagonal: np.ndarray
    moment: np.ndarray

    def covariance(self) -> np.ndarray:
        """Returns the mean covariance, `(K, K)`, in temperatures squared; C Sigma C for softmax."""
        covariance = self.head.covariance
        matrix = np.diag(self.diagonal) + covariance.factor_covariance(covariance.factor_weights(), self.moment)
        if covariance.noise_space == "features":
            kernel = as_float64(self.head.loc_layer.kernel)
            matrix = kernel.T @ matrix @ kernel
        return self._scaled(matrix)

    def shared(self, factor: np.ndarray) -> np.ndarray:
        """Returns the covariances between classes for weights of V, without variances, which centring would spread."""
        matrix = self.head.covariance.factor_covariance(factor, self.moment.astype(factor.dtype))
        np.fill_diagonal(matrix, 0.0)
        return self._scaled(matrix)

    def _scaled(self, matrix: np.ndarray) -> np.ndarray:
        matrix /= self.head.temperature**2
        if self.head.link.ignores_shift:
            matrix -= matrix.mean(axis=1, keepdims=True)
            matrix -= matrix.mean(axis=0)
        return matrix


def noisy_ending(model: keras.Model, name: str | None = None) -> Ending:
    """Returns the `Ending` of a model at its only `HeteroscedasticDense`, or at the head with this name."""
    if not has_graph(model):
        rule = "be functional, or Sequential and built"
        raise refusal("model", rule, kind=model)
    names = {layer.name for layer in layers_of(model, HeteroscedasticDense)}
    only = names.pop() if len(names) == 1 else None
    return find_ending(model, NOISY_HEADS, name or only)


def average_noise(model: keras.Model, x: Any, name: str | None = None, batch_size: int = 128) -> MeanNoise:
    """Computes the `MeanNoise` of a model for inputs `x`; refuses no example, and numbers that are not finite."""
    ending = noisy_ending(model, name)
    predict = masked_predictor(model, ending.features)
    _check_readable(ending.head.covariance)
    total, sums = 0, None
    for inputs, *_ in batches_with_weights(x, check_integer("batch_size", batch_size, 1), keeps_order=False):
        features, mask = predict(inputs)
        count, parts = _sums(ending.head, *drop_masked(mask, features))
        total += count
        sums = parts if sums is None else [whole + part for whole, part in zip(sums, parts, strict=True)]
    if sums is None or not total:
        raise refusal("x", "have at least one example", "none")
    rule = "give finite scales of the noise: check `x` and the head's weights for nan and infinity"
    refuse_if(not all(np.isfinite(part).all() for part in sums), "x", rule, "some that are not finite")
    diagonal, second = (whole / total for whole in sums)
    return MeanNoise(ending.head, diagonal, ending.head.covariance.factor_moment(second))


def _check_readable(covariance: Any) -> None:
    """Raises a ValueError for a custom covariance with factors but without V: only its diagonal would be read."""
    if covariance.num_factors and not covariance.factor_weights().shape[-1]:
        rule = "define `basis` and `factor_weights`, which describe the noise of its factors"
        raise refusal("The covariance", rule, f"{type(covariance).__name__} with num_factors={covariance.num_factors}")


def _sums(head: HeteroscedasticDense, features: Any) -> tuple[int, list[np.ndarray]]:
    """Returns the number of examples of a batch, and its sums of d^2 and z z'."""
    x = ops.convert_to_numpy(features)
    x = x.reshape(-1, x.shape[-1])
    d = head.covariance.standard_deviations(ops.convert_to_tensor(x, dtype=head.compute_dtype))
    z = head.covariance.basis(x).astype("float64")
    return len(x), [np.square(as_float64(d)).sum(axis=0), z.T @ z]


def logit_normal(head: HeteroscedasticDense, features: Any) -> Any:
    """Returns the Gaussian of the logits in temperatures for features `(..., D)`, as the head integrates it."""
    return head.logit_distribution(features).standardized(head.link.center, head.temperature)


def variances(head: HeteroscedasticDense, normal: Any) -> np.ndarray:
    """Returns the variances of the logits of a `logit_normal`, `(..., K)`, centred for a softmax."""
    return as_float64(normal.centered_variance() if head.link.ignores_shift else normal.variance())
