"""Training of a method, and its cross-validation."""

import dataclasses
import hashlib
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from scipy.special import softmax

from keras_het.base.batches import batches, count_examples
from keras_het.base.internals import layers_of
from keras_het.base.refusal import outside_level, refuse_if
from keras_het.base.seeds import preserve_random_states
from keras_het.base.tables import number_of
from keras_het.base.validation import check_choice, check_integer, check_maker
from keras_het.labels.data import Data
from keras_het.labels.methods import EarlyStopping, Method
from keras_het.labels.training import networks
from keras_het.labels.training.progress import Progress
from keras_het.labels.training.stored import Folder, describe, describe_model, sample_checksum, settings_of
from keras_het.layers import NoiseTransition
from keras_het.reading.check import collect_warnings
from keras_het.reading.data import first_not_finite
from keras_het.reading.probabilities import exclusive_probabilities

CRITERIA = ("accuracy", "loss")
MAX_SEED = 2**31 - 1  # fold k uses seed + k, and Keras refuses seeds above 2**32 - 1
RESULT_SETTINGS = ("epochs", "criterion", "batch_size", "steps_per_epoch", "measures_every_epoch")
WEIGHT_MOMENTUM = 0.8  # per epoch
MAX_NAME_BYTES = 100  # file systems allow 255 for a whole file name
WINDOW_EPOCHS = 5  # for the moving mean of the scores
MIN_PROBABILITY = float(np.finfo("float32").tiny)


class Unchanged(Method):
    """Method that trains the user's model with its own head and loss."""

    def __init__(self, name: str = "model"):
        self.name = name

    def labels(self, data: Data) -> Any:
        return data.labels


class Fitted(NamedTuple):
    """Finished training.

    model: model of the true classes, with averaged weights.
    optimizer: optimizer after the training.
    scores: scores of the held-out examples after each epoch, `(epochs, n)`.
    probabilities: probabilities of the held-out examples at the best epoch, `(n, K)`.
    """

    model: keras.Model
    optimizer: Any
    scores: np.ndarray
    probabilities: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """Cross-validation of a method.

    Attributes:
        method: method of the trainings.
        epoch: best epoch, counted from 1.
        score: score of each example at this epoch, `(N,)`: whether its label is predicted, or log p(label).
        probabilities: out-of-sample probabilities, `(N, K)`, float32.
        seconds: time of the trainings.
    """

    method: Method
    epoch: int
    score: np.ndarray
    probabilities: np.ndarray
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.method.name


@dataclasses.dataclass(frozen=True)
class Trainer:
    """Training of methods with the same network and options, which are arguments of `choose`.

    If `measures_every_epoch` is False, only the last epoch is measured.
    """

    make_model: Callable[[], keras.Model]
    epochs: int = 1
    batch_size: int = 128
    criterion: str = "accuracy"
    callbacks: Sequence[keras.callbacks.Callback] = ()
    steps_per_epoch: int | None = None
    measures_every_epoch: bool = True
    verbose: int = 1
    bar: Progress = dataclasses.field(default_factory=lambda: Progress(0, 0), compare=False, repr=False)

    def __post_init__(self) -> None:
        check_maker(self.make_model)
        check_integer("epochs", self.epochs, 1)
        check_integer("batch_size", self.batch_size, 1)
        check_choice("criterion", self.criterion, CRITERIA)
        check_choice("verbose", self.verbose, (0, 1, 2))

    def check(self, data: Data) -> None:
        """Warns of examples that are not finite."""
        rows = [first_not_finite(part) for part in keras.tree.flatten(data.x)]
        if rows := [row for row in rows if row is not None]:
            warnings.warn(f"`x` has nan or infinity in example {min(rows)}.", stacklevel=outside_level())

    @preserve_random_states()
    def __call__(
        self, method: Method, data: Data, held_out: Data | None = None, *, seed: int, epochs: int | None = None
    ) -> Fitted:
        """Trains a method on `data` and measures it on `held_out`; the seed fixes all random draws."""
        keras.utils.set_random_seed(seed)
        model = networks.checked_model(self.make_model(), data.x, data.units)
        is_unchanged = isinstance(method, Unchanged)
        trained, predictor = (model, model) if is_unchanged else networks.with_method(model, method, data)
        labels, predict = method.labels(data), _model_probabilities if is_unchanged else _softmax_outputs
        x = networks.training_inputs(trained, predictor, data.x)
        collect_warnings(trained, x, labels)
        record = Record(predictor, predict, held_out, self)
        trained.fit(
            x,
            labels,
            sample_weight=method.sample_weight(data),
            batch_size=self.batch_size,
            epochs=self.epochs if epochs is None else epochs,
            steps_per_epoch=self.steps_per_epoch,
            callbacks=[*self.callbacks, *method.callbacks(), record],
            verbose=2 if self.verbose == 2 else 0,
        )
        networks.mark_trained(trained)
        self.bar.add(self.epochs if epochs is None else epochs)
        return Fitted(predictor, trained.optimizer, *record.result())

    def final(self, method: Method, data: Data, *, seed: int, epochs: int) -> keras.Model:
        """Returns the final model for the user, trained on all of the data, and compiled."""
        model, optimizer, *_ = self(method, data, seed=seed, epochs=epochs)
        return model if isinstance(method, Unchanged) else networks.compile_with_crossentropy(model, optimizer)


