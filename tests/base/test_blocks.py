"""Compiled block bodies: what the compiler gets and how often, and equal results."""

import concurrent.futures

import keras
import numpy as np
import pytest
from packaging.version import Version

from keras_het import integrators
from keras_het.base import compiler as chosen
from keras_het.integrators import MonteCarlo, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.ops import blocking

pytestmark = pytest.mark.once

UNITS, FEATURES, ROWS = 6, 4, 8
BATCHES = [20, 20, 20, 13, 5]
ON_TORCH = pytest.mark.skipif(keras.config.backend() != "torch", reason="the other backends refuse it")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 8 rows at 64 nodes, however few logits there are."""
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", ROWS * UNITS * 64)
    monkeypatch.setattr(blocking, "TORCH_DIVISOR", 1)
    monkeypatch.setattr(integrators, "MAX_PLAIN_LOGITS", 0)


def trained(batches, integrator=None):
    """Returns the weights of a head after a step with each batch size."""
    layer = HeteroscedasticDense(UNITS, 2, seed=0, integrator=integrator or QuasiMonteCarlo(128))
    layer.build((None, FEATURES))
    rng = np.random.default_rng(0)
    for weight in layer.trainable_weights:
        weight.assign(rng.standard_normal(weight.shape))
    model = keras.Sequential([keras.Input((FEATURES,)), layer])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=False)
    for batch in batches:
        model.train_on_batch(rng.standard_normal((batch, FEATURES)), rng.integers(UNITS, size=batch))
    return model.get_weights()


class Recorder:
    """A compiler that changes nothing: it counts the functions that it is handed, and the shapes that they meet."""

    def __init__(self):
        self.handed, self.calls, self.shapes = [], 0, set()

    def __call__(self, function):
        self.handed.append(function.__name__)

        def recorded(*arguments):
            self.calls += 1
            _, normal, *_, chunk = arguments
            self.shapes.add(tuple(tuple(x.shape) for x in (*normal.tensors, *chunk)))
            return function(*arguments)

        return recorded


@ON_TORCH
def test_two_functions_are_compiled_once_for_one_shape():
    """Batches of 20 and 13 have two and one blocks of 8 rows, and a rest that goes without, as does a batch of 5."""
    recorder = Recorder()
    with chosen.compiling_bodies(recorder):
        result = trained(BATCHES)
    assert recorder.handed == ["_add_terms", "_add_gradients"]
    assert len(recorder.shapes) == 1
    calls = 2 * 2 * (2 + 2 + 2 + 1)  # both ways, at two chunks of 64 nodes
    assert recorder.calls == calls
    for one, other in zip(result, trained(BATCHES), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert recorder.calls == calls


@ON_TORCH
def test_nodes_are_cut_evenly_where_they_can_be():
    """100 nodes are two chunks of 50; of 67, which is prime, the three of the last chunk go without the compiler."""
    for samples, sizes in ((100, {50}), (67, {64})):
        recorder = Recorder()
        with chosen.compiling_bodies(recorder):
            trained([8], MonteCarlo(samples))
        assert {shapes[-1][-1] for shapes in recorder.shapes} == sizes


@ON_TORCH
@pytest.mark.parametrize("is_exporting", [False, True])
def test_the_compiler_of_a_whole_step_leaves_a_function_out_and_its_bodies_are_compiled(is_exporting, monkeypatch):
    """Whatever PyTorch says of exports: PyTorch 2.11 says in every trace that it exports."""
    import torch

    seen = []

    @chosen.outside_graph
    def twice(x):
        seen.append((torch.compiler.is_dynamo_compiling(), chosen.active_compiler()))
        return 2 * x

    step = torch.compile(lambda x: twice(x) + 1, backend="eager")
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: is_exporting)
    assert float(step(torch.tensor(3.0))) == float(twice(torch.tensor(3.0)) + 1) == 7.0
    assert seen == [(False, torch.compile), (False, None)]


def in_thread(function):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@ON_TORCH
def test_the_compiler_of_a_step_is_that_of_its_backward_pass_in_any_thread_and_of_no_other_step():
    recorder = Recorder()
    head = HeteroscedasticDense(UNITS, 2, seed=0, integrator=QuasiMonteCarlo(128))
    with chosen.compiling_bodies(recorder):
        loss = head(np.ones((ROWS, FEATURES)), training=True).sum()
        assert in_thread(chosen.active_compiler) is None
    assert chosen.active_compiler() is None
    in_thread(loss.backward)
    assert recorder.handed == ["_add_terms", "_add_gradients"]


@ON_TORCH
def test_an_export_keeps_what_a_compiled_step_leaves_out():
    import torch

    function = chosen.outside_graph(lambda x: torch.sin(x))

    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    strict = (False, True) if Version(torch.__version__) >= Version("2.13") else (False,)  # 2.7 keeps it to itself
    for each in strict:
        exported = torch.export.export(Module(), (torch.ones(3),), strict=each)
        assert torch.ops.aten.sin.default in [node.target for node in exported.graph.nodes]
