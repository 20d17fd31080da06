"""Settings for the whole process, beside those of `keras.config`."""

from collections.abc import Callable

import keras

from keras_het.base import compiler as chosen
from keras_het.base.refusal import refusal

__all__ = ["compile_blocks"]


def compile_blocks(compiler: Callable[[Callable], Callable] | None) -> None:
    """Compiles the two functions in which a training step on PyTorch spends most of its time.

    A head with nodes computes the logits of some rows of the batch at some nodes, block by block, once forward and once
    backward. PyTorch runs each operation on a block by itself, a pass over memory. A compiler makes one or two passes
    of them. JAX and TensorFlow compile the whole step already. The results differ by rounding alone. With
    `model.compile(jit_compile=True)` Keras compiles the step on PyTorch, too, and these functions without this call.

    It holds for all heads of the process, also in the middle of training. Each of the two functions is compiled at its
    first call, and again for another kind of head or another size of the blocks: that of a batch that fits one block is
    the size of the batch. A batch of another size does not compile anew if it is cut into blocks.

    Args:
        compiler: a function that takes a function of tensors and returns a faster one, such as `torch.compile`; None
            for no compiler, as at the start.
    Raises:
        ValueError: if `compiler` is no function, or the backend is not PyTorch.

    Example:
        >>> import keras
        >>> if keras.config.backend() == "torch":
        ...     import torch
        ...     compile_blocks(torch.compile)     # at the first training step; needs a C++ compiler on a processor
        ...     compile_blocks(None)
    """
    if compiler is not None and not callable(compiler):
        rule = "be a function that compiles functions, such as torch.compile, or None"
        raise refusal("`compiler` of `compile_blocks`", rule, f"compiler={compiler!r}")
    backend = keras.config.backend()
    if compiler is not None and backend != "torch":
        rule = f"be None on the backend {backend}, which compiles the whole step already: it is for PyTorch"
        raise refusal("`compiler` of `compile_blocks`", rule, f"compiler={compiler!r}")
    chosen.set_compiler(compiler)
