"""Integrators: ways to average a link over the Gaussian logits, as small serialisable objects."""

import abc
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.compiler import active_compiler
from keras_het.base.eager import TensorCache
from keras_het.base.internals import is_eager, is_plain, needs_gradient
from keras_het.base.refusal import refusal
from keras_het.base.serializable import Component
from keras_het.base.validation import check_boolean, check_integer
from keras_het.links import Link
from keras_het.ops import nodes
from keras_het.ops.streaming import expectation

__all__ = ["ClosedForm", "Integrator", "MonteCarlo", "QuasiMonteCarlo", "Taylor"]

MAX_NUM_SAMPLES = 1 << 20
FEW_NODES, MANY_NODES, MAX_UNITS_OF_FEW_NODES = 64, 256, 10  # docs/backends.md, "How many nodes?"
MAX_PLAIN_LOGITS = 1 << 16  # for fewer logits, plain operations take 0.7 to 0.97 of the time of a streamed step
MAX_TABLE_BYTES = 512 << 20


class Integrator(Component, abc.ABC):
    """Base class of integrators, which compute the expectation of a link, such as E[softmax(u)].

    A subclass defines `integrate`. Its `needs` names the attribute that a link must have: "mean" (the function to
    average over nodes), "closed_form" or "second_order".
    """

    needs = ""

    def check(self, link: Link, units: int, num_factors: int) -> None:
        """Raises ValueError if this integrator does not fit the link, K `units` or R `num_factors`."""
        if not self.needs:
            raise NotImplementedError(f"{type(self).__name__} must name in `needs` the attribute that a link must have")
        if getattr(link, self.needs, None) is None:
            names = ", ".join(kind.__name__ for kind in _kinds(Link) if getattr(kind, self.needs, None) is not None)
            alternatives = f"be one of {names}, or " if names else ""
            rule = f"{alternatives}define `{self.needs}` for the integrator {type(self).__name__}"
            raise refusal("link", rule, value=link)

    @abc.abstractmethod
    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        """Returns the outputs of a head, the expectation of a link, `(..., K)`.

        `normal` is the Gaussian of the logits, a `keras_het.ops.normal.Normal`, in temperatures and centred by the
        link; its `size` gives the numbers of entries of the nodes. `key` is (seed, step), for fresh noise in training,
        or None at inference, for a fixed function of `normal`.
        """

    def prepare(self, units: int, num_factors: int) -> None:
        """Computes constants on the host, outside any compiler, when a head is built."""


def _kinds(base: type[Any]) -> list[type[Any]]:
    return [kind for child in base.__subclasses__() for kind in (child, *_kinds(child))]


class Sampler(Integrator):
    """Base class of the integrators that average over nodes. A subclass defines `draw`.

    At inference the nodes are a constant that depends only on the integrator, K and R. So predictions are
    deterministic and equal on every backend, and an exported graph has no random operation.
    """

    needs = "mean"

    def __init__(
        self, num_samples: int | None = None, *, inference_samples: int | None = None, chunk_size: int | None = None
    ) -> None:
        self.num_samples = _check_optional("num_samples", num_samples)
        self.inference_samples = _check_optional("inference_samples", inference_samples)
        self.chunk_size = _check_optional("chunk_size", chunk_size)
        self._constants: dict[tuple[int, int], nodes.Nodes] = {}
        self._tensors = TensorCache()

    @abc.abstractmethod
    def draw(self, key: Any, num_samples: int, units: int, num_factors: int, xp: Any = ops) -> nodes.Nodes:
        """Returns S `Nodes` for a key (seed, step); `xp` is `keras.ops`, or `numpy` for nodes on the host."""

    def check(self, link: Link, units: int, num_factors: int) -> None:
        super().check(link, units, num_factors)
        for name, count in (("num_samples", self.training_nodes(units)), ("inference_samples", self.inference_samples)):
            if 4 * (count or 0) * (units + num_factors) > MAX_TABLE_BYTES:
                rule = f"keep the table of nodes, 4 * {name} * (units + num_factors) bytes, at most 512 MiB"
                raise refusal(name, rule, f"{name}={count}, units={units}, num_factors={num_factors}")

    def training_nodes(self, units: int) -> int:
        """Returns S in training, for K `units`; noise of the features has D instead."""
        if self.num_samples is not None:
            return self.num_samples
        return FEW_NODES if units <= MAX_UNITS_OF_FEW_NODES else MANY_NODES

    @property
    def inference_nodes(self) -> int:
        """S at inference."""
        return self.inference_samples or self.num_samples or FEW_NODES

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        if key is None:
            samples, streamed = self._inference_nodes(normal), _is_eager_prediction(normal)
        else:
            samples, streamed = self.draw(key, self.training_nodes(normal.size[0]), *normal.size), True
        chunk_size = self._chunk_size(normal, samples.num_samples) if streamed else self.chunk_size
        streamed = streamed and (chunk_size is None or chunk_size < samples.num_samples)
        return link.from_mean(expectation(link.mean, normal, samples, chunk_size, streamed))

    def _inference_nodes(self, normal: Any) -> nodes.Nodes:
        """Returns the nodes of inference; in eager PyTorch as tensors, which are made once."""
        samples = self.constant_nodes(*normal.size)
        if not is_eager(normal.tensors):
            return samples
        return nodes.Nodes(*self._tensors.tensors(normal.size, samples, beside=normal.loc))

    def _chunk_size(self, normal: Any, num_samples: int) -> int | None:
        """Returns the chunk size of a stream: all nodes for few logits in eager PyTorch, where a stream is slower."""
        if self.chunk_size is not None or not is_plain(normal.loc) or active_compiler() is not None:
            return self.chunk_size
        size = math.prod(normal.loc.shape[:-1]) * normal.num_logits * num_samples
        return num_samples if size <= MAX_PLAIN_LOGITS else None

    def prepare(self, units: int, num_factors: int) -> None:
        self.constant_nodes(units, num_factors)

    def constant_nodes(self, units: int, num_factors: int) -> nodes.Nodes:
        """Returns the nodes of inference, NumPy float32, and stores them for every size."""
        size = (units, num_factors)
        if size not in self._constants:
            samples = self.draw((0, 0), self.inference_nodes, *size, xp=np)
            no_factor = samples.eps_factor is None
            self._constants[size] = nodes.Nodes(samples[0], samples[0][:, :0]) if no_factor else samples
        return self._constants[size]


