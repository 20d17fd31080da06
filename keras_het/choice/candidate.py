"""The form of a candidate for `choose`: a method with a name, strengths, and its differences from a plain training."""

import dataclasses
import re
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het.base.batches import take


@dataclasses.dataclass(frozen=True)
class Task:
    """Examples to train on, and the evidence that a candidate may use; all labels are noisy.

    Attributes:
        x: the examples.
        y: their labels, integers in [0, K), `(N,)`.
        units: K, the number of classes.
        epochs: the largest number of epochs of a training.
        transition: T by `diagnose_noise`, `(K, K)`; None in the plain training. It is estimated from that and from all
            held-out labels: its K^2 numbers know a little of the labels that measure the candidate. Predictions of
            the examples would know too much, for a candidate could learn those labels by heart.
    """

    x: Any
    y: np.ndarray
    units: int
    epochs: int
    transition: np.ndarray | None = None

    def take(self, indices: np.ndarray) -> "Task":
        """The task of some of the examples."""
        return dataclasses.replace(self, x=take(self.x, indices), y=self.y[indices])


class Candidate:
    """Base class of the methods that `choose` compares: a plain training, from which a subclass differs in something.

    A subclass has a `name`, its `strengths`, each of which is tried, and one or more of the methods below. The
    predictions are those of the head: layers of `tail` act only in training.

    Attributes:
        name: for the table.
        strengths: values that the methods get, one at a time; `(None,)` if there is nothing to choose.

    Example:
        >>> class Focal(Candidate):
        ...     name, strengths = "focal loss", (1.0, 2.0)
        ...
        ...     def loss(self, task, strength):
        ...         return keras.losses.CategoricalFocalCrossentropy(gamma=strength, from_logits=True)
        ...
        ...     def labels(self, task, strength):
        ...         return keras.utils.to_categorical(task.y, task.units)
        >>> Focal().loss(None, 2.0).gamma
        2.0
    """

    name: str = ""
    strengths: tuple[Any, ...] = (None,)

    def head(self, task: Task, strength: Any) -> list[keras.layers.Layer]:
        """New layers that make logits or log-probabilities, `(N, K)`, of features `(N, D)`; by default a Dense layer.

        Args:
            task: the examples to train on.
            strength: one of the strengths.
        """
        return [keras.layers.Dense(task.units, "log_softmax", dtype="float32")]

    def tail(self, task: Task, strength: Any) -> list[keras.layers.Layer]:
        """New layers behind the head in training alone, such as a `NoiseTransition`; by default none.

        Args:
            task: the examples to train on.
            strength: one of the strengths.
        """
        return []

    def loss(self, task: Task, strength: Any) -> Any:
        """The loss, new for each training; by default crossentropy.

        Args:
            task: the examples to train on.
            strength: one of the strengths.
        """
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def labels(self, task: Task, strength: Any) -> Any:
        """The targets of the loss, `(N,)` or `(N, K)`; by default the labels as they are.

        Args:
            task: the examples to train on.
            strength: one of the strengths.
        """
        return task.y

    def sample_weight(self, task: Task, strength: Any) -> Any:
        """Weights of the examples, `(N,)`; by default None.

        Args:
            task: the examples to train on.
            strength: one of the strengths.
        """
        return None

    def callbacks(self, task: Task, strength: Any) -> list[keras.callbacks.Callback]:
        """New callbacks of a training; by default none.

        Args:
            task: the examples to train on.
            strength: one of the strengths.
        """
        return []


class Arm(NamedTuple):
    """A candidate at one strength.

    Attributes:
        candidate: the method.
        strength: one of its strengths.
    """

    candidate: Candidate
    strength: Any

    @property
    def name(self) -> str:
        """The name of the candidate, and the strength if it has several."""
        several = len(self.candidate.strengths) > 1
        return f"{self.candidate.name}, {self.strength}" if several else self.candidate.name

    @property
    def file_name(self) -> str:
        """The name, with nothing but letters, digits and signs that file systems take."""
        return re.sub(r"[^\w.]+", "_", self.name)
