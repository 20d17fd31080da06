"""What the scikit-learn estimators share: the small network, predictions of a fitted model, and its place in files."""

from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from keras_het.base.batches import check_same_index
from keras_het.base.classes import refuse_blank
from keras_het.base.validation import check_boolean, check_integer, check_maker, check_number
from keras_het.labels.data import label_table
from keras_het.models.copying import model_from_bytes, model_to_bytes

EPSILON = float(np.finfo("float32").eps)
NO_SCALE = 1e38  # a variance so large that it makes numbers zero


class NetworkClassifier(ClassifierMixin, BaseEstimator):
    """Base class of classifiers with a `model_`, which takes raw X and returns log-probabilities."""

    make_model: Any
    hidden: Any
    standardize: bool
    batch_size: int
    learning_rate: float
    l2: float
    model_: Any

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of the probabilities of the classes, `(N, K)`, float64."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype="float32", allow_nd=True, reset=False)
        if X.shape[1:] != self.model_.input_shape[1:]:
            raise ValueError(f"`X` must have examples of shape {self.model_.input_shape[1:]}. Received: {X.shape[1:]}")
        outputs = self.model_.predict(X, batch_size=self.batch_size, verbose=0)
        # Again: sums that are one only in float32 do not suit scikit-learn's `log_loss`.
        return log_softmax(outputs.astype("float64"), axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities of the classes, in the order of `classes_`, `(N, K)`, float64."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each example, `(N,)`."""
        # First: without a fit it raises a clear error, and `classes_` an AttributeError.
        indices = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[indices]

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """X as float32, and y as the indices of its labels in `classes_`, which is set."""
        check_same_index(X=X, y=y)
        X, y = validate_data(self, X, y, dtype="float32", allow_nd=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("`y` must have at least two classes. Received: 1 class")
        if self.classes_[0] == -1 and self.classes_[1:].tolist() != [1]:  # scikit-learn has these two as classes
            refuse_blank(int(labels.argmin()))
        return X, labels.astype("int32")

    def _maker(self, x: np.ndarray, weights: np.ndarray) -> Callable[[], keras.Model]:
        """The user's function that makes a model, or one that makes the small network.

        Args:
            x: the training examples, `(N, ...)`, float32.
            weights: their weights, `(N,)`.
        """
        rate, l2 = check_number("learning_rate", self.learning_rate, above=0.0), check_number("l2", self.l2, low=0.0)
        check_boolean("standardize", self.standardize)
        widths = _widths(self.hidden)
        if self.make_model is not None:
            check_maker(self.make_model, ", or None")
            return self.make_model

        def small() -> keras.Model:
            penalty = {"kernel_regularizer": keras.regularizers.L2(l2)} if l2 else {}
            layers = [_standardization(x, weights)] if self.standardize else []
            layers += [keras.layers.Flatten()] if x.ndim > 2 else []
            layers += [keras.layers.Dense(width, "relu", **penalty) for width in widths]
            head = keras.layers.Dense(len(self.classes_), **penalty)
            model = keras.Sequential([keras.Input(x.shape[1:]), *layers, head])
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(rate), loss)
            return model

        return small

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "model_": model_to_bytes(state["model_"])} if "model_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "model_": model_from_bytes(state["model_"])} if "model_" in state else state)


def is_votes(y: Any) -> bool:
    """Whether labels are of several annotators, or distributions."""
    return hasattr(y, "votes") or label_table(y, "y") is not None


def _widths(hidden: Any) -> list[int]:
    if isinstance(hidden, str) or not isinstance(hidden, Iterable):
        raise ValueError(f"`hidden` must be a list of widths. Received: hidden={hidden!r}")
    return [check_integer("hidden", width, 1) for width in hidden]


def _standardization(x: np.ndarray, weights: np.ndarray) -> keras.layers.Normalization:
    """A layer with the means and variances of the last axis, in float64.

    A feature that is constant up to rounding becomes 0, in new examples, too: the weights have not learned other values
    of it.
    """
    others = tuple(range(1, x.ndim - 1))
    mean = np.average(x.mean(axis=others, dtype="float64"), axis=0, weights=weights)
    variance = np.average(np.square(x - mean).mean(axis=others), axis=0, weights=weights)
    variance = np.where(variance > np.square(EPSILON * mean), variance, NO_SCALE)
    return keras.layers.Normalization(axis=-1, mean=mean.tolist(), variance=variance.tolist())
