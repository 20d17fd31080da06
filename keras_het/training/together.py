"""Trainings on features side by side: Dense heads of many candidates and folds are one product of the features."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_het.base.seeds import random_generator
from keras_het.label_noise.discriminant import Discriminant, Features
from keras_het.training.candidates import Candidate
from keras_het.training.networks import without_decay
from keras_het.training.record import Average, Measured, of_logits
from keras_het.training.task import Task

MOST = 1 << 29  # numbers, examples x heads x K, of what is predicted of each: 2 GiB
NEAR = 0.1  # how far the examples of a batch may be from the batch size, as a share of it
MIXED = ("LossFunctionWrapper", "Circle", "Dice", "Tversky")  # losses of any function, or of a batch as a whole
# Optimizers whose step of a number depends on its own gradients alone, so that heads in one kernel stay apart.
BY_NUMBER = ("SGD", "RMSprop", "Adam", "AdamW", "Adamax", "Adagrad", "Adadelta", "Nadam", "Ftrl", "Lion")
OWN = Candidate.__module__  # whose candidates make losses and labels without a look at the features


class Part(NamedTuple):
    """The examples of a training, and those that measure it.

    Attributes:
        rows: indices of the examples to train on, `(n,)`.
        held_out: indices of the examples that measure it, `(m,)`; None where `others` do.
        others: task of other examples; None for none.
    """

    rows: np.ndarray
    held_out: Any = None
    others: Task | None = None

    def train(self, task: Task) -> Task:
        """The task of the examples to train on."""
        return task if self.held_out is None else task.take(self.rows)

    def measure(self, task: Task) -> Task:
        """The task of the examples that measure it."""
        return task.take(self.held_out) if self.others is None else self.others


def parts_of(fold_of: np.ndarray) -> list[Part]:
    """A part for each fold: trained on the other folds."""
    return [Part(np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)) for fold in np.unique(fold_of)]


def size_of(task: Task, count: int) -> int:
    """The numbers that heads of this many parts may predict."""
    return len(task.y) * task.units * count


def examples_of(batch_size: int, folds: int) -> int:
    """The examples of a batch that a training has, as many of each of the other folds."""
    others = max(1, folds - 1)
    return others * max(1, round(batch_size / others))


def owner(candidate: Candidate, name: str) -> type:
    """The class that defines a method of a candidate."""
    return next(kind for kind in type(candidate).__mro__ if name in vars(kind))


def is_dense(candidate: Candidate) -> bool:
    """Whether a candidate is a Dense head and a loss, and nothing else."""
    kind = type(candidate)
    return all(
        getattr(kind, name) is getattr(Candidate, name) for name in ("head", "tail", "callbacks", "model", "solution")
    )


def gives_each_its_own(loss: Any) -> bool:
    """Whether a loss gives each example its own loss, whatever else is in the batch, and then their mean."""
    kind = type(loss)
    known = kind.__module__.split(".")[0] in ("keras", "keras_het") and kind.__name__ not in MIXED
    return known and loss.reduction == "sum_over_batch_size" and getattr(loss, "ignore_class", None) is None


def steps_by_number(optimizer: Any) -> bool:
    """Whether an optimizer changes each number by its own gradients alone."""
    clips = optimizer.clipnorm is not None or optimizer.global_clipnorm is not None
    return type(optimizer).__name__ in BY_NUMBER and not clips


class Call(NamedTuple):
    """One call of a loss, for heads that are side by side.

    Attributes:
        loss: the loss.
        first: number of the first head.
        folds: numbers of the parts that the heads are trained on.
        labels: labels as the loss takes them, `(N, ...)`, or for each head, `(N, n, ...)`.
        weights: weights of the examples for each head, `(N, n)`, 0 for those that are held out.
        of_heads: boolean, whether the labels differ between the heads.
    """

    loss: Any
    first: int
    folds: list[int]
    labels: np.ndarray
    weights: np.ndarray
    of_heads: bool

    def batch(self, rows: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Labels and weights of a batch, one for each example and head, `(B n, ...)` both.

        Args:
            rows: indices of the examples, `(B,)`.
            scale: weights by which a mean over the batch is one over the examples of each part, `(B, F)`.
        """
        labels = self.labels[rows]
        labels = labels.reshape(-1, *labels.shape[2:]) if self.of_heads else labels.repeat(len(self.folds), axis=0)
        return labels, (self.weights[rows] * scale[:, self.folds]).astype("float32").ravel()

    def value(self, outputs: Any, rows: tuple[Any, Any]) -> Any:
        """The sum of the losses of the heads, of the outputs of all heads, `(B, M, K)`."""
        own = outputs[:, self.first : self.first + len(self.folds)]
        labels, weights = rows
        return len(self.folds) * self.loss(labels, ops.reshape(own, (-1, own.shape[-1])), sample_weight=weights)


