"""Labels of any form as one `Data`, and what is refused."""

import functools
import re
import warnings

import keras
import numpy as np
import pandas
import pytest
import scipy.sparse
from scipy.special import softmax

from keras_het.explain import features
from keras_het.labels import aggregate, annotators, choose, clean
from keras_het.labels.classes import order_columns
from keras_het.labels.data import (
    _check_no_counts,
    read,
    stratified_folds,
)
from tests.checks import refusals
from tests.common import Batches
from tests.labels.tasks import TRUE, X, Y, make_model

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
RATES = np.array([0.9, 0.8, 0.8, 0.4])  # of right labels
VOTES = np.where(RNG.random((240, 4)) < RATES, TRUE[:, None], RNG.integers(3, size=(240, 4)))
VOTES[RNG.random((240, 4)) < 0.4] = -1
VOTES[(VOTES < 0).all(axis=1), 0] = 0
NAMES = np.array(["cat", "dog", "owl"])
BLANK = np.where(np.arange(240)[:, None] == 17, -1, VOTES)


@pytest.mark.parametrize("y", [
    VOTES,
    np.where(VOTES < 0, np.nan, VOTES),
    np.where(VOTES < 0, None, VOTES),
    np.where(VOTES < 0, None, NAMES[VOTES]),
    np.where(VOTES < 0, np.nan, NAMES[VOTES].astype(object)),
    np.where(VOTES < 0, "", NAMES[VOTES]),
    [[None if vote < 0 else NAMES[vote] for vote in row] for row in VOTES],
])  # fmt: skip
def test_votes_are_distributions_whatever_stands_for_none(y):
    data = read(X, y)
    np.testing.assert_allclose(data.y, aggregate(VOTES, 3).probabilities, atol=1e-6)
    assert data.classes.tolist() in ([0, 1, 2], NAMES.tolist())
    assert data.y.dtype == "float32"
    assert np.mean(data.labels == TRUE) > 0.8


FULL = np.where(np.random.default_rng(1).random((240, 3)) < 0.7, TRUE[:, None], np.roll(TRUE, 1)[:, None])


COUNTS = np.random.default_rng(2).multinomial(5 + np.arange(240) % 3, [0.2, 0.3, 0.5])


@pytest.mark.parametrize("table", [FULL.astype(float), COUNTS.astype(float)], ids=["votes", "counts"])
@pytest.mark.parametrize("form", [np.asarray, pandas.DataFrame])
def test_whole_floats_that_can_be_votes_or_counts_are_refused_with_both_forms(table, form):
    y = form(table)
    with pytest.raises(ValueError, match="`y` must be integers for votes, a column for each annotator") as error:
        read(X, y)
    votes, _, counts = str(error.value).partition(". For counts")
    np.testing.assert_array_equal(eval(votes.rpartition("annotator: ")[2], {"y": y}), table)
    y, positive = y + 1e-9, table + 1e-9  # a row of zeros has no fractions
    fractions = eval(counts.rpartition(". Received")[0].rpartition("zeros: ")[2], {"y": y})
    np.testing.assert_allclose(read(X, fractions).y, positive / positive.sum(axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, pandas.DataFrame])
def test_integers_that_are_counts_are_refused_with_the_form_that_is_read(form):
    y = form(COUNTS)
    with pytest.raises(ValueError, match="for counts ") as error:
        read(X, y)
    fractions = eval(str(error.value).rpartition("for counts ")[2].rpartition(". Received")[0], {"y": y})
    np.testing.assert_allclose(read(X, fractions).y, COUNTS / COUNTS.sum(axis=1, keepdims=True), atol=1e-6)


def test_whole_floats_with_rows_of_equal_sums_are_counts():
    counts = np.random.default_rng(2).multinomial(5, [0.2, 0.3, 0.5], 240)
    np.testing.assert_allclose(read(X, counts.astype(float)).y, counts / 5, atol=1e-6)


