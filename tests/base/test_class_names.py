"""Names of classes are a sequence, or a dict of all classes in any order."""

import numpy as np
import pytest

from keras_het.base.validation import check_class_names

pytestmark = pytest.mark.refusal


@pytest.mark.parametrize(
    "names",
    [["cat", "dog"], ("cat", "dog"), np.array(["cat", "dog"]), {1: "dog", 0: "cat"}, {np.int64(1): "dog", 0: "cat"}],
)
def test_names_are_in_the_order_of_the_classes(names):
    assert check_class_names(names, 2) == ["cat", "dog"]


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ({0: "cat"}, "a dict of 1, without 1"),
        ({1: "cat", 2: "dog"}, "a dict of 2, without 0"),
        ({0: "cat", 1: "dog", 2: "cow"}, "a dict of 3, with 2"),
        ({"0": "cat", "1": "dog"}, "a dict of 2, with '0'"),
        ({"cat": 0, "dog": 1}, "a dict of 2, with 'cat'"),
    ],
)
def test_a_dict_has_every_class(names, fault):
    with pytest.raises(ValueError) as error:
        check_class_names(names, 2)
    text = "`class_names` must be a dict with the keys 0 to 1, the numbers of the classes. Received: "
    assert str(error.value) == text + fault
