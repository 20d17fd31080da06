"""Accuracy by a few verified labels: by all of them, by simulation under any noise; and what is refused."""

import functools
import re

import numpy as np
import pandas
import pytest
from scipy.stats import beta, binom, hypergeom, mannwhitneyu

from keras_het.labels import verify_accuracy
from keras_het.labels.draws import _class_p_values, _rank_p_value
from keras_het.labels.intervals import Part, jeffreys, ratio, stratified
from tests.checks import z_limit

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
    rows = np.random.default_rng([seed, 3]).integers(len(p), size=count)
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
    assert found.recall.value == pytest.approx([right[true == k].mean() for k in range(CLASSES)])
    assert found.precision.value == pytest.approx([right[predicted == k].mean() for k in range(CLASSES)])


# Half widths in points of the tree of medians at commit 0627b70, which had up to eight cells, in 300 redraws of 2,000.
TREE = {
    ("class", 100): (6.87, 6.70), ("example", 100): (7.47, 7.35), ("shared", 100): (7.05, 6.91),
    ("class", 200): (4.67, 4.69), ("example", 200): (5.15, 5.15), ("shared", 200): (4.99, 4.94),
}  # fmt: skip


def held(found, value):
    return np.mean((found.low <= value) & (value <= found.high))


def simulated(noise, number, seeds, count=2000):
    """Mean half widths in points, and covers, of accuracy and label accuracy, and covers of recall and precision."""
    p, labels, true = population(noise)
    predicted = p.argmax(axis=1)
    right, rows = predicted == true, []
    recall, precision = (np.array([right[x == k].mean() for k in range(CLASSES)]) for x in (true, predicted))
    for seed in seeds:
        own_p, own_labels, own_true = redrawn(noise, seed, count)
        found = verify_accuracy(own_p, own_labels, verified(own_true, number))
        widths = [50.0 * (each.high - each.low) for each in (found.accuracy, found.label_accuracy)]
        covers = [held(found.accuracy, right.mean()), held(found.label_accuracy, np.mean(labels == true))]
        rows.append([*widths, *covers, held(found.recall, recall), held(found.precision, precision)])
    return np.mean(rows, axis=0)


def least_cover(count):
    """The least fraction of intervals that hold, of `count` redraws, of each of 24 figures at a level of 93%."""
    return 0.93 - z_limit(24) * np.sqrt(0.93 * 0.07 / count)


@pytest.mark.statistical
def test_two_strata_hold_under_any_noise_and_are_about_as_short_as_a_tree(base_seed, redraws):
    """In each setting and in all, within chance; half widths are some 6% above those of the tree."""
    count = redraws(400)
    found = {setting: simulated(*setting, [[base_seed, seed] for seed in range(count)]) for setting in TREE}
    ratios = [means[:2] / TREE[setting] for setting, means in found.items()]
    assert np.max(ratios) < 1.2
    assert np.mean(ratios) < 1.1
    covers = np.array([*found.values()])[:, 2:]
    assert covers.min() > least_cover(count)
    assert covers.mean(axis=0).min() > least_cover(6 * count)


@pytest.mark.statistical
@pytest.mark.parametrize("number", [25, 50])
def test_intervals_hold_with_few_verified(number, base_seed, redraws):
    seeds = [[base_seed, seed] for seed in range(redraws(300))]
    covers = [simulated(noise, number, seeds, 600)[2:4] for noise in ("class", "example", "shared")]
    assert np.mean(covers, axis=0).min() > least_cover(3 * len(seeds))


@pytest.mark.statistical
@pytest.mark.parametrize("number", [3, 30])
def test_intervals_of_classes_hold_where_most_were_never_verified(number, base_seed, redraws):
    """Twenty classes, right in 90%: fractions of strata that nobody saw are bounds, not errors among others."""
    rng = np.random.default_rng([base_seed, 1])
    true = rng.integers(20, size=20_000)
    predicted = np.where(rng.random(20_000) < 0.9, true, rng.integers(20, size=20_000))
    labels = np.where(rng.random(20_000) < 0.8, true, rng.integers(20, size=20_000))
    right = predicted == true
    precision, recall = (np.array([right[each == k].mean() for k in range(20)]) for each in (predicted, true))
    covers = []
    for _ in range(redraws(600)):
        rows = rng.integers(20_000, size=1000)
        found = verify_accuracy(predicted[rows], labels[rows], verified(true[rows], number))
        covers.append([held(found.precision, precision), held(found.recall, recall)])
    assert np.mean(covers, axis=0).min() > 0.93


