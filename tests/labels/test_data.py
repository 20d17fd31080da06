"""Labels of any form as one `Data`, or as integers and the names of their classes, and what is refused."""

import functools
import re
import warnings

import keras
import numpy as np
import pandas
import pytest
import scipy.sparse
from keras import ops
from scipy.special import softmax

from keras_het.base.validation import check_class_names
from keras_het.callbacks import TrainingDynamics
from keras_het.explain import features
from keras_het.labels import aggregate, annotators, choose, clean
from keras_het.labels.classes import encode, order_columns
from keras_het.labels.data import read, stratified_folds
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


@pytest.mark.parametrize("y", [
    VOTES,
    np.where(VOTES < 0, np.nan, VOTES),
    np.where(VOTES < 0, np.nan, NAMES[VOTES].astype(object)),
    np.where(VOTES < 0, "", NAMES[VOTES]),
    [[None if vote < 0 else NAMES[vote] for vote in row] for row in VOTES],
])  # fmt: skip
def test_votes_are_distributions_whatever_stands_for_none(y):
    data = read(X, votes=y)
    np.testing.assert_allclose(data.y, aggregate(VOTES, 3).probabilities, atol=1e-6)
    assert data.classes.tolist() in ([0, 1, 2], NAMES.tolist())
    assert data.y.dtype == "float32"
    assert np.mean(data.labels == TRUE) > 0.8


FULL = np.where(np.random.default_rng(1).random((240, 3)) < 0.7, TRUE[:, None], np.roll(TRUE, 1)[:, None])
COUNTS = np.random.default_rng(2).multinomial(5 + np.arange(240) % 3, [0.2, 0.3, 0.5])


@pytest.mark.parametrize("kind", [int, float, object])
@pytest.mark.parametrize("form", [np.asarray, pandas.DataFrame])
def test_whole_numbers_in_columns_are_refused_with_the_forms_for_votes_and_counts(form, kind):
    y = form(COUNTS.astype(kind))
    with pytest.raises(ValueError, match="For the labels of several annotators, pass votes=y instead") as e:
        read(X, y)
    np.testing.assert_array_equal(read(X, votes=form(FULL.astype(kind))).y, read(X, votes=FULL).y)
    fractions = eval(str(e.value).rpartition("pass ")[2].rpartition(". Received")[0], {"y": form(COUNTS)})
    np.testing.assert_allclose(read(X, fractions).y, COUNTS / COUNTS.sum(axis=1, keepdims=True), atol=1e-6)


def test_votes_of_booleans_and_categoricals_keep_their_classes_and_order():
    votes = (FULL > 0).astype(int)
    assert read(X, votes=votes.astype(bool)).classes.tolist() == [False, True]
    gap = np.where(np.arange(240)[:, None] == [5, 5, 6], None, votes.astype(bool))
    assert read(X, votes=gap).classes.tolist() == [False, True]
    for names in (["small", "large"], [3, 1]):
        kind = pandas.CategoricalDtype(names, ordered=True)
        frame = pandas.DataFrame({k: pandas.Categorical.from_codes(votes[:, k], dtype=kind) for k in range(3)})
        data = read(X, votes=frame)
        assert data.classes.tolist() == names
        np.testing.assert_array_equal(data.y, read(X, votes=votes).y)
        assert read(X, votes=frame.where(gap != None)).classes.tolist() == names  # noqa: E711  by elements
    frame[2] = frame[2].cat.reorder_categories([1, 3])
    with pytest.raises(ValueError, match="`votes` must have one order of categories in all columns"):
        read(X, votes=frame)


