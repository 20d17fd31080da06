"""The data of `choose`: labels of any form, data sets, validation data, verified labels, and what is refused."""

import re
import warnings

import keras
import numpy as np
import pytest

import keras_het
from keras_het.choice import Candidate, choose
from tests.choice.tasks import SHORT, TRUE, Cheat, Constant, X, Y, clusters, make_body, short

pytestmark = pytest.mark.once


def test_nothing_of_the_user_changes():
    x, y, optimizer = X.copy(), Y.copy(), keras.optimizers.Adam(0.02)
    short(Constant(), x=x, y=y, optimizer=optimizer)
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

    found = choose(make_body, Batches(), candidates=[], **SHORT)
    np.testing.assert_array_equal(found.model.predict(X, verbose=0), short().model.predict(X, verbose=0))


def test_validation_data_measure_instead_of_folds():
    x, y, _ = clusters(120, seed=2)
    found = short(Cheat(), Constant(), validation_data=(x, y))
    assert found.scores[2].difference < -0.1
    assert found.probabilities.shape == (120, 3)
    assert [score.trainings for score in found.scores] == [1, 1, 1]
    assert found.trainings == 4


def test_validation_labels_may_be_names_in_an_order_of_their_own():
    pandas = pytest.importorskip("pandas")
    names = np.array(["low", "mid", "high"])
    column = pandas.Series(names[Y], dtype=pandas.CategoricalDtype(list(names), ordered=True))
    found = short(y=column, validation_data=(X[:30], column[:30]))
    assert found.classes.tolist() == list(names)
    assert short(y=Y, validation_data=(X[:30], Y[:30])).scores[0].accuracy == found.scores[0].accuracy


def test_verified_labels_replace_the_given_ones_and_count_more():
    seen = []

    class Look(Candidate):
        name = "look"

        def labels(self, task, strength):
            seen.append(task.y)
            return task.y

    found = short(Look(), verified_labels=dict(enumerate(TRUE[:40].tolist())), folds=2)
    plain = short(Look(), folds=2)
    assert found.scores[0].accuracy > plain.scores[0].accuracy
    together = np.bincount(np.concatenate(seen[:2]), minlength=3)
    assert together.tolist() == np.bincount(np.r_[TRUE[:40], Y[40:]], minlength=3).tolist()


def named(name, strengths=(None,)):
    """A candidate with this name and these strengths, which differs in nothing else from a plain training."""
    return type("Named", (Candidate,), {"name": name, "strengths": strengths})()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"make_body": 3}, "`make_body` must be a function that makes the layers below the head, a trained model, or"),
        ({"make_body": lambda: 3}, "`make_body` must make a list of new Keras layers, or a new functional model"),
        (
            {"make_body": lambda: [keras.layers.Dense(3, "softmax")]},
            "`make_body` must make the layers below the head, which is added. Received: a Dense with activation 'softm",
        ),
        (
            {"make_body": lambda: [keras_het.layers.HeteroscedasticDense(3)]},
            "`make_body` must make the layers below the head, which is added. Received: a HeteroscedasticDense",
        ),
        ({"make_body": lambda: [keras.layers.Reshape((2, 3))]}, "`make_body` must end in features of shape (N, D)"),
        ({"y": Y[:-1]}, "`y` must have a label for each of the 240 examples. Received: 239"),
        ({"y": np.zeros(240, int)}, "`y` must be of at least two classes. Received: 1"),
        ({"y": None}, "`y` must be given for arrays. Received: y=None"),
        ({"y": Y - 1}, "`y` must be in [0, inf). Received: -1"),
        ({"folds": 1}, "`folds` must be an integer at least 2. Received: folds=1"),
        ({"x": X[:2], "y": [0, 1], "folds": 5}, "`folds` must be an integer in [2, 2]. Received: folds=5"),
        ({"trainings": 1}, "`trainings` must be an integer"),
        (
            {"trainings": 3},
            "`trainings` must be at least 4, for early stopping on 3 parts of the data, and the last training; wi",
        ),
        ({"candidates": [Cheat]}, "`candidates` must be a list of objects of `Candidate`, each with a name. Received"),
        ({"candidates": [Cheat(), Cheat()]}, "`candidates` must have different names and strengths. Received: 'cheat'"),
        ({"candidates": [Cheat(), named("CHEAT")]}, "`candidates` must have different names and strengths. Received"),
        ({"candidates": [named("a", ())]}, "`candidates` must have at least one strength each, (None,) if there is"),
        ({"shuffle": False}, "`fit_arguments` must be without"),
        ({"class_weight": {0: 1.0}}, "`fit_arguments` must be without"),
        (
            {"verified_labels": Y[:5]},
            "`verified_labels` must be a dict from the indices of examples to their labels. R",
        ),
        ({"verified_labels": {240: 0}}, "`verified_labels` must have indices in [0, 240). Received: 240"),
        (
            {"verified_labels": {0: "a"}},
            "`verified_labels` must have at least one label, and only those of `y`. Receiv",
        ),
        (
            {"validation_data": (X, np.full((240, 3), 1 / 3))},
            "`validation_data` must name one class for each example. Received: vectors of other numbers",
        ),
        ({"validation_data": (X, Y + 1)}, "`validation_data` must have at least one label, and only those of `y`"),
        ({"validation_data": (X, Y[:3])}, "`validation_data` must have a label for each example"),
    ],
)
def test_refusals(arguments, text):
    given = {"make_body": make_body, "x": X, "y": Y, "candidates": [], **SHORT, **arguments}
    with pytest.raises(ValueError, match=re.escape(text)):
        choose(**given)


def test_a_class_with_few_examples_is_warned_of():
    y = np.where(np.arange(240) == 0, 3, Y)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = short(y=y)
    assert any("class 3 has only 1 examples for 3 folds" in str(one.message) for one in heard)
    assert found.model.output_shape == (None, 4)


def test_a_class_without_examples_is_a_class():
    assert short(y=np.where(Y == 2, 4, Y)).model.output_shape == (None, 5)
