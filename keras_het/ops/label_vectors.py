"""The joint likelihood of a label vector under a Gaussian of logits, where correlations between labels matter.

Given the noise of the factors, the labels are independent, and the own noise of each has a closed form. So only the
factors are averaged over nodes, and a node has one number, the log-likelihood of the whole vector. To the loops over
the nodes, that number is the only logit of a distribution.
"""

from typing import Any

from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops.mean import LogMeanExp
from keras_het.ops.nodes import Nodes
from keras_het.ops.normal import Normal
from keras_het.ops.sigmoid import log_expected_sigmoid, log_expected_sigmoid_slopes
from keras_het.ops.streaming import expectation

MISSING = -1  # a label that is not known
LARGEST = 80.0  # exponent: the gradient of a floor of 0 stays finite


def log_joint_labels(
    normal: Any,
    labels: Tensor,
    nodes: Nodes,
    flips: tuple[Tensor, Tensor] | None = None,
    chunk_size: int | None = None,
) -> Tensor:
    """The log-probability of label vectors under Gaussian logits, averaged over nodes of the factors.

        log p(y) = log E_{e_R}[ prod_c p(y_c | e_R) ],     p(1 | e_R) = q_c + (1 - q_c - f_c) E_{e_c}[sigmoid(u_c)]

    Here u = mu + d e_K + V e_R; f_c = p(label 0 | true label 1) and q_c = p(label 1 | true label 0). The expectation
    over e_c is in closed form (`log_expected_sigmoid`, error of its log below 1e-4). So the error of the nodes is one
    of R dimensions, whatever C is, and there is none without factors. The correlations of the logits get a gradient;
    from the marginal likelihood, the sum of log E[p(y_c | u_c)], they get none.

    Args:
        normal: the Gaussian of u in temperatures, with `loc`, `scale_diag` and `scaled_factor()`.
        labels: 0, 1, or -1 for one that is not known and counts for nothing, `(..., C)`; any other number gives nan.
        nodes: `Nodes` of R factors; their e_K are not used.
        flips: (f, q), each of shape `(C,)` or `(..., C)`; None for right labels.
        chunk_size: number of nodes held at once; None chooses it.
    Returns:
        shape `(...,)`.
    Source: Collier et al. 2021, section 2, which averages the product over samples of u.

    Example:
        >>> from keras_het.ops.low_rank import low_rank_normal
        >>> from keras_het.ops.nodes import quasi_random
        >>> normal = low_rank_normal(ops.zeros((1, 2)), ops.zeros((1, 2)), 5.0 * ops.ones((1, 2, 1)))
        >>> nodes = quasi_random((0, 0), num_samples=256, units=0, num_factors=1)
        >>> [round(float(ops.exp(log_joint_labels(normal, ops.array([y]), nodes))[0]), 2) for y in ([1, 1], [1, 0])]
        [0.42, 0.08]
    """
    vectors = label_vectors(normal, labels, flips)
    if not vectors.size[1]:
        return ops.squeeze(vectors.at_zero(), -1)
    own = Nodes(nodes.eps_diag[:, :0], nodes.eps_factor)
    return ops.squeeze(expectation(LogMeanExp(), vectors, own, chunk_size), -1)


def label_vectors(normal: Any, labels: Tensor, flips: tuple[Tensor, Tensor] | None = None) -> "LabelVectors":
    """The log-likelihood of label vectors as a function of the factors' noise; see `log_joint_labels`."""
    loc = normal.loc
    labels = ops.cast(ops.convert_to_tensor(labels), loc.dtype)
    positive, negative, missing = (ops.equal(labels, value) for value in (1.0, 0.0, MISSING))
    sign = ops.where(positive, 1.0, -1.0)
    hidden, false = (ops.zeros_like(loc), ops.zeros_like(loc)) if flips is None else (_like(x, loc) for x in flips)
    known = ops.logical_or(positive, negative)
    kept = ops.where(known, 1.0 - hidden - false, ops.where(missing, 0.0, float("nan")))
    floor = ops.where(known, ops.where(positive, false, hidden), 1.0)
    offset = ops.zeros_like(loc[..., :1])
    factor = sign[..., None] * normal.scaled_factor()
    return LabelVectors(offset, sign * loc, normal.scale_diag, factor, floor, kept, size=(0, factor.shape[-1]))


def _like(x: Tensor, loc: Tensor) -> Tensor:
    return ops.convert_to_tensor(x, loc.dtype) + ops.zeros_like(loc)