def test_columns_of_probabilities_are_matched_by_name_and_an_index_names_each_row_once():
    names, p = np.array(["1", "10", "2"]), 0.1 + 0.7 * np.eye(3)[TRUE]
    columns = pandas.DataFrame(p, columns=names)
    np.testing.assert_array_equal(order_columns(names, columns[["2", "1", "10"]]), p)
    with pytest.raises(ValueError, match="`probabilities` must have the classes as columns, '1', '10', '2'"):
        order_columns(names, columns.rename(columns={"1": "a"}))
    names = np.array(["0", "1", "10", "2"])  # of the integer columns 0 to 3 nobody knows whether they are names
    with pytest.raises(ValueError, match=r"'0', '1', '10', '2'; to_numpy\(\).* Received: 0, 1, 2, 3$"):
        order_columns(names, pandas.DataFrame(np.eye(4)))
    columns = order_columns(names, pandas.DataFrame(np.eye(4), columns=["0", "1", "2", "10"]))
    np.testing.assert_array_equal(columns, np.eye(4)[:, [0, 1, 3, 2]])
    twice = np.arange(240) % 120
    for x, y in ((pandas.DataFrame(X, index=twice), Y), (X, pandas.Series(Y, index=twice))):
        with pytest.raises(ValueError, match="must have an index without duplicates"):
            read(x, y)


def test_a_long_table_that_pandas_pivots_gives_the_votes_row_by_row():
    """A loop over the rows of the table, in any order, is the oracle; -1 is no vote."""
    items, who = RNG.permutation(1000)[:240], ["Dee", "Ann", "Cyn", "Bob"]
    x, numbers = pandas.DataFrame(X, index=items), np.full((240, 4), -1)
    for form in (NAMES, pandas.Categorical(NAMES, NAMES[::-1], ordered=True)):
        rows = [(items[n], who[m], form[VOTES[n, m]]) for n, m in np.argwhere(VOTES >= 0)]
        table = pandas.DataFrame([rows[k] for k in RNG.permutation(len(rows))], columns=["item", "who", "says"])
        classes = [*getattr(form, "categories", form)]
        table["says"] = table["says"] if form is NAMES else table["says"].astype(form.dtype)
        votes = table.pivot(index="item", columns="who", values="says").reindex(x.index)
        for item, name, says in rows:
            numbers[items.tolist().index(item), sorted(who).index(name)] = classes.index(says)
        data, expected = read(x, votes=votes), aggregate(numbers, 3)
        np.testing.assert_allclose(data.y, expected.probabilities, atol=1e-6)
        assert data.classes.tolist() == classes
        by_number = annotators(expected, numbers, names=sorted(who), class_names=classes)
        assert str(annotators(aggregate(votes), votes)) == str(by_number)
    with pytest.raises(ValueError, match="`votes` must have the index of `x`"):
        read(x, votes=votes.sort_index())
    with pytest.raises(ValueError, match="`votes` must have a row for each of the 240 examples"):
        read(x, votes=votes[5:])
    votes.iloc[:2] = None
    with pytest.raises(ValueError, match=r"none in row 0 \(2 such rows\)"):
        read(x, votes=votes)


def test_a_frame_of_votes_may_lack_classes_that_are_known_and_a_tie_is_not_always_for_the_first_class():
    votes = pandas.DataFrame({"Ann": [1, 2, 1], "Bob": [1, np.nan, 2]})
    assert aggregate(votes, 3, "majority").probabilities.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0.5, 0.5]]
    with pytest.raises(ValueError, match="`votes` must begin with 0"):
        aggregate(votes)
    names, stack = votes.map({1: "dog", 2: "ant"}.get), np.stack([0.9 * np.eye(3) + 0.1 * np.eye(3)[[0, 2, 1]]] * 2)
    found = annotators(stack, names, class_names=["cat", "dog", "ant"]).annotators
    figures = [(one.name, one.num_labels, one.agreement_with_others) for one in found]
    assert figures == [("Ann", 3, 0.5), ("Bob", 2, 0.5)]
    assert [pair[0] for pair in found[0].confusions] == ["dog", "ant"]
    with pytest.raises(ValueError, match="`class_names` must"):
        annotators(stack, names)
    tied = np.tile([[0, 1]], (240, 1))  # for 200 of 240 examples
    tied[200:220, 1], tied[220:, 0] = -1, -1
    assert 80 < read(X, votes=tied).labels[:200].sum() < 120


