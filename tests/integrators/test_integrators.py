import functools
import tracemalloc

import keras
import numpy as np
import pytest
from keras import ops

from keras_het.base.serializable import resolve
from keras_het.integrators import ClosedForm, Integrator, MonteCarlo, QuasiMonteCarlo
from keras_het.links import Sigmoid, Softmax
from keras_het.ops.low_rank import LowRankNormal
from tests.checks import refusals, refused_arguments
from tests.common import refuses

pytestmark = pytest.mark.once

SIZE = (4, 2)


def normal():
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(3, 4)), rng.uniform(0.5, 1, size=(3, 4)), rng.normal(size=(3, 4, 2))
    return LowRankNormal(*(ops.convert_to_tensor(x.astype("float32")) for x in arrays))


def integrate(integrator, key=None):
    return ops.convert_to_numpy(integrator.integrate(Sigmoid(), normal().standardized(temperature=1.5), key))


def test_an_integrator_is_known_by_name_and_as_itself():
    for name in ("QuasiMonteCarlo", "quasi_monte_carlo"):
        assert repr(resolve(Integrator, name)) == repr(QuasiMonteCarlo())
    integrator = MonteCarlo(3)
    assert resolve(Integrator, integrator) is integrator


ZEROS = keras.saving.serialize_keras_object(keras.initializers.Zeros())
COUNT = [("be an integer in [1, 1048576]", 0, -1, 2.5, True, "8", (1 << 20) + 1)]
test_refusals = refusals(
    *(
        refused_arguments(kind, dict.fromkeys(("num_samples", "inference_samples", "chunk_size"), COUNT))
        for kind in (MonteCarlo, QuasiMonteCarlo)
    ),
    [
        (functools.partial(resolve, Integrator, each), "`integrator` must be ...Received: integrator=")
        for each in ("simpson", 7, None, ZEROS)
    ],
)


@pytest.mark.parametrize(
    "integrator", [MonteCarlo(256), MonteCarlo(256, antithetic=True), QuasiMonteCarlo(256)], ids=repr
)
def test_making_the_table_takes_at_most_twice_its_memory_and_half_a_gigabyte(integrator):
    tracemalloc.start()
    try:
        nodes = integrator.constant_nodes(1 << 16, 40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    table = sum(part.nbytes for part in nodes)
    assert peak < 2.1 * table + (64 << 20)  # and what one block takes
    QuasiMonteCarlo(1 << 16).check(Softmax(), 2000, 48)  # 512 MiB exactly
    with refuses("`num_samples` must keep the table of nodes.* 512 MiB. Received: num_samples=65536, units=2000"):
        QuasiMonteCarlo(1 << 16).check(Softmax(), 2000, 49)
    with refuses("`inference_samples` must keep"):
        MonteCarlo(1, inference_samples=1 << 20).check(Softmax(), 1000, 0)


def test_the_default_numbers_of_nodes_are_fewer_up_to_10_classes_and_at_inference():
    default, few = QuasiMonteCarlo(), MonteCarlo(4, inference_samples=64)
    assert [default.training_nodes(units) for units in (2, 10, 11, 1000)] == [64, 64, 256, 256]
    assert QuasiMonteCarlo(32).training_nodes(1000) == 32
    own = QuasiMonteCarlo(32, inference_samples=16)
    for integrator, expected in ((default, 64), (QuasiMonteCarlo(32), 32), (own, 16), (few, 64)):
        assert integrator.constant_nodes(*SIZE).num_samples == expected
    assert QuasiMonteCarlo.from_config(default.get_config()).num_samples is None
    np.testing.assert_array_equal(integrate(few), integrate(MonteCarlo(64)))
    assert few.draw((0, 0), few.num_samples, *SIZE).num_samples == 4
    shapes = [own.constant_nodes(*size).eps_diag.shape for size in ((3, 1), (5, 0), (3, 1))]
    assert shapes == [(16, 3), (16, 5), (16, 3)]


@pytest.mark.smoke
@pytest.mark.on_tensorflow
def test_all_integrators_agree_where_sampling_is_fine_enough():
    exact = integrate(ClosedForm())
    np.testing.assert_allclose(integrate(QuasiMonteCarlo(1 << 14)), exact, atol=2e-3)
    np.testing.assert_allclose(integrate(MonteCarlo(1 << 16)), exact, atol=5e-2)
