"""How many wrong labels are left, by a uniform sample of those that nobody had checked."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import betaln, gammaln, logsumexp

from keras_het.base.batches import as_numpy
from keras_het.base.classes import encode
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_boolean, check_class_names, check_open_fraction
from keras_het.base.verified import encode_verified, verified_places

PRIOR = 0.5  # both parameters of the beta distribution of the fraction of wrong labels: most sets have few


@dataclasses.dataclass(frozen=True)
class LabelErrorsLeft:
    """The most wrong labels that are left among those that nobody has checked. It prints as a sentence.

    Attributes:
        checked: number of labels that were ever checked.
        found: number of wrong ones among them.
        sample: number of those that were checked as a uniform sample.
        sample_found: number of wrong ones in the sample.
        unchecked: number of labels that nobody has checked.
        most: largest number of wrong labels among the unchecked, with the `confidence`.
        rate: the same as a fraction of all labels, once the wrong ones that were found are put right.
        confidence: probability that the bound holds, at least.
        sequential: boolean, whether it holds however often somebody looks at it, and whenever he stops.
    """

    checked: int
    found: int
    sample: int
    sample_found: int
    unchecked: int
    most: int
    rate: float
    confidence: float
    sequential: bool

    def looks_needed(self, rate: float) -> int:
        """How many further random looks are needed until at most a fraction `rate` of all labels is left wrong.

        Errors are taken to go on as found: in the sample, the same fraction of the labels is wrong, rounded up. The
        bound of the longer sample holds for `sequential`; without it, only if the new size is fixed before a look.

        Args:
            rate: wanted fraction of all labels, in (0, 1).
        Raises:
            ValueError: for another fraction.
        """
        rate, total = check_open_fraction("rate", rate), self.checked + self.unchecked

        def is_enough(further: int) -> bool:
            errors = self.sample_found + -(-further * self.sample_found // self.sample)  # rounded up
            population = self.sample + self.unchecked
            return _most(population, self.sample + further, errors, self.confidence, self.sequential) <= rate * total

        return _first(is_enough, 0, self.unchecked)

    def __str__(self) -> str:
        when = ", whenever you look" if self.sequential else ""
        return (
            f"at most {self.most:,} of the {self.unchecked:,} labels that nobody has checked are wrong, "
            f"{self.rate:.2%} of all labels (confidence {self.confidence:.0%}{when}): "
            f"{self.sample_found:,} of {self.sample:,} drawn at random were wrong, "
            f"{self.found:,} of {self.checked:,} checked in all"
        )


def label_errors_left(
    labels: Any,
    verified_labels: Mapping,
    drawn: Any,
    *,
    confidence: float = 0.95,
    sequential: bool = False,
    class_names: Sequence | None = None,
) -> LabelErrorsLeft:
    """An upper bound for the number of wrong labels among those that nobody has checked: when to stop looking.

    Of U labels that were unchecked M are wrong. A sample of n of them, drawn uniformly without replacement, has X wrong
    ones, of the hypergeometric distribution; k were found. The bound is that of the largest M with

        P(X <= k | U, M, n) > 1 - confidence,

    less the k that were found. It is exact, and holds for a size of the sample that was fixed before anybody looked.
    Who looks after every label, and stops when it is small enough, needs `sequential`: then it is the largest M with

        P(X = k | U, M, n) > (1 - confidence) P(k),

    where P(k) is the beta-binomial probability of k of n by a prior with both parameters 1/2. This ratio of prior to
    posterior is a martingale for the true M, so the bound fails at any time at all with a probability of at most
    1 - confidence. It is larger: after 300 labels without an error 2.1% instead of 1.0% of many.

    Nothing is assumed of the errors, or of how other labels were chosen that were checked before. But the sample must
    be uniform: labels that a score proposed say nothing here, and neither do those of a sample that were left out
    because they are hard.

    Args:
        labels: labels as they were before anybody verified any, integers or names, `(N,)`.
        verified_labels: all labels that were ever checked, as a dict from the index of an example to its class; one
            that no label has is an error, too; indices are those of `labels`, if it is a pandas Series.
        drawn: uniform sample of what was unchecked then, in the order of looking, a list of indices as in
            `verified_labels`. Those of it that are verified by now must be its first ones.
        confidence: probability that the bound holds, in (0, 1).
        sequential: boolean, whether it may be looked at any time; False for a sample whose size was fixed before.
        class_names: names of the classes, where `labels` are integers and `verified_labels` names; None for none.
    Returns:
        `LabelErrorsLeft`; print it.
    Raises:
        ValueError: for indices that are no examples or are drawn twice, classes that no label has, a sample of none, or
            one that has a gap.
    Source: Waudby-Smith and Ramdas 2020, "Confidence sequences for sampling without replacement", section 2
        (the ratio of prior and posterior, with a beta-binomial prior); Clopper and Pearson 1934, "The use of confidence
        or fiducial limits", for the inversion.

    Example:
        >>> labels = [0, 1] * 500
        >>> drawn = np.random.default_rng(0).permutation(1000)[:200]
        >>> verified = {index: labels[index] for index in drawn.tolist()}
        >>> verified[int(drawn[0])] = 1 - labels[drawn[0]]
        >>> print(label_errors_left(labels, verified, drawn))
        at most 20 of the 800 labels that nobody has checked are wrong, 2.00% of all labels (confidence 95%): 1 of 200 \
