"""Every refusal names the argument, the rule and the value received."""

import json
import zipfile

import keras
import numpy as np
import pytest
from keras import ops

from keras_het import integrators
from keras_het.covariances import Latent
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.models.temperature_scaler import TemperatureScaler
from tests.common import refuses, session, sparse_crossentropy, to_numpy
from tests.gradients import layer_gradients

pytestmark = pytest.mark.refusal


@pytest.mark.smoke
def test_float64_is_obeyed_or_refused():
    if keras.config.backend() == "tensorflow":
        head = HeteroscedasticDense(3, dtype="float64")
        assert "float64" in str(head(np.zeros((2, 4))).dtype)
    else:
        with refuses(r"`dtype` must be \"float32\" on the backend .* Received: dtype='float64'"):
            HeteroscedasticDense(3, dtype="float64")


@pytest.mark.parametrize("shape", [(4,), (None,), (2, None)])
def test_input_without_a_last_dimension(shape):
    with refuses(r"The input must have shape \(\.\.\., D\).*Received: input_shape="):
        HeteroscedasticDense(3).build(shape)


@pytest.mark.parametrize(("shape", "text"), [
    (False, "`input_shape` must be a tuple of at least one size. Received: input_shape=False"),
    ({"a": 1}, "`input_shape` must be a tuple of at least one size. Received: input_shape={'a': 1}"),
    ((2, "x"), "`input_shape[-1]` must be an integer in [0, 4294967296]. Received: input_shape[-1]='x'"),
    ((2, 1 << 62), f"`input_shape[-1]` must be an integer in [0, 4294967296]. Received: input_shape[-1]={1 << 62}"),
], ids=["no shape", "names", "text", "huge"])  # fmt: skip
@pytest.mark.parametrize("layer", [HeteroscedasticDense(3), NoiseTransition(3), TemperatureScaler()], ids=repr)
def test_a_shape_of_a_hostile_file_is_refused_in_words(layer, shape, text):
    with pytest.raises(ValueError) as error:
        layer.build(shape)
    assert str(error.value) == text


def test_input_of_another_width():
    head = HeteroscedasticDense(3)
    head(np.zeros((2, 4), "float32"))
    with refuses(r"expected axis -1 of input shape to have value 4, but received input with shape \(2, 5\)"):
        head(np.zeros((2, 5), "float32"))


@pytest.mark.parametrize("num_samples", [1 << 62, (1 << 20) + 1, -1])
def test_a_file_with_an_absurd_number_of_samples_is_refused(tmp_path, num_samples):
    """Before any memory is allocated: a terabyte of nodes would not fit."""
    path, hostile = tmp_path / "good.keras", tmp_path / "hostile.keras"
    keras.Sequential([keras.Input((4,)), HeteroscedasticDense(3)]).save(path)
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(hostile, "w") as target:
        for item in source.namelist():
            data = source.read(item)
            if item == "config.json":
                config = json.loads(data)
                head = config["config"]["layers"][-1]["config"]
                head["integrator"]["config"]["num_samples"] = num_samples
                data = json.dumps(config).encode()
            target.writestr(item, data)
    with pytest.raises(
        (ValueError, TypeError), match=r"`num_samples` must be an integer in \[1, 1048576\]. Received: num_samples="
    ):
        keras.models.load_model(hostile)


@pytest.mark.parametrize(
    "arguments", [{"num_factors": 200_000}, {"num_factors": 200_000, "parameter_efficient": True}], ids=repr
)
def test_more_weights_than_a_machine_holds_are_refused_before_they_are_made(arguments):
    head = HeteroscedasticDense(200_000, integrator=integrators.QuasiMonteCarlo(1), **arguments)
    with refuses(r"must keep within 16 GiB on each device, and have .* Received: units=200000, num_factors=200000"):
        head.build((None, 8))


