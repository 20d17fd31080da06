"""Isometric log-ratios: K probabilities as K - 1 coordinates without a constraint, and back."""

from keras import ops

from keras_het.base.tensor import Tensor


def log_ratios(log_p: Tensor) -> Tensor:
    """Isometric log-ratios (ilr) of probabilities, from their logarithms or from logits.

        ilr(p)_j = (sum_{i <= j} log p_i - j log p_{j+1}) / sqrt(j (j + 1)),   j = 1, ..., K - 1

    This is H' log p, where the K - 1 columns of H (Helmert's) are orthonormal, and orthogonal to the vector of ones: so
    a constant that is added to all logarithms changes nothing. H is not formed: the transform costs O(K).

    Args:
        log_p: log-probabilities or logits, `(..., K)`, with K from 2.
    Returns:
        shape `(..., K - 1)`.
    Source: Egozcue, Pawlowsky-Glahn, Mateu-Figueras and Barcelo-Vidal, Mathematical Geology 2003.

    Example:
        >>> float(log_ratios(ops.log(ops.array([0.5, 0.5])))[0])
        0.0
    """
    before, scale = _counts(log_p.shape[-1] - 1, log_p.dtype)
    return (ops.cumsum(log_p[..., :-1], axis=-1) - before * log_p[..., 1:]) * scale


def logits_of(ratios: Tensor) -> Tensor:
    """Logits of the probabilities with these isometric log-ratios: H v, of mean zero.

        softmax(H ilr(p)) = p

    Args:
        ratios: v, `(..., K - 1)`.
    Returns:
        shape `(..., K)`.

    Example:
        >>> p = ops.array([0.75, 0.25])
        >>> round(float(ops.softmax(logits_of(log_ratios(ops.log(p))))[0]), 4)
        0.75
    """
    before, scale = _counts(ratios.shape[-1], ratios.dtype)
    scaled, none = ratios * scale, ops.zeros_like(ratios[..., :1])
    later = ops.flip(ops.cumsum(ops.flip(scaled, axis=-1), axis=-1), axis=-1)
    return ops.concatenate([later, none], axis=-1) - ops.concatenate([none, before * scaled], axis=-1)


def _counts(ratios: int, dtype: str) -> tuple[Tensor, Tensor]:
    """j and 1 / sqrt(j (j + 1)), `(K - 1,)` each."""
    before = ops.arange(1, ratios + 1, dtype=dtype)
    return before, ops.rsqrt(before * (before + 1))
