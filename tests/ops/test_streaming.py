"""Blocks of rows and chunks of nodes do not change the result."""

import gc
import weakref
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal

from keras_het.ops import blocking, streaming
from keras_het.ops.nodes import Nodes
from keras_het.ops.softmax import SoftmaxMean
from tests.common import assert_finite, low_rank_normal
from tests.marks import grid
from tests.ops.expected import (
    EVERY_KIND,
    PLAIN,
    UNITS,
    assert_same_gradients,
    check_slopes,
    check_values,
    evaluate,
    expected,
    gradients,
    nodes_of,
    oracle,
    problem,
    upstream_of,
)


@pytest.mark.on_tensorflow
def test_a_row_that_is_not_a_number_leaves_the_others_alone_and_no_factors_need_no_nodes():
    for options in ({"chunk_size": 8}, PLAIN, {"streamed": False}):
        arguments, nodes = problem("diagonal"), nodes_of("diagonal")
        result = evaluate(arguments, Nodes(nodes.eps_diag), **options)
        assert_array_equal(result, evaluate(arguments, nodes, **options))
    arguments, nodes = problem("full"), nodes_of("full")
    spoiled = {**arguments, "loc": np.where(np.arange(5)[:, None] == 3, np.float32("nan"), arguments["loc"])}
    others = [0, 1, 2, 4]
    for options in ({"chunk_size": 8}, {"chunk_size": 8, "streamed": False}):
        assert_allclose(
            evaluate(spoiled, nodes, **options)[others], evaluate(arguments, nodes, **options)[others], rtol=1e-6
        )


@pytest.mark.skipif(
    keras.config.backend() != "tensorflow", reason="the other backends know the batch size when they make the graph"
)
@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_batch_of_unknown_size(kind, jit):
    import tensorflow as tf

    names, nodes = list(problem(kind)), nodes_of(kind)
    per_row = ["loc", "scale_diag", "row_scale", *(["factor"] if kind == "full" else [])]

    @tf.function(jit_compile=jit, reduce_retracing=True)
    def value_and_slopes(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            value = expected(**dict(zip(names, tensors, strict=True)), nodes=nodes, chunk_size=8)
        return value, tape.gradient(value, tensors)

    shapes = {name: (None, *x.shape[1:]) if name in per_row else x.shape for name, x in problem(kind).items()}
    function = value_and_slopes.get_concrete_function(*(tf.TensorSpec(shapes[name], "float32") for name in names))
    for batch in (0, 1, 5, 33):
        arguments = problem(kind, batch=(batch,))
        value, slopes = function(*(tf.constant(x) for x in arguments.values()))
        assert_allclose(value.numpy(), oracle(arguments, nodes), rtol=1e-5, atol=1e-5)
        plain = gradients(arguments, nodes, np.ones_like(arguments["loc"]), **PLAIN)
        assert_same_gradients({name: slope.numpy() for name, slope in zip(names, slopes, strict=True)}, plain)


@pytest.mark.parametrize("kind", grid(["diagonal", "full", "parameter_efficient"], span=["full"]))
def test_blocks_at_extremes_fall_back_to_logarithms_each_for_itself(kind, monkeypatch):
    """Five rows in blocks of two, one row extreme: probabilities that underflow beside ordinary ones."""
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", 2 * UNITS * 8)
    arguments, nodes = problem(kind), nodes_of(kind)
    arguments["loc"][3] = [1e4, -1e4, 0.0, 9e3, -5e3, 1e4]
    check_values(arguments, nodes, chunk_size=8)
    check_slopes(arguments, nodes, np.eye(UNITS, dtype="float32")[[0, 1, 2, 2, 4]], chunk_size=8)


@pytest.mark.skipif(keras.config.backend() != "torch", reason="only PyTorch frees by counting references")
def test_a_step_is_freed_when_it_is_done(monkeypatch):
    """Without the garbage collector: what is not freed then lies in a reference cycle, and waits for its next run."""
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", 2 * UNITS * 8)
    tensors = {name: ops.convert_to_tensor(x).requires_grad_() for name, x in problem("full").items()}
    temperature = tensors.pop("temperature")
    mean = SoftmaxMean()  # whatever saved tensors for the backward pass saved this, too
    freed = weakref.ref(mean)
    gc.collect()
    gc.disable()
    try:
        ops.sum(
            streaming.expectation(
                mean, low_rank_normal(**tensors).standardized(temperature=temperature), nodes_of("full"), chunk_size=8
            )
        ).backward()
        del mean
        assert freed() is None
    finally:
        gc.enable()


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("kind", grid(["diagonal", "full"], span=["full"]))
def test_a_class_that_is_left_out_by_minus_infinity(kind):
    """Probability 0, by every way alike, and the others as if it were not there; gradients are finite, its own too."""
    arguments, nodes = problem(kind), nodes_of(kind)
    left_out = np.arange(UNITS) == 2
    masked = {**arguments, "loc": np.where(left_out, np.float32("-inf"), arguments["loc"])}
    far = evaluate({**arguments, "loc": np.where(left_out, np.float32(-1e6), arguments["loc"])}, nodes, **PLAIN)
    for options in ({"chunk_size": 8}, {"chunk_size": 8, "streamed": False}, PLAIN):
        result = evaluate(masked, nodes, **options)
        assert_allclose(result[:, 2], -1e20 / arguments["temperature"], rtol=1e-6)
        assert_allclose(result[:, ~left_out], far[:, ~left_out], rtol=1e-5, atol=1e-5)
    assert_finite(0.0, gradients(masked, nodes, upstream_of(arguments), chunk_size=8))
    for noise in (30.0, 1000.0):
        loud = problem(kind, scale=noise)
        loud["loc"][:, 2] = -np.inf
        upstream = np.eye(UNITS, dtype="float32")[[0, 1, 3, 4, 5]]
        assert_finite(0.0, gradients(loud, nodes, upstream, chunk_size=8))


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="only TensorFlow traces tensors of unknown width")
@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_classes_of_unknown_number_are_those_of_the_nodes(kind):
    import tensorflow as tf

    arguments, nodes = problem(kind), nodes_of(kind)
    unknown = {name: tf.TensorSpec([None] * x.ndim, "float32") for name, x in arguments.items()}

    @tf.function(input_signature=[unknown])
    def traced(tensors):
        return expected(**tensors, nodes=nodes, chunk_size=8)

    assert_allclose(traced(arguments), evaluate(arguments, nodes, chunk_size=8), rtol=1e-5, atol=1e-5)