@pytest.mark.statistical
def test_intervals_hold_where_some_were_drawn_fifty_times_as_often(base_seed, redraws):
    """Strata are divided by the probability, too: else rarely drawn examples would be hidden among the others."""
    p, labels, true = population("example")
    predicted, covers = p.argmax(axis=1), []
    right = predicted == true
    recall, precision = (np.array([right[x == k].mean() for k in range(CLASSES)]) for x in (true, predicted))
    for seed in range(redraws(500)):
        rows = np.random.default_rng([base_seed, seed, 5]).integers(len(p), size=4000)
        sure = p[rows].max(axis=1)
        inclusion = np.where(sure < np.median(sure), 0.1, 0.002)
        drawn = np.flatnonzero(np.random.default_rng([base_seed, seed, 6]).random(4000) < inclusion)
        own = {int(place): int(true[rows[place]]) for place in drawn}
        found = verify_accuracy(p[rows], labels[rows], own, inclusion=inclusion)
        covers.append(
            [
                *(held(each, right.mean()) for each in (found.accuracy, found.verified_only)),
                held(found.label_accuracy, np.mean(labels == true)),
                *(held(*each) for each in ((found.recall, recall), (found.precision, precision))),
            ]
        )
    assert np.mean(covers, axis=0).min() > 0.93 - z_limit(5) * np.sqrt(0.93 * 0.07 / len(covers))


HONEST = [
    (2, 2000, 20, 0.6, 0.8),
    (2, 2000, 50, 0.98, 0.9),
    (3, 300, 20, 0.45, 0.5),
    (10, 60, 20, 0.4, 0.3),
    (3, 30, 20, 0.6, 0.4),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("units", "count", "number", "of_labels", "of_model"), HONEST)
def test_warnings_come_in_at_most_one_of_a_hundred_random_samples(units, count, number, of_labels, of_model, base_seed):
    """By accuracies of labels and model; once in a million the test fails by chance."""
    said = 0
    for seed in range(40):
        rng = np.random.default_rng([base_seed, seed, units, count])
        true = np.arange(count) % units
        labels, predicted = (
            np.where(rng.random(count) < x, true, (true + rng.integers(1, units, count)) % units)
            for x in (of_labels, of_model)
        )
        own = {row: int(true[row]) for row in rng.choice(count, number, replace=False).tolist()}
        notes = verify_accuracy(predicted, labels, own, class_names=range(units)).notes
        said += any(title == "warning" for title, _ in notes)
    assert said <= binom.ppf(1 - 1e-6 / len(HONEST), 40, 0.02)  # two can warn: of the sample, and of the arguments


def test_interval_of_jeffreys_is_of_the_beta_distribution():
    a, n = np.array([0.0, 0.3, 1.0, 0.5]), np.array([10.0, 20.0, 7.0, 0.0])
    low, high = jeffreys(a, n)
    own = beta(n * a + 0.5, n * (1 - a) + 0.5)
    assert low == pytest.approx([0.0, own.ppf(0.025)[1], own.ppf(0.025)[2], 0.0])
    assert high == pytest.approx([own.ppf(0.975)[0], own.ppf(0.975)[1], 1.0, 1.0])


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


def test_strata_are_weighed_as_by_horvitz_and_thompson_and_without_examples_can_be_anything():
    found = stratified([1.0], ([4.0], [6.0], [14.0]), 30).estimate()  # weights 1, 2, 3, of which 2 does not count
    assert found.value == pytest.approx(4 / 6)
    low, high = jeffreys(np.array([4 / 6]), np.array([36 / 14]))
    assert (found.low, found.high) == pytest.approx((low[0], high[0]))
    found = stratified([0.5, 0.5], ([4.0, 0.0], [4.0, 0.0], [4.0, 0.0]), 100).estimate()
    assert found.value == 1.0
    assert found.low < 0.5
    nothing = Part(np.float64(0.0), 0.0, 0.1)
    found = ratio(nothing, nothing)
    assert np.isnan(found.value)
    assert (found.low, found.high) == (0.0, 1.0)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.1), (0.0, 0.2), (0.2, 0.0), (0.01, 0.3)])
