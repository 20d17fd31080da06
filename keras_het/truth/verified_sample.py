"""Examples that somebody has verified: where they are, how much each counts, and whether they look drawn at random."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import hypergeom, rankdata

from keras_het.base.refusal import refuse_first, refuse_if
from keras_het.base.validation import check_numbers
from keras_het.base.verified import verified_places
from keras_het.truth.cells import effective

CERTAIN, DOUBTFUL = 1e-5, 0.01  # of a chance, over all tests, that a random sample looks so
LEAST_OTHERS = 30  # expected values beside the most frequent one, for a normal distribution
REMEDY = "give `inclusion`, the probability of each example to be drawn, or only those that were drawn at random"


class Sample(NamedTuple):
    """Verified examples.

    Attributes:
        rows: places among the N examples, `(n,)`.
        weights: 1 / probability of being drawn, in parts of their mean, `(n,)`.
        is_uniform: boolean, whether each example was as likely to be drawn.
        inclusion: probabilities of being drawn, `(N,)`, if they are known of all and unequal; or None.
    """

    rows: np.ndarray
    weights: np.ndarray
    is_uniform: bool
    inclusion: np.ndarray | None = None

    @property
    def effective(self) -> float:
        """Number of examples of equal weights that vary as little (Kish 1965)."""
        return effective(self.weights)


def read_sample(verified: Any, count: int, inclusion: Any, index: Any = None, name: str = "verified_labels") -> Sample:
    """The verified examples of a dict, and what `inclusion` says of how they were drawn.

    Args:
        verified: dict from the indices of examples to what was found.
        count: N.
        inclusion: probabilities of being drawn, a dict from these indices or an array `(N,)`; None for equal ones.
        index: index of a pandas frame, whose entries are the keys then; None for numbers.
        name: name of the argument, for errors.
    Raises:
        ValueError: for no verified example, or a probability that is not in (0, 1].
    """
    rows = verified_places(verified, count, index, name)
    refuse_if(not len(rows), name, "have at least one example", "none")
    if inclusion is None:
        return Sample(rows, np.ones(len(rows)), True)
    if isinstance(inclusion, Mapping):
        missing = [key for key in verified if key not in inclusion]
        those = f"{{k: {name}[k] for k in inclusion}}"
        rule = f"have a probability for each of `{name}`; give only those that were drawn: {those}"
        refuse_if(missing, "inclusion", rule, f"none for {missing[:1]}")
        given = own = check_numbers("inclusion", [inclusion[key] for key in verified])
    else:
        given = check_numbers("inclusion", inclusion)
        refuse_if(given.shape != (count,), "inclusion", f"be a dict, or have shape ({count},)", shape=given)
        own = given[rows]
    rule = "be in (0, 1]: nothing can be said of what could not be drawn"
    refuse_first(~((given > 0) & (given <= 1)), "inclusion", rule, given)
    is_uniform, is_of_all = bool(np.all(given == given[0])), given is not own
    return Sample(rows, np.mean(own) / own, is_uniform, given if is_of_all and not is_uniform else None)


def check_random(sample: Sample, scores: dict[str, np.ndarray], classes: dict[str, np.ndarray], name: str) -> str:
    """What speaks against a sample drawn with equal probabilities, in words; empty for nothing.

    Scores are compared by their ranks (Wilcoxon), the frequency of each class by the hypergeometric distribution.
    Errors that follow nothing of this are not seen.

    Args:
        sample: verified examples.
        scores: numbers of each example, `(N,)`, by what they are.
        classes: classes of each example, `(N,)`, by what they are.
        name: name of the argument, for errors.
    Raises:
        ValueError: if a random sample would look so in less than one of 100,000 cases.
    """
    if not sample.is_uniform:
        return ""
    chances = {f"by {title}": _of_ranks(values, sample.rows) for title, values in scores.items()}
    for title, values in classes.items():
        own = _of_classes(values, sample.rows)
        chances |= {f"in how many have {title} {k}": float(chance) for k, chance in enumerate(own)}
    what, least = min(chances.items(), key=lambda pair: pair[1], default=("", 1.0))
    least *= len(chances)
    refuse_if(
        least < CERTAIN, name, f"be of examples that were drawn at random: {REMEDY}", f"others than the rest, {what}"
    )
    if least >= DOUBTFUL:
        return ""
    return f"the verified examples differ from the rest {what} (p = {least:.1g}); if not drawn at random, {REMEDY}."


def _of_ranks(values: np.ndarray, rows: np.ndarray) -> float:
    """The two-sided chance of the mean rank of the sample, by the normal distribution.

    Where nearly all values are the same, the normal distribution is far off: there it is that of the number of others.
    """
    unique, place, number = np.unique(values, return_inverse=True, return_counts=True)
    if len(unique) == 2 or len(rows) * (1.0 - number.max() / len(values)) < LEAST_OTHERS:
        return float(_of_classes((place == number.argmax()).astype(int), rows).min())
    count, n, ranks = len(values), len(rows), rankdata(values)
    variance = ranks.var() * (count - n) / max(count - 1, 1) / n
    return 1.0 if variance == 0 else float(2.0 * ndtr(-abs(ranks[rows].mean() - ranks.mean()) / np.sqrt(variance)))


def _of_classes(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The two-sided chances of how many of the sample have each class, `(K,)`."""
    own, all_ = (np.bincount(each, minlength=int(values.max()) + 1) for each in (values[rows], values))
    of = len(values), all_, len(rows)
    return np.minimum(2.0 * np.minimum(hypergeom.cdf(own, *of), hypergeom.sf(own - 1, *of)), 1.0)
