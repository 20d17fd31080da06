"""Averages of likelihoods over chunks of nodes, which the backward pass recomputes."""

import math
from collections.abc import Callable

import keras
from keras import ops

from keras_het.base.tensor import Tensor
from keras_het.ops import blocking
from keras_het.ops.nodes import Nodes


def log_mean_over_nodes(
    log_likelihoods: Callable[..., Tensor],
    nodes: Nodes,
    rows: tuple[Tensor, ...],
    units: int,
    chunk_size: int | None = None,
) -> Tensor:
    """Returns log mean_s exp(l_s) over the nodes of the factors, `(...)`, with the memory of one chunk of nodes.

    `log_likelihoods` computes l, `(..., nodes)`, from a chunk of noise, `(R, nodes)`, and the rows, which have leading
    axes `(...)`, and get gradients of any order. `units` is the number of array elements per node and entry of `(...)`.
    """
    noise, count = ops.cast(nodes.eps_factor, rows[0].dtype), nodes.num_samples
    units *= math.prod(axis for axis in rows[0].shape[1:-1] if isinstance(axis, int))
    _, size = blocking.block_sizes(rows[0], count, units, chunk_size, whole_batch=True)
    # The rows are arguments, because TensorFlow gives no gradient to tensors in the closure of a recomputed function.
    recomputed = keras.remat(log_likelihoods)
    stop = count - count % size
    chunks = ops.transpose(ops.reshape(noise[:stop], (stop // size, size, noise.shape[1])), (0, 2, 1))
    # Not unrolled, because XLA would hold all chunks at once.
    total = ops.logsumexp(ops.map(lambda chunk: recomputed(chunk, *rows), chunks), axis=(0, -1))
    if stop < count:
        rest = recomputed(ops.transpose(noise[stop:]), *rows)
        total = ops.logaddexp(total, ops.logsumexp(rest, axis=-1))
    return total - math.log(count)
