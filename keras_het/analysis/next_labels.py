"""Which labels a person should check next, as a table and as files that people fill in."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from keras_het.analysis.verification_files import choices_of, columns_of_examples, table_bytes, tasks_bytes
from keras_het.base.batches import check_same_index, row_blocks
from keras_het.base.refusal import refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.tables import Tabled
from keras_het.base.validation import check_choice, check_integer, check_labels
from keras_het.base.verified import verified_places
from keras_het.label_noise.decoding import decode
from keras_het.label_noise.estimation import check_distributions

SHOWN = 20  # lines of the table that is printed
# Chosen by benchmarks/real/next_labels.py: with fewer of either, T of labels that people gave is believed too much.
MORE_LABELS = 200  # labels that are added to each row of T, wrong ones any class alike
ROUNDS = 3
GOALS = ("errors", "model", "random")


@dataclasses.dataclass(frozen=True)
class NextLabels(Tabled):
    """The labels to check next, in the order of looking. They print as a table of the first 20, also in a notebook.

    Attributes:
        index: index of the example, `(n,)`.
        given: the label that it has.
        suggested: the class that it probably has, by probabilities and labels together: that of the issues of `choose`.
        score: probability that the label is the class of the example, in [0, 1]; the lower, the worse.
        inclusion: probability with which the example was drawn; nan where nothing is drawn at random.
        goal: the goal, as it was asked for.
        class_names: names of the K classes, or their numbers.
        example_names: index of a pandas frame, for texts, frames and files; None for numbers.
    """

    index: np.ndarray
    given: np.ndarray
    suggested: np.ndarray
    score: np.ndarray
    inclusion: np.ndarray
    goal: str
    class_names: Any
    example_names: Any = None

    _left = ()

    @property
    def names(self) -> list:
        """Names of the examples as `verified_labels` has them: of the index of pandas, or numbers."""
        return (self.index if self.example_names is None else self.example_names[self.index]).tolist()

    def _columns(self) -> dict[str, Any]:
        """The columns of the table, with the names of examples and classes."""
        classes = np.asarray(self.class_names)
        found = {"index": self.names, "given": classes[self.given], "suggested": classes[self.suggested]}
        return {**found, "score": self.score, "inclusion": self.inclusion}

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """The labels one by one: names of example, given and suggested class, score and inclusion."""
        return zip(*self._columns().values(), strict=True)

    def to_frame(self) -> Any:
        """The table as a `pandas.DataFrame`, a line for each label; its index, named "index", is that of the examples.

        Raises:
            ImportError: without pandas.
        """
        return super().to_frame().set_index("index")

    def to_csv(self, path: str | os.PathLike, texts: Sequence | None = None, frame: Any = None) -> None:
        """Writes a table that a person fills in by a spreadsheet: the right class goes into the column `verified`.

        `read_verified_labels` reads it back. No name or text can run as a formula there. Of a random draw the file has
        no suggested class: who sees one says it more often.

        Args:
            path: path of the file.
            texts: texts of all examples, `(N,)`, which are shown beside the labels; None for none.
            frame: pandas frame of all examples, whose columns are shown; None for none.
        Raises:
            ValueError: for texts or a frame of other examples.
        """
        examples = columns_of_examples(self.index, self.example_names, texts=texts, frame=frame)
        pathlib.Path(path).write_bytes(table_bytes(self._columns(), examples, self.goal != "random"))

    def to_label_studio(
        self, path: str | os.PathLike, texts: Sequence | None = None, images: Sequence | None = None
    ) -> str:
        """Writes tasks that Label Studio imports; but for a random draw, the suggested class is a prediction.

        Import the file into a project whose labelling configuration is what this returns: `Text` or `Image`, and
        `Choices` of the class names. `read_verified_labels` reads what Label Studio exports as JSON.

        Args:
            path: path of the file.
            texts: texts of all examples, `(N,)`; None for none.
            images: addresses of the images of all examples, `(N,)`; None for none.
        Returns:
            the labelling configuration.
        Raises:
            ValueError: for neither texts nor images, or those of other examples.
        """
        rule = "be given, or `images`: nobody can check a label without the example"
        refuse_if(texts is None and images is None, "texts", rule, "neither")
        examples = columns_of_examples(self.index, self.example_names, texts=texts, images=images)
        pathlib.Path(path).write_bytes(tasks_bytes(self._columns(), examples, self.goal != "random"))
        return choices_of([title for title, _ in examples], self.class_names)

    def _cells(self) -> list[list[str]]:
        """The first lines of the table as texts, below their titles; without the inclusion where nothing is drawn."""
        number = 4 if np.isnan(self.inclusion).all() else 5
        lines = itertools.islice(self.rows(), SHOWN)
        texts = ([*map(str, names), f"{score:.4f}", f"{chance:.4f}"][:number] for *names, score, chance in lines)
        return [list(self._columns())[:number], *texts]

    @property
    def _below(self) -> str:  # type: ignore[override]
        return f"{len(self.index)} labels to check, for the goal {self.goal!r}"


def next_labels(
    probabilities: Any,
    labels: Any,
    count: int,
    *,
    goal: str = "errors",
    verified_labels: Mapping | None = None,
    seed: int = 0,
) -> NextLabels:
    """Which labels a person with a budget should check next.

    The score of a label j is the probability that it is the class of the example, where p is what a model says of the
    noisy label:

        score = q_j T_jj / sum_k q_k T_kj,      q T = p

    T is that of `diagnose`, whose rows get 200 more labels each, wrong ones any class alike; q is found by three
    rounds of the multiplicative updates of Richardson and Lucy from p on, which is as far as it can be believed. Where
    no flip of T is more frequent than others, the order is nearly that of p_j (self-confidence).

    * "errors": the least scores, so that most of the labels that are looked at are wrong. Of labels that people gave
      about as many are found as by self-confidence, and of those of rules far more: on TREC 232 instead of 165 among
      300 (`benchmarks/real/next_labels.py`).
    * "model": the same order. No other by probabilities made a clearly better model of what was verified; by the
      entropy of p, and by cross-entropy less entropy (active label cleaning), models were worse than by
      self-confidence.
    * "random": a uniform sample of what nobody has verified, in random order, from which `truth.label_errors_left` and
      an interval of the accuracy follow. These say nothing about labels of the other goals.

    Args:
        probabilities: probabilities of examples that were not trained on, `(N, K)`, K >= 2, each row of sum 1, as by
            `cross_val_probabilities`.
        labels: integers in [0, K), `(N,)`; a series of pandas, if the verified ones have the names of its index.
        count: number of labels that are wanted, at most as many as nobody has verified.
        goal: "errors", "model" or "random".
        verified_labels: labels that somebody has verified, as a dict from the indices of examples to classes: these are
            not proposed again. Train again with them (`verified_labels` of `choose`) now and then.
        seed: determines the draws.
    Returns:
        `NextLabels`; print it, or write it to a file.
    Raises:
        ValueError: for other shapes or values, or more labels than are left.
    Source: Northcutt, Jiang and Chuang 2021, "Confident learning", for self-confidence; Richardson 1972,
        "Bayesian-based iterative method of image restoration", for q.

    Example:
        >>> p = [[0.9, 0.1], [0.8, 0.2], [0.95, 0.05], [0.2, 0.8], [0.1, 0.9], [0.05, 0.95]]
        >>> print(next_labels(p, [0, 0, 1, 1, 1, 1], 2, verified_labels={1: 0}))
        index  given  suggested   score
            2      1          0  0.0145
            3      1          1  0.9687
        2 labels to check, for the goal 'errors'
    """
    check_same_index(probabilities=probabilities, labels=labels)
    index = getattr(labels, "index", None) if hasattr(labels, "iloc") else None
    p = check_distributions(probabilities, as_given=True)
    refuse_if(p.shape[1] < 2, "probabilities", "be of at least two classes", shape=p)
    labels = check_labels(labels, p.shape[1], len(p))
    check_choice("goal", goal, GOALS)
    unverified = np.setdiff1d(np.arange(len(p)), verified_places(verified_labels, len(p), index))
    refuse_if(not len(unverified), "verified_labels", "leave a label that nobody has verified", "all of them")
    count, classes = check_integer("count", count, 1, len(unverified)), decode(labels, p).classes
    score = _score(labels, p, _transition(labels, classes, p.shape[1]))
    is_drawn = goal == "random"
    order = (
        random_generator(seed).permutation(len(unverified)) if is_drawn else score[unverified].argsort(kind="stable")
    )
    places = unverified[order[:count]]
    inclusion = np.full(count, count / len(unverified) if is_drawn else np.nan)
    table = places, labels[places], classes[places], score[places], inclusion
    return NextLabels(*table, goal, np.arange(p.shape[1]), index)


def _score(labels: np.ndarray, p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """The probability of each label that it is the class, by what a model says of labels, `(N,)`."""
    return np.concatenate([_score_of(labels[rows], p[rows], transition) for rows in row_blocks(len(p))])


def _score_of(labels: np.ndarray, p: np.ndarray, transition: np.ndarray) -> np.ndarray:
    p = q = p.astype("float64", copy=False)
    for _ in range(ROUNDS):  # the likelihood of p never falls
        q = q * (p / (q @ transition) @ transition.T)
    joint = q * transition[:, labels].T
    return joint[np.arange(len(p)), labels] / joint.sum(axis=1)


def _transition(labels: np.ndarray, classes: np.ndarray, size: int) -> np.ndarray:
    """T by classes and labels, with labels added to each row; no entry is 0."""
    counts = np.bincount(classes * size + labels, minlength=size * size).reshape(size, size)
    rate = (np.sum(classes != labels) + 1.0) / (len(labels) + 2.0)
    added = np.where(np.eye(size), 1.0 - rate, rate / (size - 1))
    counts = counts + MORE_LABELS * added
    return counts / counts.sum(axis=1, keepdims=True)
