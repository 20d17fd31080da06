"""Which votes of several annotators are probably wrong, by a model and by the other annotators."""

import dataclasses
from typing import Any

import numpy as np
import scipy.sparse
from scipy.special import log_softmax

from keras_het.base.seeds import random_generator
from keras_het.labels.aggregation import aggregate
from keras_het.labels.annotators import annotators, cells_of
from keras_het.labels.issues import LabelIssues
from keras_het.training.labels import say_who_is_right
from keras_het.training.task import Task

MOST_VOTES = 1 << 17  # at once
MOST_EXAMPLES = 100_000  # by which annotators are judged in a report
FLOOR = 1e-6  # of a probability: a class that a model holds for impossible must not decide alone
CLEAR = 0.9  # probability of a class from which on an example is not ambiguous


@dataclasses.dataclass(frozen=True)
class VoteIssues(LabelIssues):
    """All votes, the least score first: a `LabelIssues` with a line for each vote, and who gave it.

    Attributes:
        index: index of the example of each vote, `(V,)`.
        given: class that the annotator named.
        suggested: class that the model and all votes of the example find together.
        score: probability of the given class by the model and the other annotators.
        is_issue: boolean, whether the vote is another class than the suggested one.
        kind: kind of an issue, "ambiguous" if no class of the example has a probability of 0.9, else "wrong"; or "".
        class_names: names of the K classes; None for numbers.
        example_names: index of a pandas frame; None for numbers.
        annotator: index of the annotator of each vote, `(V,)`.
        annotator_names: names of the annotators, `(M,)`; None for numbers.
    """

    annotator: Any = None
    annotator_names: Any = None

    def _columns(self) -> dict[str, Any]:
        columns = super()._columns()
        who = self.annotator if self.annotator_names is None else np.asarray(self.annotator_names)[self.annotator]
        return {"index": columns.pop("index"), "annotator": who, **columns}


def judged(p: np.ndarray, votes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the classes by model and votes, `(N, K)`, and of each vote's without it, `(V,)`.

        q_n(k) ~ p_n(k) prod_m T_m[k, l_nm],      q_nm(k) ~ q_n(k) / T_m[k, l_nm]

    T_m has the counts of the labels of m, each for the classes in the shares of p_n, and K labels more in each row, by
    the mean T of all.

    Args:
        p: probabilities out of sample, `(N, K)`.
        votes: labels of each annotator, -1 for none, `(N, M)`.
    """
    size, (examples, who) = p.shape[1], np.nonzero(votes >= 0)
    given = votes[examples, who]
    shape = votes.shape[1] * size, len(votes)
    columns = scipy.sparse.csr_array((np.ones(len(given), "float32"), (who * size + given, examples)), shape=shape)
    counts = (columns @ p.astype("float64")).reshape(-1, size, size).swapaxes(1, 2)
    pooled = counts.sum(axis=0) + 1.0 / size
    counts = counts + size * pooled / pooled.sum(axis=1, keepdims=True)
    log_t = np.log(counts / counts.sum(axis=2, keepdims=True)).swapaxes(1, 2)  # by annotator, label and class
    joint = np.log(np.maximum(p, FLOOR)).astype("float64") + columns.T @ log_t.reshape(-1, size)
    others = np.empty(len(given))
    for block in np.array_split(np.arange(len(given)), len(given) // MOST_VOTES + 1):  # K numbers a vote are too many
        without = joint[examples[block]] - log_t[who[block], given[block]]
        others[block] = log_softmax(without, axis=1)[np.arange(len(block)), given[block]]
    return log_softmax(joint, axis=1), others


def who_labels_how(task: Task, issues: VoteIssues) -> list[list[str]]:
    """Name, labels, wrong ones, accuracy, its interval and confusions of each annotator, the least accurate first.

    The last three are those of `labels.annotators`, the interval that of the agreement with the others; they are
    empty where the votes do not say who is right.

    Args:
        task: the votes.
        issues: issues among these votes.
    """
    votes = np.asarray(task.votes)
    count = votes.shape[1]
    given, wrong = (np.bincount(who, minlength=count) for who in (issues.annotator, issues.annotator[issues.is_issue]))
    names = np.arange(count) if task.annotators is None else task.annotators
    lines = [
        [str(name), str(labels), f"{bad} ({bad / labels:.0%})" if labels else "-", "-", "", ""]
        for name, labels, bad in zip(names, given, wrong, strict=True)
    ]
    if not say_who_is_right(votes, task.units):
        return lines
    rows = random_generator(0).permutation(len(votes))[:MOST_EXAMPLES]
    fitted = aggregate(votes[rows], task.units)
    found = annotators(fitted, votes[rows], fitted.prior, class_names=task.classes.tolist()).each
    for line, annotator in zip(lines, found, strict=True):
        _, _, accuracy, _, interval, _, says = cells_of(annotator)
        line[3:] = accuracy, interval, says
    return [lines[m] for m in np.argsort([annotator.accuracy for annotator in found], kind="stable")]


def vote_issues(p: np.ndarray, task: Task) -> VoteIssues:
    """The issues among votes: those that name another class than the model and all votes together, or a verified label.

    The score of a vote is the probability of its class by the model and the other annotators.

    Args:
        p: probabilities out of sample, `(N, K)`.
        task: the votes.
    """
    votes = np.asarray(task.votes)
    (examples, who), (whole, others) = np.nonzero(votes >= 0), judged(p, votes)
    if task.verified is not None:
        certain = np.where(task.y[:, None] == np.arange(task.units), 0.0, -np.inf)
        whole = np.where(task.verified[:, None], certain, whole)
        others = np.where(task.verified[examples], certain[examples, votes[examples, who]], others)
    given, found = votes[examples, who], whole.argmax(axis=1)[examples]
    score = np.exp(others)
    is_issue, is_clear = found != given, np.exp(whole.max(axis=1))[examples] >= CLEAR
    kind = np.where(is_issue, np.where(is_clear, "wrong", "ambiguous"), "")
    order = np.argsort(score, kind="stable")
    example, label, suggested, chance, wrong, sort = (
        each[order] for each in (examples, given, found, score, is_issue, kind)
    )
    names = task.classes, task.index, who[order], task.annotators
    return VoteIssues(example, label, suggested, chance, wrong, sort, *names)
