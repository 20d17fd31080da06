"""The inference graph holds plain operations and constants, and runs elsewhere."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.layers.heads import FEATURES, X, make_head, make_model

KINDS = ["full", "parameter-efficient", "diagonal", "sigmoid", "sampled sigmoid"]
only = pytest.mark.skipif


@pytest.mark.parametrize("kind", KINDS)
def test_inference_calls_no_custom_gradient_loop_or_random_operation(kind, monkeypatch):
    model = make_model(make_head(kind))

    def refuse(*args, **kwargs):
        raise AssertionError("not at inference")

    for name in ("custom_gradient", "fori_loop", "while_loop", "scan", "cond"):
        monkeypatch.setattr(ops, name, refuse)
    for name in ("normal", "uniform", "randint"):
        monkeypatch.setattr(keras.random, name, refuse)
    model.layers[-1](X)
    if kind != "sigmoid":  # and the check can fail
        with pytest.raises(AssertionError, match="not at inference"):
            model.layers[-1](X, training=True)


@only(keras.config.backend() != "torch", reason="Keras exports ONNX on JAX only through a converter that pins other versions")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # Keras' export traces, and warns of its own conversions
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Keras uses the older of torch's two exporters
@pytest.mark.filterwarnings("ignore:Exporting a model to ONNX:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_onnx_runs_with_any_batch_and_gives_the_predictions(kind, tmp_path):
    import onnxruntime

    model = make_model(make_head(kind), keras.layers.Dense(FEATURES, activation="relu"))
    model.predict(X, verbose=0)  # Keras exports on torch only a model that has been called
    model.export(tmp_path / "model.onnx", format="onnx", verbose=False)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for x in (X, X[:1]):
        (outputs,) = session.run(None, {session.get_inputs()[0].name: x})
        np.testing.assert_allclose(outputs, model.predict(x, verbose=0), rtol=1e-5, atol=1e-5)


@only(keras.config.backend() != "tensorflow", reason="Keras exports a SavedModel on JAX only with TensorFlow installed, on torch not")
@pytest.mark.parametrize("kind", KINDS)
def test_saved_model_runs_with_any_batch_and_gives_the_predictions(kind, tmp_path):
    import tensorflow as tf

    model = make_model(make_head(kind))
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    for x in (X, X[:1]):
        np.testing.assert_allclose(loaded.serve(x), model.predict(x, verbose=0), rtol=1e-5, atol=1e-5)
