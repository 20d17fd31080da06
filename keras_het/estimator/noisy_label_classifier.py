"""A small network as a scikit-learn estimator that chooses its method for noisy labels by itself."""

import dataclasses
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from keras_het.base.batches import check_same_index
from keras_het.base.classes import Encoded
from keras_het.estimator.network import NetworkClassifier, is_votes
from keras_het.labels.choose import choose
from keras_het.labels.data import read_labels
from keras_het.labels.methods import METHODS


class NoisyLabelClassifier(NetworkClassifier):
    """A classifier for tables or images with noisy labels, which chooses its method by these labels: see `choose`.

    It trains a small network by each method on parts of the data, chooses one, and trains it on all examples. Adam
    trains all of them. It works with all tools that take a scikit-learn estimator: pipelines, `cross_val_predict`,
    `GridSearchCV`, and cleanlab's `CleanLearning`. Each of their fits is a whole choice. It needs scikit-learn:
    `pip install scikit-learn`.

    Equal data and an equal integer `random_state` give equal probabilities on one backend and one machine. No global
    random state of Python, NumPy, Keras or PyTorch changes; that of TensorFlow keeps the last seed.

    Args:
        hidden: the widths of Dense layers with relu, which take flat examples.
        make_model: a function without arguments that returns a new compiled model of the K classes: see
            `labels.choose`. None makes a small network of `hidden`, `standardize`, `learning_rate` and `l2`, which
            otherwise do not count.
        methods: argument of `choose`; None for `labels.METHODS`.
        standardize: boolean, whether the model first gives the features, or the channels of images, mean 0 and variance
            1. Set it to False for features that are nearly always 0, such as flat pixels.
        epochs: the largest number of passes over the data; the labels choose how many.
        batch_size: size of the batches of training and prediction.
        learning_rate: learning rate of Adam.
        l2: the strength of the penalty on the kernels of hidden layers that are given as widths.
        folds: argument of `choose`.
        verbose: argument of `choose`.
        random_state: an integer, a `RandomState`, or None for another state every time.

    Attributes:
        classes_: `(K,)`, sorted.
        n_features_in_: the size of the second axis of X.
        model_: the fitted Keras model, which takes raw X and returns log-probabilities.
        choice_: the result of `labels.choose`, with the table of methods, the reason, and the label issues.

    Example:
        >>> x, y = np.eye(3)[:, :2].repeat(20, axis=0), np.array(["ant", "bee", "cat"]).repeat(20)
        >>> classifier = NoisyLabelClassifier((8,), epochs=20, learning_rate=0.05, folds=2, random_state=0)
        >>> classifier = classifier.fit(x, y)
        >>> classifier.classes_.tolist(), classifier.predict_proba(x).shape, classifier.choice_.name
        (['ant', 'bee', 'cat'], (60, 3), 'early-learning regularisation (3)')
    """

    def __init__(
        self,
        hidden: Any = (128,),
        *,
        make_model: Any = None,
        methods: Any = None,
        standardize: bool = True,
        epochs: int = 50,
        batch_size: int = 64,
        learning_rate: float = 5e-3,
        l2: float = 1e-3,
        folds: int = 5,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self.hidden = hidden
        self.make_model = make_model
        self.methods = methods
        self.standardize = standardize
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.l2 = l2
        self.folds = folds
        self.verbose = verbose
        self.random_state = random_state

    def fit(self, X: Any, y: Any, **refused: Any) -> Self:
        """Chooses a method, and trains a new network by it.

        Args:
            X: numbers of shape `(N, D)`, or images `(N, height, width, channels)`.
            y: labels, `(N,)`: integers, strings or booleans, of at least two classes; no -1, which means that there is
                no label, unless the classes are -1 and 1. A Series of pandas must have the index of a frame X. Or
                labels of several annotators, `(N, M)`, as for `choose`.
            refused: no other argument is taken, above all no `sample_weight`: some methods use the weights.
        Returns:
            itself.
        Raises:
            ValueError: for other data or arguments, or arguments out of range.
        """
        if refused:  # not an argument of its own: scikit-learn would take that for the weights to work
            rule = "be called with X and y alone: some methods use the weights"
            raise ValueError(f"`fit` must {rule}. Received: {', '.join(refused)}")
        X, labels = self._checked_votes(X, y) if is_votes(y) else self._checked(X, y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1 - 1000))
        self.choice_ = choose(
            self._maker(X, np.ones(len(X), "float32")),
            X,
            labels if is_votes(y) else Encoded(self.classes_, labels),
            methods=METHODS if self.methods is None else self.methods,
            epochs=self.epochs,
            batch_size=self.batch_size,
            folds=self.folds,
            seed=seed,
            verbose=self.verbose,
        )
        self.model_ = self.choice_.model
        return self

    def _checked_votes(self, X: Any, y: Any) -> tuple[Any, Any]:
        """X as float32, and y as it is; sets `classes_`."""
        check_same_index(X=X, y=y)
        X = validate_data(self, X, dtype="float32", allow_nd=True)
        self.classes_ = read_labels(y, len(X)).classes
        return X, y

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "choice_" in state:  # its model is `model_`, which is kept once
            choice = state["choice_"]
            state["choice_"] = dataclasses.replace(
                choice, model=None, trainer=dataclasses.replace(choice.trainer, make_model=None)
            )
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "choice_" in state:
            self.choice_ = dataclasses.replace(self.choice_, model=self.model_)
