"""KerasCV 0.9.0 classifiers, as far as they work on this Keras: convert, fit, save and reload."""

import keras_cv
import numpy as np
import pytest

import keras_het
from tests.models.checks import UNITS, check_conversion, sharpen

EXAMPLES = 16
SIZE = {"include_rescaling": False, "input_shape": (32, 32, 3)}


def mobilenet_v3():
    block = {
        "expansion": [1],
        "filters": [8],
        "kernel_size": [3],
        "stride": [2],
        "se_ratio": [None],
        "activation": ["relu"],
    }
    return keras_cv.models.MobileNetV3Backbone(**{f"stackwise_{name}": value for name, value in block.items()}, **SIZE)


def densenet():
    return keras_cv.models.DenseNetBackbone(stackwise_num_repeats=[1, 1], growth_rate=8, **SIZE)


def resnet():
    stacks = {"filters": [64, 128], "blocks": [1, 1], "strides": [1, 2]}
    arguments = {f"stackwise_{name}": value for name, value in stacks.items()}
    return keras_cv.models.ResNetBackbone(**arguments, block_type="basic_block", **SIZE)


@pytest.mark.parametrize("activation", ["softmax", None])
@pytest.mark.parametrize("backbone", [mobilenet_v3, densenet, resnet])
def test_conversion(backbone, activation, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(EXAMPLES, 32, 32, 3)).astype("float32"), rng.integers(UNITS, size=EXAMPLES)
    model = sharpen(keras_cv.models.ImageClassifier(backbone=backbone(), num_classes=UNITS, activation=activation))
    assert check_conversion(model, x, y, tmp_path).layers[-1].name == "predictions"


def test_a_copy_leaves_the_backbone_alone():
    model = keras_cv.models.ImageClassifier(backbone=densenet(), num_classes=UNITS)
    assert keras_het.heteroscedastic(model, clone=True).layers[1] is not model.backbone
