"""Expectations over nodes, one block at a time, with a custom gradient: memory does not grow with the nodes.

The *distribution* maps nodes to logits, and maps a gradient of the logits to gradients of its tensors. The *mean* of a
link is the function to average, and returns the gradient of the logits of a node. A block is some rows of the batch at
a chunk of nodes; `blocking` chooses its size.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_het.base.compiler import Compiler, active_compiler, compile_body, compiling_bodies, outside_graph
from keras_het.base.refusal import refusal
from keras_het.base.tensor import Tensor
from keras_het.ops import blocking
from keras_het.ops.mean import Mean
from keras_het.ops.nodes import Nodes
from keras_het.ops.normal import Normal

# Terms below 1.2e-38 underflow. That is less than the rounding error of a mean of at least this size.
MIN_MEAN = 1e-30


@outside_graph
def expectation(
    mean: Mean, normal: Normal, nodes: Nodes, chunk_size: int | None = None, streamed: bool = True
) -> Tensor:
    """Averages a link under a Gaussian of logits over the nodes.

    The stream has a custom gradient, so memory does not grow with the number of nodes. Higher derivatives are correct,
    but their memory grows with the nodes. TensorFlow under XLA cannot differentiate the loops twice ("requires a fixed
    tensor list size"): use `streamed=False` there.

    Args:
        mean: a `Mean`, such as `SoftmaxMean()`.
        normal: a `Normal` of finite logits in temperatures, with any number of leading axes.
        nodes: S `Nodes`.
        chunk_size: number of nodes per block; None fits a block to a budget.
        streamed: boolean, whether to loop over one body with a custom gradient. Otherwise every chunk is unrolled in
            plain operations, for exported graphs, and only a large batch of known size is cut into blocks of rows.
    Returns:
        shape `(..., K)`.
    """
    if nodes.eps_factor is None:
        nodes = Nodes(nodes.eps_diag, nodes.eps_diag[:, :0])
    normal = _set_node_sizes(normal, nodes)
    if streamed:
        flat = normal.flat()
        sizes = blocking.block_sizes(flat.loc, nodes.num_samples, flat.num_logits, chunk_size, flat.whole_batch)
        stream = _Stream(mean, flat.maker(), *sizes)
        average = ops.custom_gradient(stream.value_and_gradient)(
            *map(_read, flat.tensors), *(ops.cast(x, flat.loc.dtype) for x in nodes)
        )
    else:
        rows, chunk_size = blocking.inference_block_sizes(normal.loc, nodes.num_samples, normal.num_logits, chunk_size)
        unrolled, flat = functools.partial(_average_unrolled, mean, nodes, chunk_size), normal
        if rows is None:
            (average,), _ = unrolled(normal)
        else:
            flat = normal.flat()
            (average,), _ = _map_rows(unrolled, rows, flat)
    return average if flat is normal else ops.reshape(average, ops.shape(normal.loc))


def _read(x: Tensor) -> Tensor:
    """Returns the value of a variable: outside a graph, TensorFlow's custom gradients refuse variables."""
    return ops.reshape(x, x.shape) if hasattr(x, "assign") else x


def _set_node_sizes(normal: Normal, nodes: Nodes) -> Normal:
    """Returns the distribution with the sizes of the nodes, which the shapes of traced tensors might lack."""
    for name, count, table in zip(("units", "factors"), normal.size, nodes, strict=True):
        if isinstance(count, int) and count != table.shape[1]:
            raise refusal("nodes", f"have the {count} {name} of the distribution", table.shape[1])
    size = (nodes.eps_diag.shape[1], nodes.eps_factor.shape[1])
    return normal if normal.size == size else type(normal)(*normal.tensors, size=size)


def _average_unrolled(mean: Mean, nodes: Nodes, chunk_size: int, normal: Normal) -> tuple[tuple, tuple]:
    """Returns the average in plain operations, by a Python loop over the chunks."""
    log_sums: list[list] = []
    tables = nodes if nodes.eps_factor.shape[1] else (nodes.eps_diag,)  # some exporters fail to write an empty table
    for start in range(0, nodes.num_samples, chunk_size):
        chunk = [ops.cast(x[start : start + chunk_size], normal.loc.dtype) for x in tables]
        if log_sums:
            zero = _zero_after(log_sums[-1][0])
            chunk = [x + zero for x in chunk]
        terms = mean.log_terms(normal.logits(Nodes(*chunk)), axis=-1)  # classes last: faster without the loops
        log_sums.append([ops.logsumexp(term, axis=-2) for term in terms])
    totals = [ops.logsumexp(ops.stack(x), axis=0) if len(x) > 1 else x[0] for x in zip(*log_sums, strict=True)]
    return (mean.result([total - math.log(nodes.num_samples) for total in totals]),), ()


def _zero_after(log_sum: Tensor) -> Tensor:
    """Returns a zero that depends on the chunk before, without which a compiler would hold all chunks at once."""
    # Sums of logs of averages never exceed 1e30, and neither does NaN.
    return ops.cast(ops.sum(log_sum) > 1e30, log_sum.dtype)


class _Stream(NamedTuple):
    """Forward and backward pass of the average, by loops over blocks.

    The arguments are the tensors from which `make` makes a distribution, and the two tables of nodes. The backward pass
    recomputes the logits with plain operations on the arguments, the upstream gradient and the value. So it can be
    differentiated any number of times, because `differentiable` gives the value its derivative. The memory for that
    grows with the number of nodes.
    """

    mean: Mean
    make: Callable[..., Normal]
    block_size: int | None
    chunk_size: int

    def value_and_gradient(self, *arguments: Any) -> tuple[Tensor, Callable]:
        """Returns the value, `(B, K)`, and its backward pass, for `ops.custom_gradient`."""
        normal, chunks = self.read(arguments)
        (value,), _ = _map_rows(functools.partial(_log_averages, self.mean, chunks), self.block_size, normal)
        on_torch = keras.config.backend() == "torch"
        # A closure over the output itself would keep the whole graph alive on PyTorch.
        saved_value = ops.stop_gradient(value) if on_torch else value
        compiler = active_compiler()  # PyTorch can run the backward pass in another thread, or outside a compiled step

        def gradient(*saved: Any, upstream: Tensor = None) -> tuple:
            if on_torch:
                return self.gradient(self.differentiable(saved_value, saved), saved, upstream, compiler)
            return self.gradient(saved_value, arguments, saved[-1])

        return value, gradient

    def read(self, arguments: Any) -> tuple[Normal, "Chunks"]:
        """Returns the distribution, and its nodes in chunks."""
        *tensors, eps_diag, eps_factor = arguments
        normal = self.make(*tensors)
        return normal, Chunks(normal.tables(Nodes(eps_diag, eps_factor)), self.chunk_size)

    def differentiable(self, value: Tensor, arguments: Any) -> Tensor:
        """Returns the known value with its derivative by the arguments, which costs nothing unless it is used."""

        def forward(value: Tensor, *arguments: Any) -> tuple:
            return value * 1, lambda value, *arguments, upstream: (
                None,
                *self.gradient(self.differentiable(value, arguments), arguments, upstream),
            )

        return ops.custom_gradient(forward)(value, *arguments)

    @outside_graph
    def gradient(self, value: Tensor, arguments: Any, upstream: Tensor, compiler: Compiler | None = None) -> tuple:
        """Returns the gradient of every argument for the upstream gradient, `(B, K)`; None for the nodes."""
        loc, *others = arguments
        normal, chunks = self.read((loc - self.mean.pivot(value), *others))
        function = functools.partial(_gradients, self.mean, chunks)
        with compiling_bodies(compiler):
            row_gradients, shared_gradients = _map_rows(function, self.block_size, normal, value, upstream)
        return *row_gradients, *shared_gradients, None, None


def _map_rows(function: Callable, block_size: int | None, normal: Normal, *others: Tensor) -> tuple[tuple, tuple]:
    """Applies a function in blocks of rows, joins its row results, and adds its totals.

    The function maps a distribution and the rows of `others` to (row results, totals). One block has all rows if they
    fit, or if `block_size` is None. A block has rows from all over the batch, so that devices share every block. The
    last block is filled with rows of zeros. Their logits are finite, and their upstream gradient is zero.
    """
    batch = normal.loc.shape[0]
    if block_size is None or (batch is not None and batch <= block_size):
        return function(normal, *others)
    count, rows = normal.num_rows, (*normal.tensors[: normal.num_rows], *others)

    def block_of(block: Any) -> tuple:
        return function(normal.with_rows(block[:count]), *block[count:])

    if keras.config.backend() == "torch":  # `ops.map` would keep blocks alive in reference cycles
        blocks = ([x[start : start + block_size] for x in rows] for start in range(0, batch, block_size))
        results, totals = zip(*map(block_of, blocks), strict=True)
        sums = tuple(sum(x) for x in zip(*totals, strict=True))
        return tuple(ops.concatenate(x) for x in zip(*results, strict=True)), sums
    size = ops.shape(rows[0])[0]
    # TensorFlow needs at least one block.
    num_padding = ops.where(size > 0, -size % block_size, block_size) if batch is None else -batch % block_size
    results, totals = ops.map(block_of, tuple(_to_blocks(x, block_size, num_padding) for x in rows))
    joined = (ops.reshape(ops.swapaxes(x, 0, 1), (-1, *ops.shape(x)[2:])) for x in results)
    return tuple(x[:size] for x in joined), tuple(ops.sum(x, axis=0) for x in totals)


def _to_blocks(x: Tensor, block_size: int, num_padding: Any) -> Tensor:
    """Cuts rows, `(B, ...)`, into blocks, `(blocks, block_size, ...)`."""
    padded = ops.pad(x, [[0, num_padding]] + [[0, 0]] * (len(x.shape) - 1))
    return ops.swapaxes(ops.reshape(padded, (block_size, -1, *ops.shape(x)[1:])), 0, 1)


def _log_averages(mean: Mean, chunks: "Chunks", normal: Normal) -> tuple[tuple, tuple]:
    """Returns the result from averages of probabilities, or if one is too small in log space, at twice the price."""
    # Not -inf, because the difference of two infinities in logaddexp is NaN.
    lowest = (ops.full_like(normal.loc, -1e30),) * mean.num_terms
    sums = chunks.fold(_add_terms, (ops.zeros_like(normal.loc),) * mean.num_terms, mean, normal)
    safe = ops.all(ops.stack(sums) > MIN_MEAN * chunks.num_samples)
    log_sums = ops.cond(
        safe, lambda: tuple(ops.log(s) for s in sums), lambda: chunks.fold(_add_log_terms, lowest, mean, normal)
    )
    return (mean.result([s - math.log(chunks.num_samples) for s in log_sums]),), ()


def _gradients(mean: Mean, chunks: "Chunks", normal: Normal, value: Tensor, upstream: Tensor) -> tuple[tuple, tuple]:
    """Returns the gradients of the tensors with a row for each example, and of the tensors that all examples share."""
    sums = chunks.fold(_add_gradients, normal.zero_sums(), mean, normal, value, upstream)
    gradients = normal.gradients(*(s / chunks.num_samples for s in sums))
    return gradients[: normal.num_rows], gradients[normal.num_rows :]


def _add_terms(mean: Mean, normal: Normal, sums: Any, chunk: Any) -> tuple:
    """Adds the terms at a chunk of nodes to their sums, each `(B, K)`: the body of the forward pass."""
    terms = mean.terms(normal.logits_at(chunk))
    return tuple(s + ops.sum(term, axis=-1) for s, term in zip(sums, terms, strict=True))


def _add_log_terms(mean: Mean, normal: Normal, sums: Any, chunk: Any) -> tuple:
    """Adds the terms at a chunk of nodes in log space: the body of the forward pass in log space."""
    terms = mean.log_terms(normal.logits_at(chunk), axis=1)
    return tuple(ops.logaddexp(s, ops.logsumexp(term, axis=-1)) for s, term in zip(sums, terms, strict=True))


def _add_gradients(mean: Mean, normal: Normal, value: Tensor, upstream: Tensor, sums: Any, chunk: Any) -> tuple:
    """Adds the gradients at a chunk of nodes to their sums: the body of the backward pass."""
    parts = normal.vjp(mean.cotangent(normal.logits_at(chunk), value, upstream), chunk)
    return tuple(s + part for s, part in zip(sums, parts, strict=True))


class Chunks:
    """Tables of S rows, cut into chunks for a loop: the full chunks along one axis, and a smaller last chunk."""

    def __init__(self, tables: tuple[Tensor, ...], chunk_size: int) -> None:
        self.num_samples = tables[0].shape[0]
        self.count, rest = divmod(self.num_samples, chunk_size)
        stop = self.count * chunk_size
        chunks = (ops.reshape(x[:stop], (self.count, chunk_size, x.shape[1])) for x in tables)
        self._full = [ops.transpose(x, (0, 2, 1)) for x in chunks]
        self._rest = tuple(ops.transpose(x[stop:]) for x in tables) if rest else None

    def fold(self, body: Callable, sums: tuple[Tensor, ...], mean: Mean, normal: Normal, *others: Tensor) -> tuple:
        """Applies sums = body(mean, normal, *others, sums, chunk) to all chunks, the smaller one last.

        `others` are further tensors with the rows of `normal`. The chunks are cut outside the body, because PyTorch's
        compiler would compile it once for each chunk.
        """
        add = functools.partial(compile_body(body, normal.tensors), mean, normal, *others)
        if keras.config.backend() == "torch":  # it unrolls every loop
            sums = functools.reduce(add, zip(*self._full, strict=True), sums)
        else:
            sums = ops.fori_loop(0, self.count, lambda i, sums: add(sums, tuple(x[i] for x in self._full)), sums)
        return sums if self._rest is None else body(mean, normal, *others, sums, self._rest)
