"""Which kind of label noise there is, by probabilities out of sample and the labels alone."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest

from keras_het.analysis.advice import next_step
from keras_het.analysis.second_choices import Agreement, agreement, ranks_of_clearness, unclear
from keras_het.base.batches import check_same_index, largest_of_rows
from keras_het.base.classes import encode
from keras_het.base.refusal import refusal
from keras_het.base.tables import Titled
from keras_het.base.validation import check_class_names, check_labels
from keras_het.labels.decoding import Decoded, decode
from keras_het.labels.estimation import SYSTEMATIC, check_distributions, flip_p_values

# The rule, chosen on digits with seeds 10 to 19; benchmarks/labels/diagnosis.py tries it on other seeds and data.
CLEAR, CLEAREST = 0.7, 0.5  # fractions of each class, its clearest examples: the model seldom has their class wrong
FEWEST = 20  # wrong labels among clear examples, and clearest examples: with fewer nothing is said
NEARLY_NONE = 0.03  # fraction of wrong labels among the clearest half
MOSTLY = 0.6  # of the wrong labels are the most frequent systematic flip of their class
BY_EXAMPLE = 0.01  # p-value
FOLLOWING = 0.1  # excess of second choices: at less a model that has classes wrong does as much, however many labels
LEARNED = 0.01  # p-value of a model that predicts the labels better than their largest class
UNCLEAR = 0.78  # P(a wrong label is of a less clear example than a right one)
SHOWN = 5  # flips that are printed
EITHER = "Either labels follow what an example looks like, or the model is weak, and hard examples look wrong to it."
BETTER = "Is it trained for long enough, are its inputs scaled, and are the rows in the order of the labels?"


@dataclasses.dataclass(frozen=True)
class SystematicFlip:
    """A flip from one class to another that is too frequent for chance.

    Attributes:
        true: the class, by name.
        label: the label that is given instead, by name.
        count: number of clear examples of the class that have it.
        p_value: p-value of so many, if the wrong labels of the class were any other class alike; less than .01 / (K (K
            - 1)).
    """

    true: Any
    label: Any
    count: int
    p_value: float


@dataclasses.dataclass(frozen=True)
class NoiseDiagnosis(Titled):
    """The kind of label noise, the evidence, and the method to begin with. It prints as a few sentences.

    Attributes:
        kind: "none" (labels are right, or nearly), "uniform" (symmetric: any other class), "pattern" (class-dependent:
            some classes take the place of others more often), "pairs" (pair flips: one other class for each class), "by
            example" (instance-dependent: wrong labels name what the example looks like), "outliers" (wrong labels are
            any class, and are of unclear examples), or "unknown".
        reason: why, in a sentence.
        advice: the method to begin with, in a sentence.
        disagreement: fraction of the labels that the model disagrees with, by the class that it finds. It is no
            estimate of how many are wrong: a hard example of a right label counts, and a wrong label that the model
            believes does not.
        transition: T[i, j] = p(label j | class i), `(K, K)`, over all examples.
        flips: the systematic ones, the most frequent first.
        agreement: fraction of the wrong labels that are the model's second choice for the example.
        expected_agreement: agreement, if labels were dealt at random to the examples of a class.
        p_value: p-value of wrong labels that depend on their class alone: of such an agreement, if no more than .06
            of those that the class alone makes another label are the second choice; nan if it cannot be told.
        unclear: P(a wrong label is of a less clear example than a right label of the class); .5 without a connection.
    """

    kind: str
    reason: str
    advice: str
    disagreement: float
    transition: np.ndarray
    flips: tuple[SystematicFlip, ...]
    agreement: float
    expected_agreement: float
    p_value: float
    unclear: float

    def evidence(self) -> str:
        """The kind and the evidence as text, without the advice."""
        return "\n".join(f"{title}: {text}" for title, text in self.lines()[:-1])

    def lines(self) -> list[tuple[str, str]]:
        """(title, text) of the kind, the evidence and the advice."""
        flips = [f"{flip.true} -> {flip.label} {flip.count} (p {flip.p_value:.1g})" for flip in self.flips[:SHOWN]]
        more = [f"and {len(self.flips) - SHOWN} more"] * (len(self.flips) > SHOWN)
        return [
            ("kind of noise", self.kind),
            ("why", self.reason),
            ("disagreement", f"the model disagrees with {self.disagreement:.1%} of the labels"),
            ("systematic flips", ", ".join([*flips, *more]) or "none"),
            ("next step", self.advice),
        ]


def diagnose_noise(probabilities: Any, labels: Any, *, class_names: Sequence | Mapping | None = None) -> NoiseDiagnosis:
    """Which kind of label noise there is: symmetric, class-dependent, instance-dependent, outliers, or none.

    A method against wrong labels that gains on one kind of noise loses on another. The kind can be told, in part, from
    probabilities out of sample and the labels, without a clean label:

    1. The class of an example is the one whose wrong and right labels together look most like its probabilities. That
       is not always the most probable label: of digits with 40% class-dependent flips it is the true class of 92% of
       the examples, and the most probable label that of 67% (`benchmarks/results/diagnosis.md`).
    2. Among the clearer 70% of each class, wrong labels that name one other class too often are systematic flips.
    3. Among these, wrong labels may be the model's second choice for the example itself, more often than for other
       examples of the class: then they depend on the example. The p-value is that of permutations of the labels within
       the class. A model that has the class of some examples wrong makes labels of any class look like that, too: so
       the test allows for .06 of the labels to do so, and from .1 on they are said to be "by example". Between the two,
       or where only the one is so, it is "unknown".
    4. If wrong labels are any class, and of the least clear examples, these may be of no class.

    Nobody can tell a hard example from a wrong label: a weak model makes right labels look wrong "by example". That,
    and not "none", is said of right labels for which the model is wrong too often; of words, where it was wrong for two
    of five even so, it was said of pair flips, too. Nor can instance-dependent noise be told from weak annotators. With
    two classes, or few wrong labels, only "none" can be told. Of a model that predicts the labels no better than their
    largest class no kind is told. How often each kind is right is on the page "Choose a method".

    So the fraction of the labels that the model disagrees with is not that of the wrong ones, and has no interval. That
    one needs right labels of some examples.

    Args:
        probabilities: out of sample, as in the result of `labels.clean`, shape `(N, K)`, K >= 2, each row of sum 1.
        labels: integers in [0, K), shape `(N,)`, or label vectors, or names: in sorted order, or that of `class_names`,
            they are the classes of the probabilities.
        class_names: a sequence or a dict {class: name}; None takes the names of the labels, or numbers the classes.
    Returns:
        `NoiseDiagnosis`; print it.
    Raises:
        ValueError: for other shapes or values, or labels of one class only.

    Example:
        >>> labels = np.arange(3).repeat(100)
        >>> labels[:40] = 1  # of class 0; so a model gives .4 to class 1 for all of them
        >>> p = np.array([[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]).repeat(100, axis=0)
        >>> print(diagnose_noise(p, labels, class_names=["cat", "lynx", "dog"]))
        kind of noise: pairs
        why: 100% of the wrong labels of clear examples are of one flip for each class.
        disagreement: the model disagrees with 13.3% of the labels
        systematic flips: cat -> lynx 40 (p 9e-13)
        next step: Begin with labels.choose; by hand, losses.ForwardCorrectedCrossentropy with the transition of \
analysis.diagnose_noise.
    """
    check_same_index(probabilities=probabilities, labels=labels)
    p = check_distributions(probabilities, as_given=True)
    size = p.shape[1]
    labels, names = _read(labels, class_names, len(p), size)
    found = decode(labels, p)
    wrong, place = labels != found.classes, ranks_of_clearness(found.margin, found.classes)
    clear = place < CLEAR
    counts = _counts(found.classes[clear], labels[clear], size)
    p_values = flip_p_values(counts)
    flips = p_values < SYSTEMATIC / (size * (size - 1))
    agreed = _agreement(found, labels, wrong & clear, size)
    of_unclear = unclear(found.margin, wrong, found.classes)
    main = np.where(flips, counts, 0).max(axis=1).sum() / max(1, agreed.number)
    clearest = wrong[place < CLEAREST]
    kind, reason = (
        _too_few(clearest)
        or _nothing_learned(p, labels)
        or _judge(clearest, float(main), int(flips.sum()), agreed, of_unclear, size)
    )
    return NoiseDiagnosis(
        kind,
        reason,
        next_step(kind),
        float(wrong.mean()),
        _transition(_counts(found.classes, labels, size)),
        _named(counts, p_values, flips, names),
        agreed.rate,
        agreed.expected,
        agreed.p_value,
        of_unclear,
    )


def _read(labels: Any, class_names: Any, count: int, size: int) -> tuple[np.ndarray, list]:
    """Labels of any form as integers in [0, size), and the names of the classes."""
    own, places = encode(labels, count, "labels")
    if own.dtype.kind == "i":
        return check_labels(own[places], size), check_class_names(class_names, size)
    names = own.tolist() if class_names is None else check_class_names(class_names, size)
    if len(names) != size or not set(own.tolist()) <= set(names):
        rule = f"be names of the {size} classes of `probabilities`, with `class_names` if some do not occur"
        raise refusal("labels", rule, ", ".join(map(repr, own.tolist())))
    return np.array([names.index(name) for name in own.tolist()])[places], names


def _counts(classes: np.ndarray, labels: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(classes * size + labels, minlength=size * size).reshape(size, size)


def _transition(counts: np.ndarray) -> np.ndarray:
    """Counts with rows of sum one; a class without examples keeps its labels."""
    counts = np.where(counts.sum(axis=1, keepdims=True) > 0, counts, np.eye(len(counts)))
    return counts / counts.sum(axis=1, keepdims=True)


def _agreement(found: Decoded, labels: np.ndarray, chosen: np.ndarray, size: int) -> Agreement:
    """The test of second choices; of two classes the other one is always the second choice."""
    second, own, classes = (part[chosen] for part in (found.second, labels, found.classes))
    tested = agreement(second, own, classes, size)
    return tested if size > 2 else tested._replace(p_value=float("nan"))


def _named(counts: np.ndarray, p_values: np.ndarray, flips: np.ndarray, names: list) -> tuple[SystematicFlip, ...]:
    pairs = sorted(np.argwhere(flips).tolist(), key=lambda pair: -counts[tuple(pair)])
    return tuple(SystematicFlip(names[i], names[j], int(counts[i, j]), float(p_values[i, j])) for i, j in pairs)


def _too_few(clearest: np.ndarray) -> tuple[str, str] | None:
    if len(clearest) >= FEWEST:
        return None
    return "unknown", f"There are only {len(clearest)} examples of which the class is clear."


def _nothing_learned(p: np.ndarray, labels: np.ndarray) -> tuple[str, str] | None:
    """No kind and why, of a model that does not predict the labels better than their largest class; else None.

    The two are compared by the examples of which only one of them is right, as in McNemar's test.
    """
    right, largest = largest_of_rows(p) == labels, labels == np.bincount(labels).argmax()
    gained, lost = int(np.sum(right & ~largest)), int(np.sum(largest & ~right))
    if gained and binomtest(gained, gained + lost, alternative="greater").pvalue < LEARNED:
        return None
    known = (
        f"The model predicts {right.mean():.1%} of the labels, and the largest class is {largest.mean():.1%} of them"
    )
    return "unknown", f"{known}: no kind can be told by a model that has learned so little. {BETTER}"


def _judge(
    clearest: np.ndarray, main: float, flips: int, agreed: Agreement, of_unclear: float, size: int
) -> tuple[str, str]:
    """The kind and why; the first rule that applies."""
    second = f"{agreed.rate:.0%} of the wrong labels of clear examples are the model's second choice for the example"
    if clearest.mean() < NEARLY_NONE:
        return "none", f"Of the clearest half of the examples, {clearest.mean():.1%} have another label than the model."
    if size < 3:
        return "unknown", "With two classes, a wrong label can only be the other."
    if agreed.number < FEWEST:
        return "unknown", f"Of clear examples, only {agreed.number} have another label than the model."
    if main >= MOSTLY:
        also = f" They depend on the example, too (p {agreed.p_value:.1g})." * (agreed.p_value < BY_EXAMPLE)
        return "pairs", f"{main:.0%} of the wrong labels of clear examples are of one flip for each class.{also}"
    signs = agreed.p_value < BY_EXAMPLE, agreed.excess >= FOLLOWING
    if any(signs):
        chance = f"by its class alone {agreed.expected:.0%} would be (p {agreed.p_value:.1g})"
        if all(signs):
            return "by example", f"{second}, and {chance}. {EITHER}"
        little = "That is too little to tell labels by example from a model that has the class of some examples wrong."
        return "unknown", f"{second}, and {chance}. {little}"
    if of_unclear >= UNCLEAR:
        return "outliers", f"{of_unclear:.0%} of the time a wrong label is of a less clear example than a right one."
    if flips:
        return "pattern", f"{flips} flips between two classes are too frequent for chance."
    return "uniform", "No flip is more frequent than chance, and wrong labels do not depend on the example."
