"""Integrators that average over nodes."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.refusal import refusal
from keras_het.base.validation import check_boolean, check_integer
from keras_het.integrators.integrator import Integrator
from keras_het.links import Link
from keras_het.ops import nodes
from keras_het.ops.streaming import expectation

MAX_NUM_SAMPLES = 1 << 20
MAX_TABLE_BYTES = 512 << 20


class Sampler(Integrator):
    """Base class of the integrators that average over nodes. A subclass defines `draw`.

    At inference the nodes are a constant that depends on the integrator, K and R alone: predictions are deterministic
    and equal on every backend, and an exported graph holds no random operation.

    Args:
        num_samples: S, the number of nodes in training, 1 to 2^20.
        inference_samples: S at inference; None takes `num_samples`.
        chunk_size: number of nodes held at once, or "auto"; None holds all of them in plain operations (for second
            derivatives under XLA on TensorFlow).
    """

    needs = "mean"

    def __init__(
        self, num_samples: int, inference_samples: int | None = None, chunk_size: int | str | None = "auto"
    ) -> None:
        self.num_samples = check_integer("num_samples", num_samples, 1, MAX_NUM_SAMPLES)
        self.inference_samples = inference_samples
        if inference_samples is not None:
            self.inference_samples = check_integer("inference_samples", inference_samples, 1, MAX_NUM_SAMPLES)
        self.chunk_size = _check_chunk_size(chunk_size)
        self._constants: dict[tuple[int, int], nodes.Nodes] = {}

    def draw(self, key: Any, num_samples: int, units: int, num_factors: int, xp: Any = ops) -> nodes.Nodes:
        """`Nodes` for `key`; `xp` is `keras.ops` or `numpy`.

        Args:
            key: key of the random numbers.
            num_samples: S.
            units: K, the number of classes.
            num_factors: R.
            xp: `keras.ops`, or `numpy` for nodes on the host.
        """
        raise NotImplementedError(f"{type(self).__name__} must define draw(key, num_samples, units, num_factors, xp)")

    def check(self, link: Link, units: int, num_factors: int) -> None:
        super().check(link, units, num_factors)
        for name in ("num_samples", "inference_samples"):
            size = 4 * (getattr(self, name) or 0) * (units + num_factors)
            if size > MAX_TABLE_BYTES:
                rule = f"keep the table of nodes, 4 * {name} * (units + num_factors) bytes, within 512 MiB"
                raise refusal(name, rule, f"{name}={getattr(self, name)}, units={units}, num_factors={num_factors}")

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        size = normal.size
        drawn = self.constant_nodes(*size) if key is None else self.draw(key, self.num_samples, *size)
        if self.chunk_size is None:
            return link.from_mean(expectation(link.mean, normal, drawn, loop="plain"))
        loop = "unrolled" if key is None else "streamed"
        return link.from_mean(expectation(link.mean, normal, drawn, self.chunk_size, loop))

    def prepare(self, units: int, num_factors: int) -> None:
        self.constant_nodes(units, num_factors)

    def constant_nodes(self, units: int, num_factors: int) -> nodes.Nodes:
        """The nodes of inference, NumPy float32, kept for every requested size.

        Args:
            units: K, the number of classes.
            num_factors: R.
        """
        size = (units, num_factors)
        if size not in self._constants:
            self._constants[size] = self.draw((0, 0), self.inference_samples or self.num_samples, *size, xp=np)
        return self._constants[size]

    def get_config(self) -> dict[str, Any]:
        return {
            "num_samples": self.num_samples,
            "inference_samples": self.inference_samples,
            "chunk_size": self.chunk_size,
        }


def _check_chunk_size(chunk_size: int | str | None) -> int | str | None:
    if chunk_size is None or (isinstance(chunk_size, str) and chunk_size == "auto"):
        return chunk_size
    try:
        return check_integer("chunk_size", chunk_size, 1, MAX_NUM_SAMPLES)
    except ValueError:
        raise refusal("chunk_size", 'be "auto", None or an integer in [1, 1048576]', value=chunk_size) from None


@keras.saving.register_keras_serializable("keras_het")
class MonteCarlo(Sampler):
    """Plain Monte Carlo, as in the papers: independent normals, drawn anew at every training step.

    Args:
        num_samples: S, the number of nodes in training, 1 to 2^20.
        antithetic: boolean, whether to draw the nodes in pairs e, -e.
        inference_samples: S at inference; None takes `num_samples`.
        chunk_size: number of nodes held at once, or "auto"; None holds all of them in plain operations (for second
            derivatives under XLA on TensorFlow).
    Source: Collier et al. 2021, Eq. 3.

    Example:
        >>> MonteCarlo(antithetic=True)
        MonteCarlo(num_samples=1000, inference_samples=None, chunk_size='auto', antithetic=True)
    """

    def __init__(
        self,
        num_samples: int = 1000,
        antithetic: bool = False,
        inference_samples: int | None = None,
        chunk_size: int | str | None = "auto",
    ) -> None:
        super().__init__(num_samples, inference_samples, chunk_size)
        self.antithetic = check_boolean("antithetic", antithetic)

    def draw(self, key: Any, num_samples: int, units: int, num_factors: int, xp: Any = ops) -> nodes.Nodes:
        rule = nodes.antithetic if self.antithetic else nodes.pseudo_random
        return rule(key, num_samples, units, num_factors, xp)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "antithetic": self.antithetic}


@keras.saving.register_keras_serializable("keras_het")
class QuasiMonteCarlo(Sampler):
    """Randomised quasi-Monte Carlo: Sobol points in the first dimensions, a Latin hypercube in the others.

    The first dimensions belong to the factors. The nodes are drawn anew at every training step.

    This is the default for the softmax link. It is unbiased, like Monte Carlo. It needs fewer nodes for the same error:
    about a quarter where the noise is small beside the temperature (0.5), and about 0.7 of them where it is large (2).

    Args:
        num_samples: S, the number of nodes in training, 1 to 2^20.
        inference_samples: S at inference; None takes `num_samples`.
        chunk_size: number of nodes held at once, or "auto"; None holds all of them in plain operations (for second
            derivatives under XLA on TensorFlow).
    Source: `keras_het.ops.nodes.quasi_random`.

    Example:
        >>> QuasiMonteCarlo(num_samples=64)
        QuasiMonteCarlo(num_samples=64, inference_samples=None, chunk_size='auto')
    """

    def __init__(
        self, num_samples: int = 256, inference_samples: int | None = None, chunk_size: int | str | None = "auto"
    ) -> None:
        super().__init__(num_samples, inference_samples, chunk_size)

    def draw(self, key: Any, num_samples: int, units: int, num_factors: int, xp: Any = ops) -> nodes.Nodes:
        return nodes.quasi_random(key, num_samples, units, num_factors, xp)

    def prepare(self, units: int, num_factors: int) -> None:
        super().prepare(units, num_factors)
        nodes.directions(nodes.sobol_dimensions(self.num_samples, units + num_factors), self.num_samples)
