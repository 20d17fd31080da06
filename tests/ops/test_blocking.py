"""Sizes of blocks: within the budget of the device."""

from types import SimpleNamespace

import keras
import pytest

from keras_het.ops import blocking

pytestmark = pytest.mark.once

IS_TORCH = keras.config.backend() == "torch"


@pytest.fixture(params=["cpu", "gpu"])
def device(request, monkeypatch):
    """Returns a device that runs the backend; PyTorch's tensors have their own."""
    monkeypatch.setattr(keras.distribution, "list_devices", lambda: [f"{request.param}:0"])
    return request.param


def tensor(device, *shape):
    return SimpleNamespace(shape=shape, device=SimpleNamespace(type={"gpu": "cuda"}.get(device, device)))


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


def test_a_chunk_size_that_is_given_is_taken():
    assert blocking.block_sizes(tensor("cpu", 4, 10), 100, 10, 7)[1] == 7
    assert blocking.block_sizes(tensor("cpu", 4, 10), 5, 10, 7)[1] == 5
