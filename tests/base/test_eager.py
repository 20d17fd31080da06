"""PyTorch's eager mode: the number of operations in a small step, exact on every machine, the cached constants, and the
compiled block bodies: what the compiler gets and how often, and equal results.
"""

import concurrent.futures

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_array_equal
from packaging.version import Version

from keras_het import integrators
from keras_het.base import compiler as chosen
from keras_het.base import eager
from keras_het.integrators import MonteCarlo, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.ops import blocking, nodes
from tests.common import to_numpy

if keras.config.backend() != "torch":
    pytest.skip("the other backends compile", allow_module_level=True)
import torch

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")]
FEATURES, UNITS = 64, 10
KEY = 7, 3


def count_operations(layer):
    """Counts the operations of PyTorch's profiler in one training step of a batch of four."""
    model = keras.Sequential([keras.Input((FEATURES,)), layer])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batch = np.ones((4, FEATURES), "float32"), np.arange(4)
    for _ in range(2):
        model.train_on_batch(*batch)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        model.train_on_batch(*batch)
    return sum(event.count for event in profile.key_averages() if event.key.startswith("aten::"))


def test_a_small_step_dispatches_few_operations():
    """776 of PyTorch 2.13, 860 of 2.7, and 186 with Dense; 2,351 when every number was converted."""
    dense = count_operations(keras.layers.Dense(UNITS))
    for integrator in (QuasiMonteCarlo(16), QuasiMonteCarlo(32)):  # with factors in a Latin hypercube, and without
        assert count_operations(HeteroscedasticDense(UNITS, 3, seed=0, integrator=integrator)) < dense + 700


def test_constants_do_not_outlive_a_transform_and_a_large_one_is_not_cached(monkeypatch):
    monkeypatch.setattr(eager, "_cache", {})

    def loss(x):
        return (nodes.quasi_random(KEY, 16, UNITS, 3).eps_diag * x).sum()

    torch.func.grad(loss)(torch.ones(UNITS))
    with torch.inference_mode():
        loss(torch.ones(UNITS))
    assert eager._cache == {}
    drawn = nodes.quasi_random(KEY, 16, UNITS, 3)
    assert eager._cache
    for again in (drawn, nodes.quasi_random(KEY, 16, UNITS, 3)):
        for table, expected in zip(again, nodes.quasi_random(KEY, 16, UNITS, 3, np), strict=True):
            assert_array_equal(to_numpy(table), expected)
    monkeypatch.setattr(eager, "_cache", {})
    monkeypatch.setattr(eager, "_MAX_CACHED_ELEMENTS", 4)
    like = ops.arange(2)
    assert [len(eager.constant(lambda size, xp: xp.arange(size), size, beside=like)) for size in (4, 5)] == [4, 5]
    assert [arguments for _, arguments, _ in eager._cache] == [(4,)]


def test_a_hook_on_a_map_of_a_head_is_called():
    head = HeteroscedasticDense(UNITS, 3, seed=0)
    x = ops.ones((2, FEATURES))
    outputs, seen = head(x), []
    head.loc_layer.register_forward_hook(lambda layer, inputs, output: seen.append(layer.name))
    assert_array_equal(to_numpy(head(x)), to_numpy(outputs))
    assert seen == ["loc"]


CLASSES, INPUTS, ROWS = 6, 4, 8
BATCHES = [20, 20, 20, 13, 5]


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocking, "BLOCK_ELEMENTS", ROWS * CLASSES * 64)
    monkeypatch.setattr(blocking, "TORCH_DIVISOR", 1)
    monkeypatch.setattr(integrators, "MAX_PLAIN_LOGITS", 0)


def trained(batches, integrator=None):
    layer = HeteroscedasticDense(CLASSES, 2, seed=0, integrator=integrator or QuasiMonteCarlo(128))
    layer.build((None, INPUTS))
    rng = np.random.default_rng(0)
    for weight in layer.trainable_weights:
        weight.assign(rng.standard_normal(weight.shape))
    model = keras.Sequential([keras.Input((INPUTS,)), layer])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.5), loss, jit_compile=False)
    for batch in batches:
        model.train_on_batch(rng.standard_normal((batch, INPUTS)), rng.integers(CLASSES, size=batch))
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


def test_two_functions_are_compiled_once_for_one_shape(small_blocks):
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


def test_nodes_are_cut_evenly_where_they_can_be(small_blocks):
    """100 nodes are two chunks of 50; of 67, which is prime, the three of the last chunk go without the compiler."""
    for samples, sizes in ((100, {50}), (67, {64})):
        recorder = Recorder()
        with chosen.compiling_bodies(recorder):
            trained([8], MonteCarlo(samples))
        assert {shapes[-1][-1] for shapes in recorder.shapes} == sizes


@pytest.mark.parametrize("is_exporting", [False, True])
def test_the_compiler_of_a_whole_step_leaves_a_function_out_and_its_bodies_are_compiled(is_exporting, monkeypatch):
    """Whatever PyTorch says of exports: PyTorch 2.11 says in every trace that it exports."""
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


def test_the_compiler_of_a_step_is_that_of_its_backward_pass_in_any_thread_and_of_no_other_step(small_blocks):
    recorder = Recorder()
    head = HeteroscedasticDense(CLASSES, 2, seed=0, integrator=QuasiMonteCarlo(128))
    with chosen.compiling_bodies(recorder):
        loss = head(np.ones((ROWS, INPUTS)), training=True).sum()
        assert in_thread(chosen.active_compiler) is None
    assert chosen.active_compiler() is None
    in_thread(loss.backward)
    assert recorder.handed == ["_add_terms", "_add_gradients"]


def test_an_export_keeps_what_a_compiled_step_leaves_out():
    function = chosen.outside_graph(lambda x: torch.sin(x))

    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    strict = (False, True) if Version(torch.__version__) >= Version("2.13") else (False,)  # 2.7 keeps it to itself
    for each in strict:
        exported = torch.export.export(Module(), (torch.ones(3),), strict=each)
        assert torch.ops.aten.sin.default in [node.target for node in exported.graph.nodes]
