"""Counter-based random numbers that are the same bits on every backend.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011),
written in int32, the one integer type whose addition wraps on JAX, TensorFlow, PyTorch and NumPy alike, eager and
compiled. The operators of Python do the arithmetic: `keras.ops` on JAX would give a bare integer the float type of the
session.

The argument `xp` is the module that does the arithmetic, `keras.ops` by default. The same lines compute the constants
of a graph with `xp=numpy`.
"""

import functools
from typing import Any

import numpy as np
from keras import ops
from scipy.special import ndtri

from keras_het.base.tensor import Tensor

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_HALF = 1 << 16
_HOST_BLOCK = 1 << 20  # words made at once on the host: intermediate results take several times their memory


def int32(value: Tensor, xp: Any = ops) -> Tensor:
    """Returns `value` as int32 with at least one axis: NumPy scalars would warn when they wrap."""
    if xp is np:
        return np.atleast_1d(np.asarray(value, "int32"))
    value = ops.cast(value, "int32")
    return ops.reshape(value, (1,)) if len(value.shape) == 0 else value


def shift_right(bits: Tensor, places: int, xp: Any = ops) -> Tensor:
    """Shifts int32 by 1 to 31 places, logically: int32's own shift is arithmetic, so copies of the sign are masked.

    Example:
        >>> int(shift_right(int32(-1), 16)[0])
        65535
    """
    return xp.right_shift(bits, places) & ((1 << (32 - places)) - 1)


def _rotate_left(bits: Tensor, places: int, xp: Any) -> Tensor:
    return xp.left_shift(bits, places) | shift_right(bits, 32 - places, xp)


def threefry2x32(key: Any, counter: Tensor, xp: Any = ops) -> tuple[Tensor, Tensor]:
    """Returns two words of random bits for every pair of counter words.

    Args:
        key: pair of int32, each of shape `(1,)` or the counter's.
        counter: pair of int32 of equal shape.
        xp: `keras.ops`, or `numpy` to compute on the host.
    Returns:
        pair of int32 of the counter's shape.

    Source: Salmon et al. 2011, section 3.3; the three published answers of Random123 are among the tests.

    Example:
        >>> words = threefry2x32((int32(0), int32(0)), (int32(0), int32(0)))
        >>> [hex(int(word[0]) & 0xFFFFFFFF) for word in words]
        ['0x6b200159', '0x99ba4efe']
    """
    keys = (*key, key[0] ^ key[1] ^ _PARITY)
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for places in _ROTATIONS[block % 2]:
            x = x + y
            y = _rotate_left(y, places, xp) ^ x
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + (block + 1)
    return x, y


def random_bits(key: Any, stream: int, size: int, xp: Any = ops) -> Tensor:
    """Returns `size` int32 of random bits, shape `(size,)`.

    Different streams of one key, (seed, training step), are independent, whatever their sizes.

    Example:
        >>> random_bits((7, 0), stream=1, size=5).shape[0]
        5
    """
    index = xp.arange((size + 1) // 2, dtype="int32")
    key = tuple(int32(word, xp) for word in key)
    words = threefry2x32(key, (index, xp.full_like(index, stream)), xp)
    return xp.concatenate(words)[:size]


def permute(values: Tensor, bits: int, words: Tensor, xp: Any = ops) -> Tensor:
    """Returns a random permutation of the integers in [0, 2^bits), one for every column, applied to `values`.

    Every round is invertible: a word is added bit by bit, an odd word multiplied modulo 2^bits, and the upper half
    added to the lower. Four rounds are as good as permutations made by sorting random numbers, with the same
    correlations between columns. It needs no sorting, and is the same on every backend.

    Args:
        values: int32 in [0, 2^bits), shape `(S, 1)` or `(S, K)`.
        bits: 1 to 32; with 32 any int32 is a value.
        words: random int32, two for each round and column, shape `(2 * rounds, K)`.
        xp: `keras.ops`, or `numpy` on the host.
    Returns:
        int32 in [0, 2^bits), shape `(S, K)`; a value's image is uniform over the words.

    Example:
        >>> permuted = permute(int32(range(4))[:, None], 2, random_bits((0, 0), stream=0, size=8)[:, None])
        >>> sorted(int(x[0]) for x in permuted)
        [0, 1, 2, 3]
    """
    for first in range(0, words.shape[0], 2):
        values = (values ^ words[first]) * (words[first + 1] | 1)
        if bits < 32:
            values = values & ((1 << bits) - 1)
        values = values ^ shift_right(values, (bits + 1) // 2, xp)
    return values


@functools.cache
def _quantiles() -> np.ndarray:
    """Returns normal quantiles at the midpoints of cells, float32, scaled to variance one (2e-5 short without).

    The lowest and the highest cell of probability 2^-16 are each divided into 2^16 cells of probability 2^-32. The
    table has the cells of the lowest, the other 2^16 - 2 cells of probability 2^-16, and the cells of the highest.
    """
    tail = ndtri((np.arange(_HALF) + 0.5) / _HALF**2)
    table = np.concatenate([tail, ndtri((np.arange(1, _HALF - 1) + 0.5) / _HALF), -tail[::-1]])
    variance = (2.0 * np.mean(tail**2) + np.sum(table[_HALF:-_HALF] ** 2)) / _HALF
    return (table / np.sqrt(variance)).astype("float32")


def normal(bits: Tensor, xp: Any = ops) -> Tensor:
    """Returns float32 standard normals from 32 random bits each, up to 6.3 standard deviations.

    A normal grows with its bits, read as a number in [0, 2^32). It is looked up by the upper 16 bits, and in the lowest
    and highest of their cells by the lower 16. No arithmetic on floats is done, so the bits are the same on every
    backend, unlike Box-Muller (3 ulp between backends) or the inverse error function (19 ulp).

    Example:
        >>> [round(float(x), 2) for x in normal(int32([-1, 0, 1 << 16]))]
        [6.34, -6.34, -4.08]
    """
    upper, lower = shift_right(bits, 16, xp), bits & (_HALF - 1)
    level = xp.where(upper == 0, lower, upper + (_HALF - 1))
    level = xp.where(upper == _HALF - 1, lower + (2 * _HALF - 2), level)
    return xp.take(xp.array(_quantiles()), level, axis=0)


def random_normals(key: Any, stream: int, size: int, xp: Any = ops) -> Tensor:
    """Returns `normal(random_bits(key, stream, size))`; on the host it needs little more memory than its result.

    Example:
        >>> random_normals((7, 0), stream=1, size=5).shape[0]
        5
    """
    if xp is not np:
        return normal(random_bits(key, stream, size))
    half, key = (size + 1) // 2, tuple(int32(word, np) for word in key)
    normals = np.empty(2 * half, "float32")
    for start in range(0, half, _HOST_BLOCK):
        index = np.arange(start, min(start + _HOST_BLOCK, half), dtype="int32")
        for offset, words in zip(
            (start, half + start), threefry2x32(key, (index, np.full_like(index, stream)), np), strict=True
        ):
            normals[offset : offset + len(index)] = normal(words, np)
    return normals[:size]