def test_integers_that_are_counts_are_refused_and_votes_seldom():
    """Totals differ, and so classes seem to agree: many have few of all. Nine of ten tables are right at least.

    Then votes of two annotators who are right in 70%, ten examples, and of three, 60 examples with 3% of a class.
    """
    rng, refused = np.random.default_rng(0), np.zeros(2, int)
    for _ in range(50):
        right = rng.random((60, 3)) < 0.7
        votes = np.where(right, rng.integers(4, size=(60, 1)), rng.integers(4, size=(60, 3)))
        counts = rng.multinomial(rng.integers(40, 80, 60), rng.dirichlet(np.full(4, 0.5), 60))
        for place, table in enumerate((counts, votes)):
            try:
                _check_no_counts(table, table, "y")
            except ValueError:
                refused[place] += 1
    assert refused[0] >= 45
    assert refused[1] == 0
    refused = 0
    for _ in range(200):
        true = np.repeat(np.arange(2), 5)[:, None]
        for truth, right, count in ((true, 0.7, 2), ((np.arange(60) < 2).astype(int)[:, None], 0.95, 3)):
            votes = np.where(rng.random((len(truth), count)) < right, truth, 1 - truth)
            try:
                _check_no_counts(votes, votes, "y")
            except ValueError as error:
                refused += "rows of equal sums" not in str(error)
    assert refused <= 8  # 2%


def test_votes_of_booleans_and_categoricals_keep_their_classes_and_order():
    votes = (FULL > 0).astype(int)
    assert read(X, votes.astype(bool)).classes.tolist() == [False, True]
    gap = np.where(np.arange(240)[:, None] == [5, 5, 6], None, votes.astype(bool))
    assert read(X, gap).classes.tolist() == [False, True]
    for names in (["small", "large"], [3, 1]):
        kind = pandas.CategoricalDtype(names, ordered=True)
        frame = pandas.DataFrame({k: pandas.Categorical.from_codes(votes[:, k], dtype=kind) for k in range(3)})
        data = read(X, frame)
        assert data.classes.tolist() == names
        np.testing.assert_array_equal(data.y, read(X, votes).y)
        assert read(X, frame.where(gap != None)).classes.tolist() == names  # noqa: E711  by elements
    frame[2] = frame[2].cat.reorder_categories([1, 3])
    with pytest.raises(ValueError, match="`y` must have one order of categories in all columns"):
        read(X, frame)


@pytest.mark.parametrize("missing", [None, float("nan"), "", -1])
@pytest.mark.parametrize("names", [["cat", "dog", "owl"], [False, True], [0, 1, 2], [0.0, 1.0, 2.0]])
def test_aggregate_and_annotators_accept_names_and_missing_votes(names, missing):
    votes = np.where(VOTES < 0, -1, VOTES % len(names))
    expected = aggregate(votes)
    lists = [[missing if vote < 0 else names[vote] for vote in row] for row in votes]
    table = np.array(lists, object)
    for given in (lists, table):
        np.testing.assert_array_equal(aggregate(given).probabilities, expected.probabilities)
    class_names = names if isinstance(names[0], str | bool) else None
    assert str(annotators(expected, table)) == str(annotators(expected, votes, class_names=class_names))


def test_a_float_table_with_nan_is_votes_and_another_is_refused():
    votes = np.where(VOTES < 0, np.nan, VOTES)
    np.testing.assert_array_equal(aggregate(votes).probabilities, aggregate(VOTES).probabilities)
    assert str(annotators(aggregate(votes), votes)) == str(annotators(aggregate(VOTES), VOTES))
    rule = r"must be integers or names, with -1, nan or None for a missing vote\. Received: \d\.5"
    for wrong in (votes + 0.5, [[0.5, None], ["", 1]]):
        with pytest.raises(ValueError, match=f"`votes` {rule}"):
            aggregate(wrong)
        with pytest.raises(ValueError, match=f"`labels` {rule}"):
            annotators(np.stack([np.eye(3)] * 4), wrong)


def test_an_annotator_without_a_vote_changes_nothing():
    np.testing.assert_allclose(read(X, np.hstack([VOTES, np.full((240, 1), -1)])).y, read(X, VOTES).y, atol=1e-6)


