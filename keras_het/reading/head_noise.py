"""Mean noise of a model's head over a data set, in one pass and without a matrix for each example."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches
from keras_het.base.graph import has_graph
from keras_het.base.internals import layers_of
from keras_het.base.masks import drop_masked, masked_predictor
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import as_float64, check_integer
from keras_het.covariances.block_matrix import BlockMatrix
from keras_het.layers import HeteroscedasticDense
from keras_het.reading.ending import NOISY_HEADS, Ending, find_ending


class MeanNoise(NamedTuple):
    """Head, and means of its noise over a data set.

    Attributes:
        head: the head.
        diagonal: mean of d^2, `(K,)`.
        second: mean of z z', `(M, M)`, where z is the covariance's `basis`.
    """

    head: HeteroscedasticDense
    diagonal: np.ndarray
    second: np.ndarray

    def covariance(self) -> BlockMatrix:
        """Returns the mean covariance, in temperatures squared; for softmax C Sigma C, the part that matters."""
        return self._scale(self._mean("float64")(self.head.covariance.factor_weights()))

    def shared(self, dtype: str = "float64") -> Callable[[np.ndarray], BlockMatrix]:
        """Returns a function that computes the covariances between classes from the weights of V.

        It leaves out variances, because centring would spread them over the covariances.
        """
        mean, zeros = self._mean(dtype), np.zeros(self.head.units, dtype)
        return lambda factor: self._scale(mean(factor.astype(dtype))._replace(diagonal=zeros).hollow())

    def _mean(self, dtype: str) -> Callable[[np.ndarray], BlockMatrix]:
        parts = self.diagonal, self.second, as_float64(self.head.loc_layer.kernel)
        return self.head.covariance.mean(*(part.astype(dtype) for part in parts))

    def _scale(self, matrix: BlockMatrix) -> BlockMatrix:
        matrix = matrix.divided(self.head.temperature**2)
        return matrix.centered() if self.head.link.ignores_shift else matrix


def noisy_ending(model: keras.Model, name: str | None = None) -> Ending:
    """Returns the `Ending` of a model at its `HeteroscedasticDense`, or at the head with this name.

    Raises:
        ValueError: for a model without a graph, with several outputs or without a head, or with several heads and no
            name.
    """
    if not has_graph(model):
        rule = "be functional, or Sequential and built"
        raise refusal("model", rule, kind=model)
    names = {layer.name for layer in layers_of(model, HeteroscedasticDense)}
    only = names.pop() if len(names) == 1 else None
    return find_ending(model, NOISY_HEADS, name or only)


def average_noise(model: keras.Model, x: Any, name: str | None = None, batch_size: int = 128) -> MeanNoise:
    """Computes the `MeanNoise` of a model for inputs `x`: arrays, or a data set of batches with or without labels.

    Raises:
        ValueError: as `noisy_ending`; for no example, or for numbers that are not finite.
    """
    ending = noisy_ending(model, name)
    predict = masked_predictor(model, ending.features)
    _check_readable(ending.head.covariance)
    total, sums = 0, None
    for inputs, _ in batches(x, check_integer("batch_size", batch_size, 1)):
        features, mask = predict(inputs)
        count, parts = _sums(ending.head, *drop_masked(mask, features))
        total += count
        sums = parts if sums is None else [whole + part for whole, part in zip(sums, parts, strict=True)]
    if sums is None or not total:
        raise refusal("x", "have at least one example", "none")
    rule = "give finite scales of the noise: check `x` and the head's weights for nan and infinity"
    refuse_if(not all(np.isfinite(part).all() for part in sums), "x", rule, "some that are not finite")
    return MeanNoise(ending.head, *(whole / total for whole in sums))


def _check_readable(covariance: Any) -> None:
    """Raises a ValueError for a custom covariance with factors but without V: only its diagonal would be read."""
    if covariance.num_factors and not covariance.factor_weights().shape[-1]:
        rule = "define `basis`, `factor_weights` and `mean`, which describe the noise of its factors"
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


def class_covariances(head: HeteroscedasticDense, normal: Any, classes: Any) -> np.ndarray:
    """Returns the covariances of the logit of one class with all logits, `(N, K)`, centred for a softmax."""
    vector = np.zeros((len(classes), head.units), "float32")
    vector[np.arange(len(classes)), classes] = 1.0
    if not head.link.ignores_shift:
        return as_float64(normal.covariance_times(ops.convert_to_tensor(vector)))
    row = as_float64(normal.covariance_times(ops.convert_to_tensor(vector - 1.0 / head.units)))
    return row - row.mean(axis=-1, keepdims=True)


def variances(head: HeteroscedasticDense, normal: Any) -> np.ndarray:
    """Returns the variances of the logits of a `logit_normal`, `(..., K)`, centred for a softmax."""
    return as_float64(normal.centered_variance() if head.link.ignores_shift else normal.variance())