drawn at random were wrong, 1 of 200 checked in all
    """
    index = getattr(labels, "index", None) if hasattr(labels, "iloc") else None
    classes, given = encode(labels, name="labels")
    confidence, sequential = check_open_fraction("confidence", confidence), check_boolean("sequential", sequential)
    places = verified_places(verified_labels, len(given), index)
    wrong = np.zeros(len(given), bool)
    names = [] if class_names is None else [np.asarray(check_class_names(class_names, len(classes)))]
    wrong[places] = given[places] != encode_verified(verified_labels, classes, *names, others=True)
    is_checked = np.zeros(len(given), bool)
    is_checked[places] = True
    sample = _sample(_places(drawn, len(given), index), is_checked)
    errors, unchecked = int(wrong[sample].sum()), int(len(given) - len(places))
    most = _most(len(sample) + unchecked, len(sample), errors, confidence, sequential)
    found = len(places), int(wrong.sum()), len(sample), errors, unchecked, most, most / len(given)
    return LabelErrorsLeft(*found, confidence, sequential)


def _places(drawn: Any, count: int, index: Any) -> np.ndarray:
    """Row numbers of what was drawn, `(n,)`."""
    keys = np.asarray(as_numpy(drawn)).tolist()
    refuse_if(not isinstance(keys, list), "drawn", "be a list of indices of examples", value=drawn)
    for key, number in Counter(keys).most_common(1):
        refuse_if(number > 1, "drawn", "have each index once, of a sample without replacement", f"{key!r} again")
    return verified_places(dict.fromkeys(keys), count, index, "drawn")


def _sample(places: np.ndarray, is_checked: np.ndarray) -> np.ndarray:
    """The places of the sample that are checked: the first ones, `(n,)`."""
    there = is_checked[places]
    count = int(there.argmin()) if len(there) and not there.all() else len(there)
    if not count:
        raise refusal("drawn", "have a first index whose label is in `verified_labels`", "a sample of none")
    if there[count:].any():
        rule = "be verified from its start on: what was left out may be hard. Verify it, or count it as wrong"
        raise refusal("drawn", rule, f"example number {places[count]}, at [{count}] not verified; others behind it are")
    return places[:count]


def _most(population: int, sample: int, errors: int, confidence: float, sequential: bool) -> int:
    """The most wrong labels that are left of a population, after a sample of it in which errors were found."""
    bound = _is_possible_at_any_time if sequential else _is_possible
    # The number with the largest likelihood is always possible, and above it fewer and fewer are.
    low = min(max(errors, (population + 1) * errors // sample), population - sample + errors)
    high = population - sample + errors

    def is_too_large(wrong: int) -> bool:
        return not bound(population, wrong, sample, errors, 1.0 - confidence)

    return _first(is_too_large, low, high + 1) - 1 - errors


def _first(condition: Callable[[int], bool], low: int, high: int) -> int:
    """The first integer from `low` on that meets a condition that all further ones meet; `high` if none below does."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if condition(middle) else (middle + 1, high)
    return low


def _is_possible(population: int, wrong: int, sample: int, errors: int, alpha: float) -> bool:
    """Whether so few errors in a sample, if so many are wrong, have a probability above alpha."""
    return bool(logsumexp(_log_probability(population, wrong, sample, np.arange(errors + 1))) > np.log(alpha))


def _is_possible_at_any_time(population: int, wrong: int, sample: int, errors: int, alpha: float) -> bool:
    """Whether the ratio of prior and posterior of so many wrong ones is below 1 / alpha."""
    prior = _log_choices(sample, errors) + betaln(errors + PRIOR, sample - errors + PRIOR) - betaln(PRIOR, PRIOR)
    return bool(_log_probability(population, wrong, sample, errors) > np.log(alpha) + prior)


def _log_probability(population: int, wrong: int, sample: int, errors: Any) -> Any:
    """The logarithms of hypergeometric probabilities of numbers of errors."""
    rest = _log_choices(population - wrong, sample - errors)
    return _log_choices(wrong, errors) + rest - _log_choices(population, sample)


def _log_choices(count: Any, chosen: Any) -> Any:
    """log(count choose chosen), -inf where it is 0."""
    return gammaln(count + 1) - gammaln(chosen + 1) - gammaln(np.maximum(count - chosen + 1, 0))
