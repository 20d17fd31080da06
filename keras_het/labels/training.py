"""The one training of the room: a method on some data, measured on held-out examples."""

import dataclasses
import hashlib
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from scipy.special import softmax

from keras_het.base.batches import batches, count_examples, is_data_set
from keras_het.base.internals import layers_of
from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.seeds import preserve_random_states
from keras_het.base.validation import check_choice, check_integer
from keras_het.labels import networks
from keras_het.labels.data import Data, read
from keras_het.labels.discriminant import scaling, warn_of_values
from keras_het.labels.methods import EarlyStopping, LinearDiscriminant, Method
from keras_het.labels.progress import Progress
from keras_het.labels.stored import Folder, described, rows_of, settings_of
from keras_het.layers import NoiseTransition
from keras_het.reading.check import collect_warnings
from keras_het.reading.data import first_not_finite
from keras_het.reading.probabilities import exclusive_probabilities

CRITERIA = ("accuracy", "loss")
RESULT_SETTINGS = ("epochs", "criterion", "batch_size", "optimizer", "steps_per_epoch", "measures_every_epoch")
MOMENTUM = 0.8  # per epoch, of the average of the weights
MAX_NAME = 100  # bytes of a name in the name of a file: file systems take 255
WINDOW = 5  # epochs, of the moving mean by which the best epoch is found
SMALLEST = float(np.finfo("float32").tiny)


class Unchanged(Method):
    """The user's own model, with its own head and loss."""

    def __init__(self, name: str = "model"):
        self.name = name

    def labels(self, data: Data) -> Any:
        return data.labels


class Fitted(NamedTuple):
    """A finished training: the model of the true classes, with averaged weights, and its optimizer.

    It has the scores of held-out examples after each epoch, `(epochs, n)`, and their probabilities at the best epoch.
    """

    model: keras.Model
    optimizer: Any
    scores: np.ndarray
    probabilities: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """A method, measured by cross-validation.

    Attributes:
        method: the method.
        epoch: best epoch, counted from 1.
        score: score of each example at this epoch, `(N,)`: whether its label is predicted, or log p(label).
        probabilities: probabilities of each example by a model that was not trained on it, `(N, K)`, float32.
        seconds: time of the trainings.
        trainings: number of trainings.
    """

    method: Method
    epoch: int
    score: np.ndarray
    probabilities: np.ndarray
    seconds: float = 0.0
    trainings: int = 0

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.method.name


