"""One training of a candidate, with the predictions of held-out examples after every epoch."""

import dataclasses
import difflib
import functools
import inspect
import pathlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import Arrays, as_arrays, is_data_set
from keras_het.base.new_models import models_of
from keras_het.base.progress import Progress
from keras_het.base.refusal import refuse_if
from keras_het.base.seeds import unchanged_states
from keras_het.base.validation import check_choice, check_integer
from keras_het.label_noise.discriminant import Discriminant, Features, scaling
from keras_het.reading.check import judge
from keras_het.reading.data import first_not_finite
from keras_het.training import networks
from keras_het.training.candidates import Candidate
from keras_het.training.data import read, read_validation
from keras_het.training.record import Measured, Record, of_logits
from keras_het.training.streamed import features, streamed
from keras_het.training.task import Task
from keras_het.training.together import (
    MOST,
    NEAR,
    Part,
    examples_of,
    gives_each_its_own,
    is_dense,
    owner,
    size_of,
    steps_by_number,
    train_together,
)

CRITERIA = ("accuracy", "loss")
TAKEN = ("callbacks", "steps_per_epoch")  # arguments of `fit` that all trainings may share


def check_fit_arguments(given: Iterable[str], taken: Iterable[str], verb: Callable) -> None:
    """Raises a ValueError for a name that is no argument of `fit`, or none that can be given; it says what is like it.

    Args:
        given: names.
        taken: names that can be given.
        verb: function of the package that a user calls, whose own arguments may be meant.
    """
    for name in given:
        if name not in taken:
            names = {*inspect.signature(verb).parameters, *taken} - {"fit_arguments"}
            near = difflib.get_close_matches(name, names, cutoff=0.7)
            meant = f" ({' or '.join(f'`{other}`' for other in near)}?)" if near else ""
            rule = f"be arguments of `fit` that all trainings can share: {', '.join(taken)}"
            raise ValueError(f"`fit_arguments` must {rule}. Received: {name}{meant}")


def _features_file(path: Any, name: str) -> pathlib.Path | None:
    """The file, in a folder or None, for the features of an argument."""
    return None if path is None else pathlib.Path(path) / f"features_of_{name}"


def lines_of_fit(verbose: Any) -> int:
    """The `verbose` of `fit` for that of a call: 0 shows nothing, 1 a bar and the result, 2 the lines of `fit`, too."""
    return 2 if check_choice("verbose", verbose, (0, 1, 2)) == 2 else 0


