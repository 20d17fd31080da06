"""Every export format of Keras, in its own runtime: the numbers of `predict`, any batch size, no random operation."""

import re

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose

import keras_het
from tests.layers.heads import set_random_weights, with_covariance
from tests.layers.test_heteroscedastic_dense_export import EXPORTED, onnx, saved_model
from tests.models.checks import UNITS, sharpen

BACKEND = keras.config.backend()
FORMATS = {  # what works on this backend: the table in the README says why the others do not
    "jax": ["tf_saved_model", "onnx"],
    "tensorflow": ["tf_saved_model", "onnx", "openvino", "litert"],
    "torch": ["onnx", "openvino", "litert", "torch"],
}[BACKEND]
SUFFIXES = {"tf_saved_model": "", "onnx": ".onnx", "openvino": ".xml", "litert": ".tflite", "torch": ".pt2"}
HEADS = {
    **{name: arguments for name, arguments in EXPORTED.items() if name != "sampled sigmoid"},
    "kept softmax": {"num_factors": 2, "keep_activation": True, "temperature": 1.0},
}
X = np.random.default_rng(0).normal(size=(7, 32, 32, 3)).astype("float32")
# Warnings of the converters about themselves and each other.
pytestmark = pytest.mark.filterwarnings("ignore")


def converted(name):
    """A small convolutional model with a head of this name, all weights random, or MobileNetV2 with a full one."""
    if name == "MobileNetV2":
        model = sharpen(keras.applications.MobileNetV2((32, 32, 3), 0.35, weights=None, classes=UNITS))
        return keras_het.heteroscedastic(model, 2, seed=0)
    inputs = keras.Input((32, 32, 3))
    activation = "softmax" if "keep_activation" in HEADS[name] else None
    features = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(8, 3, activation="relu")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(UNITS, activation)(features))
    model = keras_het.heteroscedastic(model, seed=0, **with_covariance(**HEADS[name]))
    set_random_weights(model)
    return model


def openvino(path):
    import openvino

    model = openvino.Core().read_model(path)
    run = openvino.Core().compile_model(model, "CPU")
    return [node.get_type_name() for node in model.get_ops()], lambda x: run(x)[0]


def litert(path):
    from ai_edge_litert.interpreter import Interpreter

    def run(x):
        interpreter = Interpreter(model_path=path)
        place = interpreter.get_input_details()[0]["index"]
        interpreter.resize_tensor_input(place, x.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(place, x)
        interpreter.invoke()
        return interpreter.get_tensor(interpreter.get_output_details()[0]["index"])

    interpreter = Interpreter(model_path=path)
    interpreter.allocate_tensors()
    return [details["op_name"] for details in interpreter._get_ops_details()], run


def torch_export(path):
    import torch

    program = torch.export.load(path)
    run = program.module()

    def first(outputs):
        return outputs[0] if isinstance(outputs, tuple | list) else outputs

    operations = [str(node.target) for node in program.graph.nodes]
    return operations, lambda x: first(run(torch.from_numpy(x))).detach().numpy()


RUNTIMES = {"tf_saved_model": saved_model, "onnx": onnx, "openvino": openvino, "litert": litert, "torch": torch_export}


def export(model, form, folder):
    path, options = str(folder / f"model{SUFFIXES[form]}"), {}
    if form == "torch":
        import torch

        # Keras alone would freeze the batch at one example.
        options["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)
    model(X)  # some exporters want a model that was called
    model.export(path, format=form, verbose=False, **options)
    return RUNTIMES[form](path)


RANDOM = re.compile("rand|rng|normal_|bernoulli|dropout|multinomial", re.IGNORECASE)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", [*HEADS, "MobileNetV2"])
def test_a_converted_model_runs_outside_keras(name, form, tmp_path):
    model = converted(name)
    operations, run = export(model, form, tmp_path)
    assert operations
    assert list(filter(RANDOM.search, operations)) == []
    expected = model.predict(X, verbose=0)
    assert np.std(expected) > 0.1
    tolerance = 1e-2 if form == "openvino" else 1e-5  # OpenVINO stores weights in half precision
    # litert-torch freezes the batch at one example.
    batches = (1,) if (BACKEND, form) == ("torch", "litert") else (1, 3, 7)
    for batch in batches:
        assert_allclose(run(X[:batch]), expected[:batch], rtol=tolerance, atol=tolerance)