@dataclasses.dataclass(frozen=True)
class Trainer:
    """Trains methods with the same network, optimizer and options, which are arguments of `choose`.

    A `make_model` that is a trained model makes features, on which methods train a linear model; the final model joins
    the two. If `measures_every_epoch` is False, the last epoch counts instead of the best one.
    """

    make_model: Any
    epochs: int = 1
    optimizer: Any = None
    batch_size: int = 128
    criterion: str = "accuracy"
    callbacks: Sequence[keras.callbacks.Callback] = ()
    steps_per_epoch: int | None = None
    measures_every_epoch: bool = True
    verbose: int = 1
    bar: Progress = dataclasses.field(default_factory=lambda: Progress(0, 0), compare=False, repr=False)

    @property
    def frozen(self) -> keras.Model | None:
        """The trained model that makes the features, or None."""
        return self.make_model if isinstance(self.make_model, keras.Model) else None

    @property
    def function(self) -> Callable[[], Any] | None:
        """The function that makes new models; None for a linear model on features."""
        return None if self.frozen is not None else self.make_model

    def __post_init__(self) -> None:
        networks.check_maker_or_none(self.function, self.optimizer)
        check_integer("epochs", self.epochs, 1)
        check_integer("batch_size", self.batch_size, 1)
        check_choice("criterion", self.criterion, CRITERIA)
        check_choice("verbose", self.verbose, (0, 1, 2))

    def check(self, data: Data) -> None:
        """Raises a ValueError for features that are not finite; warns of inputs, and of values far from others."""
        dtype = getattr(data.x, "dtype", None) if self.function is None else None
        rule = "be an array of real numbers: x.astype('float32')"
        refuse_if(getattr(dtype, "kind", "f") in "OSUc", "x", rule, f"dtype {dtype}")
        rows = [first_not_finite(part) for part in keras.tree.flatten(data.x)]
        row = min((row for row in rows if row is not None), default=None)
        refuse_if(row is not None and self.function is None, "x", "be finite", f"nan or infinity in example {row}")
        if row is not None:
            warnings.warn(f"`x` has nan or infinity in example {row}.", stacklevel=outside_level())
        if self.function is None and getattr(data.x, "ndim", 0) == 2:
            warn_of_values(data.x)

    @preserve_random_states()
    def __call__(
        self, method: Method, data: Data, held_out: Data | None = None, *, seed: int, epochs: int | None = None
    ) -> Fitted:
        """Trains a method on some data, and measures it by the examples held out; the seed fixes all draws."""
        keras.utils.set_random_seed(seed)
        epochs, model = self.epochs if epochs is None else epochs, networks.make(self.function, data, self.optimizer)
        if method.is_closed_form:
            model.layers[-1].set_weights(method.solve(data, scaling(data.x, data.weight)))
            record = Record(model, _log_outputs, held_out, self)
            return Fitted(model, model.optimizer, *record.result())
        is_own = isinstance(method, Unchanged)
        trained, predictor = (model, model) if is_own else networks.with_method(model, method, data)
        labels, predict = method.labels(data), _own_probabilities if is_own else _log_outputs
        x = networks.training_inputs(trained, predictor, data.x)
        collect_warnings(trained, x, labels)
        record = Record(predictor, predict, held_out, self)
        trained.fit(
            x,
            labels,
            sample_weight=method.sample_weight(data),
            batch_size=self.batch_size,
            epochs=epochs,
            steps_per_epoch=self.steps_per_epoch,
            callbacks=[*self.callbacks, *method.callbacks(), record],
            verbose=2 if self.verbose == 2 else 0,
        )
        networks.mark_trained(trained)
        self.bar.add(epochs)
        return Fitted(predictor, trained.optimizer, *record.result())

    def final(self, method: Method, data: Data, *, seed: int, epochs: int) -> keras.Model:
        """Returns the model that a user gets, trained on all of the data, and compiled."""
        model, optimizer, *_ = self(method, data, seed=seed, epochs=epochs)
        if isinstance(method, Unchanged):
            return model
        return networks.compiled(model if self.frozen is None else networks.joined(self.frozen, model), optimizer)


class Record(keras.callbacks.Callback):
    """Averages the weights over the epochs, and measures the average on held-out examples after every epoch.

        a_e = (sum_{k <= e} m^(e - k) w_k) / (sum_{k <= e} m^(e - k)),      m = 0.8

    The training goes on from the weights themselves. Probabilities are kept of the best epoch alone.
    """

    def __init__(self, predictor: keras.Model, predict: Callable, held_out: Data | None, trainer: Trainer):
        super().__init__()
        self.predictor, self.predict, self.held_out, self.trainer = predictor, predict, held_out, trainer
        self.scores: list[np.ndarray] = []
        self.probabilities = np.zeros((0, 0), "float32")
        self._sums: list[Any] = []
        self._count, self._best_mean = 0.0, -np.inf

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras calls it."""
        current = self.predictor.get_weights()
        sums = self._sums or [0.0] * len(current)
        self._sums = [MOMENTUM * total + _at_least_float32(w) for total, w in zip(sums, current, strict=True)]
        self._count = MOMENTUM * self._count + 1.0
        if self.trainer.measures_every_epoch and self.held_out is not None:
            self._use_averages()
            self._measure()
            self.predictor.set_weights(current)

    def _measure(self) -> None:
        if self.held_out is None:
            return
        p = self.predict(self.predictor, self.held_out.x, self.trainer.batch_size)
        known = p if self.trainer.criterion == "accuracy" else _label_probabilities(self.predictor, p)
        scores = scores_of(known, self.held_out.y, self.trainer.criterion)
        mean = float(np.average(scores, weights=self.held_out.weight))
        if mean > self._best_mean:
            self.probabilities, self._best_mean = p, mean
        self.scores.append(scores)

    def _use_averages(self) -> None:
        """Gives the predictor the averages; a weight that is no float, such as a counter, stays as it is."""
        pairs = zip(self._sums, self.predictor.get_weights(), strict=True)
        averages = [(total / self._count).astype(own.dtype) if _is_float(own) else own for total, own in pairs]
        self.predictor.set_weights(averages)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Gives the predictor the averages; returns scores of the measured epochs, and probabilities."""
        if self._sums:
            self._use_averages()
        if not self.scores:
            self._measure()
        return (np.stack(self.scores) if self.scores else np.zeros((0, 0))), self.probabilities


