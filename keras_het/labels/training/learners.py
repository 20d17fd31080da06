"""Three kinds of models that `clean` trains: a classifier of features, one of scikit-learn, and a Keras network."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from scipy.special import softmax
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.utils.validation import has_fit_parameter

from keras_het.base.batches import row_blocks
from keras_het.base.refusal import refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.tables import number_of
from keras_het.labels.data import Data
from keras_het.labels.estimation import check_distributions
from keras_het.labels.training import networks
from keras_het.labels.training.comparison import check_learned, warn_if_weak
from keras_het.labels.training.linear import Choice, Features, scaling
from keras_het.labels.training.progress import Progress
from keras_het.labels.training.stored import Folder
from keras_het.labels.training.trainer import Trainer, Unchanged, cross_validate, open_folder
from keras_het.reading.data import first_not_finite

KINDS = (
    "be a scikit-learn classifier with `predict_proba`, a function that returns a new compiled Keras model, a trained "
    "Keras model, or None"
)
REMEDY = "check that rows and labels have the same order, and that the features belong to these classes"
FOLDS = 5  # that choose a classifier if the user passes probabilities
MAX_INNER_FOLDS = 4  # of the other folds, to choose the issues that a training leaves out
EMPTY_LOGIT = -1e9  # of a class without labels
NETWORK_OPTIONS = ("epochs", "resume_path", "callbacks", "steps_per_epoch")


class _ClosedForm:
    """Model that is trained in one step, without progress and stored trainings."""

    inner_folds = MAX_INNER_FOLDS

    def running(self) -> contextlib.AbstractContextManager:
        """Returns a context that does nothing."""
        return contextlib.nullcontext()

    def check_probabilities(self, p: np.ndarray, data: Data, fold_of: np.ndarray) -> None:
        """Raises a ValueError if the classifier learned nothing."""
        check_learned(p, data.labels, remedy=REMEDY)


class FeatureLearner(_ClosedForm):
    """Better of logistic regression and a discriminant on features, by held-out labels.

    The features are `x` itself, or come from a trained Keras model.
    """

    def __init__(self, trained: keras.Model | None = None):
        self.trained = trained
        self.choice: Choice | None = None

    def check(self, data: Data) -> None:
        """Raises a ValueError for examples that are no features."""
        shape, dtype = getattr(data.x, "shape", None), getattr(data.x, "dtype", None)
        received = f"a {type(data.x).__name__}" if shape is None else f"shape {tuple(shape)}"
        rule = "be features, numbers of shape (N, D) with D >= 1; for other examples pass a function or a trained model"
        refuse_if(shape is None or len(shape) != 2 or not shape[1], "x", rule, received)
        refuse_if(getattr(dtype, "kind", "f") in "OSUc", "x", rule, f"dtype {dtype}")
        row = first_not_finite(data.x)
        refuse_if(row is not None, "x", "be finite", f"nan or infinity in example {row}")

    def cross_validate(self, data: Data, fold_of: np.ndarray, seed: int, name: str = "") -> np.ndarray:
        """Returns out-of-sample probabilities, `(N, K)`, of the candidate that the first call chooses."""
        return self._predict(data, fold_of, np.arange(len(data)))

    def predict(self, data: Data, train: np.ndarray, test: np.ndarray, seed: int, name: str = "") -> np.ndarray:
        """Returns the probabilities of the `test` examples, a mask, by training on the `train` ones."""
        return self._predict(data, test.astype(int), np.flatnonzero(test), train)

    def _predict(self, data: Data, fold_of: np.ndarray, rows: np.ndarray, kept: np.ndarray | None = None) -> np.ndarray:
        features = Features(data, scaling(data.x, data.weight))
        if self.choice is None:
            features.scale.warn_of_rounding()
        choice = self.choice = self.choice or features.choose(fold_of)
        (logits,) = features.held_out((choice.candidate,), fold_of, rows, kept)
        for block in row_blocks(len(logits)):
            logits[block] = softmax(np.float32(choice.factor) * logits[block], axis=1)
        return logits

    def describe(self) -> str:
        """Returns the classifier, and how well both kinds predict held-out labels."""
        assert self.choice is not None
        scores = [f"{kind} {score:.3f}" for kind, score in self.choice.scores.items()]
        compared = f", by the mean accuracy of the classes on held-out labels: {', '.join(scores)}" * (len(scores) > 1)
        text = f"{self.choice.candidate}{compared}"
        return text[0].upper() + text[1:]

    def fit(self, data: Data, seed: int) -> keras.Model:
        """Returns a Keras model of log-probabilities, from the features or from the inputs of the trained model."""
        scale = scaling(data.x, data.weight)
        features = Features(data, scale)
        choice = self.choice = self.choice or features.choose(random_generator(seed).permutation(len(data)) % FOLDS)
        kernel, bias = features.fit(choice, np.arange(len(data)))
        kernel = kernel / scale.deviation[:, None]  # so that the layer reads features as they are
        dense = keras.layers.Dense(data.units, "log_softmax", dtype="float32")
        model = keras.Sequential([keras.Input(data.x.shape[1:]), dense])
        dense.set_weights([kernel, np.maximum(bias - scale.mean @ kernel, EMPTY_LOGIT)])
        model = model if self.trained is None else networks.join(self.trained, model)
        return networks.compile_with_crossentropy(model, keras.optimizers.Adam())


class EstimatorLearner(_ClosedForm):
    """Classifier of scikit-learn, cloned for each training."""

    def __init__(self, estimator: Any):
        self.estimator = estimator

    def check(self, data: Data) -> None:
        """Raises a ValueError for weights that the estimator cannot use."""
        rule = f"be None, because `fit` of {type(self.estimator).__name__} has no `sample_weight`"
        refuse_if(data.weight is not None and not self._has_weights, "sample_weight", rule, "weights")

    @property
    def _has_weights(self) -> bool:
        return has_fit_parameter(self.estimator, "sample_weight")

    def cross_validate(self, data: Data, fold_of: np.ndarray, seed: int, name: str = "") -> np.ndarray:
        """Returns out-of-sample probabilities, `(N, K)`; 0 for a class without labels in the other folds."""
        p = np.zeros((len(data), data.units), "float32")
        for fold in np.unique(fold_of).tolist():
            p[fold_of == fold] = self.predict(data, fold_of != fold, fold_of == fold, seed + fold)
        return p

    def predict(self, data: Data, train: np.ndarray, test: np.ndarray, seed: int, name: str = "") -> np.ndarray:
        """Returns the probabilities of the `test` examples, a mask, by training on the `train` ones."""
        part = data[train]
        fitted, occur = self._fit(part, np.arange(data.units), seed), np.unique(part.labels)
        p = np.zeros((int(test.sum()), data.units), "float32")
        p[:, getattr(fitted, "classes_", occur)] = fitted.predict_proba(data[test].x)
        return check_distributions(p, f"predict_proba of {type(self.estimator).__name__}", keep_float32=True)

    def describe(self) -> str:
        """Returns the estimator."""
        return " ".join(str(self.estimator).split())

    def fit(self, data: Data, seed: int) -> Any:
        """Returns a fitted clone; its classes are the names of `data`."""
        return self._fit(data, data.classes, seed)

    def _fit(self, data: Data, names: np.ndarray, seed: int) -> Any:
        """Returns a clone fitted to labels; distributions become weighted examples if it has weights."""
        estimator = clone(self.estimator)
        states = {name: value for name, value in estimator.get_params().items() if name.endswith("random_state")}
        estimator.set_params(**{name: seed for name, value in states.items() if value is None})
        if len(np.unique(data.labels)) < 2:  # many classifiers refuse a single class
            estimator = DummyClassifier()
        if data.y.ndim == 1 or not self._has_weights:
            weights = {} if data.weight is None else {"sample_weight": data.weight}
            return estimator.fit(data.x, names[data.labels], **weights)
        rows, labels = np.nonzero(data.y)
        weight = data.y[rows, labels] * (1.0 if data.weight is None else data.weight[rows])
        return estimator.fit(data[rows].x, names[labels], sample_weight=weight)


@dataclasses.dataclass
class NetworkLearner:
    """Function that returns a new compiled Keras model, trained with its own loss."""

    trainer: Trainer
    folder: Folder
    inner_folds = 2  # fewer trainings

    @classmethod
    def of(
        cls,
        make_model: Any,
        data: Data,
        *,
        epochs: Any,
        resume_path: Any,
        callbacks: Any,
        seed: int,
        folds: int,
        rounds: int,
        verbose: int,
        **options: Any,
    ) -> "NetworkLearner":
        """Returns the learner of a function, for `rounds` of trainings and a final one."""
        options |= {"callbacks": keras.tree.flatten(callbacks or []), "verbose": verbose}
        trainer = Trainer(make_model, epochs, measures_every_epoch=False, **options)
        trainer = dataclasses.replace(trainer, bar=Progress((1 + rounds) * trainer.epochs, verbose))
        folder = open_folder(resume_path, trainer, data, [make_model], seed=seed, folds=folds, methods=[Unchanged()])
        return cls(trainer, folder)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Shows progress, and what is stored if the call is interrupted."""
        with self.trainer.bar, self.folder.interruptible():
            yield

    def check(self, data: Data) -> None:
        """Warns of examples that are not finite."""
        self.trainer.check(data)

    def check_probabilities(self, p: np.ndarray, data: Data, fold_of: np.ndarray) -> None:
        """Raises a ValueError if the network learned nothing; warns if it is weak."""
        check_learned(p, data.labels)
        warn_if_weak(p, data, fold_of)

    def cross_validate(self, data: Data, fold_of: np.ndarray, seed: int, name: str = "model") -> np.ndarray:
        """Returns out-of-sample probabilities, `(N, K)`; `name` is for the stored trainings."""
        return cross_validate(self.trainer, Unchanged(name), data, fold_of, seed, self.folder).probabilities

    def predict(self, data: Data, train: np.ndarray, test: np.ndarray, seed: int, name: str = "") -> np.ndarray:
        """Returns the probabilities of the `test` examples, a mask, by training on the `train` ones."""
        rows = np.flatnonzero(train | test)
        part, fold_of = data[rows], test[rows].astype(int)
        trial = cross_validate(self.trainer, Unchanged(name), part, fold_of, seed, self.folder, only=1)
        return trial.probabilities[fold_of == 1]

    def describe(self) -> str:
        """Returns the kind of model."""
        return f"Keras network, {number_of(self.trainer.epochs, 'epoch')}"

    def fit(self, data: Data, seed: int) -> keras.Model:
        """Returns the function's model, trained on the examples."""
        return self.trainer.final(Unchanged(), data, seed=seed, epochs=self.trainer.epochs)


Learner = FeatureLearner | EstimatorLearner | NetworkLearner


def learner_of(classifier: Any, data: Data, *, batch_size: int, **options: Any) -> Learner:
    """Returns the learner of a `classifier`, with the options of `clean`."""
    is_estimator = hasattr(classifier, "fit") and hasattr(classifier, "predict_proba")
    is_features = classifier is None or isinstance(classifier, keras.Model)
    is_class = is_estimator and isinstance(classifier, type) and not issubclass(classifier, keras.Model)
    refuse_if(is_class, "classifier", KINDS, f"the class {getattr(classifier, '__name__', '')}")
    refuse_if(not (is_features or is_estimator or callable(classifier)), "classifier", KINDS, kind=classifier)
    if is_features or is_estimator:
        for name in NETWORK_OPTIONS:
            received = f"a {type(classifier).__name__} and {name}={options[name]!r}"
            refuse_if(options[name] is not None, name, "be None, unless `classifier` is a function", received)
        return FeatureLearner(classifier) if is_features else EstimatorLearner(classifier)
    return NetworkLearner.of(classifier, data, batch_size=batch_size, **options)