def test_distributions_and_label_vectors_whose_columns_name_the_classes():
    p = softmax(X[:, :3], axis=1)
    np.testing.assert_allclose(read(X, p).y, p, atol=1e-6)
    one = read(X, np.eye(3)[Y])  # vectors with a single 1 are labels
    np.testing.assert_array_equal(one.y, Y)
    np.testing.assert_array_equal(one.distribution, np.eye(3)[Y])
    # Frames as `pandas.get_dummies` makes them, in any order.
    dummies = pandas.get_dummies(NAMES[Y])[["owl", "cat", "dog"]]
    for y in (dummies, dummies.astype(int), 0.1 + 0.7 * dummies):
        data = read(X, y)
        assert data.classes.tolist() == ["owl", "cat", "dog"]
        np.testing.assert_array_equal(data.classes[data.labels], NAMES[Y])
    assert read(X, dummies, class_names=NAMES.tolist()).classes.tolist() == NAMES.tolist()


def test_rows_go_together_and_a_data_set_is_read_once_with_its_weights():
    data = read({"a": X, "b": X[:, :2]}, Y, sample_weight=np.arange(240.0))
    for rows in (np.array([3, 1]), np.isin(np.arange(240), [1, 3])):
        part = data[rows]
        np.testing.assert_array_equal(part.x["b"], X[rows, :2])
        np.testing.assert_array_equal(part.y, Y[rows])
        assert sorted(part.weight) == [1.0, 3.0]
    # NumPy cannot subtract booleans, and sums of small integers overflow.
    kept = [read(X, Y, sample_weight=np.ones(240, dtype)).weight.dtype for dtype in (bool, "uint8", "float32")]
    assert kept == ["float64", "float64", "float32"]
    data = read(Batches(X, Y, np.arange(240.0)))
    np.testing.assert_array_equal(data.x, X)
    np.testing.assert_array_equal(data.weight, np.arange(240.0))


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


def tf_data(**options):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(240, **options).batch(16)


def loader(**options):
    import torch

    pairs = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    return torch.utils.data.DataLoader(pairs, batch_size=16, **options)


DATA_SETS = {"PyDataset": (shuffled, lambda: Batches(X, Y))}
DATA_SETS["first batch fixed"] = functools.partial(shuffled, 32), lambda: Batches(X, Y)
if keras.config.backend() == "torch":
    DATA_SETS["torch"] = functools.partial(loader, shuffle=True), loader
if keras.config.backend() == "tensorflow":
    DATA_SETS["tf.data"] = tf_data, functools.partial(tf_data, reshuffle_each_iteration=False)


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
    times = pandas.DataFrame({"time": seconds, "even": seconds % 2 == 0})
    np.testing.assert_array_equal(read(times, Y).x[:, 0], seconds)


def test_class_names_name_integers_and_order_names():
    order, names = ["c", "a", "b"], np.array(["a", "b", "c"])
    assert read(X, Y, class_names=["low", "mid", "high"]).classes.tolist() == ["low", "mid", "high"]
    data = read(X, names[Y], class_names=order)
    assert data.classes.tolist() == order
    assert [order[label] for label in data.y] == names[Y].tolist()
    votes = read(X, votes=np.where(VOTES < 0, None, names[VOTES]), class_names=order)
    np.testing.assert_array_equal(votes.y, read(X, votes=VOTES).y[:, [2, 0, 1]])
    text = "`class_names` must be 'a', 'b', 'c' in any order, the names in `y`; to rename classes, change `y`. "
    with pytest.raises(ValueError, match=re.escape(f"{text}Received: 'cat', 'dog', 'owl'")):
        read(X, names[Y], class_names=NAMES.tolist())


