"""The integrator that averages each class's own noise without nodes."""

from typing import Any

import keras
from keras import ops

from keras_het.integrators.sampled import QuasiMonteCarlo
from keras_het.links import Link
from keras_het.ops.own_noise import OwnNoiseNormal
from keras_het.ops.streaming import expectation


@keras.saving.register_keras_serializable("keras_het")
class OwnNoise(QuasiMonteCarlo):
    """Nodes for all noise except each class's own, which is averaged analytically.

        p_k = E[psi(a_k, d_k)],    psi(a, s) = E_e[sigmoid(a + s e)],
        a_k = u_k - d_k e_k - log sum over j != k of exp(u_j)

    The error of log psi is 1e-4 for noise of up to three temperatures, and 2.5e-3 for any noise. The results of a
    finite number of nodes are normalised. A node costs 5 to 20 times as much as a node of `QuasiMonteCarlo`.

    The gain depends on the covariance of the trained head (`benchmarks/cost/own_noise.py`). The error of log p for
    diagonal heads is about half of that of as many plain nodes, which is the error of three to five times as many;
    `Quadrature` is better for them. The error is smaller by a tenth or less for parameter-efficient heads, and by
    hardly anything for full heads: training almost removes the noise of single classes from both. So this integrator
    saves draws, but no time.

    Args:
        num_samples: S, the number of nodes in training, 1 to 2^20.
        inference_samples: S at inference; None takes the same.
        chunk_size: number of nodes held at once, or "auto"; None holds all of them in plain operations (for second
            derivatives under XLA on TensorFlow).

    Example:
        >>> OwnNoise(16)
        OwnNoise(num_samples=16, inference_samples=None, chunk_size='auto')
    """

    needs = "own_noise"
    own_noise_only = True

    def __init__(
        self, num_samples: int = 64, inference_samples: int | None = None, chunk_size: int | str | None = "auto"
    ):
        super().__init__(num_samples, inference_samples, chunk_size)

    def integrate(self, link: Link, normal: Any, size: tuple[int, int], key: Any = None) -> Any:
        mean = expectation(
            link.own_noise, OwnNoiseNormal(normal), self.nodes_of(size, key), self.chunk_size, unroll=key is None
        )
        return link.from_mean(ops.log_softmax(mean, axis=-1))
