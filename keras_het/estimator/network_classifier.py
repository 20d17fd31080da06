"""The base of the scikit-learn estimators: predictions of a fitted Keras model, and its place in files."""

from typing import Any

import numpy as np
from scipy.special import log_softmax
from sklearn.base import BaseEstimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from keras_het.base.batches import check_same_index
from keras_het.base.classes import refuse_blank
from keras_het.models.copying import model_from_bytes, model_to_bytes


class NetworkClassifier(BaseEstimator):
    """Base class of classifiers with a `model_`, which takes raw X and returns log-probabilities."""

    batch_size: int
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
        places = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[places]

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        """X as float32, and y as the places of its labels in `classes_`, which is set."""
        check_same_index(X=X, y=y)
        X, y = validate_data(self, X, y, dtype="float32", allow_nd=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if self.classes_[0] == -1 and self.classes_[1:].tolist() != [1]:  # scikit-learn has these two as classes
            refuse_blank(int(labels.argmin()))
        if len(self.classes_) < 2:
            raise ValueError("`y` must have at least two classes. Received: 1 class")
        return X, labels.astype("int32")

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "model_": model_to_bytes(state["model_"])} if "model_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "model_": model_from_bytes(state["model_"])} if "model_" in state else state)