REFUSED = [
    (np.where(np.arange(240) == 8, np.nan, Y), "none at [8]: leave such examples out, inputs and la"),
    (Y + 1, "`y` must begin with 0: use y - 1 if labels begin with 1,"),
    (None, "`y` must be labels for arrays. Received: y=None"),
    (Y[:-1], "`y` must have a label for each of the 240 examples. Received: 239"),
    (VOTES, "pass votes=y instead. For counts of each class, pass y / y.sum(axis=1, keepdims=True)."),
    (NAMES[FULL], "pass votes=y instead. "),
    (np.full((240, 3), 0.3), "`y` must have rows of sum 1. Received: row 0 sums to 0.9"),
    (np.full((240, 2), [0.9, 0.1]), "`y` must be of at least two classes. Received: labels of one class"),
]
REFUSED_VOTES = [
    (np.where(np.arange(240)[:, None] == 17, -1, VOTES), "label for each example. Leave out the other rows of `x` "),
    (np.where(VOTES < 0, -1, 0), "must have at least two classes. Received: 1"),
    (np.where(np.arange(4) == 3, 1, np.zeros((240, 4), int)), "`votes` must be of at least two"),
    (np.full((240, 4), -1), "must have at least one label. Received: no label"),
    (VOTES.T, "for each of the 240 examples (np.transpose(votes), if rows are annotators). Received: 4"),
    (np.where(np.arange(4) == 0, -2, VOTES), "must be in [0, 16777216). Received: -2 at [0]"),
    (Y, "must have a column for each annotator, (N, M). Received: shape (240,)"),
]


def test_folds_are_stratified():
    labels = np.repeat([0, 1, 2], [11, 23, 7])
    for seed in range(5):
        fold_of = stratified_folds(labels, 4, seed)
        counts = np.array([np.bincount(labels[fold_of == fold], minlength=3) for fold in range(4)])
        assert np.ptp(counts, axis=0).max() <= 1
        assert np.ptp(counts.sum(axis=1)) <= 1
    assert (stratified_folds(labels, 4, 0) != fold_of).any()
    text = r"Class 'owl' has fewer examples \(7\) than folds \(9\), so a model can miss it\. Use fewer"
    with pytest.warns(UserWarning, match=text):
        stratified_folds(labels, 9, 0, NAMES)