def _is_eager_prediction(normal: Any) -> bool:
    """True if PyTorch predicts at once, without a gradient: the training loop is then faster than plain operations."""
    return is_eager(normal.tensors) and not needs_gradient(normal.tensors) and active_compiler() is None


def _check_optional(name: str, value: Any) -> int | None:
    return None if value is None else check_integer(name, value, 1, MAX_NUM_SAMPLES)


@keras.saving.register_keras_serializable("keras_het")
class MonteCarlo(Sampler):
    """Plain Monte Carlo, as in the papers: independent normals, with new draws at every training step.

    Args:
        num_samples: S, the number of nodes in training, 1 to 2^20.
        antithetic: boolean, whether to draw the nodes in pairs e, -e.
        kwargs: `inference_samples` and `chunk_size`, see `QuasiMonteCarlo`.
    Source: Collier et al. 2021, Eq. 3.

    Example:
        >>> MonteCarlo(antithetic=True)
        MonteCarlo(num_samples=1000, antithetic=True, inference_samples=None, chunk_size=None)
    """

    def __init__(self, num_samples: int = 1000, *, antithetic: bool = False, **kwargs: Any) -> None:
        super().__init__(check_integer("num_samples", num_samples, 1, MAX_NUM_SAMPLES), **kwargs)
        self.antithetic = check_boolean("antithetic", antithetic)

    def draw(self, key: Any, num_samples: int, units: int, num_factors: int, xp: Any = ops) -> nodes.Nodes:
        rule = nodes.antithetic if self.antithetic else nodes.pseudo_random
        return rule(key, num_samples, units, num_factors, xp)


@keras.saving.register_keras_serializable("keras_het")
class QuasiMonteCarlo(Sampler):
    """Randomised quasi-Monte Carlo: Sobol points in the first dimensions, a Latin hypercube in the others.

    The first dimensions belong to the factors. Every training step draws new nodes.

    This is the default for the softmax link. It is unbiased, like Monte Carlo, with smaller errors. With 256 nodes they
    are a third if the noise is 0.5 temperatures, and 0.8 to 0.9 times as large if it is 2 (15 factors, 100 classes or
    more). Without factors they are a seventh, and half.

    Args:
        num_samples: S, the number of nodes in training, 1 to 2^20; None is 64 up to 10 classes (features, if the noise
            is of the features), and 256 for more. `training_nodes(units)` returns it.
        inference_samples: S at inference; None is `num_samples`, or 64 if that is None.
        chunk_size: number of nodes held at once; None chooses it. With all nodes at once, training uses only plain
            operations, which allow second derivatives under XLA on TensorFlow.
    Source: `keras_het.ops.quasi_random`.

    Example:
        >>> QuasiMonteCarlo(num_samples=64)
        QuasiMonteCarlo(num_samples=64, inference_samples=None, chunk_size=None)
    """

    def draw(self, key: Any, num_samples: int, units: int, num_factors: int, xp: Any = ops) -> nodes.Nodes:
        return nodes.quasi_random(key, num_samples, units, num_factors, xp)

    def prepare(self, units: int, num_factors: int) -> None:
        super().prepare(units, num_factors)
        num_samples = self.training_nodes(units)
        nodes.directions(nodes.sobol_dimensions(num_samples, units + num_factors), num_samples)


@keras.saving.register_keras_serializable("keras_het")
class ClosedForm(Integrator):
    """Closed form of a link, without nodes in training or prediction; the default for links that have one.

    Source: the link's `closed_form`.

    Example:
        >>> ClosedForm()
        ClosedForm()
    """

    needs = "closed_form"

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        return link.closed_form(normal)


@keras.saving.register_keras_serializable("keras_het")
class Taylor(Integrator):
    """Mean softmax to second order in the noise, without nodes, in O(K R), for small noise.

    The error is proportional to the fourth power of the noise, and large from a standard deviation of about one
    temperature on. Do not train the noise with this integrator: the expansion has no upper bound, so training makes the
    noise grow until the expansion is wrong. Use it for predictions of a head that was trained with nodes and has small
    noise, or for a covariance that is not trained.

    Source: Collier et al. 2021, Appendix C; `keras_het.ops.softmax.second_order_log_softmax`.

    Example:
        >>> Taylor()
        Taylor()
    """

    needs = "second_order"

    def integrate(self, link: Link, normal: Any, key: Any = None) -> Any:
        return link.second_order(normal)


Integrator.named_classes = (MonteCarlo, QuasiMonteCarlo, ClosedForm, Taylor)
