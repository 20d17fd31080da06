"""Predictions on PyTorch: a loop in eager mode; plain operations for traces, transforms and gradients."""

import copy
import pickle
import sys

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal

from keras_het import integrators
from keras_het.base import compiler
from keras_het.covariances import Latent
from keras_het.integrators import MonteCarlo, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.links import Softmax
from keras_het.ops import blocking, streaming
from keras_het.ops.low_rank import LowRankNormal
from tests.layers.heads import set_random_weights, with_covariance

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(keras.config.backend() != "torch", reason="the other backends compile their predictions"),
]

UNITS, FEATURES, SAMPLES, BATCH = 40, 6, 64, 30
X = np.random.default_rng(0).normal(size=(BATCH, FEATURES)).astype("float32")
HEADS = {
    "full": {"num_factors": 3},
    "parameter-efficient": {"num_factors": 3, "parameter_efficient": True},
    "diagonal": {"num_factors": 0},
    "latent": {"covariance": Latent},
    "sigmoid": {"num_factors": 3, "link": "sigmoid"},
}


def make_head(kind="full", integrator=None, **options):
    integrator = integrator or QuasiMonteCarlo(SAMPLES)
    head = HeteroscedasticDense(UNITS, seed=1, integrator=integrator, **with_covariance(**HEADS[kind]), **options)
    head.build((None, FEATURES))
    set_random_weights(head, dtype=head.compute_dtype)
    return head


def tensor(x=X, dtype="float32"):
    return ops.convert_to_tensor(x, dtype)


def predict(head, x=X):
    import torch

    with torch.no_grad():
        return head(tensor(x, head.compute_dtype))


@pytest.fixture
def computes_in_float64(monkeypatch):
    """Makes Keras on PyTorch compute in float64, which it replaces by float32 in products and other operations."""
    monkeypatch.setitem(sys.modules["keras.src.backend.common.dtypes"].BIT64_TO_BIT32_DTYPE, "float64", "float64")
    monkeypatch.setattr(sys.modules["keras.src.backend.common.dtypes"].config, "floatx", lambda: "float64")


@pytest.fixture(autouse=True)
def no_logits_are_few(monkeypatch):
    monkeypatch.setattr(integrators, "MAX_PLAIN_LOGITS", 0)


@pytest.fixture
def plain_calls(monkeypatch):
    """Returns a list with an entry for each average in plain operations."""
    calls, average = [], streaming._average_unrolled
    monkeypatch.setattr(streaming, "_average_unrolled", lambda *a: calls.append(a) or average(*a))
    return calls


def plain(head, x=X):
    return ops.convert_to_numpy(head(tensor(x, head.compute_dtype)))


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_a_prediction_adds_probabilities_and_equals_plain_operations(kind, scale, plain_calls, monkeypatch):
    """At a scale of 100, probabilities underflow, and blocks fall back to logarithms."""
    head = make_head(kind)
    result = ops.convert_to_numpy(predict(head, scale * X))
    assert plain_calls == []
    expected = plain(head, scale * X)
    assert plain_calls
    assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", 2 * 4 * UNITS * 8)
    head = make_head(kind, MonteCarlo(SAMPLES + 3, chunk_size=8))  # blocks of rows, and chunks of nodes
    assert_allclose(ops.convert_to_numpy(predict(head)), plain(head), rtol=1e-5, atol=1e-5)


def normal_of(dtype, batch=BATCH):
    rng = np.random.default_rng(1)
    arrays = rng.normal(size=(batch, UNITS)), rng.uniform(0.5, 1, (batch, UNITS)), rng.normal(size=(batch, UNITS, 3))
    return LowRankNormal(*(tensor(x, dtype) for x in arrays))


@pytest.mark.parametrize("kind", HEADS)
def test_a_head_of_float64(kind, computes_in_float64, plain_calls):
    head = make_head(kind, dtype="float64")
    result = predict(head)
    assert plain_calls == []
    assert keras.backend.standardize_dtype(result.dtype) == "float64"
    assert_allclose(result.numpy(), plain(head), rtol=1e-12, atol=1e-12)


def test_few_logits_take_plain_operations_on_all_nodes_at_once(monkeypatch, plain_calls):
    """A loop takes more operations, and every operation costs eager PyTorch more than the work on few logits."""
    monkeypatch.setattr(integrators, "MAX_PLAIN_LOGITS", 2 * UNITS * 3 * SAMPLES)
    head = make_head(integrator=QuasiMonteCarlo(3 * SAMPLES))
    predict(head, X[:2])
    assert [chunk_size for _, _, chunk_size, _ in plain_calls] == [3 * SAMPLES]
    predict(head, X[:3])
    assert len(plain_calls) == 1


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("kind", HEADS)
def test_transforms_of_predictions(kind):
    import torch

    head, x = make_head(kind), tensor()
    function = lambda row: head(row[None])[0]  # noqa: E731
    with torch.no_grad():
        assert_allclose(torch.func.vmap(function)(x).numpy(), plain(head), rtol=1e-4, atol=1e-4)
    reverse = torch.func.jacrev(function)(x[0]).detach()
    forward = torch.func.jacfwd(function)(x[0]).detach()
    assert_allclose(forward.numpy(), reverse.numpy(), rtol=1e-3, atol=1e-5)
    with torch.no_grad():
        _, slope = torch.func.jvp(function, (x[0],), (torch.ones_like(x[0]),))
    assert_allclose(slope.numpy(), reverse.sum(-1).numpy(), rtol=1e-3, atol=1e-5)
    with torch.no_grad():  # of something else: there PyTorch refuses every custom gradient, even of plain tensors
        result = torch.func.vmap(lambda scale: scale * head(x))(torch.ones(2))
    assert_allclose(result[1].numpy(), predict(head).numpy(), rtol=1e-5, atol=1e-5)


