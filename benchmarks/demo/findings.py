"""What is said about the noise beside what was planted, and how right the wrong labels are that are named."""

from typing import NamedTuple

import numpy as np

from keras_het.analysis.pairs import top_pairs
from keras_het.label_noise import systematic_flips


class Flip(NamedTuple):
    """Labels of one class that are said to be of another.

    Attributes:
        true: the class that they are of.
        label: the class that they name.
        count: how many; of those that are said, among the examples of which the class is clear.
    """

    true: int
    label: int
    count: int  # type: ignore[assignment]  # hides `tuple.count`


class Diagnosis(NamedTuple):
    """What is said of the noise.

    Attributes:
        share: of the labels that the model disagrees with; of wrong ones, where the right ones are known.
        flips: those that are too frequent for chance.
    """

    share: float
    flips: list[Flip]


def said(diagnosis):
    """The share and the flips of a `NoiseDiagnosis`; the share is that of the labels that its model disagrees with."""
    return Diagnosis(diagnosis.share, [Flip(flip.true, flip.label, flip.count) for flip in diagnosis.flips])


def planted(data):
    """The `Diagnosis` by somebody who knows the right labels."""
    counts = confusions(data)
    found = np.argwhere(systematic_flips(counts)).tolist()
    return Diagnosis(float(data.wrong.mean()), [Flip(i, j, int(counts[i, j])) for i, j in found])


def confusions(data):
    """How many examples of class i have the label j, `(K, K)`."""
    size = max(data.true.max(), data.labels.max()) + 1
    return np.bincount(data.true * size + data.labels, minlength=size * size).reshape(size, size)


def planted_pairs(data, count):
    """The pairs of classes that the noise swaps most, both ways added, as (i, j)."""
    counts = confusions(data)
    np.fill_diagonal(counts, 0)
    return [(i, j) for i, j, flips in top_pairs(counts + counts.T, count) if flips]


class Quality(NamedTuple):
    """How right the wrong labels are that are named.

    Attributes:
        named: how many are named.
        precision: the share of these that are wrong; nan if none is named.
        recall: the share of all wrong labels that are named; nan if none is wrong.
    """

    named: int
    precision: float
    recall: float


def quality(issues, wrong):
    """The `Quality` of `LabelIssues`, by whether each label is wrong, `(N,)`."""
    hits = wrong[issues.index[issues.is_issue]]
    share_of = [float(hits.sum() / total) if total else float("nan") for total in (len(hits), wrong.sum())]
    return Quality(len(hits), *share_of)
