"""Counter-based random numbers that are the same bits on every backend.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011), in
int32: only its addition wraps on JAX, TensorFlow, PyTorch and NumPy, eager and compiled. The arithmetic uses Python's
operators. `keras.ops` would convert a Python integer to float on JAX, and takes several times as long on PyTorch.

The argument `xp` is `keras.ops`, or `numpy` to compute the same bits on the host, for the constants of a graph.
"""

import functools
from typing import Any

import numpy as np
from keras import ops
from scipy.special import ndtri

from keras_het.base.eager import constant, lookup, numbers
from keras_het.base.tensor import Tensor, reshape

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_LEFT, _RIGHT = tuple(1 << places for places in _ROTATIONS), tuple(32 - places for places in _ROTATIONS)
_MASKS = tuple((1 << places) - 1 for places in _ROTATIONS)
_PARITY = 0x1BD11BDA
_HALF = 1 << 16
_HOST_BLOCK = 1 << 20  # words made at once on the host, because intermediate results need several times their memory


def int32(value: Tensor, xp: Any = ops) -> Tensor:
    """Returns `value` as int32 with at least one axis, because NumPy scalars would warn when they wrap."""
    if xp is np:
        return np.atleast_1d(np.asarray(value, "int32"))
    value = ops.cast(value, "int32")
    return value[None] if len(value.shape) == 0 else value


def shift_right(bits: Tensor, places: int) -> Tensor:
    """Shifts int32 right by 1 to 31 places, logically; the arithmetic shift of int32 would copy the sign.

    Example:
        >>> int(shift_right(int32(-1), 16)[0])
        65535
    """
    right, mask = numbers(places, (1 << (32 - places)) - 1, beside=bits)
    return _shift(bits, right) & mask


def shift_left(bits: Tensor, places: int) -> Tensor:
    """Shifts int32 left by 1 to 31 places."""
    (left,) = numbers(places, beside=bits)
    return bits << left if hasattr(bits, "__lshift__") else ops.left_shift(bits, left)


def _shift(bits: Tensor, places: Any) -> Tensor:
    """Shifts right with copies of the sign, by an operator if tensors have one; TensorFlow's have none."""
    return bits >> places if hasattr(bits, "__rshift__") else ops.right_shift(bits, places)


def threefry2x32(key: Any, counter: Any, xp: Any = ops) -> tuple[Tensor, Tensor]:
    """Returns two words of random bits for every pair of counter words.

    Args:
        key: pair of int32, each of shape `(1,)` or the counter's shape.
        counter: pair of int32 of equal shape.
        xp: `keras.ops`, or `numpy` to compute on the host.
    Returns:
        pair of int32 of the counter's shape.

    Source: Salmon et al. 2011, section 3.3; tested with the three published answers of Random123.

    Example:
        >>> words = threefry2x32((int32(0), int32(0)), (int32(0), int32(0)))
        >>> [hex(int(word[0]) & 0xFFFFFFFF) for word in words]
        ['0x6b200159', '0x99ba4efe']
    """
    x, y = counter[0], counter[1]
    parity, *blocks = numbers(_PARITY, 1, 2, 3, 4, 5, beside=x)
    rotations = list(zip(*(numbers(*values, beside=x) for values in (_LEFT, _RIGHT, _MASKS)), strict=True))
    keys = (*key, key[0] ^ key[1] ^ parity)
    x, y = x + keys[0], y + keys[1]
    for block in range(5):
        for left, right, mask in rotations[block % 2 * 4 :][:4]:
            x += y
            lower = _shift(y, right) & mask
            y *= left
            y += lower  # y, rotated to the left
            y ^= x
        x += keys[(block + 1) % 3]
        y += keys[(block + 2) % 3] + blocks[block]
    return x, y


def random_bits(key: Any, stream: int, size: int, xp: Any = ops) -> Tensor:
    """Returns `size` int32 of random bits, shape `(size,)`.

    Different streams of one key, (seed, training step), are independent, whatever their sizes.
    """
    return random_streams(key, {stream: size}, xp)[0]


def random_streams(key: Any, sizes: dict[int, int], xp: Any = ops) -> list[Tensor]:
    """Returns the `random_bits` of several streams, `{stream: size}`, from one pass."""
    key = tuple(int32(word, xp) for word in key)
    counter = constant(_counter, tuple(sizes.items()), beside=key[1], xp=xp)
    words, streams, start = xp.stack(threefry2x32(key, counter, xp)), [], 0
    for size in sizes.values():
        stop = start + (size + 1) // 2
        streams.append(reshape(words[:, start:stop], (-1,))[:size])
        start = stop
    return streams