class Trainer:
    """Trains candidates, all with the same network below the head, optimizer, and arguments of `fit`.

    Args:
        make_model: argument of `choose`.
        optimizer: argument of `choose`.
        epochs: the number of epochs; None for a linear discriminant on features, `is_closed`.
        batch_size: size of the batches of training and prediction.
        criterion: argument of `choose`.
        verbose: argument of `choose`.
        fit_arguments: further arguments of `fit`.
    Raises:
        ValueError: for arguments of `fit` that cannot be given.
    """

    def __init__(
        self,
        make_model: Any,
        optimizer: Any,
        epochs: int | None,
        batch_size: int,
        criterion: str,
        verbose: int,
        fit_arguments: dict,
    ):
        self.on_features = make_model is None or isinstance(make_model, keras.Model)
        self.is_closed = epochs is None and self.on_features
        if self.is_closed and fit_arguments:
            rule = "be given where there is something to train: with `epochs`"
            raise ValueError(f"`{next(iter(fit_arguments))}` must {rule}. Received: epochs=None")
        self.epochs = 1 if self.is_closed else check_integer("epochs", epochs, 1)
        self._optimizer = optimizer
        self.batch_size = check_integer("batch_size", batch_size, 1)
        self._frozen = make_model if isinstance(make_model, keras.Model) else None
        self._all: dict[str, Any] = {}
        self._known = models_of(make_model)
        self._make = networks.maker(make_model, optimizer, self._known)
        self._criterion = check_choice("criterion", criterion, CRITERIA)
        self._fit_arguments = {"batch_size": batch_size, **fit_arguments}
        self._verbose, self._shows = lines_of_fit(verbose), verbose
        self._callbacks = keras.tree.flatten(self._fit_arguments.pop("callbacks", None) or [])
        self.bar = Progress(1, "epoch", 0)  # of all trainings: the caller knows how many there will be

    @unchanged_states()
    def settings(self, task: Task) -> dict[str, Any]:
        """What the result of a training depends on, beside data and seed, by the names of arguments.

        Of a user's function these are the layers and the optimizer of a model that it makes.
        """
        keras.utils.set_random_seed(0)  # a head without a seed draws one, and has it in its config
        made = networks.described(self._make(task))
        own = {"make_model": made, "epochs": self.epochs, "criterion": self._criterion}
        return {**own, **self._fit_arguments, "callbacks": self._callbacks}

    def read(self, x: Any, y: Any, *others: Any, path: Any = None) -> Task:
        """The examples and labels that a user gives; see `data.read`. Of a data set for a trained model its features.

        Args:
            x: examples.
            y: labels.
            others: further arguments of `data.read`.
            path: folder for the features of a data set; None keeps them in memory.
        """
        task = read(x, y, *others, arrays=functools.partial(self._arrays, path))
        return dataclasses.replace(task, has_features=self._streams(x))

    def read_validation(self, data: Any, task: Task, columns: Any, path: Any = None) -> Task:
        """The same for validation examples, see `data.read_validation`."""
        found = read_validation(data, task, columns, arrays=functools.partial(self._arrays, path))
        return dataclasses.replace(found, has_features=self._streams(data))

    def _streams(self, x: Any) -> bool:
        return self._frozen is not None and is_data_set(x)

    def _arrays(self, path: Any, x: Any, y: Any, name: str) -> Arrays:
        if not self._streams(x):
            return as_arrays(x, y, name)
        return streamed(self._frozen, x, y, name, _features_file(path, "x" if name == "y" else name), self._shows)

    def task(self, given: Task, path: Any, name: str = "x") -> Task:
        """A task with the examples as the network takes them: of a trained model their features.

        Args:
            given: the examples as a user gives them.
            path: folder for features; None keeps them in memory.
            name: name of the argument, for the errors of examples that are not finite.
        """
        x = given.x
        if self._frozen is not None and not given.has_features:
            x = features(self._frozen, x, self.batch_size, _features_file(path, name), self._shows)
        self._all[name] = x
        are_features = self.on_features and getattr(x, "ndim", 0) == 2 and np.asarray(x).dtype.kind in "fiu"
        if are_features and not np.asarray(x).flags.c_contiguous:  # rows are gathered again and again
            x = np.ascontiguousarray(x)
        scale = scaling(np.asarray(x)) if are_features else None
        return dataclasses.replace(given, x=x, epochs=self.epochs, scaling=scale)

    @unchanged_states()
    def own(self, task: Task, seed: int) -> keras.Model:
        """A new model as the user makes it, trained on a task by its own loss; for examples as the network takes them.

        Args:
            task: the examples to train on.
            seed: seed of the weights, the order of the batches, and all that is drawn.
        """
        keras.utils.set_random_seed(seed)
        model = self._make(task)
        self._judge(model, task.x, task.y)
        if self.is_closed:
            return networks.discriminant_model(task, self._optimizer)
        self._fit(model, task.x, task.y, task.sample_weight, self.epochs, [])
        return model

    @unchanged_states()
    def candidate(
        self, candidate: Candidate, strength: Any, task: Task, held_out: Task | None, seed: int, epochs: int
    ) -> tuple[keras.Model, dict[str, np.ndarray]]:
        """Trains a candidate at one of its strengths.

        Args:
            candidate: the method.
            strength: one of its strengths.
            task: the examples to train on.
            held_out: examples and labels that measure it, at least one; None for a training that is not measured.
            seed: seed of the weights, the order of the batches, and all that is drawn.
            epochs: number of epochs.
        Returns:
            the model that predicts the true classes, and of the held-out examples "scores", `(epochs, n)`,
                "probabilities" at the epoch of the best mean score, `(n, K)`, float32; and "seconds".
        """
        keras.utils.set_random_seed(seed)
        if candidate.on_features:
            return self._solved(candidate, strength, task, held_out, epochs)
        start, model = time.perf_counter(), self._make(task)
        trained, predictor = networks.with_head(model, task, candidate, strength)
        labels = candidate.labels(task, strength)
        x = networks.inputs_for(trained, model, task.x)
        self._judge(trained, x, labels)
        record = Record(predictor, held_out, self.batch_size, self._criterion)
        weight, own = candidate.sample_weight(task, strength), candidate.callbacks(task, strength)
        self._fit(trained, x, labels, weight, epochs, [*own, record])
        if held_out is None:
            networks.compiled(predictor, model.optimizer)
        return predictor, {**record.measured(epochs), "seconds": np.array(time.perf_counter() - start)}

    def can_be_together(self, candidate: Candidate, strength: Any, task: Task, count: int, folds: int) -> bool:
        """Whether a candidate can be trained beside others: a Dense head on features, and little to remember.

        Args:
            candidate: the method.
            strength: one of its strengths.
            task: all examples.
            count: number of the parts that it is trained on.
            folds: number of the folds, of which batches have as many examples each.
        """
        plain = self.on_features and not self._callbacks and list(self._fit_arguments) == ["batch_size"]
        fits = size_of(task, count) <= MOST and abs(examples_of(self.batch_size, folds) / self.batch_size - 1) < NEAR
        if not plain or not fits or not is_dense(candidate):
            return False
        return gives_each_its_own(candidate.loss(task, strength)) and steps_by_number(self._make(task).optimizer)

    @unchanged_states()
    def together(
        self,
        pairs: list[tuple[Candidate, Any]],
        task: Task,
        parts: list[Part],
        fold_of: np.ndarray,
        seed: int,
    ) -> list[dict[str, np.ndarray]]:
        """Trains candidates on features side by side, on parts of the data: see `train_together`."""
        keras.utils.set_random_seed(seed)
        model = self._make(task)
        self._judge(model, task.x, task.y)
        arguments = {**self._fit_arguments, "epochs": self.epochs, "verbose": self._verbose}
        done = functools.partial(self.bar.add, len(pairs) * len(parts))
        return train_together(pairs, task, parts, fold_of, model.optimizer, arguments, self._criterion, seed, done)

    def solved_together(
        self, candidate: Candidate, strength: Any, task: Task, parts: list[Part], fold_of: np.ndarray
    ) -> list[dict[str, np.ndarray]] | None:
        """The same as `candidate` for all folds, of one that is in closed form; None if it solves each alone."""
        if not issubclass(owner(candidate, "solutions"), owner(candidate, "solution")):
            return None  # a subclass that has another solution of one
        start = time.perf_counter()
        self._judge(self._make(task), task.x, task.y)
        solutions = candidate.solutions(task, strength, fold_of)
        if solutions is None:
            return None
        features, found = Features(np.asarray(task.x), task.scale), []
        for part, weights in zip(parts, solutions, strict=True):
            held_out = part.measure(dataclasses.replace(task, x=None))
            measured = Measured(held_out.evidence, self._criterion)
            measured.add(of_logits(features.logits(part.held_out, Discriminant(*weights))))
            found.append(measured.arrays(self.epochs))
        return [{**arrays, "seconds": np.array((time.perf_counter() - start) / len(parts))} for arrays in found]

    def _solved(
        self, candidate: Candidate, strength: Any, task: Task, held_out: Task | None, epochs: int
    ) -> tuple[keras.Model, dict[str, np.ndarray]]:
        """The same for a candidate in closed form: all its epochs are alike."""
        start, weights = time.perf_counter(), candidate.solution(task, strength)
        model = networks.discriminant_model(task, self._optimizer, weights)
        self._judge(model, task.x, task.y)
        record = Record(model, held_out, self.batch_size, self._criterion)
        record.on_epoch_end(0)
        return model, {**record.measured(epochs), "seconds": np.array(time.perf_counter() - start)}

    def whole(self, model: keras.Model) -> keras.Model:
        """The model that the user gets, compiled."""
        if self._frozen is None:
            return model
        return networks.compiled(networks.joined(self._frozen, model), model.optimizer)

    def _judge(self, model: keras.Model, x: Any, labels: Any) -> None:
        """Raises the errors of `check`; of all examples first, so that one that is not finite has the user's number."""
        for name, x_of_all in self._all.items():
            for part in keras.tree.flatten(x_of_all):
                row = first_not_finite(part)
                refuse_if(row is not None, name, "be finite", f"nan or infinity in example {row}")
        judge(model, x, labels)

    def _fit(self, model: keras.Model, x: Any, y: Any, weight: Any, epochs: int, callbacks: list) -> None:
        arguments = {**self._fit_arguments, "sample_weight": weight, "epochs": epochs, "verbose": self._verbose}
        done = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: self.bar.add())
        model.fit(x, y, callbacks=[*self._callbacks, *callbacks, done], **arguments)
        self._known.add(model)
