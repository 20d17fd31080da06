"""Scikit-learn estimator that trains a network on noisy labels."""

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
from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.seeds import preserve_random_states
from keras_het.base.validation import check_maker, check_weights
from keras_het.labels.classes import refuse_blank
from keras_het.labels.data import Data
from keras_het.labels.methods import EarlyLearning, Method
from keras_het.labels.training.comparison import describe_failure
from keras_het.labels.training.linear import scaling
from keras_het.labels.training.trainer import Trainer

HIDDEN_UNITS = 128
LEARNING_RATE = 5e-3
L2 = 1e-3
REMEDY = (
    "check that the rows of X and y belong together; for a network, train for more `epochs`, or pass a `make_model` "
    "with another learning rate"
)


class Classifier(ClassifierMixin, BaseEstimator):
    """Scikit-learn estimator: a Keras network, trained on noisy labels by one method.

    It works in pipelines, `cross_val_predict`, `GridSearchCV` (over `method` and `epochs`), and cleanlab's
    `CleanLearning`. It needs scikit-learn: `pip install scikit-learn`.

    Training runs for all `epochs` and averages the weights over them, as in `labels.choose`. Call `labels.choose` to
    choose the method and the number of epochs.

    Equal data and an equal integer `random_state` give equal probabilities on one backend and one machine, to the bit
    on a CPU. Other backends and machines round differently, and the differences grow in training. The global random
    states of Python, NumPy, Keras and PyTorch do not change; TensorFlow keeps the last seed.

    Args:
        make_model: function without arguments that returns a new compiled model of the K classes. The method replaces
            its last layer and its loss, as in `labels.choose`. None trains a network of 128 ReLU units on the scaled,
            flattened examples. It uses Adam with a learning rate of 5e-3, and an L2 penalty of 1e-3 on the kernels.
        method: `labels.methods.Method`, such as `methods.Heteroscedastic()`; None for `methods.EarlyLearning()`.
        epochs: number of passes over the data.
        batch_size: size of the batches of training and prediction.
        random_state: integer, `RandomState`, or None for a new state in every fit.

    Attributes:
        classes_: names of the classes, `(K,)`, sorted.
        n_features_in_: size of the second axis of X.
        model_: fitted Keras model, from raw X to log-probabilities. `keras_het.explain` accepts it if it has a
            heteroscedastic head.

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
            sample_weight: weights of the examples, `(N,)`, not negative, of any scale. Examples of weight zero are left
                out.
        Returns:
            the estimator.
        Raises:
            ValueError: for data or arguments out of range.
        Warns: if the model predicts its training labels no better than the majority class.
        """
        check_same_index(X=X, y=y, sample_weight=sample_weight)
        values = X
        X, y = validate_data(self, X, y if hasattr(y, "dtype") else as_array("y", y), dtype="float32", allow_nd=True)
        if X.ndim == 2:
            scaling(np.asarray(values, "float64")).warn_of_rounding()
        data = self._weighted(Data(X, self._encode(y), self.classes_), sample_weight)
        method = EarlyLearning() if self.method is None else self.method
        rule = "be a Method, such as labels.methods.EarlyStopping(), or None"
        refuse_if(not isinstance(method, Method), "method", rule, value=method)
        trainer = Trainer(self._maker(data), self.epochs, batch_size=self.batch_size, verbose=0)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.model_ = trainer.final(method, data, seed=seed, epochs=self.epochs)
        if failure := describe_failure(np.exp(self._log_probabilities(data.x)), data.y):
            text = f"The model learned nothing from its training data: {failure}. Remedy: {REMEDY}."
            warnings.warn(text, stacklevel=outside_level())
        return self

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Returns the logarithms of the probabilities of the classes, `(N, K)`, float64."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype="float32", allow_nd=True, reset=False)
        shape = self.model_.input_shape[1:]
        refuse_if(X.shape[1:] != shape, "X", f"have examples of shape {shape}", X.shape[1:])
        return self._log_probabilities(X)

    @preserve_random_states()  # PyTorch draws in Keras' `predict`
    def _log_probabilities(self, X: np.ndarray) -> np.ndarray:
        """Returns log-probabilities of the classes, `(N, K)`; equal if the training diverged."""
        outputs = self.model_.predict(X, batch_size=self.batch_size, verbose=0)
        outputs = np.where(np.isfinite(outputs).all(axis=1, keepdims=True), outputs, 0.0)
        # In float64, because scikit-learn's `log_loss` warns of sums that are 1 only in float32.
        return log_softmax(outputs.astype("float64"), axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probabilities of the classes, in the order of `classes_`, `(N, K)`, float64."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> np.ndarray:
        """Returns the most probable class of each example, `(N,)`."""
        # Before `classes_`: without a fit, this raises a clear error, and `classes_` an AttributeError.
        indices = self.predict_log_proba(X).argmax(axis=1)
        return self.classes_[indices]

    def _encode(self, y: np.ndarray) -> np.ndarray:
        """Sets `classes_` and returns the labels as indices of it, `(N,)`."""
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        refuse_if(len(self.classes_) < 2, "y", "have at least two classes", "1 class")
        if self.classes_[0] == -1 and self.classes_[1:].tolist() != [1]:  # scikit-learn accepts -1 and 1 as classes
            refuse_blank(int(labels.argmin()))
        return labels.astype("int32")

    def _weighted(self, data: Data, sample_weight: Any) -> Data:
        """Returns the examples with a weight above zero, and weights of mean one."""
        weights = check_weights(sample_weight, len(data))
        if weights is None:
            return data
        rows = weights > 0
        scaled = (weights[rows] / weights[rows].mean()).astype("float32")
        return Data(data.x[rows], data.y[rows], data.classes, scaled)

    def _maker(self, data: Data) -> Any:
        """Returns the function that makes models."""
        if self.make_model is not None:
            check_maker(self.make_model, ", or None")
            return self.make_model
        return lambda: _small_network(data)


def _small_network(data: Data) -> keras.Model:
    """Returns a compiled network of one hidden layer on scaled, flat examples."""
    penalty = keras.regularizers.L2(L2)
    model = keras.Sequential(
        [
            keras.Input(data.x.shape[1:]),
            *([keras.layers.Flatten()] if data.x.ndim > 2 else []),
            scaling(data.x.reshape(len(data), -1), data.weight).layer(),
            keras.layers.Dense(HIDDEN_UNITS, "relu", kernel_regularizer=penalty),
            keras.layers.Dense(data.units, kernel_regularizer=penalty),
        ]
    )
    model.compile(keras.optimizers.Adam(LEARNING_RATE), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
