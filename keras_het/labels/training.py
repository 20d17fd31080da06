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
from keras_het.labels.stored import Folder, describe, sample_checksum, settings_of
from keras_het.layers import NoiseTransition
from keras_het.reading.check import collect_warnings
from keras_het.reading.data import first_not_finite
from keras_het.reading.probabilities import exclusive_probabilities

CRITERIA = ("accuracy", "loss")
RESULT_SETTINGS = ("epochs", "criterion", "batch_size", "optimizer", "steps_per_epoch", "measures_every_epoch")
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
    """Training of methods with the same network, optimizer and options, which are arguments of `choose`.

    If `make_model` is a trained model, methods train a linear model on its features, and the final model joins the two.
    If `measures_every_epoch` is False, only the last epoch is measured.
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
        """Trained model that computes the features, or None."""
        return self.make_model if isinstance(self.make_model, keras.Model) else None

    @property
    def function(self) -> Callable[[], Any] | None:
        """Function that returns new models; None for a linear model on features."""
        return None if self.frozen is not None else self.make_model

    def __post_init__(self) -> None:
        networks.check_maker_or_none(self.function, self.optimizer)
        check_integer("epochs", self.epochs, 1)
        check_integer("batch_size", self.batch_size, 1)
        check_choice("criterion", self.criterion, CRITERIA)
        check_choice("verbose", self.verbose, (0, 1, 2))

    def check(self, data: Data) -> None:
        """Raises a ValueError for features that are not finite; warns of other such inputs, and of outliers."""
        dtype = getattr(data.x, "dtype", None) if self.function is None else None
        rule = "be an array of real numbers: x.astype('float32')"
        refuse_if(getattr(dtype, "kind", "f") in "OSUc", "x", rule, f"dtype {dtype}")
        is_empty = self.function is None and 0 in getattr(data.x, "shape", ())
        refuse_if(is_empty, "x", "have at least one feature", shape=data.x)
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
        """Trains a method on `data` and measures it on `held_out`; the seed fixes all random draws."""
        keras.utils.set_random_seed(seed)
        epochs, model = self.epochs if epochs is None else epochs, networks.make(self.function, data, self.optimizer)
        if method.is_closed_form:
            model.layers[-1].set_weights(method.solve(data, scaling(data.x, data.weight)))
            record = Record(model, _softmax_outputs, held_out, self)
            return Fitted(model, model.optimizer, *record.result())
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
            epochs=epochs,
            steps_per_epoch=self.steps_per_epoch,
            callbacks=[*self.callbacks, *method.callbacks(), record],
            verbose=2 if self.verbose == 2 else 0,
        )
        networks.mark_trained(trained)
        self.bar.add(epochs)
        return Fitted(predictor, trained.optimizer, *record.result())

    def final(self, method: Method, data: Data, *, seed: int, epochs: int) -> keras.Model:
        """Returns the final model for the user, trained on all of the data, and compiled."""
        model, optimizer, *_ = self(method, data, seed=seed, epochs=epochs)
        if isinstance(method, Unchanged):
            return model
        model = model if self.frozen is None else networks.join(self.frozen, model)
        return networks.compile_with_crossentropy(model, optimizer)


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
    trainer: Trainer, method: Method, data: Data, fold_of: np.ndarray, seed: int, folder: Folder
) -> Trial:
    """Trains a method for each fold on the other folds, with seeds that do not depend on the method."""
    epochs = 1 if method.is_closed_form else trainer.epochs
    if isinstance(method, LinearDiscriminant) and getattr(data.x, "ndim", 0) == 2:  # other shapes are refused below
        method = method._fix_priors(data, scaling(data.x, data.weight))
    measured = epochs if trainer.measures_every_epoch else 1
    kind = "bool" if trainer.criterion == "accuracy" and data.y.ndim == 1 else "float32"
    scores, last_epoch = np.zeros((measured, len(data)), kind), 0
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
        count = len(arrays["scores"])  # less than `measured` if a callback stopped the training of this fold
        scores[:count, rows], scores[count:, rows] = arrays["scores"], arrays["scores"][-1]
        probabilities[rows] = arrays["probabilities"]
        last_epoch, seconds = max(last_epoch, count), seconds + float(arrays["seconds"])
    best = best_epoch(scores[:last_epoch], data.weight)
    epoch = best + 1 if trainer.measures_every_epoch else epochs
    return Trial(method, epoch, scores[best], probabilities, seconds)


def examples(
    trainer: Trainer, x: Any, y: Any, sample_weight: Any, class_names: Any, path: Any, **settings: Any
) -> tuple[Data, Data, Folder]:
    """Returns the user's examples, the network's examples, and the folder of the call.

    The two differ for a trained model on arrays, whose features the network reads. For one on a data set,
    both are features.
    """
    frozen = trainer.frozen
    is_streamed = frozen is not None and is_data_set(x)
    source = read(networks.feature_batches(frozen, x) if is_streamed else x, y, sample_weight, class_names)
    total = settings["folds"] * len(settings["methods"])
    settings |= {name: getattr(trainer, name) for name in RESULT_SETTINGS}
    if path is not None and not is_streamed:  # features of a data set can differ by rounding
        settings["x"] = sample_checksum(source)
    folder = Folder(path, {} if path is None else settings_of(source, **describe(settings)))
    if trainer.verbose and (done := folder.count_finished()):
        print(
            f"Resuming after {done} of {total} trainings of folds, from {folder.path}. These settings are the same: "
            f"{', '.join(folder.settings)}. The code of the model, its layers and callbacks was not compared."
        )
    if frozen is None or is_streamed:
        return source, source, folder
    with folder.locked():
        features = networks.frozen_features(frozen, source.x, trainer.batch_size, folder.path)
    return source, dataclasses.replace(source, x=features), folder


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
