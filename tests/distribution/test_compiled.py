"""What XLA compiles for four devices: no device gathers all classes, and each holds a quarter."""

import json
import re

import keras
import pytest

import keras_het
from tests.common import python
from tests.distribution import compiled

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(keras.config.backend() != "jax", reason="keras.distribution splits weights on JAX alone"),
]
SIZES = {"units": 100_000, "features": 64, "batch": 128}
AS_USERS = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "false", "XLA_FLAGS": ""}


def measured(covariance, count, **sizes):
    """A compiled step, in a process of its own, which has the devices."""
    row = json.dumps({"covariance": covariance, "devices": count, **SIZES, **sizes})
    return json.loads(python("-m", compiled.__name__, row, check=True, **compiled.ENVIRONMENT, **AS_USERS).stdout)


def estimated(covariance, count):
    """MiB of a step on each of some devices, by `estimate_cost`."""
    rows = keras_het.estimate_cost(**SIZES, devices=count).rows
    (found,) = [row for row in rows if row.covariance == covariance]
    return found.train_bytes / 2**20


@pytest.mark.parametrize("covariance", ["low_rank", "parameter_efficient"])
def test_each_of_four_devices_holds_a_quarter_and_gathers_no_classes(covariance):
    """K = 100,000, D = 64, R = 15; and the estimates are within 30%."""
    one, four = (measured(covariance, count) for count in compiled.DEVICES)
    assert one["exchanged"] == {}
    assert four["MiB"] == pytest.approx(one["MiB"] / 4, rel=0.2)
    assert not large(four["exchanged"], SIZES["units"] // 4)
    for count, found in zip(compiled.DEVICES, (one, four), strict=True):
        assert estimated(covariance, count) == pytest.approx(found["MiB"], rel=0.3)


@pytest.mark.parametrize("covariance", ["diagonal", "narrow", "latent"])
def test_the_other_heads_gather_no_classes(covariance):
    assert not large(measured(covariance, 4, units=8000, batch=32)["exchanged"], 2000)


def large(exchanged, size):
    """The exchanged tensors with an axis of at least so many entries."""
    shapes = [shape for kind in exchanged.values() for shape in kind]
    return [shape for shape in shapes if any(int(axis) >= size for axis in re.findall(r"(?<=[\[,])\d+", shape))]
