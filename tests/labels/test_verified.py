"""Accuracy by a few verified labels: by all of them, by simulation under any noise; and what is refused."""

import functools

import numpy as np
import pandas
import pytest
from scipy.special import betaincinv
from scipy.stats import binom, hypergeom

from keras_het.labels import verify_accuracy
from keras_het.labels.verified.accuracy import jeffreys, stratified
from keras_het.labels.verified.draws import _class_p_values
from tests.checks import refusals, z_limit
from tests.common import refuses

pytestmark = pytest.mark.once

CLASSES = 4


@functools.cache
def population(noise, count=20_000):
    """Probabilities, labels, true classes; noise by "class", by "example", or "shared" with the model."""
    rng = np.random.default_rng(0)
    true, hard = rng.integers(CLASSES, size=count), rng.random(count)
    logits = (3.5 - 3.0 * hard)[:, None] * np.eye(CLASSES)[true] + rng.normal(size=(count, CLASSES))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    predicted, other = p.argmax(axis=1), (true + 1) % CLASSES
    if noise == "class":
        labels = np.where(rng.random(count) < 0.3, other, true)
    elif noise == "example":
        labels = np.where(rng.random(count) < 0.6 * hard, np.where(predicted == true, other, predicted), true)
    else:
        labels = np.where((predicted != true) & (rng.random(count) < 0.8), predicted, true)
    return p, labels, true


def redrawn(noise, seed, count=600):
    p, labels, true = population(noise)
    rows = np.random.default_rng(np.append(seed, 3)).integers(len(p), size=count)
    return p[rows], labels[rows], true[rows]


def verified(true, number):
    return {index: int(true[index]) for index in range(number)}


def test_with_all_verified_it_is_the_plain_accuracy_and_all_else():
    p, labels, true = redrawn("example", 0)
    found, predicted = verify_accuracy(p, labels, verified(true, 600)), p.argmax(axis=1)
    right = predicted == true
    assert found.accuracy.value == pytest.approx(right.mean())
    assert found.label_accuracy.value == pytest.approx(np.mean(labels == true))
    assert found.noisy_accuracy == pytest.approx(np.mean(labels == predicted))


def held(found, value):
    return found.low <= value <= found.high


def simulated(noise, number, seeds, count):
    """Returns how often the intervals of accuracy and label accuracy hold."""
    p, labels, true = population(noise)
    right, covers = p.argmax(axis=1) == true, []
    for seed in seeds:
        own_p, own_labels, own_true = redrawn(noise, seed, count)
        result = verify_accuracy(own_p, own_labels, verified(own_true, number))
        covers.append([held(result.accuracy, right.mean()), held(result.label_accuracy, np.mean(labels == true))])
    return np.mean(covers, axis=0)


def least_cover(count):
    """The least fraction of intervals that hold, of `count` redraws, of each of 12 figures at a level of 93%."""
    return 0.93 - z_limit(12) * np.sqrt(0.93 * 0.07 / count)


@pytest.mark.statistical
@pytest.mark.parametrize(("number", "count"), [(25, 600), (50, 600), (100, 2000), (200, 2000)])
def test_intervals_hold_under_any_noise(number, count, base_seed, redraws):
    """In all settings, and in each where a hundred or more are verified."""
    seeds = [[base_seed, seed] for seed in range(redraws(400))]
    covers = np.array([simulated(noise, number, seeds, count) for noise in ("class", "example", "shared")])
    assert covers.mean(axis=0).min() > least_cover(3 * len(seeds))
    assert number < 100 or covers.min() > least_cover(len(seeds))