def test_columns_of_probabilities_are_matched_by_name_and_an_index_names_each_row_once():
    names, p = np.array(["1", "10", "2"]), 0.1 + 0.7 * np.eye(3)[TRUE]
    columns = pandas.DataFrame(p, columns=names)
    found = [clean(None, X, names[Y], probabilities=given, verbose=0) for given in (p, columns[["2", "1", "10"]])]
    np.testing.assert_array_equal(found[0].probabilities, found[1].probabilities)
    with pytest.raises(ValueError, match="`probabilities` must have the classes as columns, '1', '10', '2'"):
        clean(None, X, names[Y], probabilities=columns.rename(columns={"1": "a"}), verbose=0)
    names = np.array(["0", "1", "10", "2"])  # of the integer columns 0 to 3 nobody knows whether they are names
    with pytest.raises(ValueError, match=r"'0', '1', '10', '2'; to_numpy\(\).* Received: 0, 1, 2, 3$"):
        order_columns(names, pandas.DataFrame(np.eye(4)))
    columns = order_columns(names, pandas.DataFrame(np.eye(4), columns=["0", "1", "2", "10"]))
    np.testing.assert_array_equal(columns, np.eye(4)[:, [0, 1, 3, 2]])
    twice = np.arange(240) % 120
    for given in ((pandas.DataFrame(X, index=twice), Y), (X, pandas.Series(Y, index=twice))):
        with pytest.raises(ValueError, match="must have an index without duplicates"):
            clean(None, *given, verbose=0)


def test_a_long_table_that_pandas_pivots_gives_the_votes_row_by_row():
    """A loop over the rows of the table, in any order, is the oracle; -1 is no vote."""
    items, who = RNG.permutation(1000)[:240], ["Dee", "Ann", "Cyn", "Bob"]
    x, numbers = pandas.DataFrame(X, index=items), np.full((240, 4), -1)
    for form in (NAMES, np.arange(3), pandas.Categorical(NAMES, NAMES[::-1], ordered=True)):
        rows = [(items[n], who[m], form[VOTES[n, m]]) for n, m in np.argwhere(VOTES >= 0)]
        table = pandas.DataFrame([rows[k] for k in RNG.permutation(len(rows))], columns=["item", "who", "says"])
        if hasattr(form, "categories"):
            table["says"] = table["says"].astype(form.dtype)
        votes = table.pivot(index="item", columns="who", values="says").reindex(x.index)
        classes = [*getattr(form, "categories", form)]
        for item, name, says in rows:
            numbers[items.tolist().index(item), sorted(who).index(name)] = classes.index(says)
        data, expected = read(x, votes), aggregate(numbers, 3)
        np.testing.assert_allclose(data.y, expected.probabilities, atol=1e-6)
        assert data.classes.tolist() == classes
        found = aggregate(votes)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)
        own = None if form is NAMES else [str(label) for label in classes]
        by_number = annotators(expected, numbers, names=sorted(who), class_names=own or NAMES)
        assert str(annotators(found, votes, class_names=own)) == str(by_number)
    with pytest.raises(ValueError, match="`y` must have the index of `x`"):
        read(x, votes.sort_index())
    with pytest.raises(ValueError, match=r"`y` must have a row for each of the 240 rows of `x`: y.reindex\(x.index\)"):
        read(x, votes[5:])
    votes.iloc[:2] = None
    with pytest.raises(ValueError, match="none in row 0") as error:
        read(x, votes)
    data = {"x": x, "y": votes, "pandas": pandas}
    exec(str(error.value).rpartition("rows: ")[2].rpartition(". Received")[0], data)
    assert len(read(data["x"], data["y"])) == 238


def test_a_frame_of_votes_may_lack_classes_that_are_known():
    votes = pandas.DataFrame({"Ann": [1, 2, 1], "Bob": [1, np.nan, 2]})
    assert aggregate(votes, 3, "majority").probabilities.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0.5, 0.5]]
    with pytest.raises(ValueError, match="`votes` must begin with 0"):
        aggregate(votes)
    stack = np.stack([np.eye(3)] * 2)
    assert [(each.name, each.num_labels) for each in annotators(stack, votes).annotators] == [("Ann", 3), ("Bob", 2)]
    names = votes.map({1: "dog", 2: "ant"}.get)
    found = annotators(stack - 0.1 * np.eye(3) + 0.1 * np.eye(3)[[0, 2, 1]], names, class_names=["cat", "dog", "ant"])
    assert [pair.true for pair in found.annotators[0].confusions] == ["dog", "ant"]
    assert [each.agreement for each in found.annotators] == [0.5, 0.5]
    with pytest.raises(ValueError, match="`class_names` must"):
        annotators(stack, names)


