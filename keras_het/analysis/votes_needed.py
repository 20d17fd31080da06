"""How many votes an example needs for a wanted accuracy."""

import dataclasses
from typing import Any

import numpy as np
from scipy.special import softmax

from keras_het.base.refusal import refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.tables import Tabled
from keras_het.base.validation import (
    check_annotations,
    check_integer,
    check_open_fraction,
    check_rows,
    check_transitions,
)

EXAMPLES = 20_000  # drawn ones: the standard errors are .0035 at most
HEAD = ["votes", "by T", "+-", "majority", "+-"]


@dataclasses.dataclass(frozen=True)
class VotesNeeded(Tabled):
    """Accuracy of what is made of 1 to V votes an example. It prints as a table, and says how many are enough.

    Attributes:
        wanted: the accuracy that is wanted.
        accuracy: accuracy of the most probable class by prior and T, `(V,)`, of 1 to V votes.
        accuracy_error: standard error of that by the draws, `(V,)`.
        majority: accuracy of the majority, as `majority_vote` has it, `(V,)`.
        majority_error: standard error of that by the draws, `(V,)`.
    """

    wanted: float
    accuracy: np.ndarray
    accuracy_error: np.ndarray
    majority: np.ndarray
    majority_error: np.ndarray

    @property
    def votes(self) -> int | None:
        """The least number of votes whose accuracy by prior and T is at least the wanted one; None if none is."""
        return _least(self.accuracy >= self.wanted)

    @property
    def votes_of_majority(self) -> int | None:
        """The least number of votes whose majority is as accurate; None if none is."""
        return _least(self.majority >= self.wanted)

    _left = ()

    def _columns(self) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in ("accuracy", "accuracy_error", "majority", "majority_error")}
        return {"votes": np.arange(1, len(self.accuracy) + 1), **figures}

    def _cells(self) -> list[list[str]]:
        lines = zip(*self._columns().values(), strict=True)
        return [HEAD, *([str(votes), *(f"{x:.3f}" for x in figures)] for votes, *figures in lines)]

    @property
    def _below(self) -> str:  # type: ignore[override]
        said = [str(found or f"more than {len(self.accuracy)}") for found in (self.votes, self.votes_of_majority)]
        return f"accuracy {self.wanted:g} needs {said[0]} votes an example by T, {said[1]} by majority, if T is right"


def _least(enough):
    return int(enough.argmax()) + 1 if enough.any() else None


def votes_needed(found: Any, accuracy: float, labels: Any = None, max_votes: int = 10, seed: int = 0) -> VotesNeeded:
    """How many votes an example would need for a wanted accuracy, by simulation from a fitted model of annotators.

    Draws 20,000 examples: a class by `prior`, then votes, each by another annotator who labels as one of those that are
    known, with T_m, drawn in the proportions of their labels. So there may be more votes than annotators: further ones
    are taken for people of the same kinds. An example counts for right with the probability of the chosen class by its
    votes, p(class) ~ prior prod_v T_m(v)[class, label_v].

    The figures are those of a world in which T and prior are right and votes are independent given the class; read them
    as bounds. Hard examples make people err together: for the votes that there were, Dawid and Skene's T said .92 where
    .80 was right on LabelMe (2.5 votes an example by 59 people), .98 for .92 on Sentiment (5.6 by 203), and of the
    majority .88 for .77 and .96 for .89. And T from few labels is too good: planted people, who err independently in .1
    to .6 of four classes, were right in .914 where T by 5,000 examples of 5 votes by 20 people said .915, and in .77
    for .80 by 2,000 of 3 votes by 200 (three seeds).

    Args:
        found: result of `label_noise.dawid_skene`, or anything with `prior`, `(K,)`, and `transitions`, `(M, K, K)`.
        accuracy: the accuracy that is wanted, in (0, 1).
        labels: integers `(N, M)`, -1 where the annotator gave none, for the proportions of the annotators; None for
            equal ones, also of those without a label.
        max_votes: V, at least 1.
        seed: determines the draws.
    Returns:
        `VotesNeeded`; print it.
    Raises:
        ValueError: for values outside these ranges, or matrices, prior and labels that do not fit together.

    Example:
        >>> from types import SimpleNamespace
        >>> people = SimpleNamespace(prior=[0.5, 0.5], transitions=[[[0.7, 0.3], [0.3, 0.7]], [[0.9, 0.1], [0.1, 0.9]]])
        >>> print(votes_needed(people, 0.9, max_votes=5))
        votes   by T     +-  majority     +-
            1  0.800  0.001     0.800  0.001
            2  0.849  0.001     0.799  0.002
            3  0.907  0.001     0.895  0.001
            4  0.931  0.001     0.894  0.002
            5  0.955  0.001     0.941  0.001
        accuracy 0.9 needs 3 votes an example by T, 5 by majority, if T is right
    """
    fitted = hasattr(found, "prior") and hasattr(found, "transitions")
    refuse_if(not fitted, "found", "have `prior` and `transitions`, as a result of `dawid_skene` has", kind=found)
    transitions = check_transitions(found.transitions, "found.transitions")
    refuse_if(transitions.ndim != 3, "found.transitions", "have shape (M, K, K)", shape=transitions)
    prior, size = check_rows([found.prior], "found.prior")[0], transitions.shape[1]
    refuse_if(len(prior) != size, "found.prior", f"have an entry for each of the {size} classes", len(prior))
    accuracy, max_votes = check_open_fraction("accuracy", accuracy), check_integer("max_votes", max_votes, 1)
    right = list(_right(prior, transitions, _shares(labels, transitions), max_votes, random_generator(seed)))
    figures = [(*each.mean(axis=1), *(each.std(axis=1) / EXAMPLES**0.5)) for each in right]
    by_t, majority, by_t_error, majority_error = np.array(figures).T
    return VotesNeeded(accuracy, by_t, by_t_error, majority, majority_error)


def _right(prior, transitions, shares, max_votes, rng):
    """Yields, with one vote more each time, p(right) of the most probable class and of the majority, `(2, S)`."""
    every = np.arange(EXAMPLES)
    with np.errstate(divide="ignore"):  # what never occurs
        logs, joint = np.log(transitions), np.tile(np.log(prior), (EXAMPLES, 1))
    true, votes = _drawn(np.broadcast_to(prior, joint.shape), rng), np.zeros(joint.shape)
    for _ in range(max_votes):
        who = rng.choice(len(shares), size=EXAMPLES, p=shares)
        said = _drawn(transitions[who, true], rng)
        joint += logs[who, :, said]
        votes[every, said] += 1
        p = softmax(joint, axis=1)
        yield np.stack([p.max(axis=1), p[every, votes.argmax(axis=1)]])


def _shares(labels, transitions):
    """The fraction of the votes of each annotator, `(M,)`."""
    if labels is None:
        return np.full(len(transitions), 1.0 / len(transitions))
    counts = (check_annotations(labels, transitions.shape[1], len(transitions)) >= 0).sum(axis=0)
    refuse_if(not counts.any(), "labels", "have at least one label", "none")
    return counts / counts.sum()


def _drawn(p, rng):
    """A class by each row of probabilities, `(S,)`."""
    bounds = p.cumsum(axis=1)
    return (bounds < rng.random((len(p), 1)) * bounds[:, -1:]).sum(axis=1)
