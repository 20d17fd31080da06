"""The bound of wrong labels that are left: exact by enumeration, and right as often as it says, also at any time."""

import fractions
import functools
import math
import time

import numpy as np
import pandas
import pytest

from keras_het.labels import verify_accuracy
from keras_het.labels.verified.errors_left import _max_errors, errors_left
from tests.checks import refusals

pytestmark = pytest.mark.once

SIZE, ALPHA = 40, 0.103  # no tie: 0.1 is the probability of 4 in 40


def made(count=20, drawn=(3, 7, 1, 12), wrong=(7,), others=()):
    labels = np.arange(count) % 2
    return labels, {index: int(labels[index] ^ (index in wrong)) for index in (*drawn, *others)}, list(drawn)


def count_samples(sample, wrong, errors):
    return math.comb(wrong, errors) * math.comb(SIZE - wrong, sample - errors)


@pytest.mark.parametrize("sample", [1, 7, 20, 39, 40])
def test_the_bound_is_the_largest_number_that_enumeration_finds_possible(sample):
    limit = fractions.Fraction(ALPHA) * math.comb(SIZE, sample)
    for errors in range(sample + 1):
        counts = {
            wrong: sum(count_samples(sample, wrong, number) for number in range(errors + 1))
            for wrong in range(errors, SIZE - sample + errors + 1)
        }
        largest = max(wrong for wrong, count in counts.items() if count > limit)
        assert _max_errors(SIZE, sample, errors, 1.0 - ALPHA, False) == largest - errors


@pytest.mark.parametrize(("confidence", "wrong"), [(0.95, 38), (0.9, 36), (0.8, 32), (0.7, 28)])
def test_a_number_of_exactly_the_allowed_probability_is_possible(confidence, wrong):
    """If 38 of 40 labels are wrong, one label is correct in 5% of draws. 1 - confidence is rounded to both sides."""
    assert _max_errors(SIZE, 1, 0, confidence, False) == wrong


@pytest.mark.parametrize("sample", [1, 7, 20, 39, 40])
def test_the_sequential_bound_is_that_of_prior_and_posterior(sample):
    """Bayes' rule by exact sums: the prior of the number of wrong ones over its posterior.

    The prior is beta-binomial with both parameters 1/2: C(2 w, w) C(2 (N - w), N - w) / 4^N.
    """
    prior = [math.comb(2 * wrong, wrong) * math.comb(2 * (SIZE - wrong), SIZE - wrong) for wrong in range(SIZE + 1)]
    for errors in range(sample + 1):
        counts = [count_samples(sample, wrong, errors) for wrong in range(SIZE + 1)]
        total = sum(map(math.prod, zip(prior, counts, strict=True)))
        limit = fractions.Fraction(ALPHA) * total / sum(prior)
        possible = [wrong for wrong, count in enumerate(counts) if count > limit]
        assert _max_errors(SIZE, sample, errors, 1.0 - ALPHA, True) == max(possible) - errors


@functools.cache
def bounds(sequential):
    """The bound of all wrong labels, by the size of the sample and the errors in it."""
    table = np.full((SIZE + 1, SIZE + 1), SIZE)
    for sample in range(1, SIZE + 1):
        for errors in range(sample + 1):
            table[sample, errors] = errors + _max_errors(SIZE, sample, errors, 1.0 - ALPHA, sequential)
    return table


def miss_at_any_look(wrong, looks, sequential):
    """The probability that the bound is too small at one of the looks, or more: a sum over all samples."""
    p = np.zeros(SIZE + 1)
    p[0], missed, errors = 1.0, 0.0, np.arange(SIZE + 1)
    for sample in range(1, SIZE + 1):
        chance = np.clip((wrong - errors) / (SIZE - sample + 1), 0.0, 1.0)
        p = p * (1.0 - chance) + np.concatenate([[0.0], (p * chance)[:-1]])
        if sample in looks:
            fails = bounds(sequential)[sample] < wrong
            missed, p = missed + p[fails].sum(), np.where(fails, 0.0, p)
    return missed


