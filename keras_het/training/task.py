"""The task that each candidate gets: examples, and what is known of their labels."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import select_rows
from keras_het.base.extras import import_extra
from keras_het.base.verified import verified_places
from keras_het.label_noise.discriminant import Scaling, scaling
from keras_het.training.labels import fractions, most_probable


@dataclasses.dataclass(frozen=True)
class Task:
    """Examples and what is known of their labels, which may be wrong; also the evidence that a candidate may use.

    Attributes:
        x: examples, as the network takes them.
        y: labels, integers in [0, K), `(N,)`.
        classes: names of the K classes, or their numbers, `(K,)`.
        sample_weight: weights of the examples in training, `(N,)`; None for equal ones.
        trust: weights of the labels where they measure a model, `(N,)`: 1 for a verified one.
        verified: boolean, whether somebody has verified a label, `(N,)`; None if none is.
        index: index of the pandas frame that the examples came in; None for numbers.
        columns: names of the columns of that frame; None for an array.
        own_classes: classes as the labels themselves name them, `(K,)`, where `classes` are other names; or None.
        epochs: largest number of epochs of a training.
        votes: labels of each of M annotators, -1 for none, `(N, M)`; None where there is one label for each example.
        soft: distributions over the classes that were given as labels, `(N, K)`; None for none.
        annotators: names of the annotators, `(M,)`; None for numbers.
        given: labels as they were given, before any was verified, `(N,)`, -1 for none; None where nobody asks.
        labelled: mask of the examples that were given, boolean, of which those without a label are none of the N; None
            if all have one.
        transition: T by `diagnose`, `(K, K)`; None in the plain training. It is estimated from that and from all
            held-out labels: its K^2 numbers know a little of the labels that measure the candidate. Predictions of
            the examples would know too much, for a candidate could learn those labels by heart.
        has_features: boolean, whether x are features of a data set, which a trained model made as it was read.
        scaling: mean and deviation of the features of all examples, of which these may be a part; None for these.
        head_options: arguments of a new head, those of the model's own last layer: its regularizers.
    """

    x: Any
    y: np.ndarray
    classes: np.ndarray
    sample_weight: np.ndarray | None = None
    trust: np.ndarray | None = None
    verified: np.ndarray | None = None
    index: Any = None
    columns: Any = None
    own_classes: np.ndarray | None = None
    epochs: int = 1
    votes: np.ndarray | None = None
    soft: np.ndarray | None = None
    annotators: np.ndarray | None = None
    labelled: np.ndarray | None = None
    given: np.ndarray | None = None
    transition: np.ndarray | None = None
    has_features: bool = False
    scaling: Scaling | None = None
    head_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def units(self) -> int:
        """The number of classes."""
        return len(self.classes)

    @functools.cached_property
    def scale(self) -> Scaling:
        """The `scaling`, or that of these features, `(N, D)`, if there is none."""
        return scaling(np.asarray(self.x)) if self.scaling is None else self.scaling

    @functools.cached_property
    def distribution(self) -> np.ndarray:
        """Distribution over the classes of each example, `(N, K)`: by its votes or as given; 1 for a single label."""
        if self.soft is not None:
            return _with_verified(self.soft, self).astype("float32")
        if self.votes is None:
            return keras.utils.to_categorical(self.y, self.units)
        return _with_verified(most_probable(self.votes, self.units), self).astype("float32")

    @property
    def target(self) -> np.ndarray:
        """What a classifier is trained on: the labels, `(N,)`, or the `distribution` where there is no single label."""
        return self.y if self.soft is None and self.votes is None else self.distribution

    @functools.cached_property
    def evidence(self) -> np.ndarray:
        """What a classifier is measured by: as `target`, but of votes their fractions, whoever gave them."""
        if self.votes is None:
            return self.target
        return _with_verified(fractions(self.votes, self.units), self).astype("float32")

    def take(self, indices: np.ndarray) -> "Task":
        """The task of the examples at the `indices`; what their votes say is found without the others."""
        names = ("y", "sample_weight", "trust", "verified", "index", "votes", "soft", "given")
        rows = {name: getattr(self, name) for name in names}
        taken: dict[str, Any] = {name: None if row is None else row[indices] for name, row in rows.items()}
        return dataclasses.replace(self, x=None if self.x is None else select_rows(self.x, indices), **taken)

    def of_labelled(self, given: Any) -> Any:
        """What a user has of each example, without those that have no label; anything of another length as it is.

        Args:
            given: texts, images, a frame, or None.
        """
        if self.labelled is None or given is None or len(given) != len(self.labelled):
            return given
        rows = np.flatnonzero(self.labelled)
        return given.iloc[rows] if hasattr(given, "iloc") else [given[row] for row in rows]

    def own_keys(self, given: Mapping) -> dict[int, Any]:
        """A dict by the indices that a user gave, by those of the N examples; others, without a label, are left out.

        Args:
            given: dict from indices of examples to anything.
        """
        if hasattr(self.index, "get_indexer") and not np.array_equal(self.index, np.arange(len(self.y))):
            rows = self.index.get_indexer(list(given))
            return {int(row): value for row, value in zip(rows, given.values(), strict=True) if row >= 0}
        count = len(self.y) if self.labelled is None else len(self.labelled)
        places = verified_places(given, count).tolist()
        number = (
            np.arange(count) if self.labelled is None else np.where(self.labelled, np.cumsum(self.labelled) - 1, -1)
        )
        pairs = zip(number[places].tolist(), given.values(), strict=True)
        return {place: value for place, value in pairs if place >= 0}

    @property
    def as_it_was(self) -> tuple[np.ndarray, np.ndarray]:
        """Labels before any was verified, `(N,)` or distributions `(N, K)`, and which examples had one, `(N,)`."""
        given = self.y if self.given is None else self.given
        if self.votes is not None:
            return fractions(self.votes, self.units), np.any(self.votes >= 0, axis=1)
        names = np.asarray(self.classes)[np.maximum(given, 0)]
        return (names if self.soft is None else self.soft), given >= 0

    def with_index(self) -> tuple[Any, Any]:
        """Labels `(N,)` with the index that the examples came in, and the frame of these; None where they had none."""
        if not hasattr(self.index, "get_indexer"):  # numbers, of an array some of whose rows have no label
            return self.y, None
        pandas = import_extra("pandas", "The report on a frame")
        frame = None if self.columns is None else pandas.DataFrame(self.x, self.index, self.columns)
        return pandas.Series(self.y, self.index), frame

    def as_given(self, issues: Any) -> Any:
        """Issues whose indices are those of the examples that a user gave, also of those without a label.

        Args:
            issues: `LabelIssues` or `VoteIssues` of the N examples.
        """
        if self.labelled is None:
            return issues
        names = None
        if hasattr(self.index, "get_indexer"):
            names = np.full(len(self.labelled), None, object)
            names[self.labelled] = self.index
        return dataclasses.replace(issues, index=self.places(issues.index), example_names=names)

    def places(self, indices: np.ndarray) -> np.ndarray:
        """Places of some of the N examples, `(n,)`, among those that a user gave, also those without a label.

        Args:
            indices: indices of the examples, `(n,)`.
        """
        return indices if self.labelled is None else np.flatnonzero(self.labelled)[indices]

    @property
    def made_of(self) -> str:
        """What was made of the labels, in words; empty for one label for each example."""
        without = 0 if self.labelled is None else int((~self.labelled).sum())
        left = f", and {without} without one, which are left out" if without else ""
        if self.votes is not None:
            count, annotators = int((self.votes >= 0).sum()), self.votes.shape[1]
            return f"labels: {count} of {annotators} annotators, of {len(self.y)} examples{left}"
        if self.soft is not None:
            return f"labels: distributions over {self.units} classes, of {len(self.y)} examples{left}"
        return ""

    def corrected(self, labels: np.ndarray) -> "Task":
        """The task with other labels, `(N,)`, which are certain where they are not those of the task."""
        changed = labels != self.y
        known = changed if self.verified is None else self.verified | changed
        return dataclasses.replace(self, y=labels, verified=known if known.any() else None)


def _with_verified(found: np.ndarray, task: Task) -> np.ndarray:
    """Distributions of the examples, those of verified ones certain."""
    if task.verified is None:
        return found
    return np.where(task.verified[:, None], task.y[:, None] == np.arange(task.units), found)