def cross_validate(
    trainer: Trainer, method: Method, data: Data, fold_of: np.ndarray, seed: int, folder: Folder
) -> Trial:
    """Predicts every example by a model that was not trained on it; every method has the same seeds in each fold."""
    epochs = 1 if method.is_closed_form else trainer.epochs
    if isinstance(method, LinearDiscriminant) and getattr(data.x, "ndim", 0) == 2:  # else it is refused below
        method = method._decided(data, scaling(data.x, data.weight))
    measured = epochs if trainer.measures_every_epoch else 1
    kind = "bool" if trainer.criterion == "accuracy" and data.y.ndim == 1 else "float32"
    scores, trained = np.zeros((measured, len(data)), kind), 0
    probabilities, seconds = np.empty((len(data), data.units), "float32"), 0.0
    for fold in np.unique(fold_of).tolist():
        rows, name = fold_of == fold, f"{_file_name(method.name)}_{fold}"
        arrays = folder.read(name, measured, int(rows.sum()), data.units)
        if arrays is None:
            start = time.perf_counter()
            fitted = trainer(method, data[~rows], data[rows], seed=seed + fold, epochs=epochs)
            arrays = {"scores": fitted.scores, "probabilities": fitted.probabilities}
            arrays["seconds"] = np.array(time.perf_counter() - start)
            folder.write(name, **arrays)
        else:
            trainer.bar.add(0 if method.is_closed_form else epochs)
        count = len(arrays["scores"])  # a callback may stop the training of a fold, whose model then stays as it is
        scores[:count, rows], scores[count:, rows] = arrays["scores"], arrays["scores"][-1]
        probabilities[rows] = arrays["probabilities"]
        trained, seconds = max(trained, count), seconds + float(arrays["seconds"])
    best = best_epoch(scores[:trained], data.weight)
    epoch = best + 1 if trainer.measures_every_epoch else epochs
    return Trial(method, epoch, scores[best], probabilities, seconds, int(fold_of.max()) + 1)


def examples(
    trainer: Trainer, x: Any, y: Any, sample_weight: Any, class_names: Any, path: Any, **settings: Any
) -> tuple[Data, Data, Folder]:
    """Returns the examples as a user gives them, as the network takes them, and the folder of the call.

    For a trained model the network takes features. Those of a data set are computed as it is read.
    """
    frozen = trainer.frozen
    is_streamed = frozen is not None and is_data_set(x)
    given = read(networks.feature_batches(frozen, x) if is_streamed else x, y, sample_weight, class_names)
    total = settings["folds"] * len(settings["methods"])
    settings |= {name: getattr(trainer, name) for name in RESULT_SETTINGS}
    if path is not None and not is_streamed:  # features of a data set can differ by rounding
        settings["x"] = rows_of(given)
    folder = Folder(path, {} if path is None else settings_of(given, **described(settings)))
    if trainer.verbose and (done := folder.finished):
        print(
            f"Continues {done} of {total} trainings of folds in {folder.path}. Compared: {', '.join(folder.settings)}. "
            "Not compared: the code of the model, its layers and callbacks."
        )
    if frozen is None or is_streamed:
        return given, given, folder
    with folder.locked():
        features = networks.frozen_features(frozen, given.x, trainer.batch_size, folder.path)
    return given, dataclasses.replace(given, x=features), folder


