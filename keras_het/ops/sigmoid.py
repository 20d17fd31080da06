"""E[sigmoid] of Gaussian logits: in closed form, or averaged over nodes as in the papers."""

import math

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.mean import Mean

# sigmoid(x) = sum_i w_i Phi(b_i x) to 2.2e-8, a least-squares fit (Monahan and Stefanski 1992).
_WEIGHTS = (0.00318794, 0.03056366, 0.02009870, 0.19814896, 0.34008537, 0.29254038, 0.10616125, 0.00921376)
_SLOPES = (0.25022499, 0.33027962, 0.33044514, 0.43231131, 0.56604452, 0.74025818, 0.96695060, 1.27520341)

# log(erfcx(z) / t) as a polynomial in t = 1 / (1 + z/2), lowest power first: a Chebyshev fit over all z >= 0 in
# 40-digit arithmetic, error 9.3e-8.
_LOG_ERFCX = (
    -1.2655122095151652,
    1.0000205548694783,
    0.3741950942342981,
    0.09546406768540613,
    -0.17770726992616148,
    0.2468331286186922,
    -1.0623972825239376,
    1.3861064399534366,
    -0.7351042025275089,
    0.12990899796423022,
    0.00819275594258215,
)

MAX_DISTANCE = 1e15  # of a mean from zero: the square of a larger distance could overflow


def log_expected_sigmoid(loc: Tensor, variance: Tensor, temperature: Tensor = 1.0) -> tuple[Tensor, Tensor]:
    """Computes the logs of E[sigmoid(u / temperature)] and of its complement, `(...)` each, without sampling.

        E = sum_i w_i Phi(b_i a / sqrt(1 + b_i^2 s^2)),    a = loc / temperature,  s^2 = variance / temperature^2

    Here u ~ N(loc, variance), and the sigmoid is a mixture of normal distribution functions. Only the marginal variance
    of a class matters. The smaller of the two tails is computed. For a < -s^2/2 a tilt,
    E_a = exp(a + s^2/2) E_{-(a + s^2)}, keeps the error of the log below 1e-4 as far out as a = -100.

    Source: Monahan and Stefanski 1992, "Normal scale mixture approximations to F*(z)"; the tilt is sigmoid(x) = exp(x)
        sigmoid(-x) under the Gaussian.

    Example:
        >>> log_p, log_q = log_expected_sigmoid(ops.array([0.0]), ops.array([4.0]))
        >>> round(float(ops.exp(log_p[0])), 6), round(float(ops.exp(log_q[0])), 6)
        (0.5, 0.5)
    """
    loc = ops.convert_to_tensor(loc)
    temperature = ops.convert_to_tensor(temperature, loc.dtype)
    mean, variance = loc / temperature, ops.convert_to_tensor(variance, loc.dtype) / temperature**2
    upper = mean > 0
    # Not abs(): its derivative is 0 at 0, where training starts.
    log_small = _log_lower_tail(ops.where(upper, -mean, mean), variance)
    log_large = ops.log(1.0 - ops.exp(log_small))  # accurate, because the smaller tail is at most 1/2; no log1p in ONNX
    return ops.where(upper, log_large, log_small), ops.where(upper, log_small, log_large)


def expected_sigmoid_logit(loc: Tensor, variance: Tensor, temperature: Tensor = 1.0) -> Tensor:
    """Computes logit E[sigmoid(u / temperature)] in closed form, `log_p - log_one_minus_p` of `log_expected_sigmoid`.

    Example:
        >>> logit = expected_sigmoid_logit(ops.array([2.0]), ops.array([0.0]))
        >>> round(float(logit[0]), 4)
        2.0
    """
    log_p, log_one_minus_p = log_expected_sigmoid(loc, variance, temperature)
    return log_p - log_one_minus_p


def _log_lower_tail(mean: Tensor, variance: Tensor) -> Tensor:
    is_tilted = mean < -0.5 * variance
    argument = ops.where(is_tilted, -(mean + variance), mean)
    upper = argument > 0
    log_lower = _log_mixture(ops.where(upper, argument, -argument), variance)
    mixture = ops.where(upper, ops.log(1.0 - ops.exp(log_lower)), log_lower)  # ONNX has no log1p
    return mixture + ops.where(is_tilted, mean + 0.5 * variance, 0.0)


def _log_mixture(distance: Tensor, variance: Tensor) -> Tensor:
    """Returns log sum_i w_i Phi(-c_i distance), c_i = b_i / sqrt(1 + b_i^2 variance), for a distance >= 0.

    Phi(-x) = exp(-z^2) t exp(P(t)) / 2 with z = x / sqrt(2), t = 1 / (1 + z / 2). The smallest z^2, of the smallest
    slope, is factored out, so that not all terms underflow. Each term needs one exponential.
    """
    scaled = ops.where(distance > MAX_DISTANCE, MAX_DISTANCE, distance) * math.sqrt(0.5)
    distances = [scaled * (b * ops.rsqrt(1.0 + b**2 * variance)) for b in sorted(_SLOPES)]
    weights = [w for _, w in sorted(zip(_SLOPES, _WEIGHTS, strict=True))]
    min_square, total = ops.square(distances[0]), 0.0
    for w, z in zip(weights, distances, strict=True):
        t = 1.0 / (1.0 + 0.5 * z)
        total = total + (0.5 * w / math.fsum(weights)) * t * ops.exp(_erfcx_polynomial(t) + (min_square - z * z))
    return ops.log(total) - min_square


def _erfcx_polynomial(t: Tensor) -> Tensor:
    """Returns log(erfcx(z) / t) as a polynomial in t = 1 / (1 + z/2), for z >= 0."""
    polynomial = _LOG_ERFCX[-1] * t + _LOG_ERFCX[-2]
    for coefficient in _LOG_ERFCX[-3::-1]:
        polynomial = polynomial * t + coefficient
    return polynomial


def _log_slope(logits: Tensor) -> Tensor:
    return ops.log_sigmoid(logits) + ops.log_sigmoid(-logits)


class SigmoidMean(Mean):
    """Logit of the mean sigmoid, log p - log q, by means of sigmoid(u) and sigmoid(-u) (Collier et al. 2021, Eq. 5).

    The gradient of a node's logit is d logit p / d u_s = sigmoid'(u_s) / (p q S). The closed form,
    `expected_sigmoid_logit`, is faster, with an error below 1e-4.
    """

    num_terms = 2

    def terms(self, logits: Tensor) -> tuple[Tensor, ...]:
        return ops.sigmoid(logits), ops.sigmoid(-logits)

    def log_terms(self, logits: Tensor, axis: int) -> tuple[Tensor, ...]:
        return ops.log_sigmoid(logits), ops.log_sigmoid(-logits)

    def result(self, log_means: list[Tensor]) -> Tensor:
        return log_means[0] - log_means[1]

    def cotangent(self, logits: Tensor, logit: Tensor, upstream: Tensor) -> Tensor:
        return upstream[..., None] * ops.exp(_log_slope(logits) - _log_slope(logit)[..., None])
