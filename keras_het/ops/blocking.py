"""Sizes of the blocks in which logits are computed; a block is some rows of the batch at a chunk of nodes.

The work on a block is a dozen passes over its logits. On a CPU a block fits the cache: from main memory, the passes
would take two to three times as long. On an accelerator, a block is so large that a pass takes longer than its launch.
"""

import math

import keras

from keras_het.base.compiler import active_compiler
from keras_het.base.tensor import Tensor

BLOCK_ELEMENTS = 1 << 20  # 4 MiB of float32 logits
TORCH_DIVISOR = 2  # PyTorch holds several arrays of a block at once in training
ACCELERATOR_ELEMENTS = 1 << 24
CHUNK_SIZE = 64  # nodes; fewer make thin matrix products
MIN_BLOCK_NODES = 8
MAX_BLOCK_BUDGETS = 8  # for a block of two rows
MAX_CHUNKS = 32
TYPICAL_BATCH = 128  # examples, if the batch size is unknown when the graph is made
UNKNOWN_BATCH_ROWS = 32  # the default batch size of `fit`: the last block might be mostly padding


def inference_block_sizes(
    loc: Tensor, num_samples: int, units: int, chunk_size: int | None = None
) -> tuple[int | None, int]:
    """Returns (rows, nodes) of a block of a prediction, within the budget of two blocks.

    rows is None if one block has all rows: because they fit, because their number is unknown, or because the block has
    all nodes. Without a `chunk_size`, the loop is unrolled into at most `MAX_CHUNKS` chunks, because each chunk costs
    time and memory when a graph is compiled.
    """
    if chunk_size is not None and chunk_size >= num_samples:
        return None, num_samples
    # An unknown size is None, or a tensor if it is traced: computing with it would fail.
    is_known = all(isinstance(size, int) for size in loc.shape[:-1])
    examples, budget = math.prod(loc.shape[:-1]) if is_known else TYPICAL_BATCH, 2 * _budget(loc)
    min_nodes = 16 if is_known else 8
    if chunk_size is None:
        fitting_nodes = min(CHUNK_SIZE, max(min_nodes, budget // (units * max(1, examples))))
        chunk_size = max(fitting_nodes, math.ceil(num_samples / MAX_CHUNKS))
    rows = max(2, budget // (units * min_nodes))
    return rows if is_known and rows < examples else None, chunk_size


def block_sizes(
    loc: Tensor, num_samples: int, units: int, chunk_size: int | None = None, whole_batch: bool = False
) -> tuple[int | None, int]:
    """Returns (rows, nodes) of a block within the budget.

    Without a `chunk_size`, a block has `CHUNK_SIZE` nodes, or more if the whole batch leaves room. If two rows of as
    many nodes exceed the budget (on XLA: eight budgets), it has fewer nodes, at least 8. It has at least two rows,
    because XLA distributes the work on a block by rows. With `whole_batch`, rows is None, for all rows, and a block has
    fewer nodes instead. A batch is cut evenly.

    PyTorch's compiler compiles again for each size. Then the number of rows is the same for every batch that needs
    several blocks, and the nodes are cut evenly if possible.
    """
    on_torch = keras.config.backend() == "torch"
    batch, budget = loc.shape[0], _budget(loc, TORCH_DIVISOR if on_torch else 1)
    if whole_batch:
        nodes = max(MIN_BLOCK_NODES, budget // (units * max(1, batch or TYPICAL_BATCH)))
        return None, _chunk_size_within(num_samples, nodes) if chunk_size is None else min(num_samples, chunk_size)
    if chunk_size is None:
        chunk_size = max(CHUNK_SIZE, budget // (units * max(1, batch or TYPICAL_BATCH)))
        # Every pass on PyTorch writes a new block to memory: a block above the budget is slower than a thin one. XLA
        # fuses passes and prefers thick blocks, but an image can have more logits than any head of classes.
        max_elements = budget * (1 if on_torch else MAX_BLOCK_BUDGETS)
        chunk_size = _chunk_size_within(num_samples, min(chunk_size, max(MIN_BLOCK_NODES, max_elements // (2 * units))))
    chunk_size = min(num_samples, chunk_size)
    rows = max(2, budget // (units * chunk_size))
    if batch is None:
        return min(rows, UNKNOWN_BATCH_ROWS), chunk_size
    is_even = batch > rows and active_compiler() is None
    return math.ceil(batch / math.ceil(batch / rows)) if is_even else rows, chunk_size


def _chunk_size_within(num_samples: int, limit: int) -> int:
    """Returns the chunk size, at most `limit`; for a compiler, the largest divisor above limit / 2 if there is one."""
    limit = min(num_samples, limit)
    sizes = range(limit, limit // 2, -1) if active_compiler() is not None else ()
    return next((size for size in sizes if num_samples % size == 0), limit)


def _budget(tensor: Tensor, divisor: int = 1) -> int:
    backend = keras.config.backend()
    if backend == "torch":
        is_on_cpu = tensor.device.type == "cpu"
    elif backend in ("jax", "tensorflow"):
        is_on_cpu = all(name.startswith("cpu") for name in keras.distribution.list_devices())
    else:  # numpy, openvino and mlx list no devices
        is_on_cpu = True
    return BLOCK_ELEMENTS // divisor if is_on_cpu else ACCELERATOR_ELEMENTS