def calls_of(candidate: Candidate, strength: Any, task: Task, parts: list[Part], first: int) -> list[Call]:
    """The calls for a candidate at one strength on all parts: one, or one for each part if it is a user's own.

    That may look at the features of what it is trained on; those of the package do not, so that these are not copied.
    """
    if type(candidate).__module__ != OWN:
        return [
            _call(candidate, strength, own, [own], [part.rows], len(task.y), first + number, [number])
            for number, part in enumerate(parts)
            for own in [part.train(task)]  # one at a time, for it copies features
        ]
    bare, rows = dataclasses.replace(task, x=None), [part.rows for part in parts]
    tasks, joined = [part.train(bare) for part in parts], bare.take(np.concatenate(rows))
    return [_call(candidate, strength, joined, tasks, rows, len(task.y), first, list(range(len(parts))))]


def _call(
    candidate: Candidate,
    strength: Any,
    joined: Task,
    tasks: list[Task],
    rows: list[np.ndarray],
    count: int,
    first: int,
    folds: list[int],
) -> Call:
    """The call for the tasks of some parts, of these rows of all examples, and their examples as one task, `joined`."""
    labels = [np.asarray(candidate.labels(task, strength)) for task in tasks]
    common = _common(labels, rows, count)
    given = candidate.sample_weight(joined, strength)
    given = np.ones(len(joined.y), "float32") if given is None else np.asarray(given, "float32")
    weights = _columns(np.split(given, np.cumsum([len(own) for own in rows])[:-1]), rows, count)
    own = _columns(labels, rows, count) if common is None else common
    loss = candidate.loss(joined, strength)
    return Call(loss, first, folds, own, weights, common is None)


def _columns(values: list[np.ndarray], rows: list[np.ndarray], count: int) -> np.ndarray:
    """Values of the examples of each part in the places of all, `(N, F, ...)`, 0 for the others."""
    return np.stack([_spread(own, where, count) for own, where in zip(values, rows, strict=True)], axis=1)


