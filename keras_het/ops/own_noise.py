"""Own-noise integration: each class's own noise is averaged analytically, given all other noise.

The softmax of class k, given all noise but e_k, is a sigmoid of e_k. With u the logits at a node, and
a_k = u_k - d_k e_k - log Z_k,

    p_k = E[psi(a_k, d_k)],     psi(a, s) = E_e[sigmoid(a + s e)],     Z_k = sum over j != k of exp(u_j)

which is exact. psi is that of a mixture of three normal distribution functions, which differs from the sigmoid by
4.5e-5 at most. The error of log psi is 1e-4 for s up to 3, and 2.5e-3 for any s.
"""

import math
from typing import Any, NamedTuple, Self

from keras import ops

from keras_het.ops.diagonal import DiagonalNormal
from keras_het.ops.log_space import erfcx_polynomial
from keras_het.ops.nodes import Nodes
from keras_het.ops.sigmoid import FARTHEST

# sigmoid(x) = sum_i w_i Phi(b_i x), of the least largest error for three terms (Monahan and Stefanski 1992).
_WEIGHTS = (0.16227379, 0.58472816, 0.25299804)
_SLOPES = (0.36396034, 0.57748167, 0.90736520)
_TINY = 1e-37  # added to a sum of exponentials, of which the log or the inverse would be infinite at zero


