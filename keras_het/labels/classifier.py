"""A network and a method for noisy labels as a scikit-learn estimator; only this module imports scikit-learn."""

import warnings
from typing import Any, Self

import keras
import numpy as np
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from keras_het.base.batches import as_array, check_same_index
from keras_het.base.classes import refuse_blank
from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.validation import check_maker, check_weights
from keras_het.labels.comparison import REMEDY, guess_of
from keras_het.labels.data import Data
from keras_het.labels.discriminant import scaling, warn_of_values
from keras_het.labels.methods import EarlyLearning, Method
from keras_het.labels.training import Trainer
from keras_het.models.copying import model_from_bytes, model_to_bytes

WIDTH = 128  # units of the small network
LEARNING_RATE = 5e-3
L2 = 1e-3


class Classifier(ClassifierMixin, BaseEstimator):
    """Trains a Keras network on noisy labels by one method, as a scikit-learn estimator.

    It works with all tools that take a classifier: pipelines, `cross_val_predict`, `GridSearchCV` (over `method` and
    `epochs`), and cleanlab's `CleanLearning`. It needs scikit-learn: `pip install scikit-learn`.

    Training runs for all `epochs` and averages the weights over them, as in `labels.choose`. To let the labels choose
    the method and the number of epochs, call `labels.choose`.

    Equal data and an equal integer `random_state` give equal probabilities on one backend and one machine, to the bit
    on a CPU. Other backends and machines round differently, and training makes the difference grow. The global random
    states of Python, NumPy, Keras and PyTorch stay as they are; TensorFlow keeps the last seed.

    Args:
        make_model: a function without arguments that returns a new compiled model of the K classes. The method
            replaces its last layer and its loss, which takes integers: see `labels.choose`. None makes a network of
            128 relu units for scaled, flat examples, with a penalty of 1e-3 on the kernels, and trains it by Adam with
            a learning rate of 5e-3.
        method: an object of `labels.Method`, such as `labels.methods.Heteroscedastic()`; None for
            `labels.methods.EarlyLearning()`. A method in closed form, `LinearDiscriminant`, uses X itself as features,
            without a network.
        epochs: number of passes over the data.
        batch_size: size of the batches of training and prediction.
        random_state: an integer, a `RandomState`, or None for another state every time.

    Attributes:
        classes_: names of the classes, `(K,)`, sorted.
        n_features_in_: size of the second axis of X.
        model_: the fitted Keras model, from raw X to log-probabilities. `keras_het.explain` accepts it if it
            has a heteroscedastic head.

    Example:
        >>> x, y = np.eye(3)[:, :2].repeat(8, axis=0), np.array(["ant", "bee", "cat"]).repeat(8)
        >>> classifier = Classifier(epochs=20, random_state=0).fit(x, y)
        >>> classifier.predict(x[[0, 8, 16]]).tolist(), classifier.predict_proba(x[:2]).shape
        (['ant', 'bee', 'cat'], (2, 3))
    """

    def __init__(
        self,
        make_model: Any = None,
        *,
        method: Method | None = None,
        epochs: int = 50,
        batch_size: int = 64,
        random_state: Any = None,
    ):
        self.make_model = make_model
        self.method = method
        self.epochs = epochs
        self.batch_size = batch_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains a new network.

        Args:
            X: numbers of shape `(N, D)`, or images `(N, height, width, channels)`.
            y: labels, `(N,)`: integers, strings or booleans, of at least two classes. -1 means a missing label, unless
                the classes are -1 and 1. A pandas Series must have the index of a frame X.
            sample_weight: weights of the examples, `(N,)`, not negative; their scale does not matter. Examples of
                weight zero are left out.
        Returns:
            the estimator itself.
        Raises:
            ValueError: for data that it does not accept, or arguments out of range.
        Warns: if the model predicts its training labels no better than the largest class does.
        """
        check_same_index(X=X, y=y, sample_weight=sample_weight)
        given = X
        X, y = validate_data(self, X, y if hasattr(y, "dtype") else as_array("y", y), dtype="float32", allow_nd=True)
        if X.ndim == 2:
            warn_of_values(np.asarray(given, "float64"))
        data = self._weighted(Data(X, self._encode(y), self.classes_), sample_weight)
        method = EarlyLearning() if self.method is None else self.method
        rule = "be a Method, such as labels.methods.EarlyStopping(), or None"
        refuse_if(not isinstance(method, Method), "method", rule, value=method)
        trainer = Trainer(self._maker(method, data), self.epochs, batch_size=self.batch_size, verbose=0)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.model_ = trainer.final(method, data, seed=seed, epochs=1 if method.is_closed_form else self.epochs)
        if guess := guess_of(np.exp(self._log_probabilities(data.x)), data.y):
            text = f"The model learned nothing from its training data: {guess}. Remedy: {REMEDY}."
            warnings.warn(text, stacklevel=outside_level())
        return self

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Returns the logarithms of the probabilities of the classes, `(N, K)`, float64."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype="float32", allow_nd=True, reset=False)
        shape = self.model_.input_shape[1:]
        refuse_if(X.shape[1:] != shape, "X", f"have examples of shape {shape}", X.shape[1:])
        return self._log_probabilities(X)

    def _log_probabilities(self, X: np.ndarray) -> np.ndarray:
        """Returns log-probabilities of the classes, `(N, K)`; equal ones if the training diverged."""
        outputs = self.model_.predict(X, batch_size=self.batch_size, verbose=0)
        outputs = np.where(np.isfinite(outputs).all(axis=1, keepdims=True), outputs, 0.0)
        # Again in float64: scikit-learn's `log_loss` warns of sums that are one only in float32.
        return log_softmax(outputs.astype("float64"), axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probabilities of the classes, in the order of `classes_`, `(N, K)`, float64."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Returns the most probable class of each example, `(N,)`."""
        # First the probabilities: without a fit they raise a clear error, and `classes_` an AttributeError.
        indices = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[indices]

    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Sets `classes_`, and returns the indices of the labels in them, `(N,)`."""
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        refuse_if(len(self.classes_) < 2, "y", "have at least two classes", "1 class")
        if self.classes_[0] == -1 and self.classes_[1:].tolist() != [1]:  # scikit-learn accepts -1 and 1 as classes
            refuse_blank(int(labels.argmin()))
        return labels.astype("int32")

    def _weighted(self, data: Data, sample_weight: Any) -> Data:
        """Returns the examples of a weight above zero, with weights of mean one."""
        weights = check_weights(sample_weight, len(data))
        if weights is None:
            return data
        rows = weights > 0
        scaled = (weights[rows] / weights[rows].mean()).astype("float32")
        return Data(data.x[rows], data.y[rows], data.classes, scaled)

    def _maker(self, method: Method, data: Data) -> Any:
        """Returns the function that makes models: the user's, one of the small network, or None for a closed form."""
        if self.make_model is not None:
            check_maker(self.make_model, ", or None")
            rule = "train a network if there is a function `make_model`"
            refuse_if(method.is_closed_form, "method", rule, f"{type(method).__name__}, which has a closed form")
            return self.make_model
        return None if method.is_closed_form else lambda: _small_network(data)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "model_": model_to_bytes(state["model_"])} if "model_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({**state, "model_": model_from_bytes(state["model_"])} if "model_" in state else state)


def _small_network(data: Data) -> keras.Model:
    """Returns a compiled network of one hidden layer on scaled, flat examples."""
    penalty = keras.regularizers.L2(L2)
    model = keras.Sequential(
        [
            keras.Input(data.x.shape[1:]),
            *([keras.layers.Flatten()] if data.x.ndim > 2 else []),
            *scaling(data.x.reshape(len(data), -1), data.weight).layers(),
            keras.layers.Dense(WIDTH, "relu", kernel_regularizer=penalty),
            keras.layers.Dense(data.units, kernel_regularizer=penalty),
        ]
    )
    model.compile(keras.optimizers.Adam(LEARNING_RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