@pytest.mark.statistical
def test_intervals_hold_where_some_were_drawn_fifty_times_as_often(base_seed, redraws):
    """Strata are divided by the probability, too: else rarely drawn examples would be hidden among the others."""
    p, labels, true = population("example")
    predicted, covers = p.argmax(axis=1), []
    right = predicted == true
    for seed in range(redraws(500)):
        rows = np.random.default_rng([base_seed, seed, 5]).integers(len(p), size=4000)
        sure = p[rows].max(axis=1)
        inclusion = np.where(sure < np.median(sure), 0.1, 0.002)
        drawn = np.flatnonzero(np.random.default_rng([base_seed, seed, 6]).random(4000) < inclusion)
        own = {int(place): int(true[rows[place]]) for place in drawn}
        found = verify_accuracy(p[rows], labels[rows], own, inclusion=inclusion)
        own_covers = [held(each, right.mean()) for each in (found.accuracy, found.verified_only)]
        covers.append([*own_covers, held(found.label_accuracy, np.mean(labels == true))])
    assert np.mean(covers, axis=0).min() > 0.93 - z_limit(3) * np.sqrt(0.93 * 0.07 / len(covers))


HONEST = [(2, 2000, 20, 0.6, 0.8), (2, 2000, 50, 0.98, 0.9), (3, 300, 20, 0.45, 0.5), (10, 60, 20, 0.4, 0.3)]
HONEST += [(3, 30, 20, 0.6, 0.4)]


@pytest.mark.statistical
@pytest.mark.parametrize(("units", "count", "number", "of_labels", "of_model"), HONEST)
def test_warnings_come_in_at_most_one_of_a_hundred_random_samples(units, count, number, of_labels, of_model, base_seed):
    """By accuracies of labels and model; once in a million the test fails by chance."""
    said = 0
    for seed in range(40):
        rng = np.random.default_rng([base_seed, seed, units, count])
        true = np.arange(count) % units
        accuracies = np.array([[of_labels], [of_model]])
        other = (true + rng.integers(1, units, (2, count))) % units
        labels, predicted = np.where(rng.random((2, count)) < accuracies, true, other)
        own = {row: int(true[row]) for row in rng.choice(count, number, replace=False).tolist()}
        notes = verify_accuracy(predicted, labels, own, class_names=range(units)).notes
        said += any(title == "warning" for title, _ in notes)
    assert said <= binom.ppf(1 - 1e-6 / len(HONEST), 40, 0.01)


def test_intervals_of_jeffreys_and_strata_weighed_as_by_horvitz_and_thompson():
    a, n = np.array([0.0, 0.3, 1.0, 0.5]), np.array([10.0, 20.0, 7.0, 0.0])
    low, high = jeffreys(a, n)
    tails = [betaincinv(n * a + 0.5, n * (1 - a) + 0.5, tail) for tail in (0.025, 0.975)]
    assert low == pytest.approx([0.0, *tails[0][1:3], 0.0])
    assert high == pytest.approx([*tails[1][:2], 1.0, 1.0])
    rows, weights = np.arange(3), np.array([1.0, 2.0, 3.0])
    found = stratified(np.array([True, False, True]), np.zeros(30, int), rows, weights)
    assert found.value == pytest.approx(4 / 6)
    low, high = jeffreys(np.array([4 / 6]), np.array([36 / 14]))
    assert (found.low, found.high) == pytest.approx((low[0], high[0]))
    # A stratum without verified examples can have any accuracy.
    hits, strata = np.array([True, False, False, False, False]), np.repeat([0, 1], 50)
    found = stratified(hits, strata, np.arange(5), np.ones(5))
    assert found.low < 0.1 < found.value < 0.6 < found.high


@pytest.mark.parametrize("seed", range(3))
def test_two_strata_are_prediction_powered_inference_of_the_best_power(seed):
    """Mean of y and l times the difference of the means of f, with l = cov(y, f) / var(f)."""
    rng = np.random.default_rng(seed)
    agrees, rows = (rng.random(1000) < 0.6).astype(float), rng.choice(1000, 100, replace=False)
    known = (rng.random(1000) < 0.2 + 0.7 * agrees).astype(float)
    y, f = known[rows], agrees[rows]
    power = np.cov(y, f)[0, 1] / f.var(ddof=1)
    found = of_verdicts(agrees == 1.0, known == 1.0, rows).accuracy
    assert found.value == pytest.approx(y.mean() + power * (agrees.mean() - f.mean()))


