"""log E[softmax] of Gaussian logits."""

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.mean import Mean
from keras_het.ops.normal import finite
from keras_het.ops.passes import outer_products, softmax, softmax_weights

LEFT_OUT = -1e12  # a log p below it belongs to a class left out by a mean of -inf


def remove_shift(loc: Tensor) -> Tensor:
    """Mean logits `(..., K)` about zero, because softmax ignores a shift.

    A large shift would make the temperature's gradient a difference of large numbers.
    """
    # logsumexp is between the maximum and log K above it. A maximum that serves an empty batch, too, is unknown to some
    # exporters.
    loc = finite(loc)
    return loc - ops.stop_gradient(ops.logsumexp(loc, axis=-1, keepdims=True))


def second_order_log_softmax(normal: Tensor) -> Tensor:
    """Returns the mean softmax to second order in the noise, normalised: no nodes, O(K R).

        log p_k = log s_k + (Sigma_kk - s' diag(Sigma) - 2 (Sigma s)_k + 2 s' Sigma s) / 2,
        s = softmax(loc), then log_softmax

    Args:
        normal: distribution of the logits `(..., K)` in temperatures.
    Returns:
        log-probabilities, `(..., K)`.
    Source: Collier et al. 2021, Appendix C, Eq. 13, with the factor 1 for its cross term, where 1/2 is printed.

    Example:
        >>> from keras_het.ops.low_rank import low_rank_normal
        >>> log_p = second_order_log_softmax(low_rank_normal(ops.zeros((1, 2)), ops.ones((1, 2))))
        >>> ops.convert_to_numpy(ops.exp(log_p)).tolist()
        [[0.5, 0.5]]
    """
    log_s = ops.log_softmax(normal.loc, axis=-1)
    s, variance = ops.exp(log_s), normal.variance()
    product = normal.covariance_times(s)
    common = ops.sum(s * (2.0 * product - variance), axis=-1, keepdims=True)
    return ops.log_softmax(log_s + 0.5 * (variance - 2.0 * product + common), axis=-1)


class SoftmaxMean(Mean):
    """log p_k = log mean_s exp(u_sk - L_s), L_s = logsumexp_k u_sk, and its derivative by the logits of a node.

    It is the log of the mean softmax of Collier et al. 2021, Eq. 3. A class is left out by a mean logit of -inf: p = 0,
    and log p and the gradients are finite. Logits of 1e4 and noise of 1e3 are safe.

    A_sk = exp(u_sk - log p_k - L_s) is the weight of node s in the mean of class k. p_k A_sk is the softmax of node s,
    so

        d (sum_k g_k log p_k) / d u_sk = A_sk (g_k - p_k sum_j g_j A_sj) / S.

    Logits from which log p (the `pivot`) is already subtracted need one exponential per element. Their maximum,
    max_k (u_sk - log p_k), lies between L_s and L_s + log S, so nothing over- or underflows, whatever the magnitude of
    the noise.
    """

    def terms(self, logits: Tensor) -> tuple[Tensor, ...]:
        """Softmax of every node."""
        return (softmax(logits),)

    def log_terms(self, logits: Tensor, axis: int) -> tuple[Tensor, ...]:
        """Log-softmax of every node, with the classes on `axis`."""
        return (logits - ops.logsumexp(logits, axis=axis, keepdims=True),)

    def pivot(self, log_p: Tensor) -> Tensor:
        """log p, which is subtracted from the logits before `cotangent`.

        It is 0 for a class that is left out, whose noise would otherwise be the largest logit.
        """
        return ops.where(log_p < LEFT_OUT, 0.0, log_p)

    def cotangent(self, logits: Tensor, log_p: Tensor, upstream: Tensor) -> Tensor:
        """Derivative by the logits of every node, times S."""
        p = ops.exp(log_p)
        weights = softmax_weights(logits)
        # Both sums over the classes in one product of (B, 2, K) by (B, K, C).
        rows = ops.stack([upstream, p], axis=1)
        of_upstream, total = ops.split(ops.matmul(rows, weights), 2, axis=1)
        inverse = 1.0 / total
        return weights * outer_products(rows, (inverse, -of_upstream * inverse * inverse))
