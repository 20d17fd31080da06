"""Peak memory of the joint losses: within 4 GiB at usual sizes, and constant in the number of nodes."""

import keras
import pytest

from tests.peak_memory import peak_mebibytes_of

pytestmark = pytest.mark.thorough

LOSS_AND_GRADIENT = """
import numpy as np
from keras import ops
from keras_het import losses
from tests.gradients import value_and_gradients

rng = np.random.default_rng(0)
loss = losses.{loss}
y = rng.integers({classes}, size={labels}).astype("int32")
outputs = rng.standard_normal({outputs}, dtype="float32")
outputs[..., -1] = -1.0  # no training step
value, (gradient,) = value_and_gradients(lambda tensors: loss(y, tensors[0]), [outputs])
of_each = np.abs(gradient).reshape(-1, gradient.shape[-1]).max(0)[:-1]
assert np.isfinite(value) and np.all((0.0 < of_each) & (of_each < np.inf))
"""
TRAINING_STEP = """
import keras, keras_het
import numpy as np

rng = np.random.default_rng(0)
inputs = keras.Input((256, 256, 3))
features = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
head = keras_het.layers.StochasticSegmentation(10, 10, seed=0)
model = keras_het.models.DistributionModel(inputs, head(features))
model.compile("adam", keras_het.losses.JointSegmentationCrossentropy(10, {num_samples}))
x, y = rng.standard_normal((4, 256, 256, 3), dtype="float32"), rng.integers(10, size=(4, 256, 256))
assert np.isfinite(model.train_on_batch(x, y))
"""
GIBIBYTES_4 = 4096.0


def of_pixels(num_samples):
    """Returns the peak of loss and gradient: four images of 256 x 256 pixels, ten classes, rank ten."""
    loss = f"JointSegmentationCrossentropy(10, {num_samples})"
    shape = (4, 256, 256)
    return peak_mebibytes_of(
        LOSS_AND_GRADIENT.format(loss=loss, classes=10, labels=shape, outputs=(*shape, 10 * (2 + 10) + 1))
    )


def of_labels(num_samples):
    """Returns the peak of loss and gradient: 128 vectors of 1000 labels, rank 15."""
    loss = f"JointMultiLabelCrossentropy({num_samples})"
    return peak_mebibytes_of(
        LOSS_AND_GRADIENT.format(loss=loss, classes=2, labels=(128, 1000), outputs=(128, 1000 * (2 + 15) + 1))
    )


# Few nodes of pixels are ten chunks: TensorFlow has some chunks of a loop in flight, and with two or three not yet all.
@pytest.mark.parametrize(("measure", "few", "many"), [(of_pixels, 80, 320), (of_labels, 250, 1000)])
def test_it_stays_within_the_limit_and_is_flat_in_the_nodes(measure, few, many):
    small, large = measure(few), measure(many)
    text = f"{keras.config.backend()}: {small:.0f} MiB at S={few}, {large:.0f} MiB at S={many}"
    print(text)
    assert small <= GIBIBYTES_4, text
    assert large <= min(1.15 * small, GIBIBYTES_4), text


def test_a_training_step_of_a_model_stays_within_the_limit():
    result = peak_mebibytes_of(TRAINING_STEP.format(num_samples=20))
    print(f"{keras.config.backend()}: {result:.0f} MiB")
    assert result <= GIBIBYTES_4
