"""Noises: how nodes make logits, and how gradients of the logits go back to the noise's parameters.

Leading axes are flattened to one, B. A chunk of C nodes has logits of shape `(B, K, C)`, nodes last, so that the matrix products
are plain two-dimensional ones. Gradients are sums over chunks; `gradients` turns the sums into those of the parameters.
"""

from typing import Any, NamedTuple

from keras import ops


class Chunk(NamedTuple):
    """C nodes in columns: `eps_diag` of shape `(K, C)`, `eps_factor` `(R, C)`, and factor e_R, `(K, C)`, if the batch shares the factor."""

    eps_diag: Any
    eps_factor: Any
    shared: Any = None


def make_noise(rows, *shared):
    """The noise of these parameters: `rows` have one row for each example, `shared` is a factor that all share, or nothing."""
    kind = ScaledFactorNoise if shared else FactorNoise if len(rows) == 3 else DiagonalNoise
    return kind(*rows, *shared)


class DiagonalNoise:
    """u = loc + scale_diag * e_K."""

    def __init__(self, loc, scale_diag):
        self.loc, self.scale_diag = loc, scale_diag

    def logits(self, chunk):
        """`(B, K, C)` logits at a chunk of nodes."""
        return self.loc[..., None] + self.scale_diag[..., None] * chunk.eps_diag

    def no_sums(self):
        """Zeros to which `pull_back` adds: `(B, K)` and `(B, K)`; with factors `(B, K)` and `(B, K, R + 1)`."""
        return ops.zeros_like(self.loc), ops.zeros_like(self.loc)

    def pull_back(self, sensitivity, chunk):
        """Sums over the chunk of its logits' gradients, `(B, K, C)`: times e_K, and alone, each `(B, K)`."""
        return ops.sum(sensitivity * chunk.eps_diag, axis=-1), ops.sum(sensitivity, axis=-1)

    def gradients(self, of_scale_diag, of_loc):
        """Gradients of (loc, scale_diag), and none of shared parameters."""
        return (of_loc, of_scale_diag), ()


class FactorNoise(DiagonalNoise):
    """u = loc + scale_diag * e_K + factor e_R, the last term as one (B K, R) by (R, C) product."""

    def __init__(self, loc, scale_diag, factor):
        super().__init__(loc, scale_diag)
        self.num_factors = factor.shape[-1]
        self.factor = ops.reshape(factor, (-1, self.num_factors))

    def logits(self, chunk):
        correlated = ops.reshape(ops.matmul(self.factor, chunk.eps_factor), (-1, *chunk.eps_diag.shape))
        return correlated + super().logits(chunk)

    def no_sums(self):
        return ops.zeros_like(self.loc), ops.zeros((*self.loc.shape, self.num_factors + 1), self.loc.dtype)

    def pull_back(self, sensitivity, chunk):
        """Sums over the chunk: times e_K, `(B, K)`, and, by one product, times e_R and alone, `(B, K, R + 1)`."""
        with_one = ops.concatenate([chunk.eps_factor, ops.ones_like(chunk.eps_factor[:1])])
        sums = ops.matmul(ops.reshape(sensitivity, (-1, sensitivity.shape[-1])), ops.transpose(with_one))
        of_scale_diag = ops.sum(sensitivity * chunk.eps_diag, axis=-1)
        return of_scale_diag, ops.reshape(sums, (-1, sensitivity.shape[1], self.num_factors + 1))

    def gradients(self, of_scale_diag, of_factor_and_loc):
        """Gradients of (loc, scale_diag, factor), and none of shared parameters."""
        return (of_factor_and_loc[..., -1], of_scale_diag, of_factor_and_loc[..., :-1]), ()


class ScaledFactorNoise(FactorNoise):
    """u = loc + scale_diag * e_K + row_scale * (factor e_R), the product taken once for the whole batch."""

    def __init__(self, loc, scale_diag, row_scale, factor):
        super().__init__(loc, scale_diag, factor)
        self.row_scale = row_scale

    def logits(self, chunk):
        return DiagonalNoise.logits(self, chunk) + self.row_scale[..., None] * chunk.shared

    def gradients(self, of_scale_diag, of_factor_and_loc):
        """Gradients of (loc, scale_diag, row_scale), and of the shared factor."""
        (of_loc, _, of_factor), _ = super().gradients(of_scale_diag, of_factor_and_loc)
        of_row_scale = ops.sum(of_factor * self.factor, axis=-1)
        return (of_loc, of_scale_diag, of_row_scale), (ops.sum(self.row_scale[..., None] * of_factor, axis=0),)
