"""A multi-label model converted to one that learns which labels go together."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from keras_het.losses import JointMultiLabelCrossentropy
from keras_het.models import DistributionModel, heteroscedastic
from tests.common import reloaded

pytestmark = pytest.mark.once

X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
Y = (X[:, :3] > 0).astype("float32")


def multi_label(activation="sigmoid"):
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3, activation, name="labels")]
    )
    loss = keras.losses.BinaryCrossentropy(from_logits=activation is None)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["binary_accuracy", keras.metrics.AUC(multi_label=True)])
    model.fit(X, Y, epochs=3, verbose=0)
    return model


@pytest.mark.smoke
@pytest.mark.on_jax
def test_it_predicts_as_before_trains_jointly_and_keeps_the_metrics(tmp_path):
    old = multi_label()
    new = heteroscedastic(old, num_factors=2, joint=True)
    assert isinstance(new, DistributionModel)
    assert isinstance(new.loss, JointMultiLabelCrossentropy)
    assert new.head.name == "labels"
    assert_allclose(new.predict(X, verbose=0), old.predict(X, verbose=0), atol=0.02)
    before, after = (model.evaluate(X, Y, verbose=0) for model in (old, new))
    assert len(after) == 3
    assert_allclose(after[1:], before[1:], atol=0.05)
    assert new.fit(X, Y, epochs=3, verbose=0).history["loss"][-1] < after[0]
    loaded = reloaded(new, tmp_path)
    assert_array_equal(loaded.predict(X, verbose=0), new.predict(X, verbose=0))


def test_logits_need_the_link():
    old = multi_label(None)
    new = heteroscedastic(old, joint=True, link="sigmoid")
    expected = 1.0 / (1.0 + np.exp(-old.predict(X, verbose=0)))
    assert_allclose(new.predict(X, verbose=0), expected, atol=0.02)
    assert new.metrics_names == old.metrics_names
