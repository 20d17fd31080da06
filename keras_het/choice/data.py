"""The data of `choose`: labels as integers, verified ones in their place, and the splits that measure candidates."""

import numbers
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_het.base.batches import as_arrays, check_same_index, count_examples, examples_and_labels, take
from keras_het.base.classes import encode, encode_among
from keras_het.base.validation import check_weights
from keras_het.choice.candidate import Task
from keras_het.choice.networks import LayersBelow
from keras_het.choice.race import Split
from keras_het.selection.cross_validation import stratified_folds

LEAST_WEIGHT = 0.1  # of a noisy label beside a verified one, so that few verified labels do not decide alone


class Prepared(NamedTuple):
    """The data of `choose`.

    Attributes:
        task: all examples to train on, as the network takes them.
        splits: at least one.
        classes: the labels as they were given, in the order of the outputs.
        held_out: for each split, the indices of its held-out examples in the data, or in the validation data.
        has_folds: whether the held-out examples are those of the data.
    """

    task: Task
    splits: list[Split]
    classes: np.ndarray
    held_out: list[np.ndarray]
    has_folds: bool

    def labels(self) -> np.ndarray:
        """The labels of all examples that are held out by some split, in the order of `held_out`'s indices."""
        return self.task.y if self.has_folds else self.splits[0].y


def prepared(
    below: LayersBelow, x: Any, y: Any, validation_data: Any, verified_labels: Any, folds: int, seed: int, epochs: int
) -> Prepared:
    """Reads and checks the data; see `choose` for the arguments."""
    x, y, weighted = as_arrays(x, y)
    if weighted is not None:
        rule = "give (x, y) alone: candidates use the weights themselves (`clean_labels` takes yours)"
        raise ValueError(f"`x` must {rule}. Received: a data set with weights")
    classes, labels = encode(y, count_examples(x), alone=True)
    verified = _verified(verified_labels, len(labels), classes)
    weights = _weights(labels, verified, len(classes))
    task = Task(below.inputs(x), np.where(verified >= 0, verified, labels), len(classes), epochs)
    if validation_data is not None:
        x, y, of_held_out = _validation(validation_data, classes)
        alone = Split(np.arange(len(labels)), below.inputs(x), y, of_held_out)
        return Prepared(task, [alone], classes, [np.arange(len(y))], has_folds=False)
    fold_of = stratified_folds(task.y, folds, seed)
    held_out = [np.flatnonzero(fold_of == fold) for fold in range(folds)]
    splits = [
        Split(np.flatnonzero(fold_of != fold), take(task.x, rows), task.y[rows], weights[rows])
        for fold, rows in enumerate(held_out)
    ]
    return Prepared(task, splits, classes, held_out, has_folds=True)


def _validation(data: Any, classes: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray]:
    """Validation examples, their labels as integers, and their weights in the measure."""
    given = data[2] if isinstance(data, list | tuple) and len(data) == 3 else None
    pair = examples_and_labels("validation_data", data if given is None else data[:2])
    check_same_index(x=pair[0], sample_weight=given)
    x, y, weights = as_arrays(*pair, "validation_data")
    labels = encode_among(y, classes, "validation_data")
    if count_examples(x) != len(labels):
        rule = "have a label for each example"
        raise ValueError(f"`validation_data` must {rule}. Received: {len(labels)} labels of {count_examples(x)}")
    weights = check_weights(weights if given is None else given, len(labels), "validation_data[2]")
    return x, labels, np.ones(len(labels)) if weights is None else weights.astype("float64")


def _verified(given: Mapping | None, count: int, classes: np.ndarray) -> np.ndarray:
    """Verified labels as integers, -1 where there is none, `(N,)`."""
    found = np.full(count, -1)
    if given is None or (isinstance(given, Mapping) and not given):
        return found
    if not isinstance(given, Mapping):
        rule = "be a dict from the indices of examples to their labels"
        raise ValueError(f"`verified_labels` must {rule}. Received: a {type(given).__name__}")
    wrong = [index for index in given if not _is_index(index, count)]
    if wrong:
        raise ValueError(f"`verified_labels` must have indices in [0, {count}), integers. Received: {wrong[0]!r}")
    found[list(given)] = encode_among(list(given.values()), classes, "verified_labels")
    return found


def _is_index(index: Any, count: int) -> bool:
    """Whether a key is the number of an example: 3.0 is none, for NumPy takes no fractions as indices."""
    return isinstance(index, numbers.Integral) and not isinstance(index, bool) and 0 <= int(index) < count


def _weights(labels: np.ndarray, verified: np.ndarray, units: int) -> np.ndarray:
    """Weights of labels in the measure: 1 for verified ones, and for others the share that a flip leaves of a signal.

    A difference in accuracy of delta on true labels is a delta on noisy ones, a = (r - 1/K) / (1 - 1/K) for uniform
    flips that keep a share r of the labels. The weight a then gives the estimate of least variance.
    """
    known = verified >= 0
    if not known.any():
        return np.ones(len(labels))
    kept = np.mean(labels[known] == verified[known])
    return np.where(known, 1.0, max(LEAST_WEIGHT, (kept - 1.0 / units) / (1.0 - 1.0 / units)))