def test_a_ratio_holds_what_the_sum_of_squared_distances_does_not_speak_against(a, b):
    """By trying ratios, as in Donner and Zou."""
    over, under = (stratified([1.0], ([each * 200], [200.0], [200.0]), 10**9) for each in (a, b))
    found = ratio(over, under)
    a_below, a_above, b_below, b_above = np.square([*over[1:], *under[1:]])
    q = np.linspace(1e-6, 1 - 1e-6, 200_001)
    distance = a * (1 - q) - b * q
    room = np.where(distance > 0, a_below * (1 - q) ** 2 + b_above * q**2, a_above * (1 - q) ** 2 + b_below * q**2)
    inside = q[distance**2 <= room]
    assert found.value == pytest.approx(a / (a + b))
    assert (found.low, found.high) == pytest.approx((inside.min(), inside.max()), abs=2e-5)


def test_p_values_of_a_random_sample_are_those_of_scipy():
    rng = np.random.default_rng(0)
    values, rows = rng.integers(4, size=300), rng.choice(300, 60, replace=False)
    counts, own = np.bincount(values), np.bincount(values[rows], minlength=4)
    for k, chance in enumerate(_class_p_values(values, rows)):
        of = hypergeom(300, counts[k], 60)
        assert chance == pytest.approx(min(1.0, 2 * min(of.cdf(own[k]), of.sf(own[k] - 1))))
    inside = np.isin(np.arange(300), rows)
    of = mannwhitneyu(values[inside], values[~inside], use_continuity=False, method="asymptotic")
    assert _rank_p_value(values, rows) == pytest.approx(of.pvalue)


def test_mixed_up_arguments_get_warnings():
    p, labels, true = redrawn("class", 9)
    own = verified(true, 80)
    warnings = {
        "in another order of the classes": (p[:, [1, 2, 3, 0]], labels, own),
        "Check that their rows belong to these labels": (p, labels, verified(np.roll(true, 1), 200)),
        "pass the original labels": (p, np.where(np.arange(600) < 80, true, labels), own),
    }
    names = np.array(["ant", "bee", "cat", "dog"])
    other, wide = names[[1, 0, 2, 3]].tolist(), verified(true, 200)
    by_name = {row: names[label] for row, label in wide.items()}
    for arguments in ((names[p.argmax(axis=1)], names[labels], wide), (p, labels, by_name)):
        found, right = (verify_accuracy(*arguments, class_names=order) for order in (other, names.tolist()))
        assert found.accuracy.value < right.accuracy.value - 0.2  # numbers mean other classes
        warning = dict(found.notes)["warning"]
        assert re.match(r"verified labels agree with 4\d% of the labels, and with 6\d% in another order", warning), (
            warning
        )
        assert "warning" not in dict(right.notes)
    for text, arguments in warnings.items():
        assert any(text in said for title, said in verify_accuracy(*arguments).notes if title == "warning"), text
    assert "warning" not in dict(verify_accuracy(p, labels, own).notes)


@pytest.mark.planted
def test_it_is_right_where_judge_and_model_share_their_errors():
    """There labels flatter the model, and the estimate does not follow them."""
    p, labels, true = redrawn("shared", 0, 4000)
    accuracy = np.mean(p.argmax(axis=1) == true)
    found = verify_accuracy(p, labels, verified(true, 400))
    assert found.noisy_accuracy > accuracy + 0.1
    assert found.accuracy.low < accuracy < found.accuracy.high
    assert found.equivalent_labels > 400


