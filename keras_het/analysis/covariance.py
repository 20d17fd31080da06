"""Which classes a head confuses: the covariance of its logits over a data set, and the pairs whose covariance is no chance."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.analysis.pairs import top_pairs
from keras_het.batches import batches
from keras_het.graph import find_head, predictor
from keras_het.layers import HeteroscedasticDense
from keras_het.ops.seeds import random_generator
from keras_het.validation import check_integer


class ConfusedPair(NamedTuple):
    """Two classes, by name or number, and the covariance of their logits over temperature.

    Positive: the two rise and fall together, so that what may be one may be the other, too. Negative: one rises where the other falls,
    so that the label goes to the one or to the other.
    """

    first: Any
    second: Any
    covariance: float


class _Moments(NamedTuple):
    """Means over a data set: of d^2, `(K,)`, and of z z', `(M, M)`, z being the `basis` of the head's covariance."""

    diagonal: np.ndarray
    second: np.ndarray


def covariance(model: keras.Model, x: Any, *, layer: str | None = None, batch_size: int = 128) -> np.ndarray:
    """The mean covariance of the logits of a model's head over a data set, in temperatures, so that heads can be compared.

        Sigma = mean over x of (diag(d(x)^2) + V(x) V(x)') / temperature^2;  for softmax the part that it sees, C Sigma C, C = I - 1 1'/K

    Args:
        model: functional or Sequential, with a `HeteroscedasticDense` somewhere, such as before a `NoiseTransition`; it does not change.
        x: what it predicts from: arrays, or a data set of batches, whose labels do not count.
        layer: name of the head, if there are several.    batch_size: of the predictions from arrays.
    Returns: `(K, K)`, float64.
    Raises: ValueError for a model without a graph, with several outputs or without such a head, no example, or numbers that are not
        finite.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), HeteroscedasticDense(3), keras.layers.Activation("exponential")])
        >>> covariance(model, np.ones((10, 4))).shape
        (3, 3)
    """
    head, moments = _head_and_moments(model, x, layer, batch_size)
    return _covariance(head, moments, head.covariance_layer.factor_weights())


def confused_pairs(
    model: keras.Model,
    x: Any,
    class_names: Sequence | None = None,
    count: int = 10,
    *,
    layer: str | None = None,
    draws: int = 99,
    seed: int = 0,
    batch_size: int = 128,
) -> list[ConfusedPair]:
    """The pairs of classes with the largest covariance of a model's logits, as far as they are no chance.

    Chance is what the same weights give when every entry of the factor's weights gets a random sign: the sizes of all entries stay,
    and what two classes have in common is lost. A pair is returned if what the factor gives it in common, the covariance without the
    part that the variances of single classes have in it, is larger in absolute value than the largest of all pairs in all draws of
    signs. If the weights are noise, independent and each as likely positive as negative, whatever their sizes, then no signs are more
    likely than others, and the weights as they are have the largest once in `draws + 1` times: so often any pair is returned, 1% by
    default. Beside classes of large weights a pair of small ones is no longer seen.

    Args:
        model, x, layer, batch_size: as for `covariance`.
        class_names: K of them; None for numbers.    count: of pairs, at most.
        draws: at least 1; each takes the time of a product of the factor's weights.    seed: of the draws.
    Returns: list of `ConfusedPair`, the largest first; empty for a head without factors.
    Raises: ValueError as for `covariance`, for arguments outside these ranges, and for a head whose noise is that of the features.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), HeteroscedasticDense(5, num_factors=2)])
        >>> kernel = np.random.default_rng(0).normal(size=(4, 5, 2)) * 0.01
        >>> kernel[:, 1], kernel[:, 3] = 1.0, -1.0
        >>> _ = model.layers[0].covariance_layer.factor.kernel.assign(kernel.reshape(4, 10))
        >>> pairs = confused_pairs(model, np.random.default_rng(1).normal(size=(50, 4)), ["ant", "bee", "cat", "wasp", "dog"])
        >>> [(pair.first, pair.second, pair.covariance < 0) for pair in pairs]
        [('bee', 'wasp', True)]
    """
    count, draws, rng = check_integer("count", count, 0), check_integer("draws", draws, 1), random_generator(seed)
    head, moments = _head_and_moments(model, x, layer, batch_size)
    if head.covariance_layer.noise_of != "logits":
        raise ValueError(
            "`model` must have a head whose factor is of the logits: what the kernel of the mean gives pairs of classes in common is no "
            f"chance, and no test of it is known; use `covariance`. Received: covariance={type(head.covariance_layer).__name__}"
        )
    names = list(range(head.units) if class_names is None else class_names)
    if len(names) != head.units or isinstance(class_names, set | dict):
        rule = f"be a sequence with a name for each of the {head.units} classes"
        raise ValueError(f"`class_names` must {rule}. Received: a {type(class_names).__name__} of {len(names)}")
    factor = head.covariance_layer.factor_weights()
    matrix = _covariance(head, moments, factor)
    shared = _beyond_chance(lambda factor: _shared(head, moments, factor), factor, draws, rng)
    beyond = np.triu(shared * matrix > 0, k=1)  # together or against each other, by both
    return [ConfusedPair(names[i], names[j], value) for i, j, value in top_pairs(matrix * (beyond | beyond.T), int(beyond.sum()))][:count]


def _beyond_chance(shared_of: Any, factor: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """What pairs have in common, `(K, K)`, where it is above the largest of all draws of signs, else 0; `factor` is `(M, K, R)`."""
    chance = max(_largest(shared_of(factor * rng.choice([-1.0, 1.0], factor.shape))) for _ in range(draws))
    shared = shared_of(factor)
    return np.where(np.abs(shared) > chance * (1 + 1e-9), shared, 0.0)  # equal but for rounding is not beyond


def _largest(matrix: np.ndarray) -> float:
    return float(np.abs(np.triu(matrix, k=1)).max())


def _head_and_moments(model: keras.Model, x: Any, name: str | None, batch_size: int) -> tuple[HeteroscedasticDense, _Moments]:
    head = find_head(model, HeteroscedasticDense, name or _name_of_head(model))
    features, total, moments = predictor(model, head.features), 0, None
    for inputs, _ in batches(x, check_integer("batch_size", batch_size, 1)):
        parts = _sums(head.layer, features(inputs))
        total += parts[0]
        moments = parts[1] if moments is None else [whole + part for whole, part in zip(moments, parts[1], strict=True)]
    if moments is None:
        raise ValueError("`x` must have at least one example. Received: none")
    if not all(np.isfinite(part).all() for part in moments):
        raise ValueError("`x` must give finite scales of the noise, and so must the weights of the head. Received: some that are not")
    return head.layer, _Moments(*(whole / total for whole in moments))


def _name_of_head(model: keras.Model) -> str | None:
    """The name of the only head, wherever it is; None leaves it to `find_head` to say what is wrong."""
    names = {layer.name for layer in model._flatten_layers() if isinstance(layer, HeteroscedasticDense)}
    return names.pop() if len(names) == 1 else None


def _sums(head: HeteroscedasticDense, features: Any) -> tuple[int, list[np.ndarray]]:
    """The number of examples of a batch, and sums of what `_Moments` has the means of."""
    x = ops.convert_to_numpy(features)
    x = x.reshape(-1, x.shape[-1])
    d = head.covariance_layer.standard_deviations(ops.convert_to_tensor(x, dtype=head.compute_dtype))
    z = head.covariance_layer.basis(x).astype("float64")
    return len(x), [np.square(ops.convert_to_numpy(d).astype("float64")).sum(axis=0), z.T @ z]


def _covariance(head: HeteroscedasticDense, moments: _Moments, factor: np.ndarray) -> np.ndarray:
    return _identified(head, _of_logits(head, np.diag(moments.diagonal) + head.covariance_layer.mean_product(moments.second, factor)))


def _shared(head: HeteroscedasticDense, moments: _Moments, factor: np.ndarray) -> np.ndarray:
    """The covariance without variances, which centring would spread over the pairs, however independent they are."""
    low_rank = _of_logits(head, head.covariance_layer.mean_product(moments.second, factor))
    return _identified(head, low_rank - np.diag(np.diagonal(low_rank)))


def _of_logits(head: HeteroscedasticDense, matrix: np.ndarray) -> np.ndarray:
    return head.covariance_layer.of_logits(matrix, ops.convert_to_numpy(head.loc.kernel).astype("float64"))


def _identified(head: HeteroscedasticDense, matrix: np.ndarray) -> np.ndarray:
    """The part of a covariance that the link sees, in temperatures: all, or for softmax C Sigma C."""
    matrix = matrix / head.temperature**2
    if not head.link.ignores_shift:
        return matrix
    rows = matrix - matrix.mean(axis=1, keepdims=True)
    return rows - rows.mean(axis=0, keepdims=True)
