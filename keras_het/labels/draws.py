"""Verified examples as a random sample: the order of the draw, probabilities of being drawn, and tests of chance."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import hypergeom, rankdata

from keras_het.base.batches import as_array
from keras_het.base.refusal import refuse_first, refuse_if
from keras_het.base.validation import check_numbers
from keras_het.base.verified import row_numbers, verified_indices

REFUSED_P, WARNING_P = 1e-5, 0.01  # p-values of the tests of a random sample, over all tests
MIN_NORMAL_COUNT = 30  # expected values beside the most frequent one, for a normal approximation
REMEDY = "give `inclusion`, the probability of each example to be drawn, or only those that were drawn at random"
LEFT_OUT = "be verified from its start on: what was left out may be hard. Verify it, or count it as wrong"


class Sample(NamedTuple):
    """Verified examples.

    Attributes:
        rows: row numbers among the N examples, `(n,)`.
        weights: 1 / probability of being drawn, divided by the mean, `(n,)`.
        is_uniform: boolean, whether each example was equally likely to be drawn.
        inclusion: probabilities of being drawn of all examples, `(N,)`; None if they are equal.
    """

    rows: np.ndarray
    weights: np.ndarray
    is_uniform: bool = True
    inclusion: np.ndarray | None = None

    def __str__(self) -> str:
        text = f"{len(self.rows)} verified examples that were drawn at random"
        effective = self.weights.sum() ** 2 / np.square(self.weights).sum()  # Kish 1965
        return text if self.is_uniform else f"{text}, with unequal probabilities, as good as {effective:.0f}"


def first_of_draw(drawn: Any, is_verified: np.ndarray, index: Any = None) -> np.ndarray:
    """Returns the row numbers of the verified examples of a draw, its first ones, `(n,)`.

    Args:
        drawn: indices of the examples in the order of the draw; or a dict from these to their places in it, 0, 1, 2,
            ..., of which a place that is missing was left out.
        is_verified: booleans, `(N,)`.
        index: pandas index of the examples; None for row numbers.
    Raises:
        ValueError: for an index twice, a first one that is not verified, or a verified one behind a gap; or a part that
            cannot be the first of a random order (p below 0.00001).

    Example:
        >>> first_of_draw({7: 1, 3: 0, 5: 3}, np.arange(9) < 8)
        Traceback (most recent call last):
        ...
        ValueError: `drawn` must be verified from its start on: what was left out may be hard. Verify it, or count it \