class OwnNoiseNormal:
    """A distribution that also gives, at nodes, each logit without its own noise, and the size of that noise.

    Args:
        normal: `DiagonalNormal`, `LowRankNormal` or `ScaledLowRankNormal`, in temperatures.
    """

    whole_batch = False

    def __init__(self, normal: DiagonalNormal):
        self.normal, self.loc = normal, normal.loc

    @property
    def num_rows(self) -> int:
        return self.normal.num_rows

    @property
    def tensors(self) -> tuple[Any, ...]:
        return self.normal.tensors

    @property
    def size(self) -> tuple[int, int]:
        return self.normal.size

    def num_logits(self, size: tuple[int, int]) -> int:
        return self.normal.num_logits(size)

    def maker(self) -> Any:
        kind = self.normal.maker()
        return lambda *tensors: OwnNoiseNormal(kind(*tensors))

    def flat(self, units: int, num_factors: int) -> Self:
        return type(self)(self.normal.flat(units, num_factors))

    def logits(self, nodes: Nodes) -> tuple[Any, Any, Any]:
        """u, u - d e, and d: shapes `(..., S, K)` twice, and `(..., 1, K)`."""
        logits, scale = self.normal.logits(nodes), self.normal.scale_diag[..., None, :]
        return logits, logits - scale * nodes.eps_diag, scale

    def tables(self, nodes: Nodes) -> tuple[Any, ...]:
        return self.normal.tables(nodes)

    def logits_at(self, chunk: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        """u, u - d e, and d: shapes `(B, K, C)` twice, and `(B, K, 1)`."""
        logits, scale = self.normal.logits_at(chunk), self.normal.scale_diag[..., None]
        return logits, logits - scale * chunk[0], scale

    def no_sums(self) -> tuple[Any, ...]:
        return ops.zeros_like(self.loc), *self.normal.no_sums()

    def pull_back(self, sensitivity: tuple[Any, Any, Any], chunk: tuple[Any, ...]) -> tuple[Any, ...]:
        """The gradient of d beyond its part in the logits, `(B, K)`, and the sums of the distribution."""
        of_logits, of_centers, of_scale = sensitivity
        return ops.sum(of_scale - of_centers * chunk[0], axis=-1), *self.normal.pull_back(of_logits + of_centers, chunk)

    def gradients(self, beyond: Any, *sums: Any) -> tuple[Any, ...]:
        of_loc, of_scale_diag, *others = self.normal.gradients(*sums)
        return of_loc, of_scale_diag + beyond, *others


class OwnNoiseMean:
    """log P_k = log mean_s psi(a_sk, d_k), of `OwnNoiseNormal`; P sums to one only as S grows.

    Everything is divided by P_k, so nothing over- or underflows: psi_sk / P_k is at most S.
    """

    num_terms = 1

    def terms(self, logits):
        """psi of every node, `(B, K, C)`."""
        return (ops.exp(log_psi(*_apart(logits, 1)).value),)

    def log_terms(self, logits, axis):
        """log psi of every node, with the classes on `axis`: shape of u."""
        return (log_psi(*_apart(logits, axis)).value,)

    def result(self, log_means):
        """log P, `(B, K)`."""
        return log_means[0]

    def pivot(self, log_p):
        """Zeros: nothing is subtracted from the logits."""
        return ops.zeros_like(log_p)

    def sensitivity(self, logits, log_p, upstream):
        """Derivatives by the logits u, by u - d e, and by d, of every node, times S: `(B, K, C)` each.

        Let t_k = g_k / P_k d psi / d a_k. The derivative by the centre is t_k. That by u_j, which is in every Z_k but
        its own, is
            -exp(u_j) sum over k != j of t_k / Z_k.
        """
        sums, shares, top = _others(logits[0], 1)
        found = log_psi(*_apart(logits, 1, sums))
        scale = upstream[..., None] * ops.exp(found.value - log_p[..., None])
        of_centers = scale * found.of_center
        of_others = _sum_of_others(of_centers / (sums[1] + _TINY), top, 1)
        return -shares * of_others, of_centers, scale * found.of_scale


def _apart(logits, axis, sums=None):
    """The logits taken apart: a, of the shape of u, and d."""
    shift, total = _others(logits[0], axis)[0] if sums is None else sums
    return logits[1] - shift - ops.log(total + _TINY), logits[2]


def _others(logits, axis):
    """Sums and shares of exp(u).

    Returns (log of the sum of exp(u), the share of Z_k in it), the share of every exp(u), and whether that is above a
    half.
    """
    # Not a maximum: some backends refuse that of an empty batch, and some exporters do not know one that serves it.
    shift = ops.stop_gradient(ops.logsumexp(logits, axis=axis, keepdims=True))
    shares = ops.exp(logits - shift)
    top = shares > 0.5
    return (shift, _sum_of_others(shares, top, axis)), shares, top


def _sum_of_others(x, top, axis):
    """The sum over all classes but one, for each class.

    The largest is in a sum of its own: subtracting it from a total would lose the others.
    """
    small, large = (
        ops.sum(part, axis=axis, keepdims=True) for part in (ops.where(top, 0.0, x), ops.where(top, x, 0.0))
    )
    return ops.where(top, small + (large - x), (small + large) - x)


class LogPsi(NamedTuple):
    """log psi and its derivatives.

    Attributes:
        value: log psi.
        of_center: derivative by a.
        of_scale: derivative by s.
    """

    value: Any
    of_center: Any
    of_scale: Any


def log_psi(center: Any, scale: Any) -> LogPsi:
    """log E[sigmoid(center + scale e)], e ~ N(0, 1), and its derivatives, without under- or overflow.

        psi(a, s) = sum_i w_i Phi(beta_i a),  beta_i = b_i / sqrt(1 + b_i^2 s^2)
        d psi / d s = -s a sum_i w_i beta_i^3 phi(beta_i a)

    Where a < -s^2/2 the tilt is used: psi(a, s) = exp(a + s^2/2) psi(-(a + s^2), s).

    Args:
        center: a, `(...)`.
        scale: s >= 0, of a shape that broadcasts.
    Returns:
        `LogPsi`, three tensors `(...)`.

    Example:
        >>> round(float(ops.exp(log_psi(ops.array(0.0), ops.array(3.0)).value)), 5)
        0.5
    """
    variance = ops.square(scale)
    tilted = center < -0.5 * variance
    argument = ops.where(tilted, -(center + variance), center)
    upper = argument > 0
    tail, slope, cubic, log_factor = _lower_tail(ops.where(upper, argument, -argument), variance)
    # The lower tail times exp(log_factor) is psi at -|argument|, and one minus that is psi at |argument|.
    factor = ops.exp(log_factor)
    psi = ops.where(upper, 1.0 - factor * tail, tail)
    value = ops.log(psi) + ops.where(upper, 0.0, log_factor)
    weight = ops.where(upper, factor, 1.0) / psi
    of_center, of_scale = weight * slope, -scale * argument * weight * cubic
    return LogPsi(
        value + ops.where(tilted, center + 0.5 * variance, 0.0),
        ops.where(tilted, 1.0 - of_center, of_center),
        ops.where(tilted, scale + of_scale - 2.0 * scale * of_center, of_scale),
    )


def _lower_tail(distance, variance):
    """Sums over the terms of Phi, of beta phi and of beta^3 phi at -distance <= 0, with a common factor taken out.

    Each is times exp(-log_factor); log_factor comes last.

    Phi(-x) = exp(-z^2) t exp(P(t)) / 2 with z = x / sqrt(2), t = 1 / (1 + z / 2), as in `log_ndtr`; log_factor is the
    largest -z^2.
    """
    tail, slope, cubic, least = 0.0, 0.0, 0.0, 0.0
    distance = ops.where(distance > FARTHEST, FARTHEST, distance)
    for w, b in zip(_WEIGHTS, _SLOPES, strict=True):  # the smallest slope first
        beta = b * ops.rsqrt(1.0 + b**2 * variance)
        z = math.sqrt(0.5) * beta * distance
        t = 1.0 / (1.0 + 0.5 * z)
        least = z * z if b == _SLOPES[0] else least
        density = ops.exp(least - z * z)
        tail = tail + (0.5 * w) * t * density * ops.exp(erfcx_polynomial(t))
        slope = slope + w / math.sqrt(2.0 * math.pi) * beta * density
        cubic = cubic + w / math.sqrt(2.0 * math.pi) * beta * ops.square(beta) * density
    return tail, slope, cubic, -least
