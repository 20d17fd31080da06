"""Expectations over nodes, a chunk at a time, with a gradient of their own: memory does not grow with the number of nodes.

Two things vary and are kept apart: the *noise*, which maps nodes to logits and pulls a gradient of the logits back to its
parameters, and the *link*, which says what is averaged and how sensitive the result is to the logits of a node. Leading axes are
flattened to one, B; a chunk of C nodes has logits of shape `(B, K, C)`, nodes last, so that the matrix products are plain
two-dimensional ones.
"""

import math

from keras import ops

from keras_het.ops.nodes import Nodes

CHUNK_ELEMENTS = 1 << 22  # elements of one (B, K, C) block: 16 MiB of float32
SMALLEST_MEAN = 1e-30  # of probabilities: terms that underflow, below 1.2e-38 each, are less than a rounding error of it
TYPICAL_BATCH = 128  # stands in for a batch size that is unknown when the graph is made


class DiagonalNoise:
    """u = loc + scale_diag * e_K."""

    def __init__(self, loc, scale_diag):
        self.loc, self.scale_diag = loc, scale_diag

    def logits(self, chunk):
        """`(B, K, C)` logits at a chunk of nodes, `(K, C)` and `(R, C)`."""
        return self.loc[..., None] + self.scale_diag[..., None] * chunk.eps_diag

    def pull_back(self, sensitivity, chunk):
        """Gradients of (loc, scale_diag) from those of the chunk's logits."""
        return ops.sum(sensitivity, axis=-1), ops.sum(sensitivity * chunk.eps_diag, axis=-1)


class FactorNoise(DiagonalNoise):
    """u = loc + scale_diag * e_K + factor e_R, the last term as one (B K, R) by (R, C) product."""

    def __init__(self, loc, scale_diag, factor):
        super().__init__(loc, scale_diag)
        self.rows = ops.reshape(factor, (-1, factor.shape[-1]))

    def logits(self, chunk):
        correlated = ops.reshape(ops.matmul(self.rows, chunk.eps_factor), (-1, *chunk.eps_diag.shape))
        return correlated + super().logits(chunk)

    def pull_back(self, sensitivity, chunk):
        """Gradients of (loc, scale_diag, factor)."""
        rows = ops.reshape(sensitivity, (-1, sensitivity.shape[-1]))
        of_factor = ops.matmul(rows, ops.transpose(chunk.eps_factor))
        return *super().pull_back(sensitivity, chunk), ops.reshape(of_factor, (-1, sensitivity.shape[1], of_factor.shape[-1]))


class ScaledFactorNoise(DiagonalNoise):
    """u = loc + scale_diag * e_K + row_scale * (factor e_R), the product taken once for the whole batch."""

    def __init__(self, loc, scale_diag, factor, row_scale):
        super().__init__(loc, scale_diag)
        self.factor, self.row_scale = factor, row_scale

    def logits(self, chunk):
        return super().logits(chunk) + self.row_scale[..., None] * ops.matmul(self.factor, chunk.eps_factor)

    def pull_back(self, sensitivity, chunk):
        """Gradients of (loc, scale_diag, factor, row_scale)."""
        shared = ops.matmul(self.factor, chunk.eps_factor)
        of_shared = ops.sum(sensitivity * self.row_scale[..., None], axis=0)
        of_factor = ops.matmul(of_shared, ops.transpose(chunk.eps_factor))
        return *super().pull_back(sensitivity, chunk), of_factor, ops.sum(sensitivity * shared, axis=-1)


_NOISES = {2: DiagonalNoise, 3: FactorNoise, 4: ScaledFactorNoise}


def expectation(link, normal, nodes, temperature, chunk_size="auto", unroll=False):
    """The link's expectation under `normal / temperature`, averaged over the nodes.

    Args:
        link: `SoftmaxLink()` or `SigmoidLink()`.    normal: `LowRankNormal`, with any number of leading axes.
        nodes: `Nodes`, S of them.    temperature: tau, a number or a scalar tensor; it gets a gradient.
        chunk_size: nodes per chunk; "auto" fits a block to a budget; None takes all at once in plain operations, so that it can be
            differentiated any number of times.
        unroll: a Python loop over the chunks in plain operations, for graphs that are exported.
    Returns: shape `(..., K)`.
    """
    normal, size = normal.as_tensors(), (nodes.eps_diag.shape[1], nodes.eps_factor.shape[1])
    _check_sizes(normal, *size)
    parameters = _parameters(link, normal, ops.convert_to_tensor(temperature, normal.loc.dtype), *size)
    if chunk_size is None:
        chunk_size, unroll = nodes.num_samples, True
    elif chunk_size == "auto":
        chunk_size = auto_chunk_size(TYPICAL_BATCH if unroll else parameters[0].shape[0], size[0])
    average = _unrolled if unroll else _streamed
    return ops.reshape(average(link, parameters, nodes, min(chunk_size, nodes.num_samples)), ops.shape(normal.loc))


def _check_sizes(normal, units, num_factors):
    given = {"loc": (normal.loc, -1, units)}
    if normal.factor is not None:
        given |= {"factor": (normal.factor, -2, units), "factor ": (normal.factor, -1, num_factors)}
    elif normal.row_scale is not None:
        raise ValueError("`row_scale` scales the rows of `factor`, which must be given. Received: factor=None")
    for name, (tensor, axis, size) in given.items():
        if isinstance(tensor.shape[axis], int) and tensor.shape[axis] != size:  # a traced size is a tensor, and was checked before
            raise ValueError(
                f"`{name.strip()}` must have the size of the nodes, {size}, on axis {axis}. Received: shape {tuple(tensor.shape)}"
            )