def test_a_tied_vote_is_not_always_for_the_first_class():
    tied = np.tile([[0, 1]], (240, 1))  # for 200 of 240 examples
    tied[200:220, 1], tied[220:, 0] = -1, -1
    assert 80 < read(X, tied).labels[:200].sum() < 120


def test_distributions_counts_and_label_vectors():
    counts = np.stack([(k == VOTES).sum(axis=1) for k in range(3)], axis=1)
    np.testing.assert_allclose(
        read(X, counts / counts.sum(axis=1, keepdims=True)).y, aggregate(VOTES, 3, "majority").probabilities, atol=1e-6
    )
    np.testing.assert_allclose(read(X, softmax(X[:, :3], axis=1)).y, softmax(X[:, :3], axis=1), atol=1e-6)
    one = read(X, np.eye(3)[Y])  # vectors with a single 1 are labels
    np.testing.assert_array_equal(one.y, Y)
    np.testing.assert_array_equal(one.distribution, np.eye(3)[Y])


def test_rows_go_together_and_a_data_set_is_read_once_with_its_weights():
    data = read({"a": X, "b": X[:, :2]}, Y, sample_weight=np.arange(240.0))
    for rows in (np.array([3, 1]), np.isin(np.arange(240), [1, 3])):
        part = data[rows]
        np.testing.assert_array_equal(part.x["b"], X[rows, :2])
        np.testing.assert_array_equal(part.y, Y[rows])
        assert sorted(part.weight) == [1.0, 3.0]
    # NumPy cannot subtract booleans, and sums of small integers overflow.
    assert [read(X, Y, sample_weight=np.ones(240, dtype)).weight.dtype for dtype in (bool, "uint8", "float32")] == [
        "float64", "float64", "float32",
    ]  # fmt: skip
    data = read(Batches(X, Y, np.arange(240.0)))
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.weight, np.arange(240.0))
    with pytest.raises(ValueError, match="`sample_weight` must be None for a data set that has weights"):
        read(Batches(X, Y, np.ones(240)), sample_weight=np.ones(240))


class Shuffled(Batches):
    """Batches that shuffle themselves after each epoch, in place, as users write it."""

    fixed = 0

    def on_epoch_end(self):
        np.random.shuffle(self.order[self.fixed :])

    def __getitem__(self, index):
        rows = self.order[index * self.size : (index + 1) * self.size]
        return tuple(array[rows] for array in self.arrays)


def shuffled(fixed=0, **options):
    data = Shuffled(X, Y, **options)
    data.order, data.fixed = np.arange(240), fixed
    return data


def tf_data(x, y, **options):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(240, **options).batch(16)


def loader(**options):
    import torch

    pairs = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    return torch.utils.data.DataLoader(pairs, batch_size=16, **options)


BACKEND = keras.config.backend()
DATA_SETS = {"PyDataset": (shuffled, lambda: Batches(X, Y))}
DATA_SETS["first batch fixed"] = functools.partial(shuffled, 32), lambda: Batches(X, Y)
DATA_SETS |= {"torch": (lambda: loader(shuffle=True), loader)} if BACKEND == "torch" else {}
if BACKEND == "tensorflow":
    DATA_SETS["tf.data"] = lambda: tf_data(X, Y), lambda: tf_data(X, Y, reshuffle_each_iteration=False)


@pytest.mark.smoke
@pytest.mark.parametrize("kind", DATA_SETS)
def test_a_data_set_that_shuffles_itself_gets_a_warning(kind):
    """Row numbers would belong to one reading: 0 of 9 listed rows were label errors."""
    for call in (read, functools.partial(features, make_model()), functools.partial(clean, None, verbose=0)):
        for make, count in zip(DATA_SETS[kind], (1, 0), strict=True):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(make())
            own = [each for each in caught if each.category is UserWarning]
            assert {each.filename for each in own} <= {__file__}  # the user's line
            texts = [str(each.message) for each in own]
            assert ["yields other batches if it is read again" in text for text in texts] == [True] * count


