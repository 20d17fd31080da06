"""Upper bound of the label errors left, from a uniform sample of the unchecked labels."""

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import betabinom, hypergeom

from keras_het.base.batches import read_index
from keras_het.base.validation import check_boolean, check_class_names, check_open_fraction
from keras_het.labels.classes import encode, is_index_unambiguous
from keras_het.labels.verified.draws import (
    IN_ORDER,
    Sample,
    check_random,
    encode_verified,
    verified_indices,
    verified_rows,
)

UNCHECKED_AT_DRAW = (
    "be a random sample, in the order of the draw, of all labels that were unchecked then. If you checked other labels "
    "after the draw, leave them out of `verified_labels`"
)
TIE_TOLERANCE = 1e-6  # of log-probabilities; else rounding could exclude a possible number
BETA_PRIOR = 0.5  # both parameters of the beta prior of the error rate, which prefers rates near 0 and 1


@dataclasses.dataclass(frozen=True)
class ErrorsLeft:
    """Upper bound of the label errors left, which prints as two sentences, and its warning.

    Attributes:
        checked: number of all checked labels.
        errors: number of errors among the checked labels.
        sample: number of labels in the uniform sample.
        sample_errors: number of errors in the sample.
        unchecked: number of unchecked labels.
        max_errors: upper bound of the errors among the unchecked labels.
        rate: `max_errors` as a fraction of all labels, when the known errors are corrected.
        confidence: probability that the bound holds, at least.
        sequential: boolean, whether the bound holds at all looks together.
        warning: text if the sample has other frequencies of the labels than a random sample (p below 0.01), else "".
    """

    checked: int
    errors: int
    sample: int
    sample_errors: int
    unchecked: int
    max_errors: int
    rate: float
    confidence: float
    sequential: bool
    warning: str = ""

    def __str__(self) -> str:
        when = ", valid at every look" if self.sequential else ""
        return (
            f"At most {self.max_errors:,} of the {self.unchecked:,} unchecked labels are errors, {self.rate:.2%} of "
            f"all labels (confidence {self.confidence:.0%}{when}). Errors so far: {self.sample_errors:,} in the random "
            f"sample of {self.sample:,}, {self.errors:,} in all {self.checked:,} checked labels."
            f"{self.warning and f' Warning: {self.warning}'}"
        )


def errors_left(
    labels: Any,
    verified_labels: Mapping,
    draw_order: Any,
    *,
    confidence: float = 0.95,
    sequential: bool = False,
    class_names: Sequence | None = None,
) -> ErrorsLeft:
    """Returns an upper bound of the label errors left, which tells you when to stop checking.

    M of the U unchecked labels are errors. A sample of n of these labels, drawn uniformly without replacement, has X
    errors, with a hypergeometric distribution. If your sample has k errors, the bound is the largest M with

        P(X <= k | U, M, n) > 1 - confidence,

    minus the k errors of the sample. It is exact if you fix the size of the sample in advance. Use `sequential=True` if
    you look at the bound after every label. Then it is the largest M with

        P(X = k | U, M, n) > (1 - confidence) P(k),

    where P(k) is the beta-binomial probability of k of n by a prior with both parameters 1/2. The ratio of prior to
    posterior is a martingale for the true M. So the bound fails at any look with a probability of at most
    1 - confidence. This bound is wider: 2.1% instead of 1.0% after 300 labels without an error.

    The bound makes no assumption on the errors, or on labels that you checked before the draw. But the sample must be
    uniform, without labels that a score proposed, and with the hard ones.

    Args:
        labels: labels before any correction, integers or names, `(N,)`.
        verified_labels: all checked labels, a dict from row numbers, or names of a pandas index, to classes. A class
            that no label has is an error.
        draw_order: uniform sample of the unchecked labels, a list of keys in the order of the draw, or a dict from keys
            to positions 0, 1, 2, ... in the draw, such as a column of a file. Verified keys must come first, without
            gaps.
        confidence: probability that the bound holds, in (0, 1).
        sequential: boolean, whether you look at the bound more than once.
        class_names: names of the classes, if `labels` are integers and `verified_labels` names; else None.
    Returns:
        `ErrorsLeft`; print it.
    Source: Waudby-Smith and Ramdas 2020, "Confidence sequences for sampling without replacement", section 2, for the
        ratio of prior and posterior; Clopper and Pearson 1934, "The use of confidence or fiducial limits", for the
        inversion.

    Example:
        >>> labels = [0, 1] * 500
        >>> sample = np.random.default_rng(0).permutation(1000)[:200]
        >>> verified = {index: labels[index] for index in sample.tolist()}
        >>> verified[int(sample[0])] = 1 - labels[sample[0]]
        >>> print(errors_left(labels, verified, sample))
        At most 20 of the 800 unchecked labels are errors, 2.00% of all labels (confidence 95%). Errors so far: 1 in \
the random sample of 200, 1 in all 200 checked labels.
    """
    classes, observed = encode(labels, name="labels")
    confidence, sequential = check_open_fraction("confidence", confidence), check_boolean("sequential", sequential)
    index = read_index(labels=labels)
    rows = verified_indices(verified_labels, len(observed), index)
    is_error, is_checked = np.zeros((2, len(observed)), bool)
    names = classes if class_names is None else np.asarray(check_class_names(class_names, len(classes)))
    encodings = [classes, names] if is_index_unambiguous(names) else [names]
    is_error[rows] = observed[rows] != encode_verified(verified_labels, *encodings, allows_unknown=True)
    is_checked[rows] = True
    sample = verified_rows(draw_order, is_checked, index)
    errors, unchecked = int(is_error[sample].sum()), len(observed) - len(rows)
    bound = _max_errors(len(sample) + unchecked, len(sample), errors, confidence, sequential)
    counts = len(rows), int(is_error.sum()), len(sample), errors, unchecked, bound
    warning = _check_frequencies(sample, observed, is_checked)
    return ErrorsLeft(*counts, bound / len(observed), confidence, sequential, warning)


def _check_frequencies(sample: np.ndarray, labels: np.ndarray, is_checked: np.ndarray) -> str:
    """Returns a warning if the sample has other frequencies of labels than the labels it was drawn from, else "".

    A sheet that was drawn at random and then sorted by label differs, until all of it is verified.
    """
    is_drawn_from = ~is_checked
    is_drawn_from[sample] = True
    rows = np.cumsum(is_drawn_from)[sample] - 1
    population = {"label": labels[is_drawn_from]}
    rule = IN_ORDER if is_checked.sum() == len(sample) else UNCHECKED_AT_DRAW
    return check_random(Sample(rows, np.ones(len(rows))), {}, population, "draw_order", rule)


def _max_errors(population: int, sample: int, errors: int, confidence: float, sequential: bool) -> int:
    """Returns the upper bound of the errors left in a population, after a sample with this many `errors`."""
    high = population - sample + errors
    low = min(max(errors, (population + 1) * errors // sample), high)  # the most likely number is always possible
    min_log_p = np.log(1.0 - confidence) - TIE_TOLERANCE
    if sequential:
        min_log_p += betabinom.logpmf(errors, sample, BETA_PRIOR, BETA_PRIOR)
    log_p = hypergeom.logpmf if sequential else hypergeom.logcdf

    def is_too_large(wrong: int) -> bool:  # above the most likely number, the probability falls
        return bool(log_p(errors, population, wrong, sample) <= min_log_p)

    return low + bisect.bisect_left(range(low, high + 1), True, key=is_too_large) - 1 - errors