def traced(head, way):
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    if way == "jit":
        return torch.jit.trace(head, tensor(X[:4]), check_trace=False)
    if way == "fx":
        return make_fx(lambda x: head(x))(tensor())
    rows = torch.export.Dim("rows", min=2)
    return torch.export.export(head, (tensor(),), dynamic_shapes=(({0: rows},),), strict=False).module()


@pytest.mark.filterwarnings("ignore:.*deprecated", "ignore::torch.jit.TracerWarning", "ignore::UserWarning")
@pytest.mark.parametrize("way", ["jit", "fx", "export"])
@pytest.mark.parametrize("kind", HEADS)
def test_traces_have_plain_operations(kind, way, plain_calls):
    """A loop would fix the choice between probabilities and logarithms, as the example at hand needs it."""
    import torch

    head = make_head(kind)
    plain_calls.clear()
    with torch.no_grad():
        predict(head)
        assert plain_calls == []
        graph = traced(head, way)
        assert plain_calls
        for x in (X, 100 * X):
            assert_allclose(graph(tensor(x)).numpy(), predict(head, x).numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("integrator", [QuasiMonteCarlo(SAMPLES), MonteCarlo(SAMPLES)], ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nodes_become_tensors_once(integrator, dtype, monkeypatch):
    """In calls without and with gradients."""
    normal, tables = normal_of(dtype), []
    check = streaming._set_node_sizes
    monkeypatch.setattr(streaming, "_set_node_sizes", lambda *a: tables.append(a[1]) or check(*a))
    for requires_grad in (False, False, True):
        integrator.integrate(Softmax(), LowRankNormal(normal.loc.requires_grad_(requires_grad), *normal.tensors[1:]))
    for nodes in tables:
        assert nodes.eps_diag is tables[0].eps_diag
        assert nodes.eps_factor is tables[0].eps_factor
    for table, constant in zip(tables[0], integrator.constant_nodes(*normal.size), strict=True):
        assert keras.backend.standardize_dtype(table.dtype) == dtype
        assert_array_equal(table.numpy(), constant)


def test_tensors_of_one_dtype_and_device_are_stored_in_the_memory_of_the_constants():
    """Otherwise a head that moved to another device would hold memory of the old device."""
    integrator = QuasiMonteCarlo(SAMPLES)
    for dtype in ("float32", "float64", "float32"):
        normal = normal_of(dtype)
        assert keras.backend.standardize_dtype(integrator.integrate(Softmax(), normal).dtype) == dtype
        assert len(integrator._tensors.stored) == 1
    tensors, constants = integrator._tensors.stored[normal.size], integrator.constant_nodes(*normal.size)
    for table, constant in zip(tensors, constants, strict=True):
        assert np.shares_memory(table.numpy(), constant)


def test_copies_and_pickles_hold_no_tensors_and_predict_alike():
    head = make_head()
    expected = predict(head)
    assert head.integrator._tensors.stored
    config = head.integrator.get_config()
    for again in (copy.deepcopy(head.integrator), pickle.loads(pickle.dumps(head.integrator))):
        assert again._tensors.stored == {}
        assert again.get_config() == config
        assert repr(again) == repr(head.integrator)
    clone = copy.deepcopy(head)
    assert_array_equal(predict(clone).numpy(), expected.numpy())
    assert clone.integrator._tensors is not head.integrator._tensors


def test_a_prediction_in_inference_mode_leaves_gradients_possible():
    """Tensors that are made in that mode cannot be saved for a backward pass."""
    import torch

    head = make_head()
    head.integrator = QuasiMonteCarlo(SAMPLES)
    with torch.inference_mode():
        first = head(tensor())
    x = tensor().requires_grad_()
    result = head(x)
    assert_allclose(first.numpy(), result.detach().numpy(), rtol=1e-5, atol=1e-5)
    result.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_a_compiled_step_predicts_in_plain_operations(plain_calls):
    """The compiler would compile the body of the loop for each chunk size."""
    import torch

    head = make_head()
    plain_calls.clear()
    with torch.no_grad(), compiler.compiling_bodies(torch.compile):
        result = head(tensor())
        assert compiler.active_compiler() is torch.compile
    assert len(plain_calls) == 1
    assert_allclose(result.numpy(), predict(head).numpy(), rtol=1e-5, atol=1e-5)
