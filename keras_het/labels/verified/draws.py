"""Verified examples, a dict from indices to labels: their order, inclusion probabilities, and tests of randomness."""

import numbers
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas
from scipy.stats import hypergeom, mannwhitneyu

from keras_het.base.refusal import refusal, refuse_first, refuse_if
from keras_het.base.tables import number_of
from keras_het.base.validation import check_numbers
from keras_het.labels.classes import joined_names

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
        inclusion: probability of each example to be drawn, `(N,)`; None if all are equal.
    """

    rows: np.ndarray
    weights: np.ndarray
    inclusion: np.ndarray | None = None

    def __str__(self) -> str:
        text = f"{number_of(len(self.rows), 'verified example')}, drawn at random"
        effective = self.weights.sum() ** 2 / np.square(self.weights).sum()  # Kish 1965
        unequal = f" with unequal probabilities (effective sample size {effective:.0f})"
        return text + unequal * (self.inclusion is not None)


def verified_rows(draw_order: Any, is_verified: np.ndarray, index: Any = None) -> np.ndarray:
    """Returns the row numbers of the verified examples of a draw, which must be its first ones, `(n,)`.

    `draw_order` is an argument of `errors_left`, and `is_verified` is `(N,)`. A ValueError is raised for a repeated
    index, a verified example after a gap, or an order that cannot be random.
    """
    rows = _read_order(draw_order, len(is_verified), index)
    has_label = is_verified[rows] & (rows >= 0)
    count = len(has_label) if has_label.all() else int(has_label.argmin())
    rule = "start with an index whose label is in `verified_labels`"
    refuse_if(not count, "draw_order", rule, "no verified label at the start")
    if count < len(rows):
        received = f"entry {count} of the draw has no verified label, but later entries have one"
        refuse_if(has_label[count:].any(), "draw_order", NO_GAPS, received)
        p_value = _rank_p_value(rows, np.arange(count))
        refuse_if(p_value < REFUSAL_P, "draw_order", IN_ORDER, "row numbers that are not in random order")
    return rows[:count]


def _read_order(draw_order: Any, count: int, index: Any) -> np.ndarray:
    """Returns the row numbers in the order of a draw, `(n,)`, with -1 for a missing position."""
    rule = "be a list of indices of examples, or a dict {index: position in the draw} (`to_dict()` of a column)"
    is_order = isinstance(draw_order, Iterable) and not hasattr(draw_order, "iloc")
    refuse_if(not is_order, "draw_order", rule, kind=draw_order)
    rows = row_numbers([*draw_order], count, index, "draw_order")
    if not isinstance(draw_order, Mapping):
        is_repeated = pandas.Series(rows).duplicated().to_numpy()
        refuse_first(is_repeated, "draw_order", "have each index once (sample without replacement)", rows)
        return rows
    positions = check_numbers("draw_order", [*draw_order.values()])
    is_wrong = not np.isin(positions, np.arange(count)).all() or len(np.unique(positions)) < len(positions)
    refuse_if(is_wrong, "draw_order", rule, "other positions, or one twice")
    order = np.full(int(positions.max(initial=-1)) + 1, -1)
    order[positions.astype(int)] = rows
    return order


def read_sample(
    verified: Any, draw_order: Any, inclusion: Any, count: int, index: Any = None
) -> tuple[Mapping, Sample]:
    """Returns the verified examples of a draw, all without `draw_order`, with their weights, 1 / `inclusion`."""
    rows = verified_indices(verified, count, index)
    if draw_order is not None:
        keys = dict(zip(rows.tolist(), verified, strict=True))
        rows = verified_rows(draw_order, np.isin(np.arange(count), rows), index)
        verified = {keys[row]: verified[keys[row]] for row in rows.tolist()}
    refuse_if(not len(rows), "verified_labels", "have at least one example", "none")
    if inclusion is None:
        return verified, Sample(rows, np.ones(len(rows)))
    rule = f"have shape ({count},), a probability for every example, drawn or not"
    refuse_if(isinstance(inclusion, Mapping), "inclusion", rule, kind=inclusion)
    p = check_numbers("inclusion", inclusion)
    refuse_if(p.shape != (count,), "inclusion", rule, shape=p)
    rule = "be in (0, 1], because a sample says nothing about examples that could not be drawn"
    refuse_first(~((p > 0) & (p <= 1)), "inclusion", rule, p)
    return verified, Sample(rows, p[rows].mean() / p[rows], None if np.all(p == p[0]) else p)


def check_random(
    sample: Sample,
    scores: dict[str, np.ndarray],
    classes: dict[str, np.ndarray],
    name: str = "verified_labels",
    rule: str = f"be a random sample: {REMEDY}",
) -> str:
    """Returns a warning if a uniform sample does not look random; an empty text otherwise.

    Wilcoxon's test compares the ranks of scores, and the hypergeometric distribution the frequency of each class. The
    test cannot notice a selection by anything else. A ValueError is raised if fewer than one in 100,000 random samples
    would differ as much. `name` and `rule` are for the texts.
    """
    if sample.inclusion is not None:
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
    is_verified = np.isin(np.arange(len(values)), rows)
    if is_verified.all():
        return 1.0
    groups = values[is_verified], values[~is_verified]
    return float(mannwhitneyu(*groups, use_continuity=False, method="asymptotic").pvalue)


def _class_p_values(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns the two-sided p-value of the frequency of each class in the sample, `(K,)`."""
    counts, totals = (np.bincount(x, minlength=int(values.max()) + 1) for x in (values[rows], values))
    chance = hypergeom(len(values), totals, len(rows))
    return np.minimum(2.0 * np.minimum(chance.cdf(counts), chance.sf(counts - 1)), 1.0)


