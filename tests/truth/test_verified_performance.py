"""How good a model is by a few verified labels: by all of them, by simulation under any noise; and what is refused."""

import functools

import numpy as np
import pandas as pd
import pytest

from keras_het.label_noise import votes_from_table
from keras_het.truth import verified_mean, verified_performance
from keras_het.truth.intervals import Estimate
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
    found = verified_performance(p, labels, verified(true, 600))
    predicted, sure = p.argmax(axis=1), p.max(axis=1)
    right = predicted == true
    assert found.accuracy.value == pytest.approx(right.mean())
    assert found.label_accuracy.value == pytest.approx(np.mean(labels == true))
    assert found.noisy_accuracy == pytest.approx(np.mean(labels == predicted))
    assert found.recall.value == pytest.approx([right[true == k].mean() for k in range(CLASSES)])
    assert found.precision.value == pytest.approx([right[predicted == k].mean() for k in range(CLASSES)])
    joint = np.bincount(true * CLASSES + predicted, minlength=CLASSES**2).reshape(CLASSES, CLASSES) / 600
    assert found.joint.value == pytest.approx(joint)
    assert found.nll.value == pytest.approx(-np.log(p[np.arange(600), true]).mean())
    assert found.overconfidence.value == pytest.approx(sure.mean() - right.mean())
    place = np.minimum((sure * 10).astype(int), 9)
    assert found.curve.value[found.count > 0] == pytest.approx([right[place == b].mean() for b in np.unique(place)])
    assert found.count.tolist() == np.bincount(place, minlength=10).tolist()


@pytest.mark.statistical(1e-4)
@pytest.mark.parametrize("number", [25, 100])
def test_intervals_hold_under_any_noise(number, base_seed):
    """In at least 93% of 250 redraws of each noise, and of the 750 of all, within chance."""
    held = {"accuracy": [], "labels": [], "recall": []}
    for noise in ("class", "example", "shared"):
        p, labels, true = population(noise)
        right = p.argmax(axis=1) == true
        recall = np.array([right[true == k].mean() for k in range(CLASSES)])
        for seed in range(250):
            own_p, own_labels, own_true = redrawn(noise, [base_seed, seed])
            found = verified_performance(own_p, own_labels, verified(own_true, number))
            held["accuracy"].append(found.accuracy.low <= right.mean() <= found.accuracy.high)
            held["labels"].append(found.label_accuracy.low <= np.mean(labels == true) <= found.label_accuracy.high)
            held["recall"].append(np.mean((found.recall.low <= recall) & (recall <= found.recall.high)))
    for each in held.values():
        by_noise = np.reshape(each, (3, 250)).mean(axis=1)
        room = z_limit(1e-4 / 24) * np.sqrt(0.93 * 0.07 / 250)
        assert by_noise.min() > 0.93 - room
        assert by_noise.mean() > 0.93 - room / np.sqrt(3)


@pytest.mark.statistical(1e-4)
@pytest.mark.parametrize("number", [3, 30])
def test_intervals_of_classes_and_bins_hold_where_most_were_never_verified(number, base_seed):
    """Twenty classes, right in 90%: fractions of cells that nobody saw are bounds, not errors among others."""
    rng = np.random.default_rng([base_seed, 1])
    true = rng.integers(20, size=20_000)
    predicted = np.where(rng.random(20_000) < 0.9, true, rng.integers(20, size=20_000))
    labels = np.where(rng.random(20_000) < 0.8, true, rng.integers(20, size=20_000))
    sure = rng.uniform(0.55, 0.95, 20_000)
    p = np.where(np.arange(20) == predicted[:, None], sure[:, None], (1.0 - sure[:, None]) / 19)
    right, joint = predicted == true, np.bincount(true * 20 + predicted, minlength=400).reshape(20, 20) / 20_000
    precision, recall = (np.array([right[each == k].mean() for k in range(20)]) for each in (predicted, true))
    held = []
    for _ in range(60):
        rows = rng.integers(20_000, size=1000)
        found = verified_performance(p[rows], labels[rows], verified(true[rows], number))
        pairs = [(found.precision, precision), (found.recall, recall), (found.joint, joint)]
        curve = [right[np.floor(10 * sure) == place].mean() for place in range(5, 10)]
        pairs.append((Estimate(*(each[5:] for each in (found.curve.value, found.curve.low, found.curve.high))), curve))
        held.append([np.mean((each.low <= value) & (value <= each.high)) for each, value in pairs])
    assert np.mean(held, axis=0).min() > 0.93