def auto_chunk_size(batch, units):
    """Nodes per chunk for logits of shape `(B, K)`: a multiple of 8 from 8 to 64, by the budget of one block."""
    fitting = CHUNK_ELEMENTS // max(1, (batch or TYPICAL_BATCH) * units)
    return min(64, max(8, fitting // 8 * 8))


def _parameters(link, normal, temperature, units, num_factors):
    """The noise's parameters in units of the temperature, leading axes flattened.

    Autodiff through the division gives the temperature its gradient. The sizes are those of the nodes: a tensor that is traced for
    export does not know its own.
    """
    loc, scale_diag = (ops.reshape(x / temperature, (-1, units)) for x in (link.center(normal.loc), normal.scale_diag))
    if normal.factor is None:
        return loc, scale_diag
    if len(normal.factor.shape) == 2:
        row_scale = ops.ones_like(normal.loc) if normal.row_scale is None else normal.row_scale
        return loc, scale_diag, normal.factor / temperature, ops.reshape(row_scale, (-1, units))
    return loc, scale_diag, ops.reshape(normal.scaled_factor() / temperature, (-1, units, num_factors))


def _noise(parameters):
    return _NOISES[len(parameters)](*parameters)


def _unrolled(link, parameters, nodes, chunk_size):
    noise, dtype, sums, zero = _noise(parameters), parameters[0].dtype, [], 0.0
    for start in range(0, nodes.num_samples, chunk_size):
        chunk = Nodes(*(ops.cast(ops.transpose(x[start : start + chunk_size]), dtype) + zero for x in nodes))
        sums.append([ops.logsumexp(term, axis=-1) for term in link.log_terms(noise.logits(chunk))])
        # A compiler that sees no dependence between the chunks holds all of them in memory at once. Adding this zero is one.
        zero = 0.0 * ops.stop_gradient(ops.sum(sums[-1][0]))
    totals = [ops.logsumexp(ops.stack(parts), axis=0) for parts in zip(*sums, strict=True)]
    return link.result([total - math.log(nodes.num_samples) for total in totals])


def _streamed(link, parameters, nodes, chunk_size):
    """Forward and backward pass are each one loop over the chunks; the backward pass computes the logits again."""

    def forward(*arguments):
        *parameters, eps_diag, eps_factor = arguments
        nodes = Nodes(eps_diag, eps_factor)
        value = _log_averages(link, parameters, nodes, chunk_size)

        def gradient(*saved, upstream=None):
            upstream = saved[-1] if upstream is None else upstream
            return *_pull_back(link, parameters, nodes, chunk_size, value, upstream), None, None

        return value, gradient

    return ops.custom_gradient(forward)(*parameters, *(ops.cast(x, parameters[0].dtype) for x in nodes))


def _log_averages(link, parameters, nodes, chunk_size):
    """The link's result from averages of probabilities, or, where one of them is too small for that, of their logs.

    The sum of probabilities needs one exponential per element, the sum in log space two.
    """
    noise = _noise(parameters)

    def add(chunk, sums):
        terms = link.terms(noise.logits(chunk))
        return tuple(s + ops.sum(term, axis=-1) for s, term in zip(sums, terms, strict=True))

    def add_in_logs(chunk, sums):
        terms = link.log_terms(noise.logits(chunk))
        return tuple(ops.logaddexp(s, ops.logsumexp(term, axis=-1)) for s, term in zip(sums, terms, strict=True))

    def in_logs():
        # Not from -inf: the difference of two infinities in logaddexp is NaN.
        empty = (ops.full_like(parameters[0], -1e30),) * link.num_terms
        return _fold(add_in_logs, empty, nodes, chunk_size)

    sums = _fold(add, (ops.zeros_like(parameters[0]),) * link.num_terms, nodes, chunk_size)
    safe = ops.all(ops.stack(sums) > SMALLEST_MEAN * nodes.num_samples)
    log_sums = ops.cond(safe, lambda: tuple(ops.log(s) for s in sums), in_logs)
    return link.result([s - math.log(nodes.num_samples) for s in log_sums])


def _pull_back(link, parameters, nodes, chunk_size, value, upstream):
    loc, *others = parameters
    noise = _noise((loc - link.pivot(value), *others))

    def add(chunk, gradients):
        sensitivity = link.sensitivity(noise.logits(chunk), value, upstream)
        return tuple(g + part for g, part in zip(gradients, noise.pull_back(sensitivity, chunk), strict=True))

    sums = _fold(add, tuple(ops.zeros_like(p) for p in parameters), nodes, chunk_size)
    return [s / nodes.num_samples for s in sums]


def _fold(add, carry, nodes, chunk_size):
    """carry = add(chunk, carry) over all chunks, in a loop that compiles to one body, and the remainder after it."""
    full, rest = divmod(nodes.num_samples, chunk_size)
    split = full * chunk_size
    blocks = [ops.transpose(ops.reshape(x[:split], (full, chunk_size, x.shape[1])), (0, 2, 1)) for x in nodes]
    carry = ops.fori_loop(0, full, lambda i, carry: add(Nodes(*(x[i] for x in blocks)), carry), carry)
    return add(Nodes(*(ops.transpose(x[split:]) for x in nodes)), carry) if rest else carry
