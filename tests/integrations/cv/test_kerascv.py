"""KerasCV 0.9.0 classifiers, as far as they work on this Keras: convert, fit, save and reload."""

import keras_cv
import numpy as np
import pytest

import keras_het
from tests.models.checks import UNITS, check_conversion, sharpen

EXAMPLES = 16
SIZE = {"include_rescaling": False, "input_shape": (32, 32, 3)}


def densenet():
    return keras_cv.models.DenseNetBackbone(stackwise_num_repeats=[1, 1], growth_rate=8, **SIZE)


@pytest.mark.parametrize("activation", ["softmax", None])
def test_conversion(activation, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(EXAMPLES, 32, 32, 3)).astype("float32"), rng.integers(UNITS, size=EXAMPLES)
    model = sharpen(keras_cv.models.ImageClassifier(backbone=densenet(), num_classes=UNITS, activation=activation))
    assert check_conversion(model, x, y, tmp_path).layers[-1].name == "predictions"


def test_a_copy_leaves_the_backbone_alone():
    model = keras_cv.models.ImageClassifier(backbone=densenet(), num_classes=UNITS)
    assert keras_het.heteroscedastic(model, clone=True).layers[1] is not model.backbone
