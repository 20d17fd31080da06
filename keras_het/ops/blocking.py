"""Sizes of the blocks in which logits are computed: rows of the batch at a chunk of the nodes.

The work on a block is a dozen passes over its logits. A block on a CPU fits the cache: the passes would take two to
three times as long from main memory. A block on an accelerator is large enough for every pass to take longer than its
launch.
"""

import math

import keras

from keras_het.base.compiler import active_compiler
from keras_het.base.tensor import Tensor

BLOCK_ELEMENTS = 1 << 20  # logits of one block: 4 MiB of float32
TORCH_DIVISOR = 2  # of the budget of a training step: PyTorch holds several arrays of a block at once
ACCELERATOR_ELEMENTS = 1 << 24
CHUNK_SIZE = 64  # nodes of one block: fewer make thin matrix products
MIN_BLOCK_NODES = 8  # of a block of a whole batch
LARGEST_BLOCK = 8  # budgets, of a block of two rows
MOST_CHUNKS = 32
TYPICAL_BATCH = 128  # stands in for a batch size that is unknown when the graph is made
UNKNOWN_ROWS = 32  # of a block of such a batch; the default batch size of `fit`


def inference_block_sizes(
    loc: Tensor, num_samples: int, units: int, chunk_size: int | None = None
) -> tuple[int | None, int]:
    """(rows, nodes) of a block of a prediction, by the budget of two blocks.

    rows is None, for all rows, if they fit, if their number is unknown, or if all nodes are held at once. Without a
    `chunk_size` the loop over the nodes is unrolled into at most `MOST_CHUNKS` chunks, because each adds to the time
    and memory of compiling a graph.
    """
    if chunk_size is not None and chunk_size >= num_samples:
        return None, num_samples
    # An unknown size is None, or a tensor where it is traced: computing with it would fail.
    known = all(isinstance(size, int) for size in loc.shape[:-1])
    examples, budget = math.prod(loc.shape[:-1]) if known else TYPICAL_BATCH, 2 * _budget(loc)
    fewest = 16 if known else 8
    if chunk_size is None:
        fitting = min(CHUNK_SIZE, max(fewest, budget // (units * max(1, examples))))
        chunk_size = max(fitting, math.ceil(num_samples / MOST_CHUNKS))
    rows = max(2, budget // (units * fewest))
    return rows if known and rows < examples else None, chunk_size


def block_sizes(
    loc: Tensor, num_samples: int, units: int, chunk_size: int | None = None, whole_batch: bool = False
) -> tuple[int | None, int]:
    """(rows, nodes) of a block of the budget.

    Without a `chunk_size` a block has `CHUNK_SIZE` nodes, or more if the whole batch leaves room. It has fewer, but at
    least 8, if two rows with so many are above the budget on PyTorch, or above eight budgets elsewhere. It never has
    more than all nodes. It has at least two rows, because XLA shares out the work on a block by rows. A block that must
    have the whole batch has all rows, None, and fewer nodes instead. A batch is cut evenly. Blocks of an unknown batch
    are small: the last one might be mostly padding.

    PyTorch's compiler compiles once more for each size: then the rows do not depend on a batch that needs several
    blocks, and the nodes are cut evenly where they can be.
    """
    on_torch = keras.config.backend() == "torch"
    batch, budget = loc.shape[0], _budget(loc, TORCH_DIVISOR if on_torch else 1)
    if whole_batch:
        fitting = max(MIN_BLOCK_NODES, budget // (units * max(1, batch or TYPICAL_BATCH)))
        return None, _cut(num_samples, fitting) if chunk_size is None else min(num_samples, chunk_size)
    if chunk_size is None:
        chunk_size = max(CHUNK_SIZE, budget // (units * max(1, batch or TYPICAL_BATCH)))
        # Every pass on PyTorch writes a new block to memory: a block above the budget is slower than a thin one. XLA
        # fuses passes, and likes thick ones; but an image may have more logits than any head of classes.
        most = budget * (1 if on_torch else LARGEST_BLOCK)
        chunk_size = _cut(num_samples, min(chunk_size, max(MIN_BLOCK_NODES, most // (2 * units))))
    chunk_size = min(num_samples, chunk_size)
    rows = max(2, budget // (units * chunk_size))
    if batch is None:
        return min(rows, UNKNOWN_ROWS), chunk_size
    evenly = batch > rows and active_compiler() is None
    return math.ceil(batch / math.ceil(batch / rows)) if evenly else rows, chunk_size


def _cut(num_samples: int, most: int) -> int:
    """Nodes of a chunk of at most `most`; for a compiler their largest divisor above most / 2, if there is one."""
    most = min(num_samples, most)
    sizes = range(most, most // 2, -1) if active_compiler() is not None else ()
    return next((size for size in sizes if num_samples % size == 0), most)


def _budget(tensor: Tensor, divisor: int = 1) -> int:
    backend = keras.config.backend()
    if backend == "torch":
        on_processor = tensor.device.type == "cpu"
    elif backend in ("jax", "tensorflow"):
        on_processor = all(name.startswith("cpu") for name in keras.distribution.list_devices())
    else:  # numpy, openvino, mlx: without a list of devices
        on_processor = True
    return BLOCK_ELEMENTS // divisor if on_processor else ACCELERATOR_ELEMENTS
