"""Random samples of verified examples: their order, their inclusion probabilities, and tests of randomness."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr
from scipy.stats import hypergeom, rankdata

from keras_het.base.batches import as_array
from keras_het.base.refusal import refuse_first, refuse_if
from keras_het.base.tables import number_of
from keras_het.base.validation import check_numbers
from keras_het.labels.verified_labels import row_numbers, verified_indices

REFUSAL_P, WARNING_P = 1e-5, 0.01  # p-values over all tests of a sample
MIN_NORMAL_COUNT = 30  # expected number of less frequent values; below it, the normal approximation is far off
REMEDY = "pass only randomly drawn examples, or `inclusion`, the probability of each example to be drawn"
IN_ORDER = "be in the order of the draw, not sorted. Keep the order in a column, and pass {index: position}"
NO_GAPS = (
    "be verified from its start, without gaps, because skipped examples can be hard. Verify the skipped examples, or "
    "count them as errors"
)


class Sample(NamedTuple):
    """Verified examples.

    Attributes:
        rows: row numbers among the N examples, `(n,)`.
        weights: 1 / probability of being drawn, divided by the mean, `(n,)`.
        is_uniform: boolean, whether all examples were equally likely to be drawn.
        inclusion: probability of each example to be drawn, `(N,)`; None if all are equal.
    """

    rows: np.ndarray
    weights: np.ndarray
    is_uniform: bool = True
    inclusion: np.ndarray | None = None

    def __str__(self) -> str:
        text = f"{number_of(len(self.rows), 'verified example')}, drawn at random"
        effective = self.weights.sum() ** 2 / np.square(self.weights).sum()  # Kish 1965
        return text if self.is_uniform else f"{text} with unequal probabilities (effective sample size {effective:.0f})"


def verified_rows(draw_order: Any, is_verified: np.ndarray, index: Any = None) -> np.ndarray:
    """Returns the row numbers of the verified examples of a draw, which must be its first ones, `(n,)`.

    Args:
        draw_order: indices of the examples in the order of the draw, or a dict from indices to positions 0, 1, 2, ...
            in the draw. A missing position is a gap.
        is_verified: booleans, `(N,)`.
        index: pandas index of the examples; None for row numbers.
    Raises:
        ValueError: for a repeated index, no verified example at the start, a verified example after a gap, or an order
            that cannot be random (p below 0.00001).
    """
    rows = _read_order(draw_order, len(is_verified), index)
    has_label = is_verified[rows] & (rows >= 0)
    count = len(has_label) if has_label.all() else int(has_label.argmin())
    rule = "start with an index whose label is in `verified_labels`"
    refuse_if(not count, "draw_order", rule, "no verified label at the start")
    if count < len(rows):
        gap = f"entry {count} of the draw" + (f", example number {rows[count]}," if rows[count] >= 0 else "")
        received = f"{gap} has no verified label, but later entries have one"
        refuse_if(has_label[count:].any(), "draw_order", NO_GAPS, received)
        p_value = _rank_p_value(rows, np.arange(count))
        refuse_if(p_value < REFUSAL_P, "draw_order", IN_ORDER, "row numbers that are not in random order")
    return rows[:count]


def _read_order(draw_order: Any, count: int, index: Any) -> np.ndarray:
    """Returns the row numbers in the order of a draw, `(n,)`, with -1 for a missing position."""
    rule = "be a list of indices of examples, or a dict {index: position in the draw} (`to_dict()` of a column)"
    if not isinstance(draw_order, Mapping):
        is_list = isinstance(draw_order, list | tuple)
        keys = list(draw_order) if is_list else as_array("draw_order", draw_order).tolist()
        refuse_if(not isinstance(keys, list) or hasattr(draw_order, "iloc"), "draw_order", rule, kind=draw_order)
        for key, number in Counter(keys).most_common(1):
            refuse_if(number > 1, "draw_order", "have each index once (sample without replacement)", f"{key!r} again")
        return row_numbers(keys, count, index, "draw_order")
    positions = check_numbers("draw_order", list(draw_order.values()))
    is_valid = (positions >= 0) & (positions < count) & (positions == np.floor(positions))
    is_wrong = not is_valid.all() or len(np.unique(positions)) < len(positions)
    refuse_if(is_wrong, "draw_order", rule, "other positions, or one twice")
    rows = np.full(int(positions.max(initial=-1)) + 1, -1)
    rows[positions.astype(int)] = row_numbers(list(draw_order), count, index, "draw_order")
    return rows


def select_sample(verified: Any, draw_order: Any, count: int, index: Any) -> Any:
    """Returns the verified examples of a draw, a dict in its order; all verified examples if `draw_order` is None."""
    if draw_order is None:
        return verified
    rows = verified_indices(verified, count, index)
    keys = dict(zip(rows.tolist(), verified, strict=True))
    sample = verified_rows(draw_order, np.isin(np.arange(count), rows), index).tolist()
    return {keys[row]: verified[keys[row]] for row in sample}


def read_sample(verified: Any, count: int, inclusion: Any, index: Any = None) -> Sample:
    """Returns the verified examples with their weights, 1 / `inclusion`."""
    rows = verified_indices(verified, count, index)
    refuse_if(not len(rows), "verified_labels", "have at least one example", "none")
    if inclusion is None:
        return Sample(rows, np.ones(len(rows)))
    rule = f"have shape ({count},), a probability for every example, drawn or not"
    refuse_if(isinstance(inclusion, Mapping), "inclusion", rule, kind=inclusion)
    p = check_numbers("inclusion", inclusion)
    refuse_if(p.shape != (count,), "inclusion", rule, shape=p)
    rule = "be in (0, 1], because a sample says nothing about examples that could not be drawn"
    refuse_first(~((p > 0) & (p <= 1)), "inclusion", rule, p)
    is_uniform = bool(np.all(p == p[0]))
    return Sample(rows, p[rows].mean() / p[rows], is_uniform, None if is_uniform else p)


def check_random(
    sample: Sample,
    scores: dict[str, np.ndarray],
    classes: dict[str, np.ndarray],
    name: str = "verified_labels",
    rule: str = f"be a random sample: {REMEDY}",
) -> str:
    """Returns a warning if a uniform sample does not look random; an empty text otherwise.

    Wilcoxon's test compares the ranks of scores, and the hypergeometric distribution the frequency of each class. The
    test cannot notice a selection by anything else. `name` and `rule` are for the texts.

    Raises:
        ValueError: if fewer than one in 100,000 random samples would differ as much.
    """
    if not sample.is_uniform:
        return ""
    p_values = {f"by {title}": _rank_p_value(values, sample.rows) for title, values in scores.items()}
    for title, values in classes.items():
        class_p_values = _class_p_values(values, sample.rows).tolist()
        p_values |= {f"in the frequency of {title} {k}": p for k, p in enumerate(class_p_values)}
    difference, p_value = min(p_values.items(), key=lambda pair: pair[1], default=("", 1.0))
    p_value *= len(p_values)
    refuse_if(p_value < REFUSAL_P, name, rule, f"examples that differ from the rest {difference}")
    if p_value >= WARNING_P:
        return ""
    return f"the verified examples differ from the rest {difference} (p = {p_value:.1g}). `{name}` must {rule}."


def _rank_p_value(values: np.ndarray, rows: np.ndarray) -> float:
    """Returns the two-sided p-value of the mean rank of the sample.

    If nearly all values are equal, it tests how many are, because the normal approximation would be far off.
    """
    unique, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    min_count = MIN_NORMAL_COUNT if 2 * counts.max() > len(values) else 0
    if len(unique) == 2 or len(rows) * (1.0 - counts.max() / len(values)) < min_count:
        return float(_class_p_values((codes == counts.argmax()).astype(int), rows).min())
    count, n, ranks = len(values), len(rows), rankdata(values)
    variance = ranks.var() * (count - n) / max(count - 1, 1) / n
    return 1.0 if variance == 0 else float(2.0 * ndtr(-abs(ranks[rows].mean() - ranks.mean()) / np.sqrt(variance)))


def _class_p_values(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns the two-sided p-value of the frequency of each class in the sample, `(K,)`."""
    counts, totals = (np.bincount(x, minlength=int(values.max()) + 1) for x in (values[rows], values))
    chance = hypergeom(len(values), totals, len(rows))
    return np.minimum(2.0 * np.minimum(chance.cdf(counts), chance.sf(counts - 1)), 1.0)
