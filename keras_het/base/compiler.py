"""PyTorch's compiler: with `jit_compile=True` it compiles only the block bodies of a head."""

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

_compiler: contextvars.ContextVar[Compiler | None] = contextvars.ContextVar("compiler of a step", default=None)
_max_rows: dict[tuple, int] = {}
_bodies: dict[tuple, Callable] = {}


def active_compiler() -> Compiler | None:
    """Returns the compiler of the current step, in this thread; None if the step is not compiled."""
    return _compiler.get()


def compile_body(function: Callable, tensors: Any) -> Callable:
    """Compiles the body of a block in a compiled step, but not a smaller last block, which would compile it again."""
    compiler = active_compiler()
    if compiler is None:
        return function
    kind, rows = (compiler, function, *(tuple(x.shape[1:]) for x in tensors)), tensors[0].shape[0]
    _max_rows[kind] = max(rows, _max_rows.get(kind, 0))
    if rows < _max_rows[kind]:
        return function
    if (compiler, function) not in _bodies:
        _bodies[compiler, function] = compiler(function)
    return _bodies[compiler, function]


def outside_graph(function: Function) -> Function:
    """Runs a function outside PyTorch's graphs if a whole step is compiled (`jit_compile=True`).

    Tracing the nodes and the block loop causes dozens of graph breaks, minutes of compilation and a slower step. So
    only the block bodies are compiled. On other backends and in an export the function is unchanged.
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
        is_traced = torch.compiler.is_dynamo_compiling() and not is_exporting(torch)
        return (outside if is_traced else function)(*arguments, **options)

    return cast(Function, inside_or_outside)


@contextlib.contextmanager
def compiling_bodies(compiler: Compiler | None) -> Iterator[None]:
    """Makes a compiler active in this thread; None changes nothing."""
    token = _compiler.set(compiler or _compiler.get())
    try:
        yield
    finally:
        _compiler.reset(token)
