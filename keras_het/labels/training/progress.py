"""Progress bar of a long call, with the time left."""

from typing import Any, Self

import keras


class Progress:
    """Keras progress bar over all epochs of a call: a context that ends the bar, even after an error."""

    def __init__(self, count: int, verbose: int = 1):
        self.count, self.done = count, 0
        self._bar: Any = keras.utils.Progbar(count, unit_name="epoch") if verbose and count else None

    def add(self, epochs: int) -> None:
        """Advances the bar."""
        self.done = min(self.count, self.done + epochs)
        if self._bar is not None and self.done < self.count:
            self._bar.update(self.done)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None and error[0] is None:
            self._bar.update(self.count, finalize=True)
        elif self._bar is not None and self.done:
            print()  # else a traceback would begin on the line of the bar
        self._bar = None