IS_TORCH = keras.config.backend() == "torch"


@pytest.fixture(params=["cpu", "gpu"])
def device(request, monkeypatch):
    """Returns a device that runs the backend; PyTorch's tensors have their own."""
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: [f"{request.param}:0"])
    return request.param


def tensor(device, *shape):
    return SimpleNamespace(shape=shape, device=SimpleNamespace(type={"gpu": "cuda"}.get(device, device)))


@pytest.mark.once
@pytest.mark.parametrize(("batch", "units", "samples", "on_processor", "on_accelerator"), [
    (128, 1000, 1024, (8, 64) if IS_TORCH else (16, 64), (128, 131)),
    (128, 1000, 16, (32, 16) if IS_TORCH else (64, 16), (1048, 16)),
    (17, 1000, 64, (6, 64) if IS_TORCH else (9, 64), (262, 64)),  # even blocks
    (128, 10, 1024, (128, 409) if IS_TORCH else (128, 819), (1638, 1024)),
    (16, 21_843, 256, (2, 12) if IS_TORCH else (2, 64), (8, 64)),
    (4, 655_360, 80, (2, 8), (2, 12) if IS_TORCH else (2, 64)),  # an image: 256 x 256 pixels, ten classes
    (None, 10, 64, (32, 64), (32, 64)),
    (0, 10, 64, (819, 64) if IS_TORCH else (1638, 64), (26214, 64)),
])  # fmt: skip
def test_blocks_are_within_the_budget(device, batch, units, samples, on_processor, on_accelerator):
    rows, nodes = blocking.block_sizes(tensor(device, batch, units), samples, units)
    assert (rows, nodes) == (on_processor if device == "cpu" else on_accelerator)
    assert (
        rows == 2
        or rows * nodes * units <= {"cpu": blocking.BLOCK_ELEMENTS, "gpu": blocking.ACCELERATOR_ELEMENTS}[device]
    )
    assert [blocking.block_sizes(tensor("cpu", 4, 10), count, 10, 7)[1] for count in (100, 5)] == [7, 5]  # as given