@pytest.mark.statistical(1e-4)
def test_intervals_hold_where_some_were_drawn_fifty_times_as_often(base_seed):
    """Cells are cut by the probability first: else one without a rarely drawn example would hide what it is like."""
    p, labels, true = population("example")
    accuracy, held = np.mean(p.argmax(axis=1) == true), []
    for seed in range(200):
        rows = np.random.default_rng([base_seed, seed, 5]).integers(len(p), size=4000)
        sure = p[rows].max(axis=1)
        inclusion = np.where(sure < np.median(sure), 0.1, 0.002)
        drawn = np.flatnonzero(np.random.default_rng([base_seed, seed, 6]).random(4000) < inclusion)
        own = {int(place): int(true[rows[place]]) for place in drawn}
        found = verified_performance(p[rows], labels[rows], own, inclusion=inclusion).accuracy
        held.append(found.low <= accuracy <= found.high)
    assert np.mean(held) > 0.93 - z_limit(1e-4) * np.sqrt(0.93 * 0.07 / 200)


def test_mistakes_are_asked_about():
    p, labels, true = redrawn("class", 9)
    own = verified(true, 40)
    warnings = {
        "in another order of classes": (p[:, [1, 2, 3, 0]], labels, own),
        "do the indices belong to these labels?": (p, labels, verified((labels + 1) % CLASSES, 40)),
        "give those as they were before": (p, np.where(np.arange(600) < 40, true, labels), own),
    }
    for text, arguments in warnings.items():
        assert any(text in said for title, said in verified_performance(*arguments).notes if title == "warning"), text
    assert "warning" not in dict(verified_performance(p, labels, own).notes)


@pytest.mark.planted
def test_it_is_right_where_judge_and_model_share_their_errors():
    """There labels flatter the model; this does not believe them."""
    p, labels, true = redrawn("shared", 0, 4000)
    accuracy = np.mean(p.argmax(axis=1) == true)
    found = verified_performance(p, labels, verified(true, 400))
    assert found.noisy_accuracy > accuracy + 0.1
    assert found.accuracy.low < accuracy < found.accuracy.high
    assert found.worth > 400


@pytest.mark.planted
def test_what_was_drawn_more_often_counts_less():
    """Half of all is drawn nine times as often; without `inclusion` that is refused, and would be wrong."""
    p, labels, true = redrawn("example", 1, 20_000)
    sure = p.max(axis=1)
    inclusion = np.where(sure < np.median(sure), 0.09, 0.01)
    drawn = np.flatnonzero(np.random.default_rng(0).random(len(p)) < inclusion)
    own = {int(index): int(true[index]) for index in drawn}
    right = p.argmax(axis=1) == true
    found = verified_performance(p, labels, own, inclusion=inclusion)
    again = verified_performance(p, labels, own, inclusion=7 * inclusion)
    assert found.accuracy == again.accuracy  # up to a factor
    of_dict = verified_performance(p, labels, own, inclusion={index: inclusion[index] for index in own}).accuracy
    assert of_dict.low < right.mean() < of_dict.high
    assert found.accuracy.low < right.mean() < found.accuracy.high
    assert found.alone.low < right.mean() < found.alone.high
    assert right[drawn].mean() < found.alone.low  # what equal weights would say
    with pytest.raises(ValueError, match="drawn at random: give `inclusion`"):
        verified_performance(p, labels, own)


@pytest.mark.parametrize("picked", ["worst", "class", "first"])
def test_examples_that_were_picked_are_refused(picked):
    p, labels, true = redrawn("example", 2)
    order = {
        "worst": np.argsort(p[np.arange(600), labels]),
        "class": np.flatnonzero(labels == 1),
        "first": np.argsort(-p.max(axis=1)),
    }[picked]
    with pytest.raises(ValueError, match=r"`verified_labels` must be of examples that were drawn at random: give"):
        verified_performance(p, labels, {int(index): int(true[index]) for index in order[:60]})