@pytest.mark.planted
def test_what_was_drawn_more_often_counts_less():
    """Half of all is drawn nine times as often; without `inclusion` that is refused, and would be wrong."""
    p, labels, true = redrawn("example", 1, 20_000)
    sure = p.max(axis=1)
    inclusion = np.where(sure < np.median(sure), 0.09, 0.01)
    drawn = np.flatnonzero(np.random.default_rng(0).random(len(p)) < inclusion)
    own, right = {int(index): int(true[index]) for index in drawn}, p.argmax(axis=1) == true
    found = verify_accuracy(p, labels, own, inclusion=inclusion)
    again = verify_accuracy(p, labels, own, inclusion=7 * inclusion)
    assert found.accuracy == again.accuracy  # up to a factor
    assert found.accuracy.low < right.mean() < found.accuracy.high
    assert found.verified_only.low < right.mean() < found.verified_only.high
    assert right[drawn].mean() < found.verified_only.low  # what equal weights would say
    with pytest.raises(ValueError, match="a random sample: pass only randomly drawn examples, or `inclusion`"):
        verify_accuracy(p, labels, own)


@pytest.mark.parametrize("picked", ["worst", "class", "first"])
def test_examples_that_were_picked_are_refused(picked):
    p, labels, true = redrawn("example", 2)
    order = {
        "worst": np.argsort(p[np.arange(600), labels]),
        "class": np.flatnonzero(labels == 1),
        "first": np.argsort(-p.max(axis=1)),
    }[picked]
    with pytest.raises(
        ValueError, match=r"`verified_labels` must be a random sample: pass only randomly drawn examples"
    ):
        verify_accuracy(p, labels, {int(index): int(true[index]) for index in order[:60]})


def test_a_doubtful_sample_gets_a_warning():
    p, labels, true = redrawn("example", 2)
    order = np.argsort(p[np.arange(600), labels])[:300]
    rows = np.concatenate([np.random.default_rng(0).choice(order, 26, replace=False), np.arange(12)])
    found = verify_accuracy(p, labels, {int(index): int(true[index]) for index in rows})
    assert dict(found.notes)["warning"].startswith("the verified examples differ from the rest by")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("is_right", [True, False])
def test_few_that_are_all_right_or_all_wrong_leave_room(is_right, count):
    p, labels, true = redrawn("class", 5)
    rows = np.flatnonzero((p.argmax(axis=1) == true) == is_right)[:count]
    found = verify_accuracy(p, labels, {int(row): int(true[row]) for row in rows})
    assert found.accuracy.high - found.accuracy.low > 0.2
    assert found.index.tolist() == rows.tolist()


def test_a_class_never_verified_has_no_recall_and_one_never_predicted_may_be_elsewhere():
    p, labels, true = redrawn("class", 6)
    found = verify_accuracy(p, labels, {int(row): int(true[row]) for row in np.flatnonzero(true != 3)[:8]})
    assert np.isnan(found.recall.value[3])
    assert (found.recall.low[3], found.recall.high[3]) == (0.0, 1.0)
    predicted, true = np.zeros(50, int), np.arange(50) % 2
    recall = verify_accuracy(predicted, true, verified(true, 20)).recall
    assert recall.value.tolist() == [1.0, 0.0]
    assert 0.0 < recall.high[1] < 0.5


