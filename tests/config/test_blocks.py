"""A compiler for the bodies of blocks: what is refused, what it is handed and how often, and that results stay."""

import os
import shutil
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest

from keras_het.base import compiler as chosen
from keras_het.config import compile_blocks
from keras_het.integrators import MonteCarlo, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.ops import blocking, streaming

pytestmark = pytest.mark.once

UNITS, FEATURES, ROWS = 6, 4, 8
BATCHES = [20, 20, 20, 13, 5]
ON_TORCH = pytest.mark.skipif(keras.config.backend() != "torch", reason="the other backends refuse it")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of 8 rows at 64 nodes, and no compiler afterwards."""
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", ROWS * UNITS * 64)
    yield
    chosen.choose(None)


def trained(batches, integrator=None, jit_compile=False, covariance=None):
    """The weights after a step with each batch size."""
    noise = {"num_factors": 2} if covariance is None else {"covariance": covariance}
    head = HeteroscedasticDense(UNITS, seed=0, integrator=integrator or QuasiMonteCarlo(128), name="head", **noise)
    head.build((None, FEATURES))
    rng = np.random.default_rng(0)
    for weight in head.trainable_weights:
        weight.assign(rng.standard_normal(weight.shape))
    model = keras.Sequential([keras.Input((FEATURES,)), head])
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
            _, normal, *_, chunk, _ = arguments
            self.shapes.add(tuple(tuple(x.shape) for x in (*normal.tensors, *chunk)))
            return function(*arguments)

        return recorded


@pytest.mark.refusal
@pytest.mark.parametrize("compiler", [3, "torch.compile", [abs]])
def test_what_is_no_function_is_refused(compiler):
    with pytest.raises(ValueError) as error:
        compile_blocks(compiler)
    assert str(error.value) == (
        "`compiler` of `compile_blocks` must be a function that compiles functions, such as torch.compile, or None. "
        f"Received: compiler={compiler!r}"
    )


@pytest.mark.refusal
@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
def test_another_backend_is_refused(backend, monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: backend)
    with pytest.raises(ValueError) as error:
        compile_blocks(abs)
    assert str(error.value) == (
        f"`compiler` of `compile_blocks` must be None on the backend {backend}, which compiles the whole step already: "
        f"it is for PyTorch. Received: compiler={abs!r}"
    )
    compile_blocks(None)


@ON_TORCH
def test_two_functions_are_compiled_once_for_one_shape():
    """Batches of 20 and 13 have two and one blocks of 8 rows, and a rest that goes without, as does a batch of 5."""
    recorder = Recorder()
    compile_blocks(recorder)
    found = trained(BATCHES)
    assert recorder.handed == ["_add_terms", "_add_gradients"]
    assert len(recorder.shapes) == 1
    calls = 2 * 2 * (2 + 2 + 2 + 1)  # both ways, at two chunks of 64 nodes
    assert recorder.calls == calls
    compile_blocks(None)
    for one, other in zip(found, trained(BATCHES), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    assert recorder.calls == calls


@ON_TORCH
@pytest.mark.planted
def test_a_function_that_is_compiled_for_every_size_is_seen(monkeypatch):
    recorder = Recorder()
    compile_blocks(recorder)
    monkeypatch.setattr(streaming, "compiled", lambda function, tensors: recorder(function))
    trained(BATCHES)
    assert len(recorder.handed) > 2
    assert len(recorder.shapes) > 1


@ON_TORCH
def test_nodes_are_cut_evenly_where_they_can_be():
    """100 nodes are two chunks of 50; of 67, which is prime, the three of the last chunk go without the compiler."""
    for samples, sizes in ((100, {50}), (67, {64})):
        recorder = Recorder()
        compile_blocks(recorder)
        trained([8], MonteCarlo(samples))
        assert {shapes[-1][-1] for shapes in recorder.shapes} == sizes


@ON_TORCH
def test_the_compiler_of_a_whole_step_leaves_a_function_out_and_its_bodies_are_compiled():
    import torch

    seen = []

    @chosen.beside_graph
    def twice(x):
        seen.append((torch.compiler.is_dynamo_compiling(), chosen.is_chosen()))
        return 2 * x

    step = torch.compile(lambda x: twice(x) + 1, backend="eager")
    assert float(step(torch.tensor(3.0))) == float(twice(torch.tensor(3.0)) + 1) == 7.0
    assert seen == [(False, True), (False, False)]


@ON_TORCH
def test_the_backward_pass_has_the_compiler_of_the_forward_pass_in_any_thread(monkeypatch):
    import torch

    recorder = Recorder()
    monkeypatch.setattr(torch, "compile", recorder)
    head = HeteroscedasticDense(UNITS, 2, seed=0, integrator=QuasiMonteCarlo(128))
    with chosen.compiling_bodies(torch.compile):
        loss = head(np.ones((ROWS, FEATURES)), training=True).sum()
    assert not chosen.is_chosen()
    thread = threading.Thread(target=loss.backward)
    thread.start()
    thread.join()
    assert recorder.handed == ["_add_terms", "_add_gradients"]
    chosen.choose(None)


COMPILED = """
import functools
import numpy as np, torch
from torch._dynamo.utils import counters
from keras_het.config import compile_blocks
from keras_het.ops import blocking
from tests.config.test_blocks import ROWS, UNITS, trained

blocking.BLOCK_ELEMENTS = ROWS * UNITS * 64
expected = trained([20] * 10 + [13, 5])
compile_blocks(functools.partial(torch.compile, fullgraph=True))
found = trained([20] * 10 + [13, 5])
print(counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))
for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
"""


WHOLE_STEP = """
import numpy as np
from torch._dynamo.utils import counters
from keras_het.base import compiler
from keras_het.covariances import Latent, LowRank
from keras_het.integrators import Taylor
from keras_het.ops import blocking
from tests.config.test_blocks import ROWS, UNITS, trained

blocking.BLOCK_ELEMENTS = ROWS * UNITS * 64
for kind, integrator in ((LowRank, None), (Latent, None), (LowRank, Taylor())):
    counters.clear()
    expected = trained([20] * 6, integrator, covariance=kind(2))
    for one, other in zip(trained([20] * 6, integrator, True, kind(2)), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    bodies = sorted(each.__name__ for each in compiler._Chosen.results)
    print(sum(counters["graph_break"].values()), counters["stats"]["unique_graphs"], *bodies)
"""


@ON_TORCH
@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("g++"), reason="PyTorch compiles with g++")
def test_a_step_that_keras_compiles_breaks_off_at_the_head_alone():
    """A plain Dense layer breaks off 18 times, in 9 graphs; before heads were left out it were 62, in 41."""
    result = subprocess.run([sys.executable, "-c", WHOLE_STEP], env=os.environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    lines = [line.split() for line in result.stdout.splitlines()]
    assert len(lines) == 3
    for breaks, graphs, *bodies in lines:
        assert 1 <= int(breaks) <= 40
        assert 1 <= int(graphs) <= 14
        assert bodies == ["_add_gradients", "_add_terms"]


@ON_TORCH
@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("g++"), reason="PyTorch compiles with g++")
def test_pytorch_compiles_twice_in_twelve_batches_without_a_break():
    result = subprocess.run([sys.executable, "-c", COMPILED], env=os.environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["2", "0"]
