"""How far a long call is, and the time that is left."""

import time
from typing import Any, Self

import keras


class Progress:
    """The bar of Keras, which says the time left; it appears only where a call takes long.

    Leaving it as a context finishes the bar, also after an error.

    Args:
        count: number of parts that are to be done, at most.
        unit: word for a part.
        verbose: 0 for no bar.
        after: seconds before the bar appears.

    Example:
        >>> with Progress(2, "block", verbose=0) as bar:
        ...     bar.add()
        >>> bar.done
        1
    """

    def __init__(self, count: int, unit: str, verbose: int = 1, after: float = 10.0):
        self.count, self.done, self.appears = count, 0, time.monotonic() + after
        self._bar: Any = keras.utils.Progbar(count, unit_name=unit) if verbose else None
        self._is_shown = False

    def add(self, more: int = 1) -> None:
        """Moves the bar on by some parts."""
        self.done = min(self.count, self.done + more)
        if self._bar is not None and time.monotonic() >= self.appears and self.done < self.count:
            self._is_shown = True
            self._bar.update(self.done)

    def grow(self, more: int) -> None:
        """Adds parts that are to be done."""
        self.count += more
        if self._bar is not None:
            self._bar.target = self.count

    def close(self) -> None:
        """Finishes the bar: fewer parts may have been enough."""
        if self._is_shown:
            self._bar.update(self.count, finalize=True)
        self._bar, self._is_shown = None, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self.close()
        elif self._is_shown:
            print()  # a bar ends without a line break, which a traceback would be written behind
