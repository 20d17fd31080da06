"""What XLA compiles for four devices: no device gathers all classes, and each holds a quarter."""

import os
import re

import keras
import pytest

from benchmarks.cost import devices
from benchmarks.lib import harness

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(keras.config.backend() != "jax", reason="keras.distribution splits weights on JAX alone"),
]
AS_USERS = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "false", "XLA_FLAGS": "", "PYTHONPATH": os.getcwd()}


def measured(covariance, count, **sizes):
    """The row of the benchmark, in a process of its own, which has the devices."""
    row = {"covariance": covariance, "devices": count, **devices.SIZES, **sizes}
    return harness.in_fresh_process(devices.__name__, row, **devices.ENVIRONMENT, **AS_USERS)


@pytest.mark.parametrize("covariance", ["low_rank", "parameter_efficient"])
def test_each_of_four_devices_holds_a_quarter_and_gathers_no_classes(covariance):
    """K = 100,000, D = 64, R = 15; and the estimates are within 30%."""
    one, four = (measured(covariance, count) for count in devices.DEVICES)
    assert one["exchanged"] == {}
    assert four["MiB"] == pytest.approx(one["MiB"] / 4, rel=0.2)
    assert not large(four["exchanged"], devices.SIZES["units"] // 4)
    for count, found in zip(devices.DEVICES, (one, four), strict=True):
        estimate = devices.estimated(count, devices.SIZES)[covariance]["train_bytes"] / 2**20
        assert estimate == pytest.approx(found["MiB"], rel=0.3)


@pytest.mark.parametrize("covariance", ["diagonal", "narrow", "latent"])
def test_the_other_heads_gather_no_classes(covariance):
    assert not large(measured(covariance, 4, units=8000, batch=32)["exchanged"], 2000)


def large(exchanged, size):
    """The exchanged tensors with an axis of at least so many entries."""
    shapes = [shape for kind in exchanged.values() for shape in kind]
    return [shape for shape in shapes if any(int(axis) >= size for axis in re.findall(r"(?<=[\[,])\d+", shape))]


@pytest.mark.planted
def test_a_gather_of_all_classes_is_found():
    gather = "%a = f32[2,2000,15]{2,1,0} all-gather(f32[2,500,15]{2,1,0} %b), channel_id=1"
    text = f"{gather}\n%c = f32[2,64]{{1,0}} all-reduce(%d)"

    class Step:
        def as_text(self):
            return text

    found = devices.exchanged(Step())
    assert found == {"all-gather": {"f32[2,2000,15]": 1}, "all-reduce": {"f32[2,64]": 1}}
    assert large(found, 500) == ["f32[2,2000,15]"]
