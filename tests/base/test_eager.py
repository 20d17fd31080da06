"""PyTorch's eager mode: the number of operations in a small step, exact on every machine, and the cached constants."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_array_equal

from keras_het.base import eager
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.ops import nodes
from tests.common import to_numpy

if keras.config.backend() != "torch":
    pytest.skip("the other backends compile", allow_module_level=True)
import torch

pytestmark = pytest.mark.once
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
    """776 of PyTorch 2.13 and Keras 3.15.1, and 186 with Dense; 2,351 when every number was converted."""
    dense = count_operations(keras.layers.Dense(UNITS))
    for integrator in (QuasiMonteCarlo(16), QuasiMonteCarlo(32)):  # with factors in a Latin hypercube, and without
        assert count_operations(HeteroscedasticDense(UNITS, 3, seed=0, integrator=integrator)) < dense + 650


def test_constants_do_not_outlive_a_transform(monkeypatch):
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


def test_a_large_constant_is_not_cached(monkeypatch):
    monkeypatch.setattr(eager, "_cache", {})
    monkeypatch.setattr(eager, "_MAX_CACHED_ELEMENTS", 4)
    like = ops.arange(2)
    assert [len(eager.constant(make_range, size, beside=like)) for size in (4, 5)] == [4, 5]
    assert [arguments for _, arguments, _ in eager._cache] == [(4,)]


def make_range(size, xp):
    return xp.arange(size)


def test_a_hook_on_a_map_of_a_head_is_called():
    head = HeteroscedasticDense(UNITS, 3, seed=0)
    x = ops.ones((2, FEATURES))
    outputs, seen = head(x), []
    head.loc_layer.register_forward_hook(lambda layer, inputs, output: seen.append(layer.name))
    assert_array_equal(to_numpy(head(x)), to_numpy(outputs))
    assert seen == ["loc"]