class Record(keras.callbacks.Callback):
    """Callback that averages the weights over the epochs, and measures the average on held-out examples.

        a_e = (sum_{k <= e} m^(e - k) w_k) / (sum_{k <= e} m^(e - k)),      m = 0.8

    The training continues from the weights, not from their average. Only the probabilities of the best epoch are kept.
    """

    def __init__(self, predictor: keras.Model, predict: Callable, held_out: Data | None, trainer: Trainer):
        super().__init__()
        self.predictor, self.predict, self.held_out, self.trainer = predictor, predict, held_out, trainer
        self.scores: list[np.ndarray] = []
        self.probabilities = np.zeros((0, 0), "float32")
        self._sums: list[Any] = []
        self._count, self._best_mean = 0.0, -np.inf

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Updates the average, and measures it."""
        current = self.predictor.get_weights()
        sums = self._sums or [0.0] * len(current)
        self._sums = [WEIGHT_MOMENTUM * total + _at_least_float32(w) for total, w in zip(sums, current, strict=True)]
        self._count = WEIGHT_MOMENTUM * self._count + 1.0
        if self.trainer.measures_every_epoch and self.held_out is not None:
            self._use_averages()
            self._measure()
            self.predictor.set_weights(current)

    def _measure(self) -> None:
        if self.held_out is None:
            return
        p = self.predict(self.predictor, self.held_out.x, self.trainer.batch_size)
        label_p = p if self.trainer.criterion == "accuracy" else _label_probabilities(self.predictor, p)
        scores = scores_of(label_p, self.held_out.y, self.trainer.criterion)
        mean = float(np.average(scores, weights=self.held_out.weight))
        if mean > self._best_mean:
            self.probabilities, self._best_mean = p, mean
        self.scores.append(scores)

    def _use_averages(self) -> None:
        """Sets the predictor's weights to the averages; non-float weights, such as counters, do not change."""
        pairs = zip(self._sums, self.predictor.get_weights(), strict=True)
        averages = [(total / self._count).astype(w.dtype) if _is_float(w) else w for total, w in pairs]
        self.predictor.set_weights(averages)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Sets the predictor's weights to the averages; returns the scores by epoch, and the probabilities."""
        if self._sums:
            self._use_averages()
        if not self.scores:
            self._measure()
        return (np.stack(self.scores) if self.scores else np.zeros((0, 0))), self.probabilities


def cross_validate(
    trainer: Trainer,
    method: Method,
    data: Data,
    fold_of: np.ndarray,
    seed: int,
    folder: Folder,
    only: int | None = None,
) -> Trial:
    """Trains a method for each fold, or for one `only`, on the other folds, with seeds that do not depend on it."""
    measured = trainer.epochs if trainer.measures_every_epoch else 1
    kind = "bool" if trainer.criterion == "accuracy" and data.y.ndim == 1 else "float32"
    scores, last_epoch = np.zeros((measured, len(data)), kind), 0
    probabilities, seconds = np.empty((len(data), data.units), "float32"), 0.0
    for fold in np.unique(fold_of).tolist() if only is None else [only]:
        rows, name = fold_of == fold, f"{_file_name(method.name)}_{fold}"
        arrays = folder.read(name, measured, int(rows.sum()), data.units)
        if arrays is None:
            start = time.perf_counter()
            fitted = trainer(method, data[~rows], data[rows], seed=seed + fold)
            arrays = {"scores": fitted.scores, "probabilities": fitted.probabilities}
            arrays["seconds"] = np.array(time.perf_counter() - start)
            folder.write(name, **arrays)
        else:
            trainer.bar.add(trainer.epochs)
        count = len(arrays["scores"])  # less than `measured` if a callback stopped the training of this fold
        scores[:count, rows], scores[count:, rows] = arrays["scores"], arrays["scores"][-1]
        probabilities[rows] = arrays["probabilities"]
        last_epoch, seconds = max(last_epoch, count), seconds + float(arrays["seconds"])
    best = best_epoch(scores[:last_epoch], data.weight)
    epoch = best + 1 if trainer.measures_every_epoch else trainer.epochs
    return Trial(method, epoch, scores[best], probabilities, seconds)


