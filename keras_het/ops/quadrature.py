"""log E[softmax] of independent logits by one integral.

The softmax is the law of the largest of logits with Gumbel noise:

    p_k = integral of f_k(t) prod over j != k of F_j(t) dt,
    F_j and f_j: distribution function and density of u_j + G_j

with u_j ~ N(loc_j, scale_diag_j^2) and G_j standard Gumbel, whose law is written as a mixture of ten normal laws. The
integral is a sum over points in the range where the largest may be. The points are evenly spaced if the noise of all
classes is alike; no rule is better then. Otherwise they are close together at the lower end, where a class of little
noise may stop the largest from falling, and far apart at the upper end, which only large noise reaches.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from keras import ops

from keras_het.base.refusal import refuse_if
from keras_het.base.tensor import Tensor
from keras_het.ops.log_space import log_ndtr
from keras_het.ops.mean import Mean
from keras_het.ops.nodes import Nodes
from keras_het.ops.normal import DiagonalNormal, Normal
from keras_het.ops.sigmoid import FARTHEST

# The Gumbel law as sum_i w_i N(m_i, s_i^2): fitted anew to its distribution function, largest error 8e-5 (that of
# Fruehwirth-Schnatter and Fruehwirth 2007, rounded to three digits, has 4e-4). The widest term first.
_WEIGHTS = (
    0.0001884,
    0.0018638,
    0.0107161,
    0.0438101,
    0.1296726,
    0.2485402,
    0.2915797,
    0.2013496,
    0.0662994,
    0.0059801,
)
_MEANS = (5.912215, 5.232242, 4.108953, 2.975046, 1.905478, 0.977107, 0.212299, -0.42584, -0.982096, -1.504854)
_SCALES = (3.059177, 2.175477, 1.648666, 1.258967, 0.96137, 0.739466, 0.580173, 0.465474, 0.375744, 0.296639)
_MEAN, _VARIANCE = 0.5772157, math.pi**2 / 6  # of the Gumbel law
_FAR = 12.0  # where x - s^2 is larger, the density is computed as its tail
_TINY = 1e-37

_BELOW, _ABOVE = 1e-8, 1e-7  # the chance that the largest is below, or above, the range of t
_BISECTIONS = 10
_SPACING = 0.6  # of the points at the lower end, in standard deviations of u + G there
_LEAST_GROWTH = 0.01
_LOWER_DEVIATION = 0.62  # of G below its mean: the chance of a G 5.6 of them below it is 1e-8


def points(num_nodes: int) -> Nodes:
    """Midpoints of `num_nodes` equal parts of (0, 1), a table of one column."""
    return Nodes(((np.arange(num_nodes, dtype="float32") + 0.5) / num_nodes)[:, None])


class GumbelNormal(Normal):
    """u_j + G_j at points t, in a range that holds the largest: the quadrature's form of logits at nodes.

    Args:
        loc: mean logits, shape `(..., K)`, in temperatures.
        scale_diag: standard deviations >= 0, shape `(..., K)`.
        start: lower end of the range, shape `(..., 1)`.
        length: length of the range, shape `(..., 1)`.
        growth: log of the spacing of the points at the upper end over that at the lower end, shape `(..., 1)`.
        units: K, an integer; a traced tensor may not know it.
        size: size of the table of points.
    """

    num_rows = 5

    def __init__(
        self,
        loc: Tensor,
        scale_diag: Tensor,
        start: Tensor,
        length: Tensor,
        growth: Tensor,
        units: int,
        size: tuple[int, int] = (1, 0),
    ) -> None:
        super().__init__(loc, scale_diag, start, length, growth, size=size, units=units)
        self.scale_diag, self.start, self.length, self.growth = scale_diag, start, length, growth

    @classmethod
    def of(cls, normal: DiagonalNormal, num_nodes: int) -> Self:
        """Makes the distribution, with the range of t that holds the largest, for so many points."""
        rule = "be another than Quadrature for a covariance that gives no class noise of its own"
        refuse_if(not isinstance(normal, DiagonalNormal), "integrator", rule, type(normal).__name__)
        start, length, growth = (ops.stop_gradient(x) for x in _range(normal, num_nodes))
        return cls(normal.loc, normal.scale_diag, start, length, growth, normal.units)

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.units,), (self.units,), (1,), (1,), (1,)

    def maker(self) -> Callable[..., Self]:
        return functools.partial(type(self), size=self.size, units=self.units)

    @property
    def num_logits(self) -> int:
        """Four times K: a block holds several sums of the mixture at once, and must be smaller to fit the cache."""
        return 4 * self.units

    def _placed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """t and its log weight, up to a number that all points share: `(..., 1, S)` for a table x of one column."""
        growth = self.growth[..., None]
        stretched = ops.exp(growth * x)
        return self.start[..., None] + self.length[..., None] * (stretched - 1.0) / (ops.exp(growth) - 1.0), growth * x

    def logits(self, nodes: Nodes) -> tuple[Tensor, Tensor, Tensor]:
        """t - loc, shape `(..., S, K)`, the standard deviations, `(..., 1, K)`, and log weights, `(..., S, 1)`."""
        t, log_weight = (ops.swapaxes(x, -1, -2) for x in self._placed(ops.transpose(nodes.eps_diag)))
        return t - self.loc[..., None, :], self.scale_diag[..., None, :], log_weight

    def tables(self, nodes: Nodes) -> tuple[Tensor, ...]:
        return (nodes.eps_diag,)

    def logits_at(self, chunk: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """t - loc, `(B, K, C)`, the standard deviations, `(B, K, 1)`, and log weights, `(B, 1, C)`."""
        t, log_weight = self._placed(chunk[0])
        return t - self.loc[..., None], self.scale_diag[..., None], log_weight

    def no_sums(self) -> tuple[Tensor, ...]:
        return ops.zeros_like(self.loc), ops.zeros_like(self.loc)

    def vjp(self, cotangent: tuple[Tensor, Tensor], chunk: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The gradients by t - loc and by the standard deviations, summed over the nodes of a chunk, each `(B, K)`."""
        return tuple(ops.sum(x, axis=-1) for x in cotangent)

    def gradients(self, of_offset: Tensor, of_scale_diag: Tensor) -> tuple[Tensor, ...]:
        """Gradients of `tensors`; the range has gradient zero, since the integral does not depend on it."""
        return -of_offset, of_scale_diag, *(ops.zeros_like(x) for x in self.tensors[2:])


