"""The joint likelihood of the labels of all pixels of an image, under one Gaussian of all their logits.

Given the noise of the factors, which all pixels share, the pixels are independent, and the own noise of each logit has
a closed form. So only the factors are averaged over nodes, and a node has one number, the log-likelihood of the whole
image. To the loops over the nodes, that number is the only logit of a distribution.
"""

import math
from typing import Any

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.labels import integer_labels
from keras_het.ops.mean import LogMeanExp
from keras_het.ops.nodes import Nodes
from keras_het.ops.normal import Normal
from keras_het.ops.streaming import expectation

TYPICAL_PIXELS = 1 << 16  # stands in for a number of pixels that is unknown when the graph is made

# Own variances saturate here: without a limit the second order exceeds every bound, and would pay for large d. Of 2 to
# 8 it has the least error for ten classes (for two, 2 has).
MOST_VARIANCE = 4.0


def log_joint_pixels(
    normal: Any,
    labels: Tensor,
    nodes: Nodes,
    valid: Tensor | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """The log-probability of the labels of all pixels of an image, averaged over nodes of the factors.

        log p(y) = log E_{e_R}[ prod_i p(y_i | e_R) ],     p(k | e_R) = softmax_k(c + w (1/2 - s)),
        c = mu + V e_R,   s = softmax(c),   w = 4 d^2 / (4 + d^2)

    Here i runs over the pixels, and e_R is one for all of them. The second formula is E_{e_i}[softmax(mu + V e_R +
    d e_i)] to second order in d, with variances that saturate, and normalised. (Its mean error of log p is below .003
    for d = .5, .03 for d = 1, and .15 for d = 2.) It sums to one over all label maps for any d. A node of own noise for
    each factor node, as in the paper, leaves the logarithm far too low: it has to find, by chance, the noise of all
    pixels at once.

    Args:
        normal: the Gaussian of u in temperatures, with `loc` `(B, ..., C)`, `scale_diag` and `scaled_factor()`.
        labels: classes, integers `(B, ...)`; a label outside [0, C) gives nan.
        nodes: `Nodes` of R factors; their e_K are not used.
        valid: pixels that count, booleans `(B, ...)`; None for all. The others get no gradient, whatever their logits.
        chunk_size: number of nodes held at once; None chooses it.
    Returns:
        shape `(B,)`; 0 for an image without valid pixels.
    Source: Monteiro et al. 2020, Eq. 5, with another estimate of it.

    Example:
        >>> from keras_het.ops.low_rank import low_rank_normal
        >>> from keras_het.ops.nodes import quasi_random
        >>> signs = ops.array([[[[5.0], [-5.0]], [[5.0], [-5.0]]]])
        >>> normal = low_rank_normal(ops.zeros((1, 2, 2)), ops.zeros((1, 2, 2)), signs)
        >>> nodes = quasi_random((0, 0), num_samples=256, units=0, num_factors=1)
        >>> maps = ([[0, 0]], [[0, 1]])
        >>> [round(float(ops.exp(log_joint_pixels(normal, ops.array(y), nodes))[0]), 2) for y in maps]
        [0.46, 0.04]
    """
    images = pixel_vectors(normal, labels, valid)
    if not images.size[1]:
        return ops.squeeze(images.at_zero(), -1)
    own = Nodes(nodes.eps_diag[:, :0], nodes.eps_factor)
    return ops.squeeze(expectation(LogMeanExp(), images, own, chunk_size), -1)


def pixel_vectors(normal: Any, labels: Tensor, valid: Tensor | None = None) -> "PixelVectors":
    """The log-likelihood of label maps as a function of the factors' noise; see `log_joint_pixels`."""
    loc, factor = normal.loc, normal.scaled_factor()
    places, classes = loc.shape[1:-1], loc.shape[-1]
    pixels = math.prod(places) if all(isinstance(size, int) for size in places) else -1
    is_class = ops.equal(integer_labels(labels)[..., None], ops.arange(classes, dtype="int32"))
    targets = ops.where(ops.any(is_class, axis=-1, keepdims=True), ops.cast(is_class, loc.dtype), float("nan"))
    rows = [loc, normal.scale_diag, factor, targets]
    if valid is not None:  # before anything is computed: at an infinite logit or variance, 0 times a slope would be nan
        rows = [ops.where(valid[..., None, None] if x is factor else valid[..., None], x, 0.0) for x in rows]
    rows[1] = MOST_VARIANCE * ops.square(rows[1]) / (MOST_VARIANCE + ops.square(rows[1]))
    shape = (ops.shape(loc)[0], pixels, classes)
    loc, variance, factor, targets = (
        ops.reshape(x, (*shape, normal.size[1]) if len(x.shape) > len(loc.shape) else shape) for x in rows
    )
    return PixelVectors(ops.zeros_like(loc[:, 0, :1]), loc, variance, factor, targets, size=(0, normal.size[1]))


class PixelVectors(Normal):
    """Log-likelihoods of label maps as functions of the factors' noise.

        l(e) = offset + sum_ik t_ik log softmax_k(c_i + w_i (1/2 - softmax(c_i))),     c_i = loc_i + V_i e

    Args:
        offset: added to the log-likelihood, `(B, 1)`.
        loc: mean logits, `(B, P, C)`.
        variance: w, own variances that saturate, `(B, P, C)`.
        factor: V, `(B, P, C, R)`.
        targets: one-hot labels, `(B, P, C)`; zeros for a pixel that does not count.
        size: 0 and R, integers.
    """

    num_rows = 5
    in_logits = (True, True, False, True, False)

    def __init__(
        self, offset: Tensor, loc: Tensor, variance: Tensor, factor: Tensor, targets: Tensor, size: tuple[int, int]
    ) -> None:
        super().__init__(offset, loc, variance, factor, targets, size=size, units=1)
        self.mean_logits, self.own, self.factor, self.targets = loc, variance, factor, targets

    @property
    def num_logits(self) -> int:
        pixels, classes = self.factor.shape[1:3]
        return classes * (pixels if isinstance(pixels, int) else TYPICAL_PIXELS)

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        pixels = tuple(self.factor.shape[1:3])
        return (1,), pixels, pixels, (*pixels, self.size[1]), pixels

    def at_zero(self) -> Tensor:
        """The log-likelihood where the factors' noise is zero, `(B, 1)`."""
        return ops.squeeze(self._log_likelihoods(self.mean_logits[..., None]), -1)

    def logits(self, nodes: Nodes) -> Tensor:
        return ops.swapaxes(self.logits_at(tuple(ops.transpose(x) for x in self.tables(nodes))), -1, -2)

    def tables(self, nodes: Nodes) -> tuple[Tensor, ...]:
        return (nodes.eps_factor,)

    def logits_at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        """`(B, 1, nodes)` log-likelihoods."""
        return self._log_likelihoods(self._at(chunk))

    def vjp(self, cotangent: Tensor, chunk: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Gradients of `tensors`: sums over the nodes of a chunk.

        Args:
            cotangent: gradients by the log-likelihoods, `(B, 1, nodes)`.
            chunk: columns of the tables.
        """
        u = self._at(chunk)
        shares, targets, own = ops.softmax(u, axis=-2), self.targets[..., None], self.own[..., None]
        p = ops.softmax(u + own * (0.5 - shares), axis=-2)
        slopes = cotangent[:, None] * (targets - ops.sum(targets, axis=-2, keepdims=True) * p)
        of_shares = own * slopes
        of_u = slopes - shares * (of_shares - ops.sum(of_shares * shares, axis=-2, keepdims=True))
        of_factor = ops.matmul(ops.reshape(of_u, (-1, of_u.shape[-1])), ops.transpose(chunk[0]))
        return (
            ops.sum(cotangent, axis=-1),
            ops.sum(of_u, axis=-1),
            ops.sum(slopes * (0.5 - shares), axis=-1),
            ops.reshape(of_factor, ops.shape(self.factor)),
            ops.zeros_like(self.targets),
        )

    def _at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        """Logits without the pixels' own noise, `(B, P, C, nodes)`."""
        shared = ops.matmul(ops.reshape(self.factor, (-1, self.size[1])), chunk[0])
        return self.mean_logits[..., None] + ops.reshape(shared, (*ops.shape(self.factor)[:3], chunk[0].shape[-1]))

    def _log_likelihoods(self, u: Tensor) -> Tensor:
        """`(B, 1, nodes)` at logits without the pixels' own noise, `(B, P, C, nodes)`."""
        corrected = u + self.own[..., None] * (0.5 - ops.softmax(u, axis=-2))
        log_p = self.targets[..., None] * ops.log_softmax(corrected, axis=-2)
        return self.loc[..., None] + ops.sum(log_p, axis=(1, 2))[:, None]
