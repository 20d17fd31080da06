"""Batches in an order that a seed gives, on every backend the same, without the global random state."""

from typing import Any

import keras
import numpy as np

from keras_het.ops.seeds import random_generator


class ShuffledBatches(keras.utils.PyDataset):
    """Arrays in batches of one size, in a new order every epoch.

    As many batches as it takes to have at most `batch_size` examples in each; the fewer examples that are left over
    wait for the next epoch, whose order is another. One size is one program to compile.

    Args:
        arrays: inputs, labels and weights, each with N rows.
        batch_size: at least 1.
        seed: the orders are a function of it.

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
        """Keras calls it."""
        self._order = self._generator.permutation(len(self._arrays[0]))