def _range(normal: DiagonalNormal, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Start and length of the range of t, and the growth of the spacing, `(..., 1)`."""
    center, deviation = normal.loc + _MEAN, ops.sqrt(ops.square(normal.scale_diag) + _VARIANCE)
    low = ops.logsumexp(center - 7.0 * deviation, axis=-1, keepdims=True) - math.log(normal.units)
    high = ops.logsumexp(center + 8.0 * deviation, axis=-1, keepdims=True) + math.log(normal.units / _ABOVE)
    low, high = (ops.concatenate([x, x], axis=-1) for x in (low, high))
    wanted = ops.convert_to_tensor([math.log(_BELOW), -_ABOVE], normal.loc.dtype)
    for _ in range(_BISECTIONS):  # at both ends at once
        middle = 0.5 * (low + high)
        above = ops.sum(_rough_log_cdf(normal, middle), axis=-2) > wanted
        low, high = ops.where(above, low, middle), ops.where(above, middle, high)
    start, length = low[..., :1], high[..., 1:] - low[..., :1]
    # The spacing there is a mean over the classes, weighted by how far each stops the largest from being lower.
    share = ops.squeeze(_rough_log_cdf(normal, start), -1)
    narrow = ops.sum(share, axis=-1, keepdims=True) / ops.sum(share / deviation, axis=-1, keepdims=True)
    return start, length, _growth(length / (_SPACING * num_nodes * narrow))


def _growth(ratio: Tensor) -> Tensor:
    """g such that (exp(g) - 1) / g = ratio, roughly; the spacing is even for a ratio of one or less."""
    ratio = ops.where(ratio > 1.0, ratio, 1.0)
    growth = 2.0 * ops.log(ratio)
    for _ in range(6):
        growth = ops.log(1.0 + ratio * growth)
    return ops.where(growth > _LEAST_GROWTH, growth, _LEAST_GROWTH)


def _rough_log_cdf(normal: DiagonalNormal, t: Tensor) -> Tensor:
    """log F of every class at t, `(..., K, T)` for `(..., T)`: good enough to say where F is nearly zero or one.

    F is taken as the distribution function of a normal law of equal mean and variance, with two changes. The law is
    narrower below the mean, because G hardly falls below -3. It has the tail exp(-x + s^2/2) far above the mean,
    because G has a long tail there.
    """
    scale = normal.scale_diag[..., None]
    variance, offset = ops.square(scale), t[..., None, :] - normal.loc[..., None]
    deviation = ops.sqrt(variance + _VARIANCE)
    narrower = ops.where(deviation < scale + _LOWER_DEVIATION, deviation, scale + _LOWER_DEVIATION)
    z = offset - _MEAN
    z = z / ops.where(z < 0, narrower, deviation)
    tail = log_ndtr(ops.where(z > 0, -z, z))
    far = offset - variance > 2.0
    return ops.where(
        far, -ops.exp(ops.where(far, 0.5 * variance - offset, 0.0)), ops.where(z > 0, -ops.exp(tail), tail)
    )


def _erf(z: Tensor, bell: Tensor) -> Tensor:
    """erf(z / sqrt(2))."""
    small = 2.0 * _upper_tail(ops.abs(z), bell)
    return ops.where(z > 0, 1.0 - small, small - 1.0)


def _upper_tail(z: Tensor, bell: Tensor) -> Tensor:
    """1 - Phi(z) for z >= 0, from bell = exp(-z^2/2): absolute error 7.5e-8 (Abramowitz and Stegun 1964, 7.1.26)."""
    t = 1.0 / (1.0 + 0.3275911 * math.sqrt(0.5) * z)
    polynomial = 1.061405429
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        polynomial = polynomial * t + coefficient
    return 0.5 * bell * polynomial * t


class LargestMean(Mean):
    """log of the mean over t of f_k(t) / F_k(t) times the product of all F_j(t).

    It is log p_k and a number that all classes share.
    """

    def terms(self, points: Any) -> tuple[Tensor, ...]:
        """The integrand at every point, times its weight, `(B, K, C)`."""
        return (ops.exp(self._log_term(points, 1)),)

    def log_terms(self, points: Any, axis: int) -> tuple[Tensor, ...]:
        """The log of `terms`, with the classes on `axis`."""
        return (self._log_term(points, axis, exportable=True),)

    @staticmethod
    def _log_term(points: Any, axis: int, exportable: bool = False) -> Tensor:
        offset, scale, log_weight = points
        law = _Law(offset, scale, exportable=exportable)
        return _log_integrand(law.log_cdf(), law.log_density(), axis) + log_weight

    def cotangent(self, points: Any, log_p: Tensor, upstream: Tensor) -> Tensor:
        """Derivatives by t - loc and by the standard deviations, times the number of points, `(B, K, C)` each.

        A_k is the fraction of a point in the mean of class k. The derivative by a parameter of the law of j is
            g_j A_j d log f_j + (sum over k != j of g_k A_k) d log F_j.
        """
        offset, scale, log_weight = points
        law = _Law(offset, scale, with_slopes=True)
        own = upstream[..., None] * ops.exp(
            _log_integrand(law.log_cdf(), law.log_density(), 1) + log_weight - log_p[..., None]
        )
        others = ops.sum(own, axis=1, keepdims=True) - own
        slopes = zip(law.slopes_of_log_density(), law.slopes_of_log_cdf(), strict=True)
        return tuple(own * of_density + others * of_cdf for of_density, of_cdf in slopes)


def _log_integrand(log_cdf: Tensor, log_density: Tensor, axis: int) -> Tensor:
    return log_density - log_cdf + ops.sum(log_cdf, axis=axis, keepdims=True)


class _Law:
    """The law of u + G by the mixture, at an offset x = t - loc.

    It gives the logs of the distribution function F and of the density f, and their slopes.

    The slopes by the standard deviation s follow from the slopes by x, for a normal law's d F / d s is s F''.

    Args:
        offset: x, of any shape.
        scale: s, of a shape that broadcasts.
        with_slopes: boolean, whether slopes will be asked for.
        exportable: boolean, whether to avoid erf, which is faster, but unknown to some exporters.
    """

    def __init__(self, offset: Tensor, scale: Tensor, with_slopes: bool = False, exportable: bool = False) -> None:
        self._scale, self._variance = scale, ops.square(scale)
        self._offset = ops.where(offset > FARTHEST, FARTHEST, offset)
        lower, upper, density, slope, curvature = 0.0, 0.0, 0.0, 0.0, 0.0
        widest = bell = None
        for w, m, s in zip(_WEIGHTS, _MEANS, _SCALES, strict=True):
            precision = ops.rsqrt(self._variance + s**2)
            z = (self._offset - m) * precision
            if s == _SCALES[0]:
                widest, bell = z, ops.exp(-0.5 * ops.square(z))
            # Relative to the widest term: otherwise all terms may underflow together. The exponent is at most 3, except
            # for rounding where z is large.
            exponent = 0.5 * (widest - z) * (widest + z)
            relative = ops.exp(ops.where(exponent > 4.0, 4.0, exponent))
            half = 0.5 * w / math.fsum(_WEIGHTS)
            signed = half * (_erf(z, relative * bell) if exportable else ops.erf(math.sqrt(0.5) * z))
            lower, upper = lower + (half + signed), upper + (half - signed)
            term = w / math.sqrt(2.0 * math.pi) * precision * relative
            density = density + term
            if with_slopes:
                slope = slope - term * z * precision
                curvature = curvature + term * (ops.square(z) - 1.0) * ops.square(precision)
        self._lower, self._upper = ops.where(lower > 0, lower, 0.0) + _TINY, upper
        self._log_density = ops.log(density) - 0.5 * ops.square(widest)
        self._slope, self._curvature = slope / density, curvature / density

    def log_cdf(self) -> Tensor:
        """log F(x)."""
        small = ops.where(self._upper < 0.01, self._upper, 0.0)
        series = -small * (1.0 + small * (0.5 + small / 3.0))  # ONNX has no log1p
        return ops.where(self._upper < 0.01, series, ops.log(self._lower))

    def log_density(self) -> Tensor:
        """log f(x)."""
        return ops.where(self._far(), self._tail()[0], self._log_density)

    def slopes_of_log_cdf(self) -> tuple[Tensor, Tensor]:
        """Slopes of log F, by x and by s."""
        hazard = ops.exp(self._log_density) / self._lower
        return hazard, self._scale * self._slope * hazard

    def slopes_of_log_density(self) -> tuple[Tensor, Tensor]:
        """Slopes of log f, by x and by s."""
        near = self._slope, self._scale * self._curvature
        return tuple(ops.where(self._far(), a, b) for a, b in zip(self._tail()[1:], near, strict=True))

    def _far(self) -> Tensor:
        return self._offset - self._variance > _FAR

    def _tail(self) -> tuple[Tensor, Tensor, Tensor]:
        """log f far above the mean, and its slopes: f(x) = exp(-x + s^2/2) F(x - s^2), with one normal law for that F.

        The equation is exact, for the density of G is exp(-x) times its distribution function.
        """
        precision = ops.rsqrt(self._variance + _VARIANCE)
        z = (self._offset - self._variance - _MEAN) * precision
        z = ops.where(z > 0, z, 0.0)
        bell = ops.exp(-0.5 * ops.square(z))
        cdf = 1.0 - _upper_tail(z, bell)
        ratio = precision * bell / (math.sqrt(2.0 * math.pi) * cdf)
        value = 0.5 * self._variance - self._offset + ops.log(cdf)
        return value, ratio - 1.0, self._scale * (1.0 - ratio * (2.0 + z * precision))
