"""Recall, precision and joint table of true class and prediction, by a few verified examples and the labels of all."""

from collections.abc import Callable
from typing import Any

import numpy as np

from keras_het.truth.cells import Counted, Part, jeffreys, odds, part
from keras_het.truth.intervals import Estimate
from keras_het.truth.verified_sample import Sample


class ClassTables:
    """Metrics of each class, each by two cells: examples whose label is the class, and all others.

    Args:
        units: K.
        known: predictions and labels of all examples, integers `(N,)`.
        true: true classes of the verified ones, `(n,)`.
        sample: verified examples.
    """

    def __init__(self, units: int, known: tuple[np.ndarray, np.ndarray], true: np.ndarray, sample: Sample):
        self.size, self.count, self.true = units, len(known[0]), true
        self.predicted, self.label = (each[sample.rows] for each in known)
        self.weights = sample.weights, sample.weights**2
        self.pairs = self._sums(*known) / self.count  # fractions of all examples, (prediction, label)
        self.of_predicted = self.pairs.sum(axis=1)

    def joint(self) -> Estimate:
        """Fractions of true class i and prediction j, `(K, K)`."""
        same = self.label == self.true

        def labelled(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            hits = self._sums(self.predicted, self.true, weights * same)
            return hits, self._sums(self.predicted, self.label, weights)

        def others(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            size = np.bincount(self.predicted, weights, self.size)[:, None] - labelled(weights)[1]
            return self._sums(self.predicted, self.true, weights * ~same), size

        found = self._part(self.pairs, labelled) + self._part(self.of_predicted[:, None] - self.pairs, others)
        estimate = found.estimate(self.count)
        return Estimate(estimate.value.T, estimate.low.T, estimate.high.T)

    def precision(self) -> Estimate:
        """Fraction of the predictions of each class that are the true class, `(K,)`; nan where none was verified."""
        sizes = self.of_predicted * self.count
        found = self._of_class(True, np.maximum(self.of_predicted, 1.0 / self.count)).estimate(np.maximum(sizes, 1.0))
        seen = np.bincount(self.predicted, minlength=self.size) > 0
        return Estimate(np.where(seen, found.value, np.nan), found.low * seen, np.where(seen, found.high, 1.0))

    def recall(self) -> Estimate:
        """Fraction of each true class that is predicted so, a / (a + b), `(K,)`; nan where none was verified."""
        never = self.of_predicted == 0  # among these N, which does not show that it never is
        found = self._of_class(True)
        above = found.above + np.where(never, jeffreys(np.zeros(1), np.array([float(self.count)]))[1] ** 2, 0.0)
        ratio = odds(found._replace(above=above), self._of_class(False), self.count)
        seen = np.bincount(self.true, minlength=self.size) > 0
        return Estimate(np.where(seen, ratio.value, np.nan), ratio.low * seen, np.where(seen, ratio.high, 1.0))

    def _of_class(self, is_predicted: bool, whole: Any = 1.0) -> Part:
        """The fraction of `whole` that is of each true class, and predicted so or not, `(K,)`."""
        classes = np.arange(self.size)
        inside = (self.predicted[:, None] == classes) == is_predicted
        label, true = self.label[:, None] == classes, self.true[:, None] == classes
        labelled = self.pairs.diagonal() if is_predicted else self.pairs.sum(axis=0) - self.pairs.diagonal()
        all_inside = self.of_predicted if is_predicted else 1.0 - self.of_predicted

        def cell(own: np.ndarray, share: np.ndarray) -> Part:
            return self._part(share / whole, lambda weights: (weights @ (own & true), weights @ own))

        return cell(inside & label, labelled) + cell(inside & ~label, all_inside - labelled)

    def _part(self, share: np.ndarray, sums: Callable) -> Part:
        """Parts of cells, by a function of weights that sums them where an example counts, and everywhere."""
        (hits, size), (_, squares) = map(sums, self.weights)
        rounded = (np.maximum(np.round(each, 12), 0.0) for each in (share, hits, size, squares))  # differences are not
        return part(Counted(*rounded))

    def _sums(self, first: np.ndarray, second: np.ndarray, weights: Any = None) -> np.ndarray:
        """The sum of weights of each pair of classes, `(K, K)`."""
        return np.bincount(first * self.size + second, weights, self.size**2).reshape(self.size, self.size)
