"""log E[softmax] of Gaussian logits."""

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.mean import Mean
from keras_het.ops.normal import finite
from keras_het.ops.passes import outer_products, softmax, softmax_weights

EXCLUDED_LOG_P = -1e12  # a lower log p belongs to a class that a mean of -inf excludes


def remove_shift(loc: Tensor) -> Tensor:
    """Shifts mean logits, `(..., K)`, near zero, because a large shift would ruin the gradient of the temperature."""
    # logsumexp is at most log K above the maximum. Some exporters have no maximum that works for an empty batch.
    loc = finite(loc)
    return loc - ops.stop_gradient(ops.logsumexp(loc, axis=-1, keepdims=True))


def second_order_log_softmax(normal: Tensor) -> Tensor:
    """Computes the log of the mean softmax, `(..., K)`, to second order in the noise, normalised, in O(K R).

        log p_k = log s_k + (Sigma_kk - s' diag(Sigma) - 2 (Sigma s)_k + 2 s' Sigma s) / 2,
        s = softmax(loc), then log_softmax

    Args:
        normal: Gaussian of the logits `(..., K)` in temperatures.
    Source: Collier et al. 2021, Appendix C, Eq. 13, with the factor 1 for its cross term, where 1/2 is printed.

    Example:
        >>> from keras_het.ops.normal import DiagonalNormal
        >>> log_p = second_order_log_softmax(DiagonalNormal(ops.zeros((1, 2)), ops.ones((1, 2))))
        >>> ops.convert_to_numpy(ops.exp(log_p)).tolist()
        [[0.5, 0.5]]
    """
    log_s = ops.log_softmax(normal.loc, axis=-1)
    s, variance = ops.exp(log_s), normal.variance()
    product = normal.covariance_times(s)
    common = ops.sum(s * (2.0 * product - variance), axis=-1, keepdims=True)
    return ops.log_softmax(log_s + 0.5 * (variance - 2.0 * product + common), axis=-1)


class SoftmaxMean(Mean):
    """Log of the mean softmax, log mean_s exp(u_sk - L_s), L_s = logsumexp_k u_sk (Collier et al. 2021, Eq. 3).

    A mean logit of -inf excludes a class: p = 0, with finite log p and gradients. Logits of 1e4 and noise of 1e3 are
    safe.

    A_sk = exp(u_sk - log p_k - L_s) is the weight of node s in the mean of class k, and p_k A_sk is the softmax of node
    s. So

        d (sum_k g_k log p_k) / d u_sk = A_sk (g_k - p_k sum_j g_j A_sj) / S.

    After log p, the `pivot`, is subtracted from the logits, A needs one exponential per element. The maximum over k of
    u_sk - log p_k is between L_s and L_s + log S, so nothing overflows or underflows for any noise.
    """

    def terms(self, logits: Tensor) -> tuple[Tensor, ...]:
        return (softmax(logits),)

    def log_terms(self, logits: Tensor, axis: int) -> tuple[Tensor, ...]:
        return (logits - ops.logsumexp(logits, axis=axis, keepdims=True),)

    def pivot(self, log_p: Tensor) -> Tensor:
        """Returns log p; 0 for an excluded class, whose noise would otherwise be the largest logit."""
        return ops.where(log_p < EXCLUDED_LOG_P, 0.0, log_p)

    def cotangent(self, logits: Tensor, log_p: Tensor, upstream: Tensor) -> Tensor:
        p = ops.exp(log_p)
        weights = softmax_weights(logits)
        # One product of (B, 2, K) by (B, K, C) gives both sums over the classes.
        rows = ops.stack([upstream, p], axis=1)
        upstream_total, total = ops.split(ops.matmul(rows, weights), 2, axis=1)
        inverse = 1.0 / total
        return weights * outer_products(rows, (inverse, -upstream_total * inverse * inverse))
