"""The data of `choose`: labels of any form, data sets, validation data, verified labels, and what is refused."""

import re
import warnings

import keras
import numpy as np
import pytest

from keras_het.training import Candidate, choose
from keras_het.training.data import read
from tests.training.tasks import SHORT, SHORT_TRAININGS, TRUE, Cheat, Constant, X, Y, clusters, make_model, maker, short

pytestmark = [pytest.mark.once, SHORT_TRAININGS]


def test_nothing_of_the_user_changes():
    x, y, optimizer = X.copy(), Y.copy(), keras.optimizers.Adam(0.1)
    short(Constant(), x=x, y=y, make_model=None, optimizer=optimizer)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)
    assert not optimizer.built


def test_labels_of_other_forms_give_the_same():
    plain = short().model.predict(X, verbose=0)
    names = np.array(["a", "b", "c"])[Y]
    found = short(y=names)
    assert found.classes.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(found.model.predict(X, verbose=0), plain)
    np.testing.assert_array_equal(short(y=np.eye(3)[Y]).model.predict(X, verbose=0), plain)


def test_a_data_set_gives_the_same_as_its_arrays():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            part = slice(60 * index, 60 * index + 60)
            return X[part], Y[part]

    found = choose(make_model, Batches(), candidates=[], **SHORT)
    np.testing.assert_array_equal(found.model.predict(X, verbose=0), short().model.predict(X, verbose=0))


def test_validation_data_measure_instead_of_folds():
    x, y, _ = clusters(120, seed=2)
    found = short(Cheat(), Constant(), validation_data=(x, y))
    assert found.table[2].difference < -0.1
    assert found.probabilities.shape == (120, 3)
    assert [score.trainings for score in found.table] == [1, 1, 1]
    assert found.trainings == 4
    right = found.probabilities.argmax(axis=1) == y
    alone = short(validation_data=(x, y, right.astype("int32")), epochs=1)
    assert alone.table[0].score > 0.9 > short(validation_data=(x, y), epochs=1).table[0].score


def test_validation_labels_may_be_names_in_an_order_of_their_own():
    pandas = pytest.importorskip("pandas")
    names = np.array(["low", "mid", "high"])
    column = pandas.Series(names[Y], dtype=pandas.CategoricalDtype(list(names), ordered=True))
    found = short(y=column, validation_data=(X[:30], column[:30]))
    assert found.classes.tolist() == list(names)
    assert short(y=Y, validation_data=(X[:30], Y[:30])).table[0].score == found.table[0].score


def test_verified_labels_replace_the_given_ones_and_count_more():
    seen = []

    class Look(Candidate):
        name = "look"

        def labels(self, task, strength):
            seen.append(task.y)
            return task.y

    found = short(Look(), verified_labels=dict(enumerate(TRUE[:40].tolist())), epochs=6, folds=2)
    plain = short(Look(), epochs=6, folds=2)
    assert found.table[0].score > plain.table[0].score
    together = np.bincount(np.concatenate(seen[:2]), minlength=3)
    assert together.tolist() == np.bincount(np.r_[TRUE[:40], Y[40:]], minlength=3).tolist()


def named(name, strengths=(None,)):
    """A candidate with this name and these strengths, which differs in nothing else from a plain training."""
    return type("Named", (Candidate,), {"name": name, "strengths": strengths})()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"make_model": 3},
            "`make_model` must be a function that makes a new compiled model, a trained model, or None",
        ),
        ({"make_model": lambda: 3}, "`make_model` must make compiled models. Received: a int"),
        (
            {"make_model": lambda: keras.Sequential()},
            "`make_model` must make compiled models. Received: a Sequential, wh",
        ),
        (
            {"make_model": maker(lambda: keras.layers.Reshape((2, 3)))},
            "`make_model` must make models whose last layer takes features (N, D), such as behind Flatten or Global",
        ),
        ({"make_model": maker(units=4)}, "`make_model` must make models of the 3 classes of `y`. Received: one of 4"),
        (
            {"optimizer": "adam"},
            "`optimizer` must be None beside a function `make_model`: remove it; set it in `compile`. R",
        ),
        ({"make_model": None, "x": X[..., None]}, "`x` must be features, an array (N, D), where there is no function"),
        ({"criterion": "auc"}, "`criterion` must be one of 'accuracy', 'loss'. Received: criterion='auc'"),
        ({"epochs": 0}, "`epochs` must be an integer at least 1. Received: epochs=0"),
        ({"y": Y[:-1]}, "`y` must have a label for each of the 240 examples. Received: 239"),
        ({"y": np.zeros(240, int)}, "`y` must be of at least two classes. Received: 1"),
        ({"y": None}, "`y` must be given for arrays. Received: y=None"),
        ({"folds": 1}, "`folds` must be an integer at least 2. Received: folds=1"),
        ({"x": X[:2], "y": [0, 1], "folds": 5}, "`folds` must be an integer in [2, 2]. Received: folds=5"),
        ({"trainings": 1}, "`trainings` must be an integer"),
        (
            {"trainings": 3},
            "`trainings` must be at least 4, for early stopping on each of 3 parts of the data, and the last tr",
        ),
        ({"candidates": [Cheat]}, "`candidates` must be a list of objects of `Candidate`, each with a name. Received"),
        ({"candidates": [Cheat(), Cheat()]}, "`candidates` must have different names and strengths. Received: 'cheat'"),
        ({"candidates": [Cheat(), named("CHEAT")]}, "`candidates` must have different names and strengths. Received"),
        ({"candidates": [named("a", ())]}, "`candidates` must have at least one strength each, (None,) if there is"),
        (
            {"shuffle": False},
            "`fit_arguments` must be arguments of `fit` that all trainings can share: callbacks, step",
        ),
        ({"fold": 3}, "callbacks, steps_per_epoch. Received: fold (`folds`?)"),
        (
            {"verified_labels": Y[:5]},
            "`verified_labels` must be a dict from the indices of examples to their labels. R",
        ),
        ({"verified_labels": {240: 0}}, "`verified_labels` must have indices in [0, 240), integers. Received: 240"),
        (
            {"verified_labels": {0: "a"}},
            "`verified_labels` must have only the classes 0, 1, 2. Received: 'a' of example",
        ),
        (
            {"validation_data": (X, np.full((240, 3), 1 / 3))},
            "`validation_data` must have one label for each example, and no votes. Received: votes",
        ),
        ({"validation_data": (X, Y + 1)}, "`validation_data` must have at least one label, and only those of `y`"),
        ({"validation_data": (X, Y[:3])}, "`validation_data` must have a label for each example"),
    ],
)
def test_refusals(arguments, text):
    given = {"make_model": make_model, "x": X, "y": Y, "candidates": [], **SHORT, **arguments}
    with pytest.raises(ValueError, match=re.escape(text)):
        choose(**given)