def test_a_doubtful_sample_gets_a_warning():
    p, labels, true = redrawn("example", 2)
    order = np.argsort(p[np.arange(600), labels])[:300]
    rows = np.concatenate([np.random.default_rng(0).choice(order, 26, replace=False), np.arange(12)])
    found = verified_performance(p, labels, {int(index): int(true[index]) for index in rows})
    assert dict(found.notes)["warning"].startswith("the verified examples differ from the rest by")


def test_names_votes_and_distributions_are_labels_too():
    p, labels, true = redrawn("class", 3)
    names = np.array(["ant", "bee", "cat", "dog"])
    own = verified(true, 60)
    plain = verified_performance(p.argmax(axis=1), labels, own)
    named = verified_performance(
        names[p.argmax(axis=1)], names[labels], {index: names[label] for index, label in own.items()}
    )
    assert (named.accuracy, named.label_accuracy) == (plain.accuracy, plain.label_accuracy)
    assert named.classes.tolist() == names.tolist()
    assert named.nll is None
    votes = np.stack([labels, np.roll(labels, 1), np.full(600, -1)], axis=1)
    of_votes = verified_performance(p, votes, own)
    shares = 0.5 * (np.eye(CLASSES)[votes[:, 0]] + np.eye(CLASSES)[votes[:, 1]])
    assert verified_performance(p, shares, own).accuracy == of_votes.accuracy
    by_name = verified_performance(p, names[labels], {0: "cat"}, class_names=names)
    assert by_name.index.tolist() == [0]
    frame = pd.DataFrame({"task": np.arange(600), "who": "a", "label": labels})
    of_table = verified_performance(p, votes_from_table(frame, "task", "who", "label"), own)
    assert of_table.accuracy == verified_performance(p, labels, own).accuracy


def test_keys_are_those_of_a_pandas_index():
    p, labels, true = redrawn("class", 4)
    index = [f"row {number}" for number in range(600)]
    own = verified(true, 50)
    found = verified_performance(p, pd.Series(labels, index), {index[row]: label for row, label in own.items()})
    assert found.accuracy == verified_performance(p, labels, own).accuracy


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("is_right", [True, False])
def test_few_that_are_all_right_or_all_wrong_leave_room(is_right, count):
    p, labels, true = redrawn("class", 5)
    right = p.argmax(axis=1) == true
    rows = np.flatnonzero(right == is_right)[:count]
    found = verified_performance(p, labels, {int(row): int(true[row]) for row in rows})
    assert found.accuracy.high - found.accuracy.low > 0.2
    assert found.index.tolist() == rows.tolist()


def test_a_class_of_which_none_was_verified_has_no_recall():
    p, labels, true = redrawn("class", 6)
    rows = np.flatnonzero(true != 3)[:8]
    found = verified_performance(p, labels, {int(row): int(true[row]) for row in rows})
    assert np.isnan(found.recall.value[3])
    assert (found.recall.low[3], found.recall.high[3]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"verified_labels": {}}, "`verified_labels` must have at least one example"),
        ({"verified_labels": [0, 1]}, "`verified_labels` must be a dict"),
        ({"verified_labels": {600: 1}}, r"`verified_labels` must have indices in \[0, 600\)"),
        (
            {"verified_labels": {0: 9}},
            "`verified_labels` must have only the classes 0, 1, 2, 3. Received: 9 of example 0",
        ),
        ({"inclusion": np.zeros(600)}, r"`inclusion` must be in \(0, 1\]: nothing"),
        ({"inclusion": {1: 0.5}}, "`inclusion` must have a probability for each of `verified_labels`"),
        ({"inclusion": np.ones(3)}, r"`inclusion` must be a dict, or have shape \(600,\)"),
        ({"labels": np.zeros(5, int)}, "`labels` must have a label for each of the 600 predictions"),
        ({"labels": np.full((600, 3), 1 / 3)}, "`labels` must have 4 columns"),
        ({"predictions": np.full((600, 4), 0.3)}, "`predictions` must have rows of sum 1"),
        ({"bins": 0}, "`bins` must be an integer"),
        ({"predictions": np.linspace(0.1, 0.9, 600)}, r"`predictions` must be classes \(N,\), or probabilities"),
        ({"labels": np.array(["a", "b"] * 300)}, "`labels` must have at least one label, and only the classes 0, 1"),
        ({"labels": np.tile([30_000, 0], 300), "predictions": np.zeros(600, int)}, "is it an id?"),
        ({"predictions": np.array(["a", "b"] * 300)}, "`class_names` must be given where names stand beside numbers"),
        ({"inclusion": np.where(np.arange(600) == 5, 0.0, 0.5)}, r"`inclusion` must be in \(0, 1\]: nothing"),
    ],
)
def test_wrong_arguments_are_refused(changed, text):
    p, labels, true = redrawn("class", 7)
    arguments = {"predictions": p, "labels": labels, "verified_labels": {0: int(true[0])}} | changed
    with pytest.raises(ValueError, match=text):
        verified_performance(**arguments)


