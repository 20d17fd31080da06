"""Labels and losses that do not fit the head of a `DistributionModel`: by width alone its tensor may be of others."""

import re

import keras
import numpy as np
import pytest

import keras_het
from keras_het.layers import HeteroscedasticNormal, JointHeteroscedasticDense, StochasticSegmentation
from keras_het.losses import JointMultiLabelCrossentropy, JointSegmentationCrossentropy, MultivariateNormalNLL
from keras_het.models import DistributionModel
from tests.common import refuses

FEATURES = 3
HEADS = {  # and the loss of each
    "labels": (lambda: JointHeteroscedasticDense(5, 2), JointMultiLabelCrossentropy(4)),
    "flips": (lambda: JointHeteroscedasticDense(5, 2, learn_flips=True), JointMultiLabelCrossentropy(4)),
    "pixels": (lambda: StochasticSegmentation(2, 2), JointSegmentationCrossentropy(2, 4)),
    "one target": (lambda: HeteroscedasticNormal(1), MultivariateNormalNLL()),
    "targets": (lambda: HeteroscedasticNormal(3, 2), MultivariateNormalNLL()),
}
OF_FIVE, OF_THREE = (
    "`y` must have shape (N, 5), 0 or 1 for each class. Received: shape ",
    "`y` must have shape (N, 3). Re",
)
MISFITS = [  # by its width alone a tensor may be the distribution of other labels, or numbers that broadcast
    *(("labels", None, shape, f"{OF_FIVE}{shape}") for shape in [(8, 1), (8,), (8, 3), (8, 15)]),
    ("flips", None, (8, 1), OF_FIVE),
    ("pixels", None, (8,), "`y` must be integers of shape (N, 4). Received: shape (8,)"),
    ("pixels", None, (8, 4, 2), "`y` must be integers of shape (N, 4), as y.argmax(-1) of label vectors. Received"),
    ("pixels", JointSegmentationCrossentropy(3), (8, 4), "`loss` must have num_classes=2, the units of the model"),
    *(("targets", None, shape, OF_THREE) for shape in [(8, 1), (8,), (8, 2), (8, 4)]),
    (
        "one target",
        "mse",
        (8, 1),
        "`loss` must take distributions: keras_het.losses.MultivariateNormalNLL(), for the m",
    ),
    ("targets", JointMultiLabelCrossentropy(4), (8, 3), "`loss` must take distributions: keras_het.losses.Multivariat"),
    ("labels", MultivariateNormalNLL(), (8, 5), "`loss` must take distributions: keras_het.losses.JointMultiLabelCr"),
]


def untrained(name, loss=None):
    make, own = HEADS[name]
    inputs = keras.Input((4, FEATURES) if name == "pixels" else (FEATURES,))
    model = DistributionModel(inputs, make()(inputs))
    model.compile("sgd", loss or own)
    return model, np.ones((8, *inputs.shape[1:]))


@pytest.mark.once
@pytest.mark.parametrize(("name", "loss", "shape", "text"), MISFITS)
def test_labels_and_losses_of_another_head_are_refused(name, loss, shape, text):
    model, x = untrained(name, loss)
    with refuses(re.escape(text)):
        model.train_on_batch(x, np.zeros(shape))
    with refuses(re.escape(text)):
        keras_het.check(model, x, np.zeros(shape))


def test_a_compiled_step_refuses_them():
    model, x = untrained("labels")
    with refuses(re.escape(OF_FIVE)):  # TensorFlow does not know the 8
        model.fit(x, np.zeros((8, 1)), verbose=0)


@pytest.mark.once
@pytest.mark.parametrize(("name", "shape"), [("labels", (8, 5, 1)), ("pixels", (8, 4, 1)), ("one target", (8,))])
def test_labels_with_an_axis_of_one_and_without_are_the_same(name, shape):
    model, x = untrained(name)
    y = np.arange(np.prod(shape)) % 2.0
    found = [model.evaluate(x, y.reshape(form), verbose=0) for form in (shape, (8, -1))]
    assert found[0] == found[1]
