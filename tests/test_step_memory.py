"""Memory of a training step is less than samples times examples times classes, by the compiler of JAX.

`tests/test_peak_memory.py` measures whole processes on every backend, in the session `thorough`.
"""

import keras
import numpy as np
import pytest

from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense

pytestmark = pytest.mark.skipif(keras.config.backend() != "jax", reason="only JAX says what a program will need")

BATCH, FEATURES, UNITS, FACTORS = 128, 64, 1000, 15
FEW, MANY = 256, 2048


def step_bytes(num_samples, chunk_size=None):
    """Returns the bytes that the loss of a batch and its gradient need beside arguments and results."""
    import jax

    head = HeteroscedasticDense(UNITS, FACTORS, integrator=QuasiMonteCarlo(num_samples, chunk_size=chunk_size), seed=0)
    head.build((None, FEATURES))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def loss_of(trainable, others, x, y):
        outputs, _ = head.stateless_call(trainable, others, x, training=True)
        return loss(y, outputs)

    weights = ([v.value for v in head.trainable_variables], [v.value for v in head.non_trainable_variables])
    x, y = np.zeros((BATCH, FEATURES), "float32"), np.zeros(BATCH, "int32")
    return jax.jit(jax.grad(loss_of)).lower(*weights, x, y).compile().memory_analysis().temp_size_in_bytes


NODES = 4 * (MANY - FEW) * (UNITS + FACTORS)  # bytes that the nodes themselves take


def test_more_samples_add_their_nodes_alone():
    assert (step_bytes(MANY) - step_bytes(FEW)) <= 3 * NODES
    assert 3 * NODES < 4 * BATCH * UNITS * (MANY - FEW) / 20  # far below what all logits would take
