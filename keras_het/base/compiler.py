"""PyTorch's compilers: one for the bodies of blocks (`keras_het.config.compile_blocks`), and one of a whole step."""

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, cast

import keras

Compiler = Callable[[Callable], Callable]
Function = TypeVar("Function", bound=Callable)

# The compiler of a step that is compiled meanwhile, in this thread alone.
_of_step: contextvars.ContextVar[Compiler | None] = contextvars.ContextVar("compiler of a step", default=None)


class _Chosen:
    compiler: Compiler | None = None
    results: ClassVar[dict[Callable, Callable]] = {}
    most_rows: ClassVar[dict[tuple, int]] = {}


def set_compiler(compiler: Compiler | None) -> None:
    """Sets the compiler, or None for none, and forgets the results of another."""
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
        traced = torch.compiler.is_dynamo_compiling() and not torch.compiler.is_exporting()
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
