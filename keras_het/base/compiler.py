"""The compiler that a user hands in for the bodies of blocks; see `keras_het.config.compile_blocks`."""

from collections.abc import Callable
from typing import Any

Compiler = Callable[[Callable], Callable]


class _Chosen:
    compiler: Compiler | None = None
    results: dict[Callable, Callable]
    most_rows: dict[tuple, int]


def choose(compiler: Compiler | None) -> None:
    """Sets the compiler, or None for none, and forgets the results of another."""
    _Chosen.compiler, _Chosen.results, _Chosen.most_rows = compiler, {}, {}


def is_chosen() -> bool:
    """Whether there is a compiler."""
    return _Chosen.compiler is not None


def compiled(function: Callable, tensors: Any) -> Callable:
    """The function from the compiler, which is handed each function once; without a compiler the function itself.

    So it is for a block of fewer rows than one before, the last one of a batch: a compiler would compile once more.

    Args:
        function: the body of a block.
        tensors: the block's, the first with a row for each example, `(B, ...)`.
    """
    if _Chosen.compiler is None:
        return function
    kind, rows = (function, *(tuple(x.shape[1:]) for x in tensors)), tensors[0].shape[0]
    if rows < _Chosen.most_rows.get(kind, 0):
        return function
    _Chosen.most_rows[kind] = rows
    if function not in _Chosen.results:
        _Chosen.results[function] = _Chosen.compiler(function)
    return _Chosen.results[function]
