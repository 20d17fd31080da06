"""Labels of every form as integers, and the names of their classes."""

import numpy as np
import pandas
import pytest
from keras import ops

from keras_het.base.validation import check_class_names
from keras_het.callbacks import TrainingDynamics
from keras_het.labels.classes import encode
from tests.checks import refusals

pytestmark = pytest.mark.once


@pytest.mark.parametrize(("y", "labels", "classes"), [
    ([0, 2, 1], [0, 2, 1], [0, 1, 2]),
    (np.array([0, 3], "uint8"), [0, 3], [0, 1, 2, 3]),
    (np.array([[1], [0]]), [1, 0], [0, 1]),
    (["b", "a", "b"], [1, 0, 1], ["a", "b"]),
    (np.array(["b", "a"], object), [1, 0], ["a", "b"]),
    (np.array([2, 0], object), [2, 0], [0, 1, 2]),
    ([True, False], [1, 0], [False, True]),
    ([2.0, 0.0], [2, 0], [0, 1, 2]),
    (np.eye(3)[[2, 0]], [2, 0], [0, 1, 2]),
    (np.eye(3, dtype="int32")[[2, 0]], [2, 0], [0, 1, 2]),
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


REFUSED = [
    ([0, 0], "`y` must have at least two classes. Received: 1"),
    ([-2, 0], "`y` must be in [0, 16777216). Received: -2 at [0]"),
    ([0, 1 << 24], "`y` must be in [0, 16777216). Received: 16777216 at [1]"),
    ([1.0, -1.0], "`y` must have a label for each example (or number the classes from 0, if -1 is a class). Received"),
    (np.array([-1, 0], object), "Received: -1 at [0], a missing label: keep only the examples with y != -1"),
    ([0.5, 1.0], "`y` must be integers or names. Received: 0.5 at [0]"),
    ([[0.5, 0.5], [1, 0]], "`y` must name one class for each example. Received: vectors that are not one-hot"),
    ([1.0, np.nan], "`y` must have a label for each example. Received: none at [1]"),
    (np.array(["a", None], object), "`y` must have a label for each example. Received: none at [1]"),
    (np.array(["a", ""]), "`y` must have a label for each example. Received: none at [1]"),
    (np.array(["a", pandas.NA, -1], object), "`y` must have a label for each example. Received: none at [1]"),
    (np.array(["a", -1, None], object), "Received: -1 at [1], a missing label: keep only the examples with y != -1"),
    (np.array(["a", 1], object), "`y` must have labels of one type. Received: int and str"),
    ([0, 20], "`y` must be in [0, 20), 10 times the number"),
]  # fmt: skip
test_refusals = refusals([(lambda y=y: encode(y, defines_classes=True), text) for y, text in REFUSED])


@pytest.mark.parametrize(
    "names",
    [["cat", "dog"], ("cat", "dog"), np.array(["cat", "dog"]), {1: "dog", 0: "cat"}, {np.int64(1): "dog", 0: "cat"}],
)
def test_names_are_in_the_order_of_the_classes(names):
    assert check_class_names(names, 2) == ["cat", "dog"]


KEYS = "`class_names` must be a dict with the keys 0 to 1, the class numbers. Received: a dict of"
test_errors_say_what_is_wrong = refusals([
    (lambda: encode([0, 1], 3), "`y` must have a label for each of the 3 examples. Received: 2"),
    (lambda: check_class_names({0: "cat"}, 2), f"{KEYS} 1, without 1"),
    (lambda: check_class_names({1: "cat", 2: "dog"}, 2), f"{KEYS} 2, without 0"),
    (lambda: check_class_names({0: "cat", 1: "dog", 2: "cow"}, 2), f"{KEYS} 3, with 2"),
    (lambda: check_class_names({"0": "cat", "1": "dog"}, 2), f"{KEYS} 2, with '0'"),
    (lambda: check_class_names({"cat": 0, "dog": 1}, 2), f"{KEYS} 2, with 'cat'"),
])  # fmt: skip