def test_prints_what_it_rests_on():
    p, labels, true = redrawn("example", 8)
    text = str(verified_performance(p, labels, verified(true, 200)))
    assert text.startswith("accuracy, true classes: 0.")
    assert "200 verified examples that were drawn at random; verified labels are right" in text


def judged(seed, count=3000, graded=False):
    """People's verdicts, and those of a judge that is too friendly."""
    rng = np.random.default_rng(seed)
    if graded:
        people = rng.normal(3.0, 1.0, count)
        return people, 0.7 * people + 1.5 + rng.normal(0.0, 0.5, count)
    people = rng.random(count) < 0.7
    return people, people ^ (rng.random(count) < np.where(people, 0.05, 0.3))


@pytest.mark.parametrize("graded", [False, True])
def test_mean_of_verdicts_is_unbiased_and_holds(graded):
    held, errors, alone, worth = [], [], [], []
    for seed in range(200):
        people, judge = judged(seed, graded=graded)
        found = verified_mean(judge, dict(enumerate(people[:60])))
        truth = 3.0 if graded else 0.7
        held.append(found.mean.low <= truth <= found.mean.high)
        errors.append(found.mean.value - truth)
        alone.append(found.alone.value - truth)
        worth.append(found.worth)
    assert np.mean(held) > 0.93 - 4 * np.sqrt(0.93 * 0.07 / 200)
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(200)
    assert np.std(errors) < np.std(alone)
    assert np.median(worth) > 80


def test_a_judge_that_knows_nothing_costs_nothing():
    people, _ = judged(0, graded=True)
    noise = np.random.default_rng(1).normal(size=(3000, 3))
    found = verified_mean(noise, dict(enumerate(people[:40])))
    assert found.worth > 35


def test_several_judges_and_one_verdict():
    people, judge = judged(1)
    other = judged(2)[1]
    both = verified_mean(np.column_stack([judge, other]), dict(enumerate(people[:200].tolist())))
    assert both.judged == pytest.approx([judge.mean(), other.mean()])
    assert verified_mean(judge, {0: True}).mean.high == 1.0
    assert "means of the judges" in str(both)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([0.0, np.nan], {0: 1}), "`verdicts` must be finite"),
        (([0.0, 1.0], {0: np.inf}), "`verified` must be finite"),
        (([0.0, 1.0], {0: 2.5}), "`verified` must have at least two examples"),
        ((["right", "wrong"], {0: 1}), "`verdicts` must be numbers or booleans; of texts, compare them first"),
        (([0.0, 1.0], {}), "`verified` must have at least one example"),
        (
            (np.arange(1000) > 500, dict.fromkeys(range(60), 1)),
            "`verified` must be of examples that were drawn at random",
        ),
    ],
)
def test_wrong_verdicts_are_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        verified_mean(*arguments)


def test_a_class_that_is_never_predicted_may_be_so_elsewhere():
    predicted, true = np.zeros(50, int), np.arange(50) % 2
    recall = verified_performance(predicted, true, verified(true, 20)).recall
    assert recall.value.tolist() == [1.0, 0.0]
    assert 0.0 < recall.high[1] < 0.5
