"""The integrator that averages the noise which a class has for itself without nodes."""

from typing import Any

import keras
from keras import ops

from keras_het.integrators.sampled import QuasiMonteCarlo
from keras_het.links import Link
from keras_het.ops.own_noise import OwnNoiseNormal
from keras_het.ops.streaming import expectation


@keras.saving.register_keras_serializable("keras_het")
class OwnNoise(QuasiMonteCarlo):
    """Nodes for all noise but what a class has for itself, which is averaged analytically.

        p_k = E[psi(a_k, d_k)],    psi(a, s) = E_e[sigmoid(a + s e)],
        a_k = u_k - d_k e_k - log sum over j != k of exp(u_j)

    log psi is right to 1e-4 for noise of up to three temperatures, and to 2.5e-3 for any. The results of a finite
    number of nodes are normalised. A node costs some twenty times one of `QuasiMonteCarlo`.

    For trained diagonal heads the error of log p is 2 to 2.5 times less than that of as many plain nodes, which is that
    of four to six times as many; `Quadrature` is better for them. For parameter-efficient heads it gains a tenth, for
    full heads nothing: their noise for a class alone has all but died when they are trained
    (`benchmarks/own_noise.py`). So it saves draws, and no time.

    Args:
        num_samples: S in training, 1 to 2^20.
        inference_samples: S at inference; None for the same.
        chunk_size: nodes held at once, "auto", or None for all in plain operations (for second derivatives under XLA on
            TensorFlow).

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