@pytest.mark.parametrize(("changed", "text"), [
    ({"verified_labels": {}}, "`verified_labels` must have at least one example"),
    ({"verified_labels": [0, 1]}, "`verified_labels` must be a dict"),
    ({"verified_labels": {600: 1}}, r"`verified_labels` must have integer indices in \[0, 600\)"),
    ({"verified_labels": {0: 9}}, "`verified_labels` must have only the classes 0, 1, 2, 3. Received: 9 of example 0"),
    ({"inclusion": np.zeros(600)}, r"`inclusion` must be in \(0, 1\], because a sample"),
    ({"inclusion": {0: 0.5}}, r"`inclusion` must have shape \(600,\), a probability for every example, drawn or not"),
    ({"inclusion": np.ones(3)}, r"`inclusion` must have shape \(600,\), .* Received: shape \(3,\)"),
    ({"labels": [[0]] + [[0, 1]] * 599}, "`labels` must have rows of equal length. Received: 1 in row 0, 2 in row 1"),
    ({"verified_labels": {0: None}}, "`verified_labels` must have a label for each key"),
    ({"class_names": ["1", "10", "2", "3"]}, "`labels` must have at least one label, and only the classes '1', '10'"),
    ({"draw_order": [1, 0]}, "`draw_order` must start with an index whose label is in `verified_labels`"),
    ({"labels": np.zeros(5, int)}, "`labels` must have a label for each of the 600 predictions"),
    ({"predictions": np.full((600, 4), 0.3)}, "`predictions` must have rows of sum 1"),
    ({"predictions": np.linspace(0.1, 0.9, 600)}, r"`predictions` must be classes \(N,\) or probabilities"),
    ({"labels": np.array(["a", "b"] * 300)}, "`labels` must have at least one label, and only the classes 0, 1"),
    ({"labels": np.tile([30_000, 0], 300), "predictions": np.zeros(600, int)}, "pass ids as strings"),
])  # fmt: skip
def test_wrong_arguments_are_refused(changed, text):
    p, labels, true = redrawn("class", 7)
    arguments = {"predictions": p, "labels": labels, "verified_labels": {0: int(true[0])}} | changed
    with pytest.raises(ValueError, match=text):
        verify_accuracy(**arguments)


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
    for given in (names[labels], labels):
        for order in (names, dict(enumerate(names))):
            assert verify_accuracy(p, given, by_name, class_names=order).accuracy == plain.accuracy
            named = verify_accuracy(names[p.argmax(axis=1)], given, by_name, class_names=order)
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
    for given in (columns, columns[rng.permutation(names)]):
        found = verify_accuracy(given, names[true], own, class_names=names)
        assert (found.accuracy, found.noisy_accuracy) == (expected.accuracy, expected.noisy_accuracy)
    assert verify_accuracy(columns[names[::-1]], names[true], own).accuracy == expected.accuracy
    integers = {row: int(label) for row, label in own.items()}
    for arguments in ((columns, names[true], integers), (columns, names[true].astype(int), own)):
        with pytest.raises(ValueError, match="only the classes '0', '1', '10', '2', '3' and 6 more"):
            verify_accuracy(*arguments)
    with pytest.raises(ValueError, match="`predictions` must have the classes as columns"):
        verify_accuracy(columns.rename(columns={"0": "zero"}), names[true], own, class_names=names)
    ten, digits = p[:, :10] / p[:, :10].sum(axis=1, keepdims=True), [str(digit) for digit in range(10)]
    assert verify_accuracy(ten, true % 10, {0: 3}, class_names=digits).classes.tolist() == digits  # their own numbers
    labels = pandas.Series(true, index=rng.permutation(1000)[:300])
    by_name = {int(labels.index[row]): int(true[row]) for row in range(60)}
    assert verify_accuracy(p.argmax(axis=1), labels, by_name).accuracy == expected.accuracy
    lost = by_name | {int(np.setdiff1d(np.arange(1000), labels.index)[0]): 0}
    with pytest.raises(ValueError, match="must have only names of the pandas index"):
        verify_accuracy(true, labels, lost)
    twice = labels.set_axis(np.arange(300) // 2)
    with pytest.raises(ValueError, match="`labels` must have an index without duplicates"):
        verify_accuracy(true, twice, {0: 1})


def of_verdicts(judge, people, rows, **options):
    """The fraction of outputs that people call right, of which a judge has called all right or wrong."""
    predicted, judge, people = (np.where(is_right, "right", "wrong") for is_right in (judge == judge, judge, people))
    own = dict(zip(rows.tolist(), people[rows].tolist(), strict=True))
    return verify_accuracy(predicted, judge, own, class_names=["wrong", "right"], **options)


def test_verdicts_of_a_judge_that_says_one_thing_or_nothing_of_use_leave_the_verified_ones():
    rng = np.random.default_rng(0)
    people, rows = rng.random(3000) < 0.7, np.arange(60)
    for judge in (np.ones(3000, bool), rng.random(3000) < 0.5):
        found = of_verdicts(judge, people, rows)
        assert found.equivalent_labels > 50
        assert found.accuracy.value == pytest.approx(people[:60].mean(), abs=0.02)
    few = rng.random(3000) < 0.2
    judge = few ^ (rng.random(3000) < np.where(few, 0.05, 0.3))  # too friendly
    assert not any("another order" in text for _, text in of_verdicts(judge, few, rows).notes)
    assert of_verdicts(people, people, np.arange(1)).accuracy.high == 1.0
    with pytest.raises(ValueError, match="`verified_labels` must be a random sample"):
        of_verdicts(np.arange(1000) > 500, np.arange(1000) > 500, rows)