@pytest.mark.parametrize("wrong", range(SIZE + 1))
def test_the_bound_holds_as_often_as_it_says(wrong):
    assert max(miss_at_any_look(wrong, {look}, False) for look in (1, 10, 25, 40)) <= ALPHA
    assert miss_at_any_look(wrong, range(1, SIZE + 1), True) <= ALPHA


def test_the_sample_and_the_others_are_told_apart():
    """Labels that were checked before the draw are counted, and no part of the sample or of what is left."""
    labels, verified, drawn = made(drawn=(3, 7, 1, 12), wrong=(7, 0), others=(0, 2))
    found = errors_left(labels, verified, [*drawn, 5, 9], confidence=0.9)
    assert (found.checked, found.errors, found.sample, found.sample_errors, found.unchecked) == (6, 2, 4, 1, 14)
    assert found.max_errors == _max_errors(18, 4, 1, 0.9, False) == 10
    assert found.rate == 10 / 20
    assert errors_left(labels, verified, drawn, confidence=0.9, sequential=True).max_errors > found.max_errors


def test_a_sorted_file_is_read_by_its_places_and_a_line_left_out_counts():
    """Of 60 that were drawn, the first 20 are verified; the file is sorted, and comes back with names of an index."""
    labels = pandas.Series(np.arange(200) % 2, index=np.arange(200) + 1000)
    drawn = np.random.default_rng(0).permutation(labels.index)[:60]
    verified = {row: int(labels[row]) for row in drawn[:20].tolist()} | {int(drawn[3]): 1 - int(labels[drawn[3]])}
    places = pandas.DataFrame({"draw": np.arange(60)}, index=drawn).sort_index()["draw"].to_dict()
    assert errors_left(labels, verified, places) == errors_left(labels, verified, drawn)
    p = np.eye(2)[labels]
    found = verify_accuracy(p, labels, verified, draw_order=places)
    assert found.accuracy == verify_accuracy(p, labels, verified).accuracy
    more = verified | {int(row): int(labels[row]) for row in labels.index if row not in drawn}  # chosen, not drawn
    assert verify_accuracy(p, labels, more, draw_order=places).index.tolist() == found.index.tolist()
    for lost in (drawn[0], drawn[7]):  # the line is not in the file, or has no label
        fewer = {row: label for row, label in verified.items() if row != lost}
        for given in (places, {row: place for row, place in places.items() if row != lost}):
            with pytest.raises(ValueError, match="`draw_order` must "):
                errors_left(labels, fewer, given)
    with pytest.raises(ValueError, match="`draw_order` must be verified from its start, without gaps"):
        verify_accuracy(p, labels, fewer, draw_order=places)


@pytest.mark.statistical
def test_a_sheet_sorted_by_label_is_refused_by_both_functions(base_seed):
    """All errors are in the last class of the sheet, which a person has not reached: the bound would be far too low."""
    for seed in range(100):
        rng = np.random.default_rng([base_seed, seed])
        labels = rng.integers(3, size=3000)
        true = np.where((labels == 2) & (rng.random(3000) < 0.6), 0, labels)
        drawn = rng.permutation(3000)[:200]
        sheet = drawn[np.argsort(labels[drawn], kind="stable")]
        verified = {int(row): int(true[row]) for row in sheet[:90]}
        for call, arguments in ((errors_left, (labels, verified, sheet)), (verify_accuracy, (true, labels, verified))):
            with pytest.raises(ValueError, match="examples that differ from the rest in the frequency of label"):
                call(*arguments)
    whole = {int(row): int(true[row]) for row in sheet}
    assert errors_left(labels, whole, sheet).max_errors >= np.sum(true != labels) - np.sum((true != labels)[sheet])