@pytest.mark.parametrize("mode", ["full", "larger_than", "list_of_layers"])
def test_rematerialisation_is_refused(mode):
    """It would run the counter twice: silently on PyTorch, where the gradient is that of other noise than the loss."""
    options = {"larger_than": {"output_size_threshold": 1}, "list_of_layers": {"layer_names": ["head"]}}
    with keras.RematScope(mode=mode, **options.get(mode, {})):
        head = HeteroscedasticDense(3, name="head")
        with refuses(r"The head must not be rematerialised: .* Received: the layer 'head' in such a scope"):
            head(np.zeros((2, 4), "float32"), training=True)


def test_rematerialisation_of_other_layers_leaves_the_head_alone():
    with keras.RematScope(mode="list_of_layers", layer_names=["hidden"]):
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(4, "relu", name="hidden"), HeteroscedasticDense(3)]
        )
        model.compile("sgd", sparse_crossentropy(), run_eagerly=True)
        model.fit(np.ones((8, 4)), np.arange(8) % 3, batch_size=4, verbose=0)
    assert int(to_numpy(model.layers[-1].clock.step)) == 2


@pytest.mark.skipif(keras.config.backend() != "torch", reason="only PyTorch has autocast")
def test_autocast_is_refused():
    import torch

    head, x = HeteroscedasticDense(3), np.zeros((2, 4), "float32")
    head(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for method in (head, head.logit_covariance, head.probabilities):
            with refuses(r"must be called outside `torch.autocast`.* Received: matrix products in torch.bfloat16"):
                method(x)
        with torch.autocast("cpu", enabled=False):
            assert head(x).dtype == torch.float32


@pytest.mark.skipif(keras.config.backend() != "torch", reason="only PyTorch has torch.func")
def test_functional_gradients_on_pytorch_need_plain_operations_and_the_stateless_call():
    import torch

    head = HeteroscedasticDense(3, integrator=integrators.QuasiMonteCarlo(8, chunk_size=8))
    head.build((None, 4))
    weights, state = (
        [v.value.detach() for v in part] for part in (head.trainable_variables, head.non_trainable_variables)
    )
    loss = lambda weights: head.stateless_call(weights, state, torch.ones(2, 4), training=True)[0][:, 0].sum()  # noqa: E731
    assert all(torch.isfinite(gradient).all() for gradient in torch.func.grad(loss)(weights))
    with pytest.raises(RuntimeError, match="in-place operation"):
        torch.func.grad(lambda x: head(x, training=True)[:, 0].sum())(torch.ones(2, 4))


@pytest.mark.smoke
@pytest.mark.parametrize("floatx", ["bfloat16", "float16"])
def test_a_training_step_in_a_session_of_half_precision(floatx):
    with session(floatx):
        head = HeteroscedasticDense(3, num_factors=2, seed=0)
        head.build((None, 4))
        value, gradients = layer_gradients(head, lambda log_p: ops.sum(log_p[:, 0]), np.ones((2, 4), "float32"))
    assert np.isfinite(value)
    for name, gradient in gradients.items():
        assert gradient.dtype == "float32", name
        assert np.isfinite(gradient).all(), name


@pytest.mark.parametrize("argument", ["min_scale", "shape_of_noise"])
def test_a_config_with_an_unknown_argument_is_refused_by_its_name(argument):
    saved = keras.saving.serialize_keras_object(HeteroscedasticDense(3))
    saved["config"][argument] = 0.1
    with pytest.raises(TypeError, match=argument):
        keras.saving.deserialize_keras_object(saved)


def test_a_head_that_was_refused_can_be_built_again():
    head = HeteroscedasticDense(3, covariance=Latent(20))
    with refuses("`num_factors` must be None or an integer"):
        head(np.zeros((2, 8), "float32"))
    assert tuple(head(np.zeros((2, 30), "float32")).shape) == (2, 3)
    head = HeteroscedasticDense(3, covariance=Latent(2), integrator=QuasiMonteCarlo(1 << 20))
    with refuses("`num_samples` must keep the table of nodes"):
        head(np.zeros((2, 200), "float32"))
    assert not head.weights
    head.integrator = QuasiMonteCarlo(16)
    assert tuple(head(np.zeros((2, 200), "float32")).shape) == (2, 3)