def _counter(sizes: tuple[tuple[int, int], ...], xp: Any) -> Tensor:
    """Returns the counter words of streams, `(2, words)`: positions in a stream, and the streams."""
    positions = [xp.arange((size + 1) // 2, dtype="int32") for _, size in sizes]
    streams = [xp.full_like(position, stream) for position, (stream, _) in zip(positions, sizes, strict=True)]
    return xp.stack([xp.concatenate(positions), xp.concatenate(streams)])


def permute(values: Tensor, bits: int, words: Tensor, xp: Any = ops) -> Tensor:
    """Applies a random permutation of the integers in [0, 2^bits), one for every column, to `values`.

    Every round is invertible: XOR with a word, multiplication by an odd word modulo 2^bits, and XOR of the upper half
    into the lower. Four rounds are as good as sorting random numbers, with the same correlations between columns. No
    sort is needed, and the result is the same on every backend.

    Args:
        values: int32 in [0, 2^bits), shape `(S, 1)` or `(S, K)`.
        bits: 1 to 32; with 32, any int32 is a value.
        words: random int32, two for each round and column, shape `(2 * rounds, K)`.
        xp: `keras.ops`, or `numpy` on the host.
    Returns:
        int32 in [0, 2^bits), shape `(S, K)`; the image of a value is uniform over the words.

    Example:
        >>> permuted = permute(int32(range(4))[:, None], 2, random_bits((0, 0), stream=0, size=8)[:, None])
        >>> sorted(int(x[0]) for x in permuted)
        [0, 1, 2, 3]
    """
    half = (bits + 1) // 2
    one, mask, places, upper_mask = numbers(1, (1 << min(bits, 31)) - 1, half, (1 << 32 - half) - 1, beside=words)
    for first in range(0, words.shape[0], 2):
        values = values ^ words[first]
        values *= words[first + 1] | one
        if bits < 32:
            values &= mask
        upper = _shift(values, places)
        values ^= upper if bits < 32 else upper & upper_mask  # numbers below 2^31 have no sign to mask
    return values


def _quantile_table(xp: Any) -> Tensor:
    return xp.array(_quantiles())


@functools.cache
def _quantiles() -> np.ndarray:
    """Returns normal quantiles at the midpoints of cells, float32, scaled to variance one (unscaled, it is 2e-5 short).

    The lowest and the highest of 2^16 equal cells are each divided into 2^16 small cells. The table starts with the
    2^15 - 1 cells above the median and the small cells of the upper tail. After a cell that is never read, the small
    cells of the lower tail and the 2^15 - 1 cells below the median follow.
    """
    tail = ndtri((np.arange(_HALF) + 0.5) / _HALF**2)
    cells = ndtri((np.arange(1, _HALF - 1) + 0.5) / _HALF)
    variance = (2.0 * np.mean(tail**2) + np.sum(cells**2)) / _HALF
    middle = _HALF // 2 - 1
    table = np.concatenate([cells[middle:], -tail[::-1], [0.0], tail, cells[:middle]])
    return (table / np.sqrt(variance)).astype("float32")


def normal(bits: Tensor, xp: Any = ops) -> Tensor:
    """Returns float32 standard normals from 32 random bits each, up to 6.3 standard deviations.

    A normal grows with its bits, read as a number in [0, 2^32). A table is indexed by the upper 16 bits, and in the
    lowest and highest cell by the lower 16. Without float arithmetic the bits are the same on every backend, unlike
    Box-Muller (3 ulp between backends) or the inverse error function (19 ulp).

    Example:
        >>> [round(float(x), 2) for x in normal(int32([-1, 0, 1 << 16]))]
        [6.34, -6.34, -4.08]
    """
    # As signed numbers, both tails are next to 0: their bits are not clipped, and their upper bits are 0 or -1.
    low, high, places, first = numbers(-_HALF, _HALF - 1, 16, _HALF + _HALF // 2, beside=bits)
    index = xp.clip(bits, low, high) + _shift(bits, places) + first
    return lookup(constant(_quantile_table, beside=bits, xp=xp), index, xp)


def random_normals(key: Any, stream: int, size: int, xp: Any = ops) -> Tensor:
    """Returns `normal(random_bits(key, stream, size))`, on the host with little more memory than the result."""
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