def scores_of(p: np.ndarray, labels: np.ndarray, criterion: str) -> np.ndarray:
    """Returns the score of each example, `(N,)`: whether its label is predicted, or log p(label), float32.

    For a distribution over the labels, `(N, K)`, the score is the mean.
    """
    rows = np.arange(len(labels))
    if criterion == "accuracy":
        predicted = p.argmax(-1)
        return predicted == labels if labels.ndim == 1 else labels[rows, predicted].astype("float32")
    log_p = np.log(np.maximum(p, np.float32(SMALLEST)))
    return log_p[rows, labels] if labels.ndim == 1 else np.einsum("nk,nk->n", labels, log_p).astype("float32")


def best_epoch(scores: np.ndarray, weight: np.ndarray | None = None) -> int:
    """Returns the epoch, from 0, of the largest moving mean of the mean score; scores are `(epochs, N)`."""
    means = np.average(scores, axis=1, weights=weight)
    padded = np.pad(means, WINDOW // 2, mode="edge")
    return int(np.convolve(padded, np.full(WINDOW, 1.0 / WINDOW), "valid").argmax())


def _log_outputs(model: keras.Model, x: Any, batch_size: int) -> np.ndarray:
    """Returns the softmax of the outputs of a model, `(N, K)`, float32; uniform where a training diverged."""
    parts = [keras.ops.convert_to_numpy(model.predict_on_batch(part)) for part, _ in batches(x, batch_size)]
    p = softmax(np.concatenate(parts).astype("float32"), axis=-1)
    return np.where(np.isfinite(p).all(-1, keepdims=True), p, np.float32(1 / p.shape[-1]))


def _own_probabilities(model: keras.Model, x: Any, batch_size: int) -> np.ndarray:
    """Returns the probabilities of a user's model, `(N, K)`, float32; uniform where a training diverged."""
    if all(np.isfinite(weight).all() for weight in model.get_weights() if _is_float(weight)):
        return exclusive_probabilities(model, x, batch_size)
    return np.full((count_examples(x), model.output_shape[-1]), 1.0 / model.output_shape[-1], "float32")


def _label_probabilities(model: keras.Model, p: np.ndarray) -> np.ndarray:
    """Returns probabilities of noisy labels, `(N, K)`, by the T of a model and probabilities of true classes."""
    flips = [layer for layer in layers_of(model, NoiseTransition) if not layer.apply_at_inference]
    if not flips:
        return p
    log_p = np.log(np.maximum(p, np.float32(SMALLEST)))
    return np.exp(keras.ops.convert_to_numpy(flips[0](log_p, training=True)))


def _file_name(name: str) -> str:
    """Returns a name with nothing but letters, digits and signs that file systems take; a long one ends in a hash."""
    safe = "".join(sign if sign.isalnum() or sign == "." else "_" for sign in name)
    return safe if len(safe.encode()) <= MAX_NAME else f"{safe[:32]}_{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def check_names(methods: Sequence[Method]) -> None:
    """Raises a ValueError for methods that are none, or whose files would have the same name."""
    wrong = [method for method in methods if not isinstance(method, Method) or not method.name]
    rule = "be a list of objects of `Method`, each with a name"
    refuse_if(wrong, "methods", rule, repr(wrong[0]) if wrong else "")
    names = [_file_name(method.name).casefold() for method in methods]  # some file systems take "A" for "a"
    twice = [method.name for method, name in zip(methods, names, strict=True) if names.count(name) > 1]
    refuse_if(twice, "methods", "have different names", f"{twice[0]!r} twice" if twice else "")


def _is_float(weight: np.ndarray) -> bool:
    return "float" in weight.dtype.name  # bfloat16 is of no kind that NumPy knows


def _at_least_float32(weight: np.ndarray) -> np.ndarray:
    """Returns floats of half precision as float32: sums of them would lose what an epoch changes."""
    return weight.astype("float32") if _is_float(weight) and weight.dtype.itemsize < 4 else weight


PLAIN = EarlyStopping()