def test_reading_again_changes_no_random_state_and_no_generator():
    state, data = np.random.get_state()[1].tolist(), Batches(X, Y)
    with pytest.warns(UserWarning, match="`shuffle=False` in `image_dataset_from_directory`"):
        read(shuffled())
    assert np.random.get_state()[1].tolist() == state
    user = shuffled()
    user.file, user.alias = open(__file__, encoding="utf-8"), user.order  # noqa: SIM115
    with pytest.warns(UserWarning, match="yields other batches"), user.file:
        read(user)
    assert user.order.tolist() == list(range(240))  # else the warning itself would make row numbers wrong
    np.testing.assert_array_equal(read(data[index] for index in range(len(data))).x, X)


def test_frames_are_numbers_and_keep_their_index():
    index = [f"row {i}" for i in range(240)]
    data = read(pandas.DataFrame(X, index=index), pandas.Series(Y, index=index))
    assert data.x.dtype == "float32"
    assert data[np.array([2])].index.tolist() == ["row 2"]
    seconds = 1.7e9 + np.arange(240) % 7  # float32 rounds them to 128
    np.testing.assert_array_equal(
        read(pandas.DataFrame({"time": seconds, "even": seconds % 2 == 0}), Y).x[:, 0], seconds
    )
    with pytest.raises(ValueError, match="`y` must have the index of `x`"):
        read(pandas.DataFrame(X, index=index), pandas.Series(Y, index=index[::-1]))
    with pytest.raises(ValueError, match="`x` must be a frame of numbers"):
        read(pandas.DataFrame({"a": ["b"] * 240}), Y)


def test_class_names_name_integers_and_order_names():
    order, names = ["c", "a", "b"], np.array(["a", "b", "c"])
    assert read(X, Y, class_names=["low", "mid", "high"]).classes.tolist() == ["low", "mid", "high"]
    data = read(X, names[Y], class_names=order)
    assert data.classes.tolist() == order
    assert [order[label] for label in data.y] == names[Y].tolist()
    votes = read(X, np.where(VOTES < 0, None, names[VOTES]), class_names=order)
    np.testing.assert_array_equal(votes.y, read(X, VOTES).y[:, [2, 0, 1]])
    text = "`class_names` must be 'a', 'b', 'c' in any order, the names in `y`; to rename classes, change `y`. "
    with pytest.raises(ValueError, match=re.escape(f"{text}Received: 'cat', 'dog', 'owl'")):
        read(X, names[Y], class_names=NAMES.tolist())
    with pytest.raises(ValueError, match="`class_names` must be a sequence"):
        read(X, names[Y], class_names=set(order))