def open_folder(
    path: Any, trainer: Trainer, data: Data, makers: Sequence[Callable[[], Any]], **settings: Any
) -> Folder:
    """Returns the folder of a call, and prints how much of it is finished."""
    settings |= {name: getattr(trainer, name) for name in RESULT_SETTINGS}
    if path is not None:
        settings |= {"x": sample_checksum(data), "models": _describe_models(makers, data)}
    folder = Folder(path, {} if path is None else settings_of(data, **describe(settings)))
    if trainer.verbose and (done := folder.count_finished()):
        print(
            f"Resuming after {number_of(done, 'training')}, from {folder.path}. These settings are the same: "
            f"{', '.join(folder.settings)}. The code of your functions and classes was not compared."
        )
    return folder


@preserve_random_states()
def _describe_models(makers: Sequence[Callable[[], Any]], data: Data) -> list[dict[str, Any]]:
    """Returns the descriptions of the models that different functions make."""
    keras.utils.set_random_seed(0)
    different = {id(make): make for make in makers}.values()
    return [describe_model(networks.checked_model(make(), data.x, data.units)) for make in different]


def scores_of(p: np.ndarray, labels: np.ndarray, criterion: str) -> np.ndarray:
    """Returns the score of each example, `(N,)`: whether its label is predicted, or log p(label), float32.

    For distributions over the labels, `(N, K)`, the score is its mean.
    """
    rows = np.arange(len(labels))
    if criterion == "accuracy":
        predicted = p.argmax(-1)
        return predicted == labels if labels.ndim == 1 else labels[rows, predicted].astype("float32")
    log_p = np.log(np.maximum(p, np.float32(MIN_PROBABILITY)))
    return log_p[rows, labels] if labels.ndim == 1 else np.einsum("nk,nk->n", labels, log_p).astype("float32")


def best_epoch(scores: np.ndarray, weight: np.ndarray | None = None) -> int:
    """Returns the epoch, from 0, with the largest moving mean of the mean score; scores are `(epochs, N)`."""
    means = np.average(scores, axis=1, weights=weight)
    padded = np.pad(means, WINDOW_EPOCHS // 2, mode="edge")
    return int(np.convolve(padded, np.full(WINDOW_EPOCHS, 1.0 / WINDOW_EPOCHS), "valid").argmax())


def _softmax_outputs(model: keras.Model, x: Any, batch_size: int) -> np.ndarray:
    """Returns the softmax of a model's outputs, `(N, K)`, float32; uniform if the training diverged."""
    blocks = [keras.ops.convert_to_numpy(model.predict_on_batch(part)) for part, _ in batches(x, batch_size)]
    p = softmax(np.concatenate(blocks).astype("float32"), axis=-1)
    return np.where(np.isfinite(p).all(-1, keepdims=True), p, np.float32(1 / p.shape[-1]))


def _model_probabilities(model: keras.Model, x: Any, batch_size: int) -> np.ndarray:
    """Returns the probabilities of a user's model, `(N, K)`, float32; uniform if the training diverged."""
    if all(np.isfinite(weight).all() for weight in model.get_weights() if _is_float(weight)):
        return exclusive_probabilities(model, x, batch_size)
    return np.full((count_examples(x), model.output_shape[-1]), 1.0 / model.output_shape[-1], "float32")


def _label_probabilities(model: keras.Model, p: np.ndarray) -> np.ndarray:
    """Returns probabilities of noisy labels, `(N, K)`, from probabilities of true classes and the model's T."""
    transitions = layers_of(model, NoiseTransition)
    if not transitions:
        return p
    log_p = np.log(np.maximum(p, np.float32(MIN_PROBABILITY)))
    return np.exp(keras.ops.convert_to_numpy(transitions[0](log_p, training=True)))


def _file_name(name: str) -> str:
    """Returns a name that file systems accept, of letters, digits, dots and underscores; a long name ends in a hash."""
    safe = "".join(char if char.isalnum() or char == "." else "_" for char in name)
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return safe if len(safe.encode()) <= MAX_NAME_BYTES else f"{safe[:32]}_{digest}"


def check_names(methods: Sequence[Method]) -> None:
    """Raises a ValueError for objects that are not methods, or methods whose files would have the same name."""
    rule = "be a list of `Method` objects with names"
    refuse_if(not isinstance(methods, Sequence), "methods", rule, kind=methods)
    wrong = [method for method in methods if not isinstance(method, Method) or not method.name]
    refuse_if(wrong, "methods", rule, repr(wrong[0]) if wrong else "")
    names = [_file_name(method.name).casefold() for method in methods]  # some file systems ignore case
    twice = [method.name for method, name in zip(methods, names, strict=True) if names.count(name) > 1]
    refuse_if(twice, "methods", "have different names", f"{twice[0]!r} twice" if twice else "")


def _is_float(weight: np.ndarray) -> bool:
    return "float" in weight.dtype.name  # NumPy has no kind for bfloat16


def _at_least_float32(weight: np.ndarray) -> np.ndarray:
    """Returns half-precision floats as float32, because their sums would lose the change of an epoch."""
    return weight.astype("float32") if _is_float(weight) and weight.dtype.itemsize < 4 else weight


PLAIN = EarlyStopping()
