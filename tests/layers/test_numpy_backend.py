"""Predictions on Keras' NumPy backend, which cannot train: they are those of the other backends."""

import pytest

from tests.layers import predictions

pytestmark = pytest.mark.once


def test_numpy_predicts_as_the_other_backends_and_keras_refuses_to_train_there(tmp_path):
    predictions.save_models(tmp_path)
    found = predictions.on_backend(tmp_path, "numpy")
    assert set(found["differences"]) == {*predictions.HEADS, "Dense"}
    assert max(found["differences"].values()) < 1e-5
    assert found["fit"] == "fit not implemented for NumPy backend."
    assert found["doctor"] == 0
