"""Integrators: how a head averages its link over the Gaussian logits. Small serialisable choices, as `keras.initializers` are."""

import re

import keras
import numpy as np
from keras import ops

from keras_het.ops import expected_sigmoid, expected_softmax, nodes
from keras_het.validation import check_boolean, check_integer

__all__ = [
    "ClosedForm",
    "Integrator",
    "MonteCarlo",
    "QuasiMonteCarlo",
    "Sampler",
    "get",
]

MAX_NUM_SAMPLES = 1 << 20
MAX_TABLE_BYTES = 512 << 20
_SAMPLED = {
    "softmax": expected_softmax.log_expected_softmax,
    "sigmoid": expected_sigmoid.sampled_expected_sigmoid_logit,
}


class Integrator:
    """Base class: a rule for E[softmax(u / temperature)] or E[sigmoid(u / temperature)] under a `LowRankNormal`.

    A subclass lists the `links` it serves and defines `integrate`; `get_config` returns its constructor's arguments.
    """

    links: tuple[str, ...] = ()

    def check(self, link, units, num_factors):
        """Raises ValueError if this rule cannot serve the link, or not at this size."""
        if link not in self.links:
            fitting = ", ".join(repr(served) for served in self.links)
            raise ValueError(f"`integrator` {type(self).__name__} serves only link {fitting}. Received: link={link!r}")

    def integrate(self, link, normal, temperature, size, key=None):
        """The expectation, shape `(..., K)`: log-probabilities for softmax, logits of the probabilities for sigmoid.

        Args:
            link: "softmax" or "sigmoid".    normal: `LowRankNormal` of the logits.    temperature: tau > 0.
            size: (units, num_factors), Python integers.
            key: (seed, step) for fresh noise in training; None at inference, where the result is a fixed function of `normal`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define integrate(link, normal, temperature, size, key)")

    def prepare(self, units, num_factors):
        """Computes on the host, when a layer is built, what no compiler should have to trace."""

    def get_config(self):
        """Arguments of the constructor."""
        return {}

    @classmethod
    def from_config(cls, config):
        """The integrator of a config; as strict as the constructor."""
        return cls(**config)

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.get_config().items())})"


class Sampler(Integrator):
    """Base class of the integrators that average over nodes. A subclass defines `draw`.

    At inference the nodes are a constant that depends on the integrator, K and R alone: predictions are deterministic and equal on
    every backend, and an exported graph holds no random operation.
    """

    links = ("softmax", "sigmoid")

    def __init__(self, num_samples, inference_samples=None, chunk_size="auto"):
        self.num_samples = check_integer("num_samples", num_samples, 1, MAX_NUM_SAMPLES)
        self.inference_samples = inference_samples
        if inference_samples is not None:
            self.inference_samples = check_integer("inference_samples", inference_samples, 1, MAX_NUM_SAMPLES)
        self.chunk_size = _check_chunk_size(chunk_size)
        self._constants = {}

    def draw(self, key, num_samples, units, num_factors, xp=ops):
        """`Nodes` for `key`; `xp` is `keras.ops` or `numpy`."""
        raise NotImplementedError(f"{type(self).__name__} must define draw(key, num_samples, units, num_factors, xp)")

    def check(self, link, units, num_factors):
        super().check(link, units, num_factors)
        for name in ("num_samples", "inference_samples"):
            size = 4 * (getattr(self, name) or 0) * (units + num_factors)
            if size > MAX_TABLE_BYTES:
                raise ValueError(
                    f"`{name}` must keep the table of nodes, 4 * {name} * (units + num_factors) bytes, within 512 MiB. "
                    f"Received: {name}={getattr(self, name)}, units={units}, num_factors={num_factors}"
                )

    def integrate(self, link, normal, temperature, size, key=None):
        points = self.constant_nodes(*size) if key is None else self.draw(key, self.num_samples, *size)
        return _SAMPLED[link](
            normal.loc,
            normal.scale_diag,
            normal.factor,
            points,
            temperature,
            row_scale=normal.row_scale,
            chunk_size=self.chunk_size,
            unroll=key is None,
        )

    def prepare(self, units, num_factors):
        self.constant_nodes(units, num_factors)

    def constant_nodes(self, units, num_factors):
        """The nodes of inference, NumPy float32, kept for every size asked for."""
        size = (units, num_factors)
        if size not in self._constants:
            self._constants[size] = self.draw((0, 0), self.inference_samples or self.num_samples, *size, xp=np)
        return self._constants[size]

    def get_config(self):
        return {"num_samples": self.num_samples, "inference_samples": self.inference_samples, "chunk_size": self.chunk_size}


def _check_chunk_size(chunk_size):
    if chunk_size is None or (isinstance(chunk_size, str) and chunk_size == "auto"):
        return chunk_size
    try:
        return check_integer("chunk_size", chunk_size, 1)
    except ValueError:
        rule = '`chunk_size` must be "auto", None or an integer at least 1.'
        raise ValueError(f"{rule} Received: chunk_size={chunk_size!r}") from None


@keras.saving.register_keras_serializable("keras_het")
class MonteCarlo(Sampler):
    """Plain Monte Carlo, as in the papers: independent normals, drawn anew at every training step.

    Args:
        num_samples: S in training, 1 to 2^20.    antithetic: draw them in pairs e, -e.
        inference_samples: S at inference; None for the same.
        chunk_size: nodes held at once, "auto", or None for all in plain operations (for second derivatives under XLA on TensorFlow).
    Source: Collier et al. 2021, Eq. 3.

    Example:
        >>> MonteCarlo(antithetic=True)
        MonteCarlo(num_samples=1000, inference_samples=None, chunk_size='auto', antithetic=True)
    """

    def __init__(self, num_samples=1000, antithetic=False, inference_samples=None, chunk_size="auto"):
        super().__init__(num_samples, inference_samples, chunk_size)
        self.antithetic = check_boolean("antithetic", antithetic)

    def draw(self, key, num_samples, units, num_factors, xp=ops):
        rule = nodes.antithetic if self.antithetic else nodes.pseudo_random
        return rule(key, num_samples, units, num_factors, xp)

    def get_config(self):
        return {**super().get_config(), "antithetic": self.antithetic}


@keras.saving.register_keras_serializable("keras_het")
class QuasiMonteCarlo(Sampler):
    """Randomised quasi-Monte Carlo: Sobol points in the first dimensions, the factors', and a Latin hypercube in the others.

    Drawn anew at every training step.

    The default for the softmax link. Unbiased like Monte Carlo; to the same error it needs about a quarter of the nodes where the
    noise is small beside the temperature (0.5) and about 0.7 of them where it is large (2).

    Args: as `MonteCarlo`, without `antithetic`.
    Source: `keras_het.ops.quasi_random`.

    Example:
        >>> QuasiMonteCarlo(num_samples=64)
        QuasiMonteCarlo(num_samples=64, inference_samples=None, chunk_size='auto')
    """

    def __init__(self, num_samples=256, inference_samples=None, chunk_size="auto"):
        super().__init__(num_samples, inference_samples, chunk_size)

    def draw(self, key, num_samples, units, num_factors, xp=ops):
        return nodes.quasi_random(key, num_samples, units, num_factors, xp)

    def prepare(self, units, num_factors):
        super().prepare(units, num_factors)
        nodes.directions(nodes.sobol_dimensions(self.num_samples, units + num_factors), self.num_samples)


@keras.saving.register_keras_serializable("keras_het")
class ClosedForm(Integrator):
    """E[sigmoid] without sampling, error of the log below 1e-4; the default for the sigmoid link.

    Source: `keras_het.ops.log_expected_sigmoid`.

    Example:
        >>> ClosedForm()
        ClosedForm()
    """

    links = ("sigmoid",)

    def integrate(self, link, normal, temperature, size, key=None):
        return expected_sigmoid.expected_sigmoid_logit(normal.loc, normal.variance(), temperature)


_BY_NAME = {cls.__name__: cls for cls in (MonteCarlo, QuasiMonteCarlo, ClosedForm)}


def get(identifier):
    """An integrator from an instance, a name ("QuasiMonteCarlo" or "quasi_monte_carlo"), or a serialised dict.

    Raises: ValueError if it is none of these.

    Example:
        >>> get("monte_carlo")
        MonteCarlo(num_samples=1000, inference_samples=None, chunk_size='auto', antithetic=False)
    """
    if isinstance(identifier, Integrator):
        return identifier
    if isinstance(identifier, str):
        name = re.sub(r"(?:^|_)([a-z])", lambda match: match[1].upper(), identifier)
        if name in _BY_NAME:
            return _BY_NAME[name]()
    if isinstance(identifier, dict):
        integrator = keras.saving.deserialize_keras_object(identifier)
        if isinstance(integrator, Integrator):
            return integrator
    raise ValueError(
        f"`integrator` must be an Integrator, one of the names {', '.join(map(repr, _BY_NAME))}, or a serialised dict. "
        f"Received: integrator={identifier!r}"
    )
