"""PyTorch's compiler: with `jit_compile=True` it compiles the bodies of blocks, and leaves the rest of a head out."""

import contextlib
import contextvars
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import keras

from keras_het.base.internals import is_exporting

Compiler = Callable[[Callable], Callable]
Function = TypeVar("Function", bound=Callable)

# The compiler of the step that is being compiled, in this thread alone.
_compiler: contextvars.ContextVar[Compiler | None] = contextvars.ContextVar("compiler of a step", default=None)
_most_rows: dict[tuple, int] = {}
_compiled: dict[tuple, Callable] = {}


def active_compiler() -> Compiler | None:
    """The compiler of the current step, or None."""
    return _compiler.get()


def compiled(function: Callable, tensors: Any) -> Callable:
    """Compiles the body of a block, if the current step is compiled.

    A smaller last block also runs uncompiled, to avoid a recompilation.

    Args:
        function: the body of a block.
        tensors: the block's tensors, the first with a row for each example, `(B, ...)`.
    """
    compiler = active_compiler()
    if compiler is None:
        return function
    kind, rows = (compiler, function, *(tuple(x.shape[1:]) for x in tensors)), tensors[0].shape[0]
    _most_rows[kind] = max(rows, _most_rows.get(kind, 0))
    if rows < _most_rows[kind]:
        return function
    if (compiler, function) not in _compiled:
        _compiled[compiler, function] = compiler(function)
    return _compiled[compiler, function]


def outside_graph(function: Function) -> Function:
    """Runs a function outside the graphs of PyTorch's compiler of a whole step (`jit_compile=True`).

    Tracing the nodes and the block loop causes dozens of graph breaks, minutes of compilation and a slower step; only
    the block bodies are compiled. On another backend and in an export the function stays as it is.
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
    """Makes a compiler the active one in this thread; None leaves the active one."""
    token = _compiler.set(compiler or _compiler.get())
    try:
        yield
    finally:
        _compiler.reset(token)
