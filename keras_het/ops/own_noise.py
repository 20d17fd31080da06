"""Own-noise integration: the noise that a class has for itself, averaged analytically, given all other noise.

Given all but e_k the softmax of class k is a sigmoid of it, so with u the logits at a node, and a_k = u_k - own_k e_k - log Z_k,

    p_k = E[psi(a_k, own_k)],     psi(a, s) = E_e[sigmoid(a + s e)],     Z_k = sum over j != k of exp(u_j)

which is exact. psi is a rule of ten points, accurate to 5e-4 of it for s up to `LIMIT`, so of larger noise the rest stays with the nodes.
"""

import math
from typing import Any, Self

from keras import ops

from keras_het.ops.low_rank import DiagonalNormal
from keras_het.ops.nodes import Nodes

LIMIT = 2.0  # of the standard deviation that is integrated, in temperatures
_POINTS, _STEP = 10, 0.9
_TINY = 1e-37  # beside which a sum of exponentials is zero


def split_noise(scale_diag: Any) -> tuple[Any, Any]:
    """Standard deviations s as (own, rest), own^2 + rest^2 = s^2, both smooth in s, with own nearly s where it is small, and below `LIMIT`.

    Example:
        >>> own, rest = split_noise(ops.array([0.5, 2.0, 100.0]))
        >>> [round(float(x), 2) for x in own], [round(float(x), 2) for x in rest]
        ([0.5, 1.68, 2.0], [0.02, 1.08, 99.98])
    """
    part = ops.square(scale_diag / LIMIT)
    root = ops.sqrt(1.0 + ops.square(part))
    return scale_diag * ops.rsqrt(root), scale_diag * part * ops.rsqrt(root * (root + 1.0))


class OwnNoiseNormal:
    """A distribution of logits that gives, beside the logits at nodes, those without the noise that is integrated, and its size.

    Args:
        normal: `DiagonalNormal`, `LowRankNormal` or `ScaledLowRankNormal`, in temperatures.
        own, rest: as `split_noise` gives them; None for its.
    """

    whole_batch = False

    def __init__(self, normal: DiagonalNormal, own: Any = None, rest: Any = None):
        self.normal, self.loc = normal, normal.loc
        self.own, self.rest = split_noise(normal.scale_diag) if own is None else (own, rest)

    @property
    def num_rows(self) -> int:
        return self.normal.num_rows + 2

    @property
    def tensors(self) -> tuple[Any, ...]:
        return self.loc, self.own, self.rest, *self.normal.tensors[1:]

    @property
    def size(self) -> tuple[int, int]:
        return self.normal.size

    def num_logits(self, size: tuple[int, int]) -> int:
        return self.normal.num_logits(size)

    def maker(self) -> Any:
        kind = self.normal.maker()
        return lambda loc, own, rest, *others: OwnNoiseNormal(kind(loc, *others), own, rest)

    def flat(self, units: int, num_factors: int) -> Self:
        own, rest = (ops.reshape(x, (-1, units)) for x in (self.own, self.rest))
        return type(self)(self.normal.flat(units, num_factors), own, rest)

    def logits(self, nodes: Nodes) -> tuple[Any, Any, Any]:
        """u, u - own e, and own: shapes `(..., S, K)` twice, and `(..., 1, K)`."""
        logits = self.normal.logits(nodes)
        less = (self.normal.scale_diag - self.rest)[..., None, :] * nodes.eps_diag
        return logits, logits - less, self.own[..., None, :]

    def tables(self, nodes: Nodes) -> tuple[Any, ...]:
        return self.normal.tables(nodes)

    def logits_at(self, chunk: tuple[Any, ...]) -> tuple[Any, Any, Any]:
        """u, u - own e, and own: shapes `(B, K, C)` twice, and `(B, K, 1)`."""
        logits = self.normal.logits_at(chunk)
        return logits, logits - (self.normal.scale_diag - self.rest)[..., None] * chunk[0], self.own[..., None]

    def no_sums(self) -> tuple[Any, ...]:
        return ops.zeros_like(self.own), ops.zeros_like(self.rest), *self.normal.no_sums()

    def pull_back(self, sensitivity: tuple[Any, Any, Any], chunk: tuple[Any, ...]) -> tuple[Any, ...]:
        of_logits, of_centers, of_own = sensitivity
        of_rest = ops.sum(of_centers * chunk[0], axis=-1)
        return ops.sum(of_own, axis=-1), of_rest, *self.normal.pull_back(of_logits + of_centers, chunk)

    def gradients(self, of_own: Any, of_rest: Any, *sums: Any) -> tuple[Any, ...]:
        of_loc, of_both, *others = self.normal.gradients(*sums)
        return of_loc, of_own, of_rest, of_both - of_rest, *others


