"""PyTorch's compilers: one for the bodies of blocks (`keras_het.layers.compile_blocks`), and one of a whole step."""

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, cast

import keras

from keras_het.base.internals import is_exporting
from keras_het.base.refusal import refusal

Compiler = Callable[[Callable], Callable]
Function = TypeVar("Function", bound=Callable)

# The compiler of a step that is compiled meanwhile, in this thread alone.
_of_step: contextvars.ContextVar[Compiler | None] = contextvars.ContextVar("compiler of a step", default=None)


class _Chosen:
    compiler: Compiler | None = None
    results: ClassVar[dict[Callable, Callable]] = {}
    most_rows: ClassVar[dict[tuple, int]] = {}


def compile_blocks(compiler: Compiler | None) -> None:
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
    _Chosen.compiler, _Chosen.results, _Chosen.most_rows = compiler, {}, {}


def in_force() -> Compiler | None:
    """The compiler that a user chose, or that of the step that is compiled, or None."""
    return _Chosen.compiler or _of_step.get()


def compiled(function: Callable, tensors: Any) -> Callable:
    """The function from the compiler, which is handed each function once; without a compiler the function itself.

    So it is for a block of fewer rows than one before, the last one of a batch: a compiler would compile once more.

    Args:
        function: the body of a block.
        tensors: the block's, the first with a row for each example, `(B, ...)`.
    """
    compiler = in_force()
    if compiler is None:
        return function
    kind, rows = (function, *(tuple(x.shape[1:]) for x in tensors)), tensors[0].shape[0]
    if rows < _Chosen.most_rows.get(kind, 0):
        return function
    _Chosen.most_rows[kind] = rows
    if function not in _Chosen.results:
        _Chosen.results[function] = compiler(function)
    return _Chosen.results[function]


def outside_graph(function: Function) -> Function:
    """The function, which PyTorch's compiler of a whole step (`jit_compile=True`) runs as it is, outside its graphs.

    In the nodes and in the loop over the blocks it would break off dozens of times and compile every piece, for minutes
    and for a slower step. Who asks for it has a compiler, so the bodies of the blocks are compiled instead.

    Args:
        function: function of a layer or an operation; on another backend it stays, and in an export.
    """
    if keras.config.backend() != "torch":
        return function
    torch = sys.modules["torch"]

    @torch.compiler.disable
    def outside(*arguments: Any, **options: Any) -> Any:
        with compiling_bodies(torch.compile):
            return function(*arguments, **options)

    @functools.wraps(function)
    def inside_or_outside(*arguments: Any, **options: Any) -> Any:
        traced = torch.compiler.is_dynamo_compiling() and not is_exporting(torch)
        return (outside if traced else function)(*arguments, **options)

    return cast(Function, inside_or_outside)


@contextlib.contextmanager
def compiling_bodies(compiler: Compiler | None) -> Iterator[None]:
    """A block of code in which a compiler is in force in this thread, unless a user chose another."""
    token = _of_step.set(compiler or _of_step.get())
    try:
        yield
    finally:
        _of_step.reset(token)
