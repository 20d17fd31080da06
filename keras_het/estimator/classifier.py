"""A network and a heteroscedastic head as a scikit-learn estimator; scikit-learn is imported only with this module."""

from typing import Any, Self

import keras
import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from keras_het.base.batches import check_same_index
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_integer, check_number, check_weights
from keras_het.estimator.network import NetworkClassifier, is_votes
from keras_het.estimator.shuffled import ShuffledBatches
from keras_het.labels import networks
from keras_het.layers import HeteroscedasticDense
from keras_het.models.copying import unchanged_seed
from keras_het.reading.check import judge


class HeteroscedasticClassifier(NetworkClassifier):
    """A classifier for tables or images with noisy labels: a network and a `HeteroscedasticDense` head.

        predict_proba(x) = E[softmax(u / temperature)],    u ~ N(mu(h), diag(d(h)^2) + V(h) V(h)'),    h = network(x)

    Adam trains it, and all is computed in float32. It works with all tools that take a scikit-learn estimator:
    pipelines, `cross_val_predict`, `GridSearchCV` (over the temperature, by `neg_log_loss`), cleanlab. It needs
    scikit-learn: `pip install scikit-learn`.

    Equal data and an equal integer `random_state` give equal probabilities on one backend and one machine, to the bit
    on a CPU, whatever was drawn before. Another backend, machine or version rounds otherwise, and training makes the
    difference grow. No global random state of Python, NumPy or Keras changes. Give a `Dropout` of your own a seed:
    without one it draws from the global state of PyTorch.

    Args:
        hidden: the widths of Dense layers with relu, which take flat examples.
        make_model: a function without arguments that returns a new compiled model of the K classes, whose last layer
            the head replaces: see `labels.choose`. None makes a small network of `hidden`, `standardize`,
            `learning_rate` and `l2`, which otherwise do not count.
        num_factors: argument of `HeteroscedasticDense`.
        parameter_efficient: argument of `HeteroscedasticDense`.
        covariance: argument of `HeteroscedasticDense`.
        temperature: argument of `HeteroscedasticDense`. The default is for noisy labels, and hardly worse without wrong
            ones; `GridSearchCV` chooses another.
        integrator: argument of `HeteroscedasticDense`.
        head_arguments: a dict of other arguments of the head, such as {"link": "normalized_sigmoid"}; None for none.
        standardize: boolean, whether the model first gives the features, or the channels of images, mean 0 and variance
            1. Set it to False for features that are nearly always 0, such as flat pixels, and scale them yourself: one
            rare value would be many standard deviations.
        epochs: the largest number of passes over the data.
        batch_size: the largest size of a batch in training, and the size in prediction.
        learning_rate: learning rate of Adam.
        l2: the strength of the penalty on the kernels of mu and of hidden layers that are given as widths.
        validation_fraction: the share of the examples held out for early stopping by their loss, which keeps the
            weights of the best epoch; 0 trains on all examples for all epochs. Few examples are worth more in training
            than as a reason to stop; with thousands, or without `l2`, hold some out.
        patience: epochs without a better loss after which training stops.
        verbose: argument of `fit` of Keras.
        random_state: an integer, a `RandomState`, or None for another state every time; see above for where an equal
            one gives equal probabilities.

    Attributes:
        classes_: `(K,)`, sorted.
        n_features_in_: the size of the second axis of X.
        model_: the fitted Keras model, which takes raw X and returns log-probabilities; `keras_het.explain` takes it.
        history_: dict of lists, the loss of each epoch, and `val_loss` where examples are held out.

    Example:
        >>> x, y = np.eye(3)[:, :2].repeat(8, axis=0), np.array(["ant", "bee", "cat"]).repeat(8)
        >>> classifier = HeteroscedasticClassifier(hidden=(8,), epochs=20, learning_rate=0.03, random_state=0).fit(x, y)
        >>> classifier.predict(x[[0, 8, 16]]).tolist(), classifier.predict_proba(x[:2]).shape
        (['ant', 'bee', 'cat'], (2, 3))
    """

    def __init__(
        self,
        hidden: Any = (128,),
        *,
        make_model: Any = None,
        num_factors: int | None = None,
        parameter_efficient: bool = False,
        covariance: Any = None,
        temperature: Any = 5.0,
        integrator: Any = None,
        head_arguments: dict[str, Any] | None = None,
        standardize: bool = True,
        epochs: int = 50,
        batch_size: int = 64,
        learning_rate: float = 5e-3,
        l2: float = 1e-3,
        validation_fraction: float = 0.0,
        patience: int = 10,
        verbose: Any = 0,
        random_state: Any = None,
    ):
        self.hidden = hidden
        self.make_model = make_model
        self.num_factors = num_factors
        self.parameter_efficient = parameter_efficient
        self.covariance = covariance
        self.temperature = temperature
        self.integrator = integrator
        self.head_arguments = head_arguments
        self.standardize = standardize
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.l2 = l2
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Trains a new network.

        Args:
            X: numbers of shape `(N, D)`, or images `(N, height, width, channels)`.
            y: labels, `(N,)`: integers, strings or booleans, of at least two classes; no -1, which means that there is
                no label, unless the classes are -1 and 1. A Series of pandas must have the index of a frame X.
            sample_weight: numbers, not negative, `(N,)`; examples of weight zero do not count.
        Returns:
            itself.
        Raises:
            ValueError: for other data, or arguments out of range.
        """
        check_same_index(X=X, sample_weight=sample_weight)
        if is_votes(y):
            rule = "have one label for each example (`NoisyLabelClassifier` takes those of several annotators)"
            raise refusal("y", rule, "a matrix of labels")
        X, labels = self._checked(X, y)
        given = check_weights(sample_weight, len(X))
        weights = np.ones(len(X), "float32") if given is None else given.astype("float32")
        counts = weights > 0
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._train(X[counts], labels[counts], weights[counts] / weights[counts].mean(), seed)
        return self

    def _train(self, x: np.ndarray, labels: np.ndarray, weights: np.ndarray, seed: int) -> None:
        epochs, batch_size = check_integer("epochs", self.epochs, 1), check_integer("batch_size", self.batch_size, 1)
        train, held_out = self._split(labels, seed)
        data = x[train], labels[train], weights[train]
        with unchanged_seed(seed):
            self.model_ = self._network(*data)
        judge(self.model_, data[0], data[1])
        self.history_ = self.model_.fit(
            ShuffledBatches(data, batch_size, seed),
            validation_data=(x[held_out], labels[held_out], weights[held_out]) if len(held_out) else None,
            validation_batch_size=batch_size,
            callbacks=self._callbacks() if len(held_out) else None,
            epochs=epochs,
            shuffle=False,
            verbose=self.verbose,
        ).history
        networks.mark_trained(self.model_)

    def _split(self, labels: np.ndarray, seed: int) -> Any:
        """Rows to train on, and rows to hold out, with their share of every class."""
        fraction, rows = check_number("validation_fraction", self.validation_fraction, low=0.0), np.arange(len(labels))
        if fraction >= 1.0:
            raise ValueError(f"`validation_fraction` must be less than 1. Received: validation_fraction={fraction}")
        if not fraction:
            return rows, rows[:0]
        return train_test_split(rows, test_size=fraction, stratify=labels, random_state=seed)

    def _callbacks(self) -> list[keras.callbacks.Callback]:
        patience = check_integer("patience", self.patience, 1)
        return [keras.callbacks.EarlyStopping("val_loss", patience=patience, mode="min", restore_best_weights=True)]

    def _network(self, x: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> keras.Model:
        made = networks.checked_model(self._maker(x, weights)(), x, len(self.classes_))
        head = self._head(networks.options_of(networks.own_head(made).head))
        model, _ = networks.replace_head(made, [head], [])
        model.compile(made.optimizer, head.link.loss(), auto_scale_loss=False)
        return model

    def _head(self, options: dict[str, Any]) -> HeteroscedasticDense:
        """A new head with copies of the given objects, which a second `fit` or a clone may use again."""
        given = {"covariance": self.covariance, "temperature": self.temperature, "integrator": self.integrator}
        head = HeteroscedasticDense(
            len(self.classes_),
            self.num_factors,
            parameter_efficient=self.parameter_efficient,
            **{name: _description(value) for name, value in given.items()},
            **{**options, **{k: _description(v) for k, v in (self.head_arguments or {}).items()}},
        )
        if head.link.activation != "softmax":
            raise ValueError(
                f"`link` in `head_arguments` must be one of exclusive classes. Received: {type(head.link).__name__}"
            )
        return head


def _description(value: Any) -> Any:
    """The dict that makes another Keras object like this one; any other value unchanged."""
    return keras.saving.serialize_keras_object(value) if hasattr(value, "get_config") else value
