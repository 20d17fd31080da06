"""Compiled block bodies: what the compiler gets and how often, and equal results."""

import concurrent.futures
import os
import shutil
import subprocess
import sys

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
HAS_COMPILER = pytest.mark.skipif(not shutil.which("g++"), reason="PyTorch compiles with g++")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 8 rows at 64 nodes, however few logits there are."""
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", ROWS * UNITS * 64)
    monkeypatch.setattr(blocking, "TORCH_DIVISOR", 1)
    monkeypatch.setattr(integrators, "MAX_PLAIN_LOGITS", 0)


def trained(batches, integrator=None, **options):
    return weights_after(
        batches, HeteroscedasticDense(UNITS, 2, seed=0, integrator=integrator or QuasiMonteCarlo(128)), **options
    )


def weights_after(batches, layer, jit_compile=False):
    """Returns the weights of a layer after a step with each batch size."""
    layer.build((None, FEATURES))
    rng = np.random.default_rng(0)
    for weight in layer.trainable_weights:
        weight.assign(rng.standard_normal(weight.shape))
    model = keras.Sequential([keras.Input((FEATURES,)), layer])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=jit_compile)
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


WHOLE_STEP = """
import keras, numpy as np, torch
from torch._dynamo.utils import counters
from keras_het.base import compiler
from keras_het.covariances import Latent
from keras_het.layers import HeteroscedasticDense
from keras_het.ops import blocking
from tests.base.test_blocks import ROWS, UNITS, weights_after

blocking.BLOCK_ELEMENTS = ROWS * UNITS * 64
layers = {
    "Dense": lambda: keras.layers.Dense(UNITS),
    "nodes": lambda: HeteroscedasticDense(UNITS, 2, seed=0),
    "latent": lambda: HeteroscedasticDense(UNITS, covariance=Latent(2), seed=0),
    "no nodes": lambda: HeteroscedasticDense(UNITS, 2, integrator="Taylor", seed=0),
}
for name, make in layers.items():
    expected = weights_after([20] * 6, make())
    torch._dynamo.reset()
    compiler._bodies.clear()
    counters.clear()
    found = weights_after([20] * 6, make(), jit_compile=True)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    bodies = sorted(body.__name__ for _, body in compiler._bodies)
    breaks, graphs = sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"]
    print(name, breaks, graphs, *bodies, sep=",")
"""


def printed(script):
    result = subprocess.run([sys.executable, "-c", script], env=os.environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


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


@ON_TORCH
@HAS_COMPILER
@pytest.mark.thorough
def test_a_step_that_keras_compiles_breaks_off_little_more_at_a_head_than_at_a_dense_layer():
    """Before heads were left out there were 62 breaks and 41 graphs beside 18 and 9."""
    result = {name: rest for name, *rest in (line.split(",") for line in printed(WHOLE_STEP))}
    breaks, graphs = ({name: int(rest[place]) for name, rest in result.items()} for place in (0, 1))
    assert set(result) == {"Dense", "nodes", "latent", "no nodes"}
    assert all(0 < each <= breaks["Dense"] + 12 for each in breaks.values())
    assert all(0 < each <= graphs["Dense"] + 6 for each in graphs.values())
    bodies = {name: rest[2:] for name, rest in result.items()}
    assert bodies["nodes"] == bodies["latent"] == ["_add_gradients", "_add_terms"]
    assert bodies["Dense"] == bodies["no nodes"] == []