def verified_indices(verified_labels: Any, count: int, index: Any = None) -> np.ndarray:
    """Returns the row indices of the verified examples, `(n,)`, in the order of the dict.

    The keys are entries of the pandas index, or row numbers in [0, count) without one.
    """
    if not isinstance(verified_labels, Mapping):
        raise refusal("verified_labels", "be a dict from the indices of examples to their labels", kind=verified_labels)
    labels = ((key, label) for key, label in verified_labels.items() if isinstance(label, Hashable))
    blank = [key for key, label in labels if pandas.isna(label) or label == ""]
    rule = "have a label for each key. Leave out keys without a label, but keep them in `draw_order`"
    refuse_if(blank, "verified_labels", rule, f"no label for {blank[:1]}")
    return row_numbers(verified_labels, count, index, "verified_labels")


def row_numbers(keys: Collection, count: int, index: Any, name: str) -> np.ndarray:
    """Returns the row numbers of keys, `(n,)`; `count` and `index` are arguments of `verified_indices`."""
    if index is not None and len(keys) and not np.array_equal(index, np.arange(count)):
        rows = index.get_indexer([*keys])
        refuse_if((rows < 0).any(), name, "have only names of the pandas index", repr([*keys][rows.argmin()]))
        return rows
    for key in keys:  # 3.0 is no index, because NumPy accepts no floats
        is_index = isinstance(key, numbers.Integral) and not isinstance(key, bool) and 0 <= int(key) < count
        refuse_if(not is_index, name, f"have integer indices in [0, {count})", repr(key))
    return np.array([*keys], "int64")


def encode_verified(verified_labels: Mapping, *classes: np.ndarray, allows_unknown: bool = False) -> np.ndarray:
    """Converts verified labels to indices of `classes`, `(n,)`; with several lists, the first with the label counts.

    With `allows_unknown`, a label can be no class, and gives -1. It must be a name if the classes are names, and a
    number if they are numbers.
    """
    indices = {label: index for labels in reversed(classes) for index, label in enumerate(labels.tolist())}
    kinds, result = {type(label) for label in indices}, []
    for key, value in verified_labels.items():
        label = value.item() if isinstance(value, np.generic) else value
        rule, received = "have correct labels, not verdicts such as True", f"{label!r} of example {key!r}"
        refuse_if(isinstance(label, bool) and bool not in kinds, "verified_labels", rule, received)
        index = indices.get(label) if isinstance(label, Hashable) else None
        if index is None and not (allows_unknown and isinstance(label, str) == (str in kinds)):
            rule = f"have only the classes {joined_names(classes[0].tolist())}"
            raise refusal("verified_labels", rule, received)
        result.append(-1 if index is None else index)
    return np.array(result, "int64")
