"""Examples that a model with a head predicts right and another wrong: whether the covariance foretold that."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.base.batches import check_same_index, count_examples, select_rows
from keras_het.base.graph import predictor
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_class_names, check_integer, check_labels
from keras_het.reading.head_noise import covariance_with, noisy_ending, standardized
from keras_het.reading.probabilities import exclusive_probabilities


@dataclasses.dataclass(frozen=True)
class Disagreement:
    """An example that the model predicts right and the other model wrong.

    Attributes:
        index: index of the example.
        predicted: the right class, which the model predicts.
        other: the class that the other model predicts.
        covariance: covariance of the two classes' logits, by the model's head at this example, in temperatures.
    """

    index: int
    predicted: Any
    other: Any
    covariance: float


@dataclasses.dataclass(frozen=True)
class RankHistogram:
    """The rank of the covariance of right and wrong class, among the covariances of the right class with all others.

    Attributes:
        ranks: rank of each disagreement, `(n,)`: 1 if it is the largest in absolute value, K - 1 if it is the smallest.
        counts: the number of disagreements of each rank, `(K - 1,)`; about equal if the covariance says nothing about
            confusions.
    """

    ranks: np.ndarray
    counts: np.ndarray


class _Disagreements(NamedTuple):
    """Disagreements: their indices, right and wrong classes, covariances and ranks, all `(n,)`."""

    index: np.ndarray  # type: ignore[assignment]
    right: np.ndarray
    wrong: np.ndarray
    covariance: np.ndarray
    rank: np.ndarray


def disagreements(
    model: keras.Model,
    other: keras.Model,
    x: Any,
    labels: Any,
    class_names: Sequence | Mapping | None = None,
    count: int = 10,
    *,
    layer: str | None = None,
    batch_size: int = 128,
) -> list[Disagreement]:
    """Examples that a model predicts right and another wrong, where the head of the first foretells the wrong class.

    The wrong class has the largest covariance with the right one of all classes, in absolute value.

    Args:
        model: has a `HeteroscedasticDense` somewhere, functional or Sequential.
        other: another model of the same classes, such as one with a Dense layer.
        x: examples: an array, or a list, tuple or dict of them.
        labels: their classes, integers in [0, K), shape `(N,)`.
        class_names: K names, a sequence or a dict {class: name}; None for numbers.
        count: the largest number of examples.
        layer: name of the head, if there are several.
        batch_size: size of the batches of the predictions.
    Returns:
        list of `Disagreement`, the largest covariance in absolute value first.
    Raises:
        ValueError: for a model without such a head, labels out of range, or models of different classes.
    Source: Collier et al. 2021, Table 5.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> head = HeteroscedasticDense(3, num_factors=1, kernel_initializer="identity")
        >>> model = keras.Sequential([keras.Input((3,)), head])
        >>> other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
        >>> len(disagreements(model, other, np.eye(3), [0, 1, 2])) <= 3
        True
    """
    found = _find(model, other, x, labels, layer, batch_size)
    names = check_class_names(class_names, noisy_ending(model, layer).units)
    largest = np.flatnonzero((found.rank == 1) & (found.covariance != 0))
    order = largest[np.argsort(-np.abs(found.covariance[largest]), kind="stable")][: check_integer("count", count, 0)]
    return [
        Disagreement(int(found.index[i]), names[found.right[i]], names[found.wrong[i]], float(found.covariance[i]))
        for i in order
    ]


def rank_histogram(
    model: keras.Model, other: keras.Model, x: Any, labels: Any, *, layer: str | None = None, batch_size: int = 128
) -> RankHistogram:
    """How high the head ranks the class that another model predicts wrongly.

    The examples are the ones that `model` predicts right and `other` wrong. The head ranks the classes by |covariance|
    with the right class.

    Args:
        model: argument of `disagreements`.
        other: argument of `disagreements`.
        x: argument of `disagreements`.
        labels: argument of `disagreements`.
        layer: argument of `disagreements`.
        batch_size: argument of `disagreements`.
    Returns:
        `RankHistogram`.
    Raises:
        ValueError: as for `disagreements`.
    Source: Collier et al. 2021, Figure 2.

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> model = keras.Sequential([keras.Input((3,)), HeteroscedasticDense(3, num_factors=1)])
        >>> rank_histogram(model, model, np.eye(3), [0, 1, 2]).counts.tolist()
        [0, 0]
    """
    found = _find(model, other, x, labels, layer, batch_size)
    units = noisy_ending(model, layer).units
    return RankHistogram(found.rank, np.bincount(found.rank - 1, minlength=units - 1))


def _find(
    model: keras.Model, other: keras.Model, x: Any, labels: Any, layer: str | None, batch_size: int
) -> _Disagreements:
    check_same_index(x=x, labels=labels)
    ending = noisy_ending(model, layer)
    head = ending.head
    labels = check_labels(labels, head.units, count_examples(x))
    own, others = (exclusive_probabilities(one, x, batch_size) for one in (model, other))
    if own.shape != others.shape:
        raise refusal("other", f"have the {own.shape[1]} classes of `model`", others.shape[1])
    index = np.flatnonzero((own.argmax(axis=1) == labels) & (others.argmax(axis=1) != labels))
    right, wrong = labels[index], others.argmax(axis=1)[index]
    features, rows = predictor(model, ending.features), [np.empty((0, 2))]
    for start in range(0, len(index), batch_size):
        part = slice(start, start + batch_size)
        normal = standardized(head, features(select_rows(x, index[part])))
        rows.append(_covariance_and_rank(covariance_with(head, normal, right[part]), right[part], wrong[part]))
    covariance, rank = np.concatenate(rows).T
    return _Disagreements(index, right, wrong, covariance, rank.astype(int))


def _covariance_and_rank(rows: np.ndarray, right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """The entry of the wrong class in each row, `(n, K)`, and its rank among all entries but the right class; `(n, 2)`.

    Equal entries have their middle rank, rounded down: a head that says nothing must not look as if it knew.
    """
    every = np.arange(len(rows))
    value, sizes = rows[every, wrong], np.abs(rows)
    sizes[every, right] = -1.0
    own = sizes[every, wrong][:, None]
    return np.stack([value, 1 + (sizes > own).sum(axis=1) + ((sizes == own).sum(axis=1) - 1) // 2], axis=1)