def test_a_class_with_few_examples_is_warned_of():
    y = np.where(np.arange(240) == 0, 3, Y)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = short(y=y, make_model=maker(units=4))
    assert any("class 3 has only 1 examples for 3 folds" in str(one.message) for one in heard)
    assert found.model.output_shape == (None, 4)


def test_a_class_without_examples_is_a_class():
    assert short(y=np.where(Y == 2, 4, Y), make_model=maker(units=5)).model.output_shape == (None, 5)


def test_class_names_change_no_label():
    names = ["low", "mid", "high"]
    found = short(class_names=names, verified_labels={3: 0}, validation_data=(X[:60], Y[:60]))
    assert found.classes.tolist() == names
    assert found.probabilities.shape == (60, 3)
    shifted = short(class_names=[1, 2, 3], verified_labels={3: 1}).data
    assert (shifted.y[3], shifted.classes.tolist()) == (1, [1, 2, 3])


def test_class_names_of_labels_that_are_names_are_their_order():
    names, order = np.array(["a", "b", "c"]), ["c", "a", "b"]
    votes = np.where(np.arange(2) < [[1]] * 239 + [[2]], names[Y][:, None], None)
    for y in (names[Y], votes):
        found = read(X, y, None, {3: "b"}, order)
        assert found.classes.tolist() == found.own_classes.tolist() == order
        assert [order[label] for label in found.y[4:]] == names[Y][4:].tolist()
        assert order[found.y[3]] == "b"
    assert [order[label] for label in found.votes[:, 0]] == names[Y].tolist()
    assert found.votes[:, 1].tolist() == [-1] * 239 + [order.index(names[Y[239]])]
    pandas = pytest.importorskip("pandas")
    soft = pandas.DataFrame(np.eye(3)[Y] * 0.7 + 0.1, columns=names)
    assert [order[label] for label in read(X, soft, class_names=order).soft.argmax(axis=1)] == names[Y].tolist()
    text = "`class_names` must be 'a', 'b', 'c', the names in `y`, in any order (for other names, rename them in `y`). "
    with pytest.raises(ValueError, match=re.escape(f"{text}Received: 'cat', 'dog', 'owl'")):
        read(X, names[Y], class_names=["cat", "dog", "owl"])
    with pytest.raises(ValueError, match=re.escape("`class_names` must be 'a', 'b', 'c', the names in `y`")):
        read(X, names[Y], class_names=["a", "b", "c", "d"])
    with pytest.raises(ValueError, match="`class_names` must be a sequence"):
        read(X, names[Y], class_names=set(order))


def test_verified_labels_are_found_by_the_index_of_a_frame():
    pandas = pytest.importorskip("pandas")
    order = np.random.default_rng(0).permutation(len(X))
    x, y = pandas.DataFrame(X, index=order), pandas.Series(Y, index=order)
    row = int(order[5])
    found = short(x=x, y=y, verified_labels={row: int((Y[5] + 1) % 3)})
    assert np.flatnonzero(found.data.y != Y).tolist() == [5]
    assert found.issues.to_frame().index.isin(order).all()
    with pytest.raises(ValueError, match=r"must have keys of the index of `x` or `y`, .* Received: -7"):
        short(x=x, y=y, verified_labels={row: 0, -7: 0})


def test_validation_frames_are_read_as_the_others_are():
    pandas = pytest.importorskip("pandas")
    columns, index = list("abcdef"), [f"row {i}" for i in range(60)]
    x, held_out = pandas.DataFrame(X, columns=columns), pandas.DataFrame(X[:60], columns=columns, index=index)
    found = short(x=x, validation_data=(held_out, Y[:60]))
    assert set(found.issues.to_frame().index) == set(index)
    assert found.data.columns.tolist() == columns
    with pytest.raises(ValueError, match=r"must have the columns of `x`, in their order \(validation_data\[0\]\[x.col"):
        short(x=x, validation_data=(held_out[list("fedcba")], Y[:60]))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"validation_data": (np.where(np.arange(6) == 2, np.nan, X), Y)},
            "`validation_data` must be finite. Received",
        ),
        ({"validation_data": (X[Y == 0], Y[Y == 0])}, "`validation_data` must have labels of at least two classes"),
        ({"seed": -1}, "`seed` must be an integer in [0, 2147483647]. Received: seed=-1"),
        ({"folds": "x", "validation_data": (X, Y)}, "`folds` must be an integer at least 2. Received: folds='x'"),
    ],
)
def test_what_would_be_read_wrongly_is_refused(arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        short(**arguments)