def test_p_values_of_a_random_sample_are_those_of_scipy():
    rng = np.random.default_rng(0)
    values, rows = rng.integers(4, size=300), rng.choice(300, 60, replace=False)
    counts, own = np.bincount(values), np.bincount(values[rows], minlength=4)
    for k, chance in enumerate(_class_p_values(values, rows)):
        of = hypergeom(300, counts[k], 60)
        assert chance == pytest.approx(min(1.0, 2 * min(of.cdf(own[k]), of.sf(own[k] - 1))))


def test_what_was_drawn_more_often_counts_less():
    """Half of all is drawn nine times as often; without `inclusion` that is refused, and would be wrong."""
    p, labels, true = redrawn("example", 1, 20_000)
    sure = p.max(axis=1)
    inclusion = np.where(sure < np.median(sure), 0.09, 0.01)
    drawn = np.flatnonzero(np.random.default_rng(0).random(len(p)) < inclusion)
    own, right = {int(index): int(true[index]) for index in drawn}, p.argmax(axis=1) == true
    found = verify_accuracy(p, labels, own, inclusion=inclusion)
    assert found.accuracy == verify_accuracy(p, labels, own, inclusion=7 * inclusion).accuracy  # up to a factor
    assert right[drawn].mean() < found.verified_only.low  # what equal weights would say
    with pytest.raises(ValueError, match="a random sample: pass only randomly drawn examples, or `inclusion`"):
        verify_accuracy(p, labels, own)


@pytest.mark.parametrize("picked", ["worst", "class", "first"])
def test_examples_that_were_picked_are_refused(picked):
    p, labels, true = redrawn("example", 2)
    worst, first = np.argsort(p[np.arange(600), labels]), np.argsort(-p.max(axis=1))
    order = {"worst": worst, "class": np.flatnonzero(labels == 1), "first": first}[picked]
    with refuses(r"`verified_labels` must be a random sample: pass only randomly drawn examples"):
        verify_accuracy(p, labels, {int(index): int(true[index]) for index in order[:60]})


def test_a_doubtful_sample_gets_a_warning():
    p, labels, true = redrawn("example", 2)
    order = np.argsort(p[np.arange(600), labels])[:300]
    rows = np.concatenate([np.random.default_rng(0).choice(order, 26, replace=False), np.arange(12)])
    found = verify_accuracy(p, labels, {int(index): int(true[index]) for index in rows})
    assert dict(found.notes)["warning"].startswith("the verified examples differ from the rest by")


REFUSED = [
    ({"verified_labels": {}}, "`verified_labels` must have at least one example"),
    ({"verified_labels": [0, 1]}, "`verified_labels` must be a dict"),
    ({"verified_labels": {600: 1}}, "`verified_labels` must have integer indices in [0, 600)"),
    ({"verified_labels": {0: 9}}, "`verified_labels` must have only the classes 0, 1, 2, 3. Received: 9 of example 0"),
    ({"inclusion": np.zeros(600)}, "`inclusion` must be in (0, 1], because a sample"),
    ({"inclusion": {0: 0.5}}, "`inclusion` must have shape (600,), a probability for every example, drawn or not"),
    ({"inclusion": np.ones(3)}, "`inclusion` must have shape (600,), ... Received: shape (3,)"),
    ({"verified_labels": {0: None}}, "`verified_labels` must have a label for each key"),
    ({"class_names": ["1", "10", "2", "3"]}, "`labels` must have at least one label, and only the classes '1', '10'"),
    ({"labels": np.zeros(5, int)}, "`labels` must have a label for each of the 600 predictions"),
    ({"predictions": np.linspace(0.1, 0.9, 600)}, "`predictions` must be classes (N,) or probabilities"),
    ({"labels": np.array(["a", "b"] * 300)}, "`labels` must have at least one label, and only the classes 0, 1"),
]  # fmt: skip
P, LABELS, TRUE = redrawn("class", 7)
GIVEN = {"predictions": P, "labels": LABELS, "verified_labels": {0: int(TRUE[0])}}
test_wrong_arguments_are_refused = refusals(
    [(functools.partial(verify_accuracy, **GIVEN | changed), text) for changed, text in REFUSED]
)


