"""The features of a model for examples."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_het.explain import features
from keras_het.layers import HeteroscedasticDense

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "head", [lambda: keras.layers.Dense(3, "softmax"), lambda: HeteroscedasticDense(3)], ids=["dense", "head"]
)
def test_features_are_what_comes_into_the_head_or_out_of_a_layer(head):
    hidden = keras.layers.Dense(6, "relu", name="hidden")
    model = keras.Sequential([keras.Input((4,)), hidden, keras.layers.Dense(5, "tanh", name="last"), head()])
    x = RNG.normal(size=(7, 4)).astype("float32")
    np.testing.assert_allclose(features(model, x, "hidden", batch_size=3), ops.convert_to_numpy(hidden(x)), rtol=1e-5)
    last = ops.convert_to_numpy(model.get_layer("last")(hidden(x)))
    np.testing.assert_allclose(features(model, x), last, rtol=1e-5)
    with pytest.raises(ValueError, match="`layer` must be one of 'hidden', 'last'"):
        features(model, x, "other")


def test_a_list_of_texts_is_as_good_as_an_array_of_them():
    """As for `predict` of a KerasHub task, whose preprocessor gets the texts."""

    class OfTexts(keras.Sequential):
        def preprocess_samples(self, x):
            return np.array([[len(text)] for text in x], "float32")

    identity = keras.layers.Dense(1, kernel_initializer="ones")
    model = OfTexts([keras.Input((1,)), identity, keras.layers.Dense(2)])
    texts = ["good", "a bad one", "so"]
    np.testing.assert_array_equal(features(model, texts, batch_size=2), [[4.0], [9.0], [2.0]])
    np.testing.assert_array_equal(features(model, np.array(texts), batch_size=2), [[4.0], [9.0], [2.0]])
