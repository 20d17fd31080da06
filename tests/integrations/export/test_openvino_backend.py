"""Predictions on Keras' OpenVINO backend, which cannot train: as near to the others as those of a Dense layer."""

import importlib.util

import pytest

from tests.layers import predictions

HERE = importlib.util.find_spec("openvino")


@pytest.mark.skipif(not HERE, reason="OpenVINO is for exports of TensorFlow and PyTorch")
def test_openvino_predicts_within_the_digits_that_it_keeps(tmp_path):
    predictions.save_models(tmp_path)
    found = predictions.on_backend(tmp_path, "openvino")
    assert set(found["differences"]) == {*predictions.HEADS, "Dense"}
    dense, heads = found["differences"].pop("Dense"), found["differences"]
    assert dense < 1e-2  # the plugin computes in half precision where it can
    assert max(heads.values()) < max(2 * dense, 1e-5)
    assert found["fit"] == "`fit` is not supported with openvino backend"
    assert found["doctor"] == 0