REFUSED = {
    "a row without votes": (BLANK,
        "drop unlabelled rows: keep = (y >= 0).any(axis=1); x, y = x[keep], y[keep]. Received: n"),
    "a row of names without": (np.where(BLANK < 0, None, NAMES[BLANK]),
        "keep = pandas.DataFrame(y).notna().any(axis=1); x, y = x[keep], y[keep]. Received: none in row 17"),
    "a missing label": (np.where(np.arange(240) == 8, np.nan, Y),
        "none at [8]: leave such examples out, inputs and la"),
    "a list with nan": ([*NAMES[Y[:239]].tolist(), float("nan")],
        "have a label for each example. Received: none at [239]"),
    "an empty name": (np.where(np.arange(240) == 8, "", NAMES[Y]), "none at [8]: leave such examples out"),
    "a -1": (np.where(np.arange(240) == 8, -1, Y), "`y` must have a label for each example"),
    "labels from 1 on": (Y + 1, "`y` must begin with 0: use y - 1 if labels begin with 1,"),
    "an id": (np.where(np.arange(240) == 1, 123456, Y), "pass ids as strings. Received: 123456 at [1]"),
    "votes for one class": (np.where(VOTES < 0, -1, 0), "`y` must have at least two classes. Received: 1"),
    "no label": (None, "`y` must be labels for arrays. Received: y=None"),
    "no vote": (np.full((240, 4), -1), "`y` must have at least one label. Received: no label"),
    "other lengths": (Y[:-1], "`y` must have a label for each of the 240 examples. Received: 239"),
    "fewer votes": (VOTES[:100], "`y` must have a row for each of the 240 examples. Received: 100"),
    "turned votes": (VOTES.T, "for each of the 240 examples (np.transpose(y), if rows are annotators). Received: 4"),
    "votes out of range": (np.where(np.arange(4) == 0, -2, VOTES), "`y` must"),
    "negative shares": (np.full((240, 3), -0.5), "`y` must be distributions: floats, not negative"),
    "counts": (np.stack([(k == VOTES).sum(axis=1) for k in range(3)], axis=1),
        "For votes write y.astype(str), for counts y / y.sum(axis=1, keepdims=True). Received: columns that agree no"),
    "counts of equal totals": (np.stack([np.arange(240) % 3, 2 - np.arange(240) % 3], axis=1), "rows of equal sums"),
    "lists of unequal lengths": ([[0]] + [[0, 1]] * 239, "have rows of equal length. Received: 1 in row 0, 2 in row 1"),
}  # fmt: skip


@pytest.mark.refusal
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_label_is_refused(case):
    y, text = REFUSED[case]
    with pytest.raises(ValueError) as error:
        read(X, y)
    assert text in str(error.value)


SPARSE = scipy.sparse.csr_matrix(X)
test_weights_and_sparse_matrices_are_refused = refusals([
    (lambda: read(X, Y, sample_weight=np.ones(60)), "`sample_weight` must have shape (240,). Received: shape (60,)"),
    (lambda: read(X, Y, sample_weight=-np.ones(240)), "must be finite and not negative. Received: -1.0"),
    (lambda: read(X, Y, sample_weight=np.full(240, np.nan)), "finite and not negative. Received: nan"),
    (lambda: choose(make_model, SPARSE, Y, epochs=1), "`x` must be dense: x.toarray(). Received: a csr_matrix"),
    (lambda: clean(make_model, SPARSE, Y, epochs=1), "must be dense: "),
    (lambda: choose(make_model, X, SPARSE, epochs=1), "`y` must be dense: y.toarray(). Received: a csr_matrix"),
    (lambda: clean(None, X.astype(object), Y), "array of real numbers: x.astype('float32'). Received: dtype object"),
    (lambda: clean(None, X[:, :0], Y), "`x` must have at least one feature. Received: shape (240, 0)"),
    (lambda: choose(None, X.astype(str), Y, epochs=1, verbose=0), "`x` must be an array of real numbers: "),
])  # fmt: skip


@pytest.mark.refusal
def test_the_line_that_an_error_gives_drops_the_rows_without_a_label():
    for y in (BLANK, np.where(BLANK < 0, np.nan, BLANK)):
        x = X
        with pytest.raises(ValueError) as error:
            read(x, y)
        scope = {"x": x, "y": y, "pandas": None}
        exec(str(error.value).partition("drop unlabelled rows: ")[2].partition(". Received")[0], scope)
        assert len(read(scope["x"], scope["y"])) == 239


def test_folds_are_stratified():
    labels = np.repeat([0, 1, 2], [11, 23, 7])
    for seed in range(5):
        fold_of = stratified_folds(labels, 4, seed)
        counts = np.array([np.bincount(labels[fold_of == fold], minlength=3) for fold in range(4)])
        assert np.ptp(counts, axis=0).max() <= 1
        assert np.ptp(counts.sum(axis=1)) <= 1
    assert (stratified_folds(labels, 4, 0) != fold_of).any()
    with pytest.warns(
        UserWarning,
        match=r"Class 2 has fewer examples \(7\) than folds \(9\), so a model can miss it\. Use fewer",
    ):
        stratified_folds(labels, 9, 0)
    with pytest.warns(UserWarning, match=r"Class 'owl' has fewer examples \(7\) than folds \(9\)"):
        stratified_folds(labels, 9, 0, NAMES)