def _spread(values: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Values of some examples in the places of all, 0 for the others."""
    found = np.zeros((count, *values.shape[1:]), values.dtype)
    found[rows] = values
    return found


def _common(labels: list[np.ndarray], rows: list[np.ndarray], count: int) -> np.ndarray | None:
    """Labels of the examples, `(N, ...)`, if those of all parts agree; else None."""
    found, seen = _spread(labels[0], rows[0], count), np.zeros(count, bool)
    for own, where in zip(labels, rows, strict=True):
        if not np.array_equal(found[where][seen[where]], own[seen[where]]):
            return None
        found[where], seen[where] = own, True
    return found


class Heads(keras.Model):
    """Dense heads side by side, whose log-probabilities are `(B, M, K)`, trained by the sum of their losses.

    Args:
        calls: the losses.
        heads: M.
        units: K.
    """

    def __init__(self, calls: list[Call], heads: int, units: int):
        super().__init__(dtype="float32")
        self.shape, self.loss_calls = (-1, heads, units), tuple(calls)

    def build(self, input_shape):
        """Makes the kernels and biases, which begin at zero."""
        size = self.shape[1] * self.shape[2]
        self.kernel = self.add_weight(shape=(input_shape[-1], size), initializer="zeros", name="kernel")
        self.bias = self.add_weight(shape=(size,), initializer="zeros", name="bias")

    def call(self, inputs):
        """The log-probabilities of scaled features, `(B, D)`."""
        logits = ops.reshape(ops.matmul(inputs, self.kernel) + self.bias, self.shape)
        return ops.log_softmax(logits, axis=-1)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The sum of the losses of all heads; Keras calls it."""
        return sum(call.value(y_pred, rows) for call, rows in zip(self.loss_calls, y, strict=True))


class Batches(keras.utils.PyDataset):
    """Batches of features with what each call needs, which have as many examples of every fold.

    So each training has as many examples of a batch as if it were alone. Batches are filled up with examples of no
    weight: one of another size would be compiled again.

    Args:
        features: features, in memory or on disk.
        calls: losses of the heads.
        fold_of: fold of each example, `(N,)`.
        trained: boolean, whether a training has an example, `(N, F)`.
        batch_size: number of examples of a batch that a training has.
        seed: seed of the order.
    """

    def __init__(
        self,
        features: Features,
        calls: list[Call],
        fold_of: np.ndarray,
        trained: np.ndarray,
        batch_size: int,
        seed: int,
    ):
        super().__init__()
        self.features, self.calls, self.trained, self.seed = features, calls, trained, seed
        self.folds = [np.flatnonzero(fold_of == fold) for fold in np.unique(fold_of)]
        each = examples_of(batch_size, len(self.folds)) // max(1, len(self.folds) - 1)
        self.each = min(each, max(map(len, self.folds)))
        self.order = self.rows_of(0)

    def rows_of(self, epoch: int) -> np.ndarray:
        """The examples of all batches of an epoch, `(batches, B)`, -1 where one is filled up."""
        generator, blocks = random_generator([self.seed, epoch]), len(self)
        found = np.full((len(self.folds), blocks * self.each), -1)
        for own, rows in zip(found, self.folds, strict=True):
            own[: len(rows)] = generator.permutation(rows)
        return found.reshape(len(self.folds), blocks, self.each).swapaxes(0, 1).reshape(blocks, -1)

    def __len__(self) -> int:
        return math.ceil(max(map(len, self.folds)) / self.each)

    def __getitem__(self, index: int) -> tuple[np.ndarray, tuple]:
        rows = self.order[index]
        has = self.trained[rows] & (rows >= 0)[:, None]
        scale = has * (len(rows) / np.maximum(has.sum(axis=0), 1))
        return self.features.scale(self.features.x[rows]), tuple(call.batch(rows, scale) for call in self.calls)


class Recorder(keras.callbacks.Callback):
    """Averages the kernels over the epochs, and predicts held-out examples by the averages after every epoch.

    Args:
        batches: batches, which get a new order for every epoch.
        heads: the heads.
        parts: parts of the data; head m is of part m modulo their number.
        measured: scores of each head.
        done: function that is called after every epoch.
    """

    def __init__(
        self,
        batches: Batches,
        heads: Heads,
        parts: list[Part],
        measured: list[Measured],
        done: Callable[[], None],
    ):
        super().__init__()
        self.batches, self.heads, self.parts, own = batches, heads, parts, batches.features
        self.features = [own if part.others is None else own._replace(x=np.asarray(part.others.x)) for part in parts]
        self.measured, self.done, self.average = measured, done, Average()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras calls it."""
        self.batches.order = self.batches.rows_of(epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras calls it."""
        self.average.add(current := [ops.convert_to_numpy(weight) for weight in (self.heads.kernel, self.heads.bias)])
        kernel, bias = self.average.of(current)
        units = len(bias) // len(self.measured)
        for number, (part, features) in enumerate(zip(self.parts, self.features, strict=True)):
            own = self.measured[number :: len(self.parts)]
            columns = np.arange(len(bias)).reshape(-1, len(self.parts), units)[:, number].ravel()
            rows = np.arange(len(features.x)) if part.held_out is None else part.held_out
            logits = features.logits(rows, Discriminant(np.ascontiguousarray(kernel[:, columns]), bias[columns]))
            for head, measured in enumerate(own):
                measured.add(of_logits(logits[:, head * units : (head + 1) * units]))
        self.done()


def train_together(
    pairs: list[tuple[Candidate, Any]],
    task: Task,
    parts: list[Part],
    fold_of: np.ndarray,
    optimizer: Any,
    arguments: dict[str, Any],
    criterion: str,
    seed: int,
    done: Callable[[], None],
) -> list[dict[str, np.ndarray]]:
    """Trains candidates on parts of the data, as Dense heads of one model; `Trainer.candidate` trains one.

    Args:
        pairs: candidates with their strengths.
        task: all examples.
        parts: parts of the data.
        fold_of: fold of each example, `(N,)`.
        optimizer: optimizer, of which the heads get a new one.
        arguments: `epochs`, `batch_size` and `verbose` of `fit`.
        criterion: argument of `Measured`.
        seed: seed of the order of the examples.
        done: function that is called after every epoch.
    Returns:
        for each candidate and part, candidate by candidate, "scores", "probabilities" and "seconds".
    """
    start, count, folds = time.perf_counter(), len(pairs) * len(parts), len(parts)
    features = Features(np.asarray(task.x), task.scale)
    made = [calls_of(*pair, task, parts, number * folds) for number, pair in enumerate(pairs)]
    model = Heads(calls := [call for calls in made for call in calls], count, task.units)
    model.build((None, features.x.shape[1]))
    model.compile(without_decay(optimizer, model, []))
    labels = [part.measure(dataclasses.replace(task, x=None)).evidence for part in parts]
    measured = [Measured(own, criterion) for _ in pairs for own in labels]
    trained = _columns([np.ones(len(part.rows), bool) for part in parts], [part.rows for part in parts], len(task.y))
    batches = Batches(features, calls, fold_of, trained, arguments["batch_size"], seed)
    recorder = Recorder(batches, model, parts, measured, done)
    model.fit(batches, epochs=arguments["epochs"], verbose=arguments["verbose"], shuffle=False, callbacks=[recorder])
    seconds = np.array((time.perf_counter() - start) / count)
    return [{**own.arrays(arguments["epochs"]), "seconds": seconds} for own in measured]
