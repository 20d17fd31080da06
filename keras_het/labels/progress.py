"""The progress bar of a long call, with the time left."""

from typing import Any, Self

import keras


class Progress:
    """The bar of Keras over all epochs of a call, a context that finishes the bar, also after an error."""

    def __init__(self, count: int, verbose: int = 1):
        self.count, self.done = count, 0
        self._bar: Any = keras.utils.Progbar(count, unit_name="epoch") if verbose and count else None

    def add(self, more: int) -> None:
        """Moves the bar on."""
        self.done = min(self.count, self.done + more)
        if self._bar is not None and self.done < self.count:
            self._bar.update(self.done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None and error[0] is None:
            self._bar.update(self.count, finalize=True)
        elif self._bar is not None and self.done:
            print()  # the bar ends without a line break, and a traceback would be written behind it
        self._bar = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bar": None}