class LabelVectors(Normal):
    """Log-likelihoods of label vectors as functions of the factors' noise.

        l(e) = offset + sum_c log(floor_c + kept_c E[sigmoid(loc_c + d_c e_c + V_c e)])

    Args:
        offset: added to the log-likelihood, `(..., 1)`.
        loc: mean logits, with the sign of the label, `(..., C)`.
        scale_diag: d, `(..., C)`.
        factor: V, with the signs of the labels, `(..., C, R)`.
        floor: probability of the label if the true one is the other, `(..., C)`; 1 for a label that is not known.
        kept: number that a true label adds to that, `(..., C)`; 0 for a label that is not known.
        size: 0 and R, integers.
    """

    num_rows = 6
    in_logits = (True, True, True, True, False, False)

    def __init__(
        self,
        offset: Tensor,
        loc: Tensor,
        scale_diag: Tensor,
        factor: Tensor,
        floor: Tensor,
        kept: Tensor,
        size: tuple[int, int],
    ) -> None:
        super().__init__(offset, loc, scale_diag, factor, floor, kept, size=size, units=1)
        self.mean_logits, self.scale_diag, self.factor = loc, scale_diag, factor
        self.floor, self.kept = floor, kept

    @property
    def num_labels(self) -> int:
        """C."""
        return self.factor.shape[-2]

    @property
    def num_logits(self) -> int:
        return self.num_labels

    @property
    def row_shapes(self) -> tuple[tuple[int, ...], ...]:
        labels = (self.num_labels,)
        return (1,), labels, labels, (*labels, self.size[1]), labels, labels

    def at_zero(self) -> Tensor:
        """The log-likelihood where the factors' noise is zero, `(..., 1)`."""
        return self.loc + ops.sum(self._log_terms(self.mean_logits, self.scale_diag, ()), axis=-1, keepdims=True)

    def logits(self, nodes: Nodes) -> Tensor:
        u = self.mean_logits[..., None, :] + ops.matmul(nodes.eps_factor, ops.swapaxes(self.factor, -1, -2))
        log_terms = self._log_terms(u, self.scale_diag[..., None, :], (..., None, slice(None)))
        return self.loc[..., None, :] + ops.sum(log_terms, axis=-1, keepdims=True)

    def tables(self, nodes: Nodes) -> tuple[Tensor, ...]:
        return (nodes.eps_factor,)

    def logits_at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        """`(B, 1, C)` log-likelihoods."""
        log_terms = self._log_terms(self._at(chunk), self.scale_diag[..., None], (..., None))
        return self.loc[..., None] + ops.sum(log_terms, axis=1, keepdims=True)

    def no_sums(self) -> tuple[Tensor, ...]:
        """Zeros for the gradients of `tensors`."""
        return tuple(ops.zeros_like(x) for x in self.tensors)

    def vjp(self, cotangent: Tensor, chunk: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Gradients of `tensors`: sums over the nodes of a chunk.

        Args:
            cotangent: gradients by the log-likelihoods, `(B, 1, C)`.
            chunk: columns of the tables.
        """
        log_p, by_loc, by_variance = log_expected_sigmoid_slopes(
            self._at(chunk), ops.square(self.scale_diag[..., None])
        )
        log_terms = self._mixed(log_p, (..., None))
        of_floor = cotangent * ops.exp(ops.minimum(-log_terms, LARGEST))
        of_kept = cotangent * ops.exp(log_p - log_terms)
        of_log_p = of_kept * self.kept[..., None]
        of_loc = of_log_p * by_loc
        of_factor = ops.matmul(ops.reshape(of_loc, (-1, of_loc.shape[-1])), ops.transpose(chunk[0]))
        of_scale_diag = 2.0 * self.scale_diag * ops.sum(of_log_p * by_variance, axis=-1)
        sums = (ops.sum(x, axis=-1) for x in (cotangent, of_loc, of_floor, of_kept))
        of_offset, of_mean, of_floor, of_kept = sums
        return (
            of_offset,
            of_mean,
            of_scale_diag,
            ops.reshape(of_factor, (-1, self.num_labels, self.size[1])),
            of_floor,
            of_kept,
        )

    def _at(self, chunk: tuple[Tensor, ...]) -> Tensor:
        """Logits without the labels' own noise, `(B, C, nodes)`."""
        shared = ops.matmul(ops.reshape(self.factor, (-1, self.size[1])), chunk[0])
        return self.mean_logits[..., None] + ops.reshape(shared, (-1, self.num_labels, chunk[0].shape[-1]))

    def _log_terms(self, u: Tensor, scale_diag: Tensor, place: tuple) -> Tensor:
        """log(floor + kept p), in the axes of u.

        Args:
            u: logits without the labels' own noise.
            scale_diag: d, in the axes of u.
            place: the index that brings the probabilities of flips to the axes of u.
        """
        return self._mixed(log_expected_sigmoid(u, ops.square(scale_diag))[0], place)

    def _mixed(self, log_p: Tensor, place: tuple) -> Tensor:
        """log(floor + kept p) from log p."""
        floor, kept = (x[place] if place else x for x in (self.floor, self.kept))
        has_floor = floor > 0
        mixed = ops.log(ops.where(has_floor, floor, 1.0) + kept * ops.exp(log_p))  # at least the floor: no underflow
        return ops.where(has_floor, mixed, log_p + ops.log(ops.where(has_floor, 1.0, kept)))