class OwnNoiseMean:
    """log P_k = log mean_s psi(a_sk, own_k), of `OwnNoiseNormal`; P sums to one as S grows, not before.

    With P_k in the denominator of everything, nothing over- or underflows: psi_sk / P_k is at most S.
    """

    num_terms = 1

    def terms(self, logits):
        """psi of every node."""
        rule = _Rule(*_apart(logits, 1))
        return (ops.exp(rule.log_factor) * rule.sum(),)

    def log_terms(self, logits, axis):
        """log psi of every node, with the classes on `axis`."""
        rule = _Rule(*_apart(logits, axis))
        return (rule.log_factor + ops.log(rule.sum()),)

    def result(self, log_means):
        """log P."""
        return log_means[0]

    def pivot(self, log_p):
        """Nothing to subtract."""
        return ops.zeros_like(log_p)

    def sensitivity(self, logits, log_p, upstream):
        """Derivatives by the logits u, by u - own e, and by own, of every node, times S.

        With t_k = g_k / P_k d psi / d a_k: by the centre t_k, and by u_j, which is in every Z_k but its own,
            -exp(u_j) sum over k != j of t_k / Z_k.
        """
        sums, exponentials, top = _others(logits[0], 1)
        rule = _Rule(*_apart(logits, 1, sums))
        slope, of_own = rule.slopes()
        scale = upstream[..., None] * ops.exp(rule.log_factor - log_p[..., None])
        of_centers = scale * slope
        shares = of_centers / (sums[1] + _TINY)
        return -exponentials * _sum_of_others(shares, top, 1), of_centers, scale * of_own


def _apart(logits, axis, sums=None):
    """a, shape of u, and own."""
    shift, total = _others(logits[0], axis)[0] if sums is None else sums
    return logits[1] - shift - ops.log(total + _TINY), logits[2]


def _others(logits, axis):
    """(the largest logit, Z_k / its exponential), exp(u - largest), and which are the largest."""
    largest = ops.stop_gradient(ops.max(logits, axis=axis, keepdims=True, initial=-math.inf))
    exponentials, top = ops.exp(logits - largest), logits == largest
    return (largest, _sum_of_others(exponentials, top, axis)), exponentials, top


def _sum_of_others(x, top, axis):
    """The sum over all classes but one, for each: the largest in a sum of their own, so that none is lost by subtracting it."""
    small, large = (ops.sum(part, axis=axis, keepdims=True) for part in (ops.where(top, 0.0, x), ops.where(top, x, 0.0)))
    return ops.where(top, small + (large - x), (small + large) - x)


class _Rule:
    """psi(a, s) = exp(log_factor) sum_g w_g / (high + low kappa_g): the trapezoidal rule, with points about s / 2.

    x_g = s / 2 + h (g - (G - 1) / 2),  w_g = h phi(x_g),  kappa_g = exp(-s x_g),
    high = min(1, exp(a)),  low = min(1, exp(-a)),  log_factor = min(a, 0)
    """

    def __init__(self, centers, own):
        above = centers > 0
        smaller = ops.exp(ops.where(above, -centers, centers))  # not abs(): its derivative at 0 is 0
        self.high, self.low = ops.where(above, 1.0, smaller), ops.where(above, smaller, 1.0)
        self.log_factor, self.own = ops.where(above, 0.0, centers), own

    def points(self):
        """x_g, w_g, kappa_g, one after the other."""
        for number in range(_POINTS):
            x = 0.5 * self.own + _STEP * (number - 0.5 * (_POINTS - 1))
            yield x, _STEP / math.sqrt(2.0 * math.pi) * ops.exp(-0.5 * ops.square(x)), ops.exp(-self.own * x)

    def sum(self):
        """The sum."""
        return sum(weight / (self.high + self.low * kappa) for _, weight, kappa in self.points())

    def slopes(self):
        """Derivatives of psi by a and by s, without the factor."""
        of_center, of_own = 0.0, 0.0
        for x, weight, kappa in self.points():
            share = 1.0 / (self.high + self.low * kappa)
            slope = (weight * kappa) * ops.square(share)
            of_center = of_center + slope
            of_own = of_own + (x + 0.5 * self.own) * (self.low * slope) - (0.5 * x * weight) * share
        return self.low * of_center, of_own
