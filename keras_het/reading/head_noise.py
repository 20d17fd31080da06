"""The mean noise of a model's head over a data set, in one pass over it and without a matrix for each example."""

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
from keras_het.reading.ending import NOISY, Ending, ending_of


class HeadNoise(NamedTuple):
    """A head, and means over a data set: of d^2, `(K,)`, and of z z', `(M, M)`, where z is the covariance's `basis`."""

    head: HeteroscedasticDense
    diagonal: np.ndarray
    second: np.ndarray

    def covariance(self) -> BlockMatrix:
        """Returns the part of the mean covariance that the link sees, in temperatures; for softmax C Sigma C."""
        return self._seen(self._mean("float64")(self.head.covariance.factor_weights()))

    def shared(self, dtype: str = "float64") -> Callable[[np.ndarray], BlockMatrix]:
        """Returns a function from the weights of V to the covariances between classes that they give to `covariance`.

        Variances are left out, because centring would spread them over the covariances.
        """
        mean, nothing = self._mean(dtype), np.zeros(self.head.units, dtype)
        return lambda factor: self._seen(mean(factor.astype(dtype))._replace(diagonal=nothing).hollow())

    def _mean(self, dtype: str) -> Callable[[np.ndarray], BlockMatrix]:
        parts = self.diagonal, self.second, as_float64(self.head.loc_layer.kernel)
        return self.head.covariance.mean(*(part.astype(dtype) for part in parts))

    def _seen(self, matrix: BlockMatrix) -> BlockMatrix:
        matrix = matrix.divided(self.head.temperature**2)
        return matrix.centered() if self.head.link.ignores_shift else matrix


def noisy_ending(model: keras.Model, name: str | None = None) -> Ending:
    """Returns the `Ending` of a model at its `HeteroscedasticDense`, or at the head with this name.

    Raises:
        ValueError: for a model without a graph, with several outputs or without such a head, or with several heads if
            no name is given.
    """
    if not has_graph(model):
        rule = (
            "be functional or Sequential, and built, so that its head can be found; of an ensemble give one of "
            "its `members`"
        )
        raise refusal("model", rule, kind=model)
    names = {layer.name for layer in layers_of(model, HeteroscedasticDense)}
    only = names.pop() if len(names) == 1 else None
    return ending_of(model, NOISY, name or only)


def head_noise(model: keras.Model, x: Any, name: str | None = None, batch_size: int = 128) -> HeadNoise:
    """Reads the `HeadNoise` of a model over its inputs `x`: arrays, or a data set of batches with or without labels.

    Raises:
        ValueError: as of `noisy_ending`; for no example, or for numbers that are not finite.
    """
    ending = noisy_ending(model, name)
    predict = masked_predictor(model, ending.features)
    _check_explained(ending.head.covariance)
    total, sums = 0, None
    for inputs, _ in batches(x, check_integer("batch_size", batch_size, 1)):
        features, mask = predict(inputs)
        count, parts = _sums(ending.head, *drop_masked(mask, features))
        total += count
        sums = parts if sums is None else [whole + part for whole, part in zip(sums, parts, strict=True)]
    if sums is None or not total:
        raise refusal("x", "have at least one example", "none")
    rule = "give finite scales of the noise, and so must the weights of the head"
    refuse_if(not all(np.isfinite(part).all() for part in sums), "x", rule, "some that are not")
    return HeadNoise(ending.head, *(whole / total for whole in sums))


def _check_explained(covariance: Any) -> None:
    """Raises a ValueError for a covariance with factors of its own and without V: only its diagonal would be read."""
    rule = "define `basis`, `factor_weights` and `mean`, by which the noise of factors is explained"
    is_silent = covariance.num_factors and not covariance.factor_weights().shape[-1]
    if is_silent:
        raise refusal("The covariance", rule, f"{type(covariance).__name__} with num_factors={covariance.num_factors}")


def _sums(head: HeteroscedasticDense, features: Any) -> tuple[int, list[np.ndarray]]:
    """Returns the number of examples of a batch, and the sums whose means `HeadNoise` holds."""
    x = ops.convert_to_numpy(features)
    x = x.reshape(-1, x.shape[-1])
    d = head.covariance.standard_deviations(ops.convert_to_tensor(x, dtype=head.compute_dtype))
    z = head.covariance.basis(x).astype("float64")
    return len(x), [np.square(as_float64(d)).sum(axis=0), z.T @ z]


def standardized(head: HeteroscedasticDense, features: Any) -> Any:
    """Returns the Gaussian of the logits in temperatures for features `(..., D)`, as the head's integrator gets it."""
    return head.logit_distribution(features).standardized(head.link.center, head.temperature)


def covariance_with(head: HeteroscedasticDense, normal: Any, classes: Any) -> np.ndarray:
    """Returns the covariances of the logit of one class with all logits, `(N, K)`, as far as the link sees them.

    Args:
        head: the head.
        normal: `standardized` of features `(N, D)`.
        classes: one for each example, `(N,)`.
    """
    vector = np.zeros((len(classes), head.units), "float32")
    vector[np.arange(len(classes)), classes] = 1.0
    if not head.link.ignores_shift:
        return as_float64(normal.covariance_times(ops.convert_to_tensor(vector)))
    row = as_float64(normal.covariance_times(ops.convert_to_tensor(vector - 1.0 / head.units)))
    return row - row.mean(axis=-1, keepdims=True)


def variances(head: HeteroscedasticDense, normal: Any) -> np.ndarray:
    """Returns the variances of the logits, `(..., K)`, as far as the link sees them; `normal` is `standardized`."""
    return as_float64(normal.centered_variance() if head.link.ignores_shift else normal.variance())