def test_names_are_labels_and_the_print_has_the_assumptions():
    p, labels, true = redrawn("example", 8)
    text = str(verify_accuracy(p, labels, verified(true, 200)))
    assert text.startswith("clean accuracy: 0.")
    assumptions = "200 verified examples, drawn at random; verified labels are correct"
    assert f"{assumptions}; no drawn example is left out (pass `draw_order` to check this)" in text
    assert str(verify_accuracy(p, labels, verified(true, 200), draw_order=range(200))).endswith(assumptions)
    p, labels, true = redrawn("class", 3)
    names, own = np.array(["ant", "bee", "cat", "dog"]), verified(true, 60)
    plain = verify_accuracy(p.argmax(axis=1), labels, own)
    by_name = {row: names[label] for row, label in own.items()}
    named = verify_accuracy(names[p.argmax(axis=1)], names[labels].tolist(), by_name)
    assert (named.accuracy, named.label_accuracy) == (plain.accuracy, plain.label_accuracy)
    assert named.classes.tolist() == names.tolist()
    for order in (names, dict(enumerate(names))):
        assert verify_accuracy(p, labels, by_name, class_names=order).accuracy == plain.accuracy
        named = verify_accuracy(names[p.argmax(axis=1)], names[labels], by_name, class_names=order)
        assert named.accuracy == plain.accuracy


def test_numbers_as_names_columns_and_an_index_are_matched_by_name():
    """Of ten digits as texts and an eleventh, the place of "2" is 3: an integer is refused, not taken for a place."""
    rng, names = np.random.default_rng(0), np.array(sorted(map(str, range(11))))
    true = rng.integers(11, size=300)
    p = 0.02 + 0.78 * np.eye(11)[np.where(rng.random(300) < 0.8, true, rng.integers(11, size=300))]
    columns = pandas.DataFrame(p / p.sum(axis=1, keepdims=True), columns=names)
    own = {row: names[true[row]] for row in range(60)}
    expected = verify_accuracy(columns.to_numpy(), names[true], own, class_names=names)
    assert expected.noisy_accuracy == np.mean(p.argmax(axis=1) == true)
    assert verify_accuracy(columns[names[::-1]], names[true], own).accuracy == expected.accuracy
    integers = {row: int(label) for row, label in own.items()}
    for arguments in ((columns, names[true], integers), (columns, names[true].astype(int), own)):
        with pytest.raises(ValueError, match="only the classes '0', '1', '10', '2', '3' and 6 more"):
            verify_accuracy(*arguments)
    ten, digits = p[:, :10] / p[:, :10].sum(axis=1, keepdims=True), [str(digit) for digit in range(10)]
    assert verify_accuracy(ten, true % 10, {0: 3}, class_names=digits).classes.tolist() == digits  # their own numbers
    labels = pandas.Series(true, index=rng.permutation(1000)[:300])
    by_name = {int(labels.index[row]): int(true[row]) for row in range(60)}
    assert verify_accuracy(p.argmax(axis=1), labels, by_name).accuracy == expected.accuracy
    with pytest.raises(ValueError, match="must have only names of the pandas index"):
        verify_accuracy(true, labels, {1000: 0})
    with pytest.raises(ValueError, match="`labels` must have an index without duplicates"):
        verify_accuracy(true, labels.set_axis(np.arange(300) // 2), {0: 1})


def of_verdicts(judge, people, rows, **options):
    """The fraction of outputs that people call right, of which a judge has called all right or wrong."""
    predicted, judge, people = (np.where(is_right, "right", "wrong") for is_right in (judge == judge, judge, people))
    own = dict(zip(rows.tolist(), people[rows].tolist(), strict=True))
    return verify_accuracy(predicted, judge, own, class_names=["wrong", "right"], **options)
