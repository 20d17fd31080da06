"""Arrays in shuffled batches of one size."""

from typing import Any

import keras
import numpy as np

from keras_het.base.seeds import random_generator


class ShuffledBatches(keras.utils.PyDataset):
    """Arrays in batches of one size, in a new order every epoch.

    All batches have one size, at most `batch_size`, and an epoch has as few as possible. The few examples that are left
    over wait for the next epoch, which has another order. With one size only one program is compiled.

    Args:
        arrays: inputs, labels and weights, each with N rows.
        batch_size: integer, at least 1.
        seed: determines all orders.

    Example:
        >>> data = ShuffledBatches((np.arange(7), np.arange(7)), batch_size=4, seed=0)
        >>> len(data), [len(rows) for rows in data[1]]
        (2, [3, 3])
    """

    def __init__(self, arrays: tuple[np.ndarray, ...], batch_size: int, seed: int):
        super().__init__()
        self._arrays, self._generator = arrays, random_generator(seed)
        self._length = -(-len(arrays[0]) // batch_size)
        self._size = len(arrays[0]) // self._length
        self.on_epoch_end()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        rows = self._order[index * self._size : (index + 1) * self._size]
        return tuple(array[rows] for array in self._arrays)

    def on_epoch_end(self) -> None:
        """Draws a new order."""
        self._order = self._generator.permutation(len(self._arrays[0]))