@pytest.mark.statistical
def test_few_random_samples_get_the_warning_of_frequencies(base_seed):
    """At most 1% of samples, also if labels were checked before the draw: 12 of 400 are more than 5 standard errors."""
    rng, count = np.random.default_rng(base_seed), 0
    for _ in range(400):
        labels, order = rng.integers(4, size=200), rng.permutation(200)
        before, sample = np.flatnonzero(labels == 0)[:20], order[:60]
        drawn = sample[~np.isin(sample, before)]
        verified = {int(row): int(labels[row]) for row in (*before, *drawn)}
        result = errors_left(labels, verified, drawn)
        count += bool(result.warning)
        assert ("Warning: the verified examples differ" in str(result)) == bool(result.warning)
    assert count < 15


def test_names_of_classes_and_nothing_left_where_all_are_checked():
    labels, verified, drawn = made()
    expected, names = errors_left(labels, verified, drawn), np.array(["cat", "dog"])
    named = {row: str(names[label]) for row, label in verified.items()}
    assert errors_left(labels, named, np.array(drawn), class_names=names) == expected
    assert errors_left(names[labels].tolist(), named, drawn) == expected
    found = errors_left(*made(4, (2, 0, 1, 3), (1,)))
    assert (found.unchecked, found.max_errors, found.rate) == (0, 0, 0.0)
    labels = pandas.Series([0, 1] * 6, index=pandas.MultiIndex.from_product([range(3), range(4)]))
    assert errors_left(labels, {(0, 2): 1, (2, 3): 1}, [(0, 2), (2, 3)]).sample_errors == 1


def test_a_million_labels_take_well_under_a_second():
    labels = np.arange(1_000_000) % 10
    drawn = np.random.default_rng(0).permutation(len(labels))[:2000]
    verified = dict(zip(drawn.tolist(), ((labels[drawn] + (drawn < 50_000)) % 10).tolist(), strict=True))
    start, found = time.process_time(), errors_left(labels, verified, drawn, sequential=True)
    assert time.process_time() - start < 1.0
    assert 50_000 < found.max_errors + found.errors < 70_000


REFUSED = [
    ({"draw_order": [3, 7, 3]}, "`draw_order` must have each index once (sample without replacement). Received: 3"),
    ({"draw_order": [5, 3]}, "`draw_order` must start with an index whose label is in `verified_labels`. Received: no"),
    ({"draw_order": [3, 5, 7]}, "`draw_order` must be verified from its start, without gaps, because skipped examples"),
    ({"verified_labels": {3: True}}, "must have correct labels, not verdicts such as True. Received: True of"),
    ({"verified_labels": {3: "cat"}}, "must have only the classes 0, 1. Received: 'cat' of example 3"),
    ({"draw_order": {3: 0, 7: 2, 12: 3}}, "Received: entry 1 of the draw has no verified label, but later entries"),
    ({"draw_order": {3: 0, 7: 0}}, "(`to_dict()` of a column). Received: other positions, or one twice"),
    ({"draw_order": pandas.Series([3, 7])}, "(`to_dict()` of a column). Received: a Series"),
    ({"draw_order": list(range(60)), "verified_labels": dict.fromkeys(range(20), 0), "labels": np.arange(80) % 2},
     "`draw_order` must be in the order of the draw, not sorted. Keep the order in a column, and pass {index: pos"),
    ({"labels": ["1", "10", "2"] * 7, "verified_labels": {3: 2}}, "'2'. Received: 2 of example 3"),
    ({"confidence": 95}, "`confidence` must be a number in (0, 1). Received: confidence=95"),
    ({"sequential": 1}, "`sequential` must be True or False. Received: sequential=1"),
]  # fmt: skip
GIVEN = dict(zip(("labels", "verified_labels", "draw_order"), made(), strict=True))
test_refusals = refusals([(functools.partial(errors_left, **GIVEN | change), text) for change, text in REFUSED])
