"""Inference is plain operations on constants, so it exports: ONNX from PyTorch, SavedModel from TensorFlow."""

import re

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose

from keras_het.covariances import Latent, Narrow
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.ops import random as bits
from tests.layers import predictions
from tests.layers.heads import EVERY_HEAD, FEATURES, HEADS, UNITS, X, built_head, set_random_weights, with_covariance
from tests.marks import grid

EXPORTED = {  # all but the last with the integrators that they have by default
    "full": {"num_factors": 2},
    "parameter-efficient": {"num_factors": 2, "parameter_efficient": True},
    "diagonal": {"num_factors": 0},
    "sigmoid": {"num_factors": 2, "link": "sigmoid"},
    "latent": {"covariance": Latent},
    "narrow": {"covariance": Narrow},
    "taylor": {"num_factors": 2, "integrator": "taylor"},
    "sampled sigmoid": HEADS["sampled sigmoid"],
}
LOUD = 30 * X  # logits of hundreds
NOT_PLAIN = ("custom_gradient", "fori_loop", "while_loop", "scan", "cond", "map", "vectorized_map")
RANDOM = ("normal", "uniform", "truncated_normal", "randint", "categorical", "gamma", "beta", "binomial", "shuffle")


def make_model(kind, shape=(FEATURES,)):
    inputs = keras.Input(shape)
    features = keras.layers.Dense(FEATURES, activation="relu")(inputs)
    model = keras.Model(inputs, HeteroscedasticDense(UNITS, seed=1, **with_covariance(**EXPORTED[kind]))(features))
    set_random_weights(model)
    return model


@pytest.fixture
def forbidden_calls(monkeypatch):
    calls = []

    def forbid(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, **kwargs: calls.append(name) or function(*args, **kwargs))

    for name in NOT_PLAIN:
        forbid(ops, name)
    forbid(bits, "threefry2x32")
    for name in (*RANDOM, "dropout"):
        forbid(keras.random, name)
    return calls


@pytest.mark.parametrize("kind", EVERY_HEAD)
def test_inference_calls_no_custom_gradient_loop_or_random_operation(kind, forbidden_calls):
    head = built_head(kind)
    head.probabilities(X)
    forbidden_calls.clear()  # the first call makes the nodes, which are constants of the graph
    head(X)
    head.probabilities(X)
    head.logit_covariance(X)
    assert forbidden_calls == []
    if kind == "full":  # training does call them
        head.integrator = QuasiMonteCarlo(8, chunk_size=4)
        head(X, training=True)
        assert {"custom_gradient", "cond", "threefry2x32"} <= set(forbidden_calls)


def assert_plain(operations):
    assert "MatMul" in operations
    assert not [name for name in operations if re.search("Random|While|Loop|Scan|If|Bitwise", name)]


def check_export(run, model, shape=()):
    """Checks that the exported function predicts like the model, for any batch size and for large logits."""
    for x in (X[:1], X[:3], X, LOUD):
        x = np.broadcast_to(x.reshape(len(x), *(1 for _ in shape), FEATURES), (len(x), *shape, FEATURES)).copy()
        expected, outputs = model.predict(x, verbose=0), np.asarray(run(x))
        assert outputs.shape == expected.shape
        assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


def saved_model(path):
    import tensorflow as tf

    model = tf.saved_model.load(path)
    graph = model.signatures["serving_default"].graph.as_graph_def()
    nodes = [node for part in (graph.node, *(f.node_def for f in graph.library.function)) for node in part]
    return [node.op for node in nodes], lambda x: model.serve(x).numpy()


def onnx(path):
    import onnx
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (name,) = (value.name for value in session.get_inputs())
    return [node.op_type for node in onnx.load(path).graph.node], lambda x: session.run(None, {name: x})[0]


def export_onnx(model, folder, x):
    for package in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(package)
    model(x)  # Keras exports only a model that was called
    model.export(folder / "model.onnx", format="onnx", verbose=False)
    return onnx(folder / "model.onnx")


# Keras calls an exporter of PyTorch that is on its way out, which traces Keras' own checks of shapes.
onnx_warnings = pytest.mark.filterwarnings(
    "ignore:The feature will be removed:DeprecationWarning",
    "ignore:You are using the legacy TorchScript-based ONNX export:DeprecationWarning",
    r"ignore:Converting a tensor to a Python:Warning:keras\.src",
    r"ignore:torch.as_tensor results are registered as constants:Warning:keras\.src",
)
with_torch = pytest.mark.skipif(
    keras.config.backend() != "torch", reason="other backends need a converter: `nox -s integrations` runs them"
)


@onnx_warnings
@with_torch
@pytest.mark.parametrize("kind", EXPORTED)
def test_onnx_runs_with_any_batch_size_and_axes_of_unknown_length(kind, tmp_path):
    model = make_model(kind)
    operations, run = export_onnx(model, tmp_path, X)
    assert_plain(operations)
    check_export(run, model)
    if kind in ("full", "parameter-efficient"):
        model = make_model(kind, (None, FEATURES))
        _, run = export_onnx(model, tmp_path, X[:, None])
        for length in (1, 5):
            check_export(run, model, (length,))


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="a SavedModel needs TensorFlow")
@pytest.mark.parametrize(
    "kind", grid(EXPORTED, span=["full", "latent", "sampled sigmoid"], beyond=pytest.mark.thorough)
)
def test_saved_model_runs_with_any_batch_size(kind, tmp_path):
    model = make_model(kind)
    model.export(tmp_path / "model", format="tf_saved_model", verbose=False)
    operations, run = saved_model(tmp_path / "model")
    assert_plain(operations)
    check_export(run, model)


@pytest.mark.once
def test_numpy_predicts_as_the_other_backends_and_keras_refuses_to_train_there(tmp_path):
    pytest.importorskip("jax")  # Keras needs JAX for NumPy
    predictions.save_models(tmp_path)
    result = predictions.on_backend(tmp_path, "numpy")
    assert set(result["differences"]) == {*predictions.HEADS, "Dense"}
    assert max(result["differences"].values()) < 1e-5
    assert result["fit"] == "fit not implemented for NumPy backend."
    assert result["doctor"] == 0
