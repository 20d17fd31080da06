"""Pretended accelerator: tests use it, and it refuses what a real one refuses."""

import keras
import pytest
import torch
from keras import ops

import keras_het


def test_tensors_and_weights_are_on_it_and_numbers_and_copies_may_meet_them():
    head = keras_het.layers.HeteroscedasticDense(3)
    log_p = head(ops.ones((2, 4)))
    assert {x.device.type for x in (log_p, *(weight.value for weight in head.weights))} == {"pretended"}
    x = ops.ones((3,)) * torch.tensor(2.0)
    assert x.cpu().device.type == "cpu"
    assert ops.convert_to_numpy(x).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("meet", [
    lambda x: x + torch.ones(3),
    lambda x: torch.maximum(x, torch.full((3,), 0.5)),
    lambda x: keras.ops.max(x, initial=0.5, axis=-1) * x,
])  # fmt: skip
def test_tensors_of_two_devices_do_not_meet(meet):
    with pytest.raises(RuntimeError, match="one device"):
        meet(ops.ones((2, 3)))
