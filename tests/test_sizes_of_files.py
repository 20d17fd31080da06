"""Small files cannot request much memory: every size in a config is bounded before anything is allocated."""

import resource
import time

import pytest

from keras_het import covariances, integrators, layers, links, losses, metrics, models
from tests.fuzz.subjects import KINDS, new

pytestmark = pytest.mark.refusal

ROOMS = (covariances, integrators, layers, links, losses, metrics, models)
HUGE = (1 << 29, 10**12, 10**400)
NO_SIZES = {"seed", "ignore_class"}
OF_A_HEAD = ("Latent", "LowRank", "Narrow", "PixelLowRank", "ParameterEfficient")  # which checks their sizes
SIZES = [
    (kind, name)
    for kind in KINDS
    for name, value in new(kind).get_config().items()
    if type(value) is int and name not in NO_SIZES
]


def test_every_size_is_looked_at():
    assert {room.__name__ for room in ROOMS} == {f"keras_het.{kind.__module__.split('.')[1]}" for kind in KINDS}
    assert {size for _, size in SIZES} == {
        *("units", "num_classes", "num_annotators", "num_factors", "num_samples", "inference_samples"),
        *("chunk_size", "num_examples", "num_bins", "size", "width"),
    }


@pytest.mark.parametrize("huge", HUGE, ids=["2^29", "10^12", "10^400"])
@pytest.mark.parametrize(("kind", "size"), SIZES, ids=[f"{kind.__name__}-{size}" for kind, size in SIZES])
def test_a_huge_size_is_refused_quickly_and_without_memory(kind, size, huge):
    config = {**new(kind).get_config(), size: huge}
    before, start = most_bytes(), time.perf_counter()
    with pytest.raises((ValueError, TypeError), match="must") as error:  # Keras makes the errors of layers TypeErrors
        make(kind, config)
    assert "Received" in str(error.value)
    assert time.perf_counter() - start < 2.0
    assert most_bytes() - before < 50 << 20


def make(kind, config):
    made = kind.from_config(config)
    if kind.__name__ in OF_A_HEAD:
        layers.HeteroscedasticDense(4, covariance=made).build((None, 2))


def most_bytes():
    """Returns the peak memory of the process so far, by any allocator."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
