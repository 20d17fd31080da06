"""Peak memory of a training step does not grow with the number of nodes."""

import keras
import pytest

from tests.peak_memory import peak_mebibytes_of

pytestmark = pytest.mark.thorough  # minutes; tests/test_step_memory.py asks the compiler of JAX, in seconds

STEP = """
import keras, keras_het
import numpy as np

B, D, K, R = 128, 2048, 1000, 15
integrator = keras_het.integrators.QuasiMonteCarlo(num_samples={num_samples}, chunk_size={chunk_size!r})
quiet = dict(kernel_initializer="zeros")  # a random one would take memory of its own
head = keras_het.layers.HeteroscedasticDense(K, num_factors=R, integrator=integrator, seed=0, **quiet)
model = keras.Sequential([keras.Input((D,)), head])
# Without XLA TensorFlow runs up to ten iterations of a loop at a time, and how many moves the peak by chance.
jit = True if keras.config.backend() == "tensorflow" else "auto"
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss, jit_compile=jit)
rng = np.random.default_rng(0)
x = rng.standard_normal((B, D), dtype="float32")
if "{mode}" == "predict":
    assert np.all(np.isfinite(model.predict_on_batch(x)))
else:
    loss = model.train_on_batch(x, rng.integers(K, size=B))
    assert np.isfinite(loss) and np.any(head.get_weights()[1]), "no training step was taken"
"""


def peak_mebibytes(num_samples, chunk_size=None, mode="train"):
    return peak_mebibytes_of(STEP.format(num_samples=num_samples, chunk_size=chunk_size, mode=mode))


@pytest.fixture(scope="module")
def small():
    return peak_mebibytes(256)


def test_many_nodes_take_no_more_memory_than_few(small):
    large = peak_mebibytes(4096)
    assert large <= 1.15 * small, f"{keras.config.backend()}: {small:.0f} MiB at S=256, {large:.0f} MiB at S=4096"


def test_prediction_does_not_hold_the_nodes_at_once_either():
    few, many = (peak_mebibytes(num_samples, mode="predict") for num_samples in (256, 2048))
    all_at_once = 128 * 1000 * (2048 - 256) * 4 / 2**20  # MiB that a block of all the nodes would add
    assert many - few < 0.35 * all_at_once, (
        f"{keras.config.backend()}: {few:.0f} MiB at S=256, {many:.0f} MiB at S=2048"
    )