@pytest.mark.parametrize(("y", "labels", "classes"), [
    ([0, 2, 1], [0, 2, 1], [0, 1, 2]),
    (np.array([0, 3], "uint8"), [0, 3], [0, 1, 2, 3]),
    (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
    (np.array(["b", "a"], object), [1, 0], ["a", "b"]),
    (np.array([2, 0], object), [2, 0], [0, 1, 2]),
    ([True, False], [1, 0], [False, True]),
    ([2.0, 0.0], [2, 0], [0, 1, 2]),
    (np.eye(3)[[2, 0]], [2, 0], [0, 1, 2]),
])  # fmt: skip
def test_labels_of_every_form(y, labels, classes):
    result = encode(y)
    assert result.labels.tolist() == labels
    assert result.classes.tolist() == classes


def test_tensors_and_columns_of_pandas_and_classes_without_a_label():
    assert encode(ops.convert_to_tensor([1, 0])).labels.tolist() == [1, 0]
    assert encode(pandas.Series(["b", "a"], index=[7, 3])).labels.tolist() == [1, 0]
    assert encode(pandas.Series(["b", "a"], dtype="category")).classes.tolist() == ["a", "b"]
    ordered = encode(pandas.Categorical(["b", "a", "b"], categories=["c", "b", "a"]))
    assert (ordered.classes.tolist(), ordered.labels.tolist()) == (["b", "a"], [0, 1, 0])
    numbers = encode(pandas.Categorical([20, 10, 20]))
    assert (numbers.classes.tolist(), numbers.labels.tolist()) == ([10, 20], [1, 0, 1])
    assert encode(pandas.DataFrame({"label": [1, 0]})).labels.tolist() == [1, 0]
    assert len(encode([0, 19], defines_classes=True).classes) == 20
    gap = np.array([0, 1, 3]).repeat(40)  # the codes of its Categorical would be 0, 1, 2
    np.testing.assert_array_equal(TrainingDynamics(np.ones((120, 1)), pandas.Categorical(gap)).labels, gap)


NO_LABELS = [
    ([0, 0], "`y` must have at least two classes. Received: 1"),
    ([0, 1 << 24], "`y` must be in [0, 16777216). Received: 16777216 at [1]"),
    ([1.0, -1.0], "`y` must have a label for each example (or number the classes from 0, if -1 is a class). Received"),
    (np.array([-1, 0], object), "Received: -1 at [0], a missing label: keep only the examples with y != -1"),
    ([0.5, 1.0], "`y` must be integers or names. Received: 0.5 at [0]"),
    ([[0.5, 0.5], [1, 0]], "`y` must name one class for each example. Received: vectors that are not one-hot"),
    (np.array(["a", ""]), "`y` must have a label for each example. Received: none at [1]"),
    (np.array(["a", pandas.NA, -1], object), "`y` must have a label for each example. Received: none at [1]"),
    (np.array(["a", -1, None], object), "Received: -1 at [1], a missing label: keep only the examples with y != -1"),
    (np.array(["a", 1], object), "`y` must have labels of one type. Received: int and str"),
    ([0, 20], "`y` must be in [0, 20), 10 times the number"),
]  # fmt: skip


@pytest.mark.parametrize("names", [("cat", "dog"), np.array(["cat", "dog"]), {np.int64(1): "dog", 0: "cat"}])
def test_names_are_in_the_order_of_the_classes(names):
    assert check_class_names(names, 2) == ["cat", "dog"]


SPARSE = scipy.sparse.csr_matrix(X)
KEYS = "`class_names` must be a dict with the keys 0 to 1, the class numbers. Received: a dict of"
OTHERS = [
    (lambda: read(X, Y, votes=VOTES), "`votes` must be None if you pass `y`. Received: both"),
    (lambda: read(Batches(X, Y), votes=VOTES), "`votes` must be None for a data set, which has its own labels. Receiv"),
    (lambda: read(X, Y, sample_weight=np.ones(60)), "`sample_weight` must have shape (240,). Received: shape (60,)"),
    (lambda: read(Batches(X, Y, Y), sample_weight=np.ones(240)), "must be None for a data set that has weights"),
    (lambda: read(pandas.DataFrame({"a": ["b"] * 240}), Y), "`x` must be a frame of numbers"),
    (lambda: read(X, NAMES[Y], class_names={*NAMES}), "`class_names` must be a sequence"),
    (lambda: read(X, Y, sample_weight=-np.ones(240)), "must be finite and not negative. Received: -1.0"),
    (lambda: choose(make_model, SPARSE, Y, epochs=1), "`x` must be dense: x.toarray(). Received: a csr_matrix"),
    (lambda: clean(None, X[:, :0], Y), "pass a function or a trained model. Received: shape (240, 0)"),
    (lambda: check_class_names({1: "cat", 2: "dog"}, 2), f"{KEYS} 2, without 0"),
    (lambda: check_class_names({0: "cat", 1: "dog", 2: "cow"}, 2), f"{KEYS} 3, with 2"),
    (lambda: check_class_names({"0": "cat", "1": "dog"}, 2), f"{KEYS} 2, with '0'"),
]
test_what_is_no_label_and_no_vote_is_refused = refusals(
    [(functools.partial(read, X, y), text) for y, text in REFUSED],
    [(functools.partial(read, X, votes=votes), text) for votes, text in REFUSED_VOTES],
    [(functools.partial(encode, y, defines_classes=True), text) for y, text in NO_LABELS],
    OTHERS,
)