as wrong. Received: entry 2 of the draw has no verified label, but later entries have one
    """
    rows = _rows_of_draw(drawn, len(is_verified), index)
    there = is_verified[rows] & (rows >= 0)
    count = len(there) if there.all() else int(there.argmin())
    refuse_if(not count, "drawn", "have a first index whose label is in `verified_labels`", "a sample of none")
    if count < len(rows):
        gap = f"entry {count} of the draw" + (f", example number {rows[count]}," if rows[count] >= 0 else "")
        refuse_if(there[count:].any(), "drawn", LEFT_OUT, f"{gap} has no verified label, but later entries have one")
        rule = "be in the order of the draw, not sorted: a file keeps it in a column, as {index: place}"
        by_row = _rank_p_value(rows, np.arange(count))
        refuse_if(by_row < REFUSED_P, "drawn", rule, "a part of which the row numbers are not as of a random order")
    return rows[:count]


def _rows_of_draw(drawn: Any, count: int, index: Any) -> np.ndarray:
    """Returns the row numbers in the order of a draw, `(n,)`; -1 where a place is missing."""
    rule = "be a list of indices of examples, or a dict {index: place in the draw} (`to_dict()` of a column)"
    if not isinstance(drawn, Mapping):
        keys = list(drawn) if isinstance(drawn, list | tuple) else as_array("drawn", drawn).tolist()
        refuse_if(not isinstance(keys, list) or hasattr(drawn, "iloc"), "drawn", rule, kind=drawn)
        for key, number in Counter(keys).most_common(1):
            refuse_if(number > 1, "drawn", "have each index once, of a sample without replacement", f"{key!r} again")
        return row_numbers(keys, count, index, "drawn")
    places = check_numbers("drawn", list(drawn.values()))
    is_place = (places >= 0) & (places < count) & (places == np.floor(places))
    refuse_if(not is_place.all() or len(np.unique(places)) < len(places), "drawn", rule, "other places, or one twice")
    rows = np.full(int(places.max(initial=-1)) + 1, -1)
    rows[places.astype(int)] = row_numbers(list(drawn), count, index, "drawn")
    return rows


def sample_of(verified: Any, drawn: Any, count: int, index: Any) -> Any:
    """Returns the verified examples of a draw, a dict in its order; all of them if `drawn` is None."""
    if drawn is None:
        return verified
    rows = verified_indices(verified, count, index)
    keys = dict(zip(rows.tolist(), verified, strict=True))
    first = first_of_draw(drawn, np.isin(np.arange(count), rows), index).tolist()
    return {keys[row]: verified[keys[row]] for row in first}


def read_sample(verified: Any, count: int, inclusion: Any, index: Any = None) -> Sample:
    """Returns the verified examples, with weights by `inclusion`."""
    rows = verified_indices(verified, count, index)
    refuse_if(not len(rows), "verified_labels", "have at least one example", "none")
    if inclusion is None:
        return Sample(rows, np.ones(len(rows)))
    rule = f"have shape ({count},), with a probability also of the examples that were not drawn"
    refuse_if(isinstance(inclusion, Mapping), "inclusion", rule, kind=inclusion)
    given = check_numbers("inclusion", inclusion)
    refuse_if(given.shape != (count,), "inclusion", rule, shape=given)
    rule = "be in (0, 1]: nothing can be said of what could not be drawn"
    refuse_first(~((given > 0) & (given <= 1)), "inclusion", rule, given)
    is_uniform = bool(np.all(given == given[0]))
    return Sample(rows, given[rows].mean() / given[rows], is_uniform, None if is_uniform else given)


def check_random(sample: Sample, scores: dict[str, np.ndarray], classes: dict[str, np.ndarray]) -> str:
    """Returns the doubt about a sample drawn with equal probabilities, in words; empty for none.

    Ranks of scores are compared by Wilcoxon's test, and the frequency of each class by the hypergeometric distribution.
    A selection by anything else is not noticed.

    Args:
        sample: verified examples.
        scores: numbers of each example, `(N,)`, by their meaning.
        classes: classes of each example, `(N,)`, by their meaning.
    Raises:
        ValueError: if a random sample would look so in less than one of 100,000 cases.
    """
    if not sample.is_uniform:
        return ""
    chances = {f"by {title}": _rank_p_value(values, sample.rows) for title, values in scores.items()}
    for title, values in classes.items():
        own = _class_p_values(values, sample.rows)
        chances |= {f"in how many have {title} {k}": float(chance) for k, chance in enumerate(own)}
    what, least = min(chances.items(), key=lambda pair: pair[1], default=("", 1.0))
    least *= len(chances)
    rule = f"be of examples that were drawn at random: {REMEDY}"
    refuse_if(least < REFUSED_P, "verified_labels", rule, f"others than the rest, {what}")
    if least >= WARNING_P:
        return ""
    return f"the verified examples differ from the rest {what} (p = {least:.1g}); if not drawn at random, {REMEDY}."


def _rank_p_value(values: np.ndarray, rows: np.ndarray) -> float:
    """Returns the two-sided p-value of the mean rank of the sample.

    If nearly all values are equal, the normal approximation is far off: then the number of the others is tested.
    """
    unique, place, number = np.unique(values, return_inverse=True, return_counts=True)
    least = MIN_NORMAL_COUNT if 2 * number.max() > len(values) else 0
    if len(unique) == 2 or len(rows) * (1.0 - number.max() / len(values)) < least:
        return float(_class_p_values((place == number.argmax()).astype(int), rows).min())
    count, n, ranks = len(values), len(rows), rankdata(values)
    variance = ranks.var() * (count - n) / max(count - 1, 1) / n
    return 1.0 if variance == 0 else float(2.0 * ndtr(-abs(ranks[rows].mean() - ranks.mean()) / np.sqrt(variance)))


def _class_p_values(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns the two-sided p-values of how many of the sample have each class, `(K,)`."""
    own, all_ = (np.bincount(x, minlength=int(values.max()) + 1) for x in (values[rows], values))
    of = len(values), all_, len(rows)
    return np.minimum(2.0 * np.minimum(hypergeom.cdf(own, *of), hypergeom.sf(own - 1, *of)), 1.0)
