"""Counter-based random numbers that are the same bits on every backend.

Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011),
written in int32, the one integer type whose addition wraps on JAX, TensorFlow, PyTorch and NumPy alike, eager and compiled.

The module `xp` that does the arithmetic is `keras.ops` unless told otherwise; with `xp=numpy` the same lines compute the
constants that are baked into a graph.
"""

import functools

import numpy as np
from keras import ops
from scipy.special import ndtri

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_LEVELS = 1 << 16


def int32(value, xp=ops):
    """`value` (an integer, or integers) as int32 with at least one axis: NumPy scalars would warn when they wrap."""
    if xp is np:
        return np.atleast_1d(np.asarray(value, "int32"))
    value = ops.cast(value, "int32")
    return ops.reshape(value, (1,)) if len(value.shape) == 0 else value


def _shift_right(bits, places, xp):
    """Logical shift: int32's own is arithmetic, so the copies of the sign are masked away."""
    return xp.bitwise_and(xp.right_shift(bits, places), (1 << (32 - places)) - 1)


def _rotate_left(bits, places, xp):
    return xp.bitwise_or(xp.left_shift(bits, places), _shift_right(bits, 32 - places, xp))


def threefry2x32(key, counter, xp=ops):
    """Two words of random bits for every pair of counter words.

    Args:
        key: pair of int32, each of shape `(1,)` or the counter's.    counter: pair of int32 of equal shape.
        xp: `keras.ops`, or `numpy` to compute on the host.
    Returns: pair of int32 of the counter's shape.

    Source: Salmon et al. 2011, section 3.3; the three published answers of Random123 are among the tests.

    Example:
        >>> words = threefry2x32((int32(0), int32(0)), (int32(0), int32(0)))
        >>> [hex(int(word[0]) & 0xFFFFFFFF) for word in words]
        ['0x6b200159', '0x99ba4efe']
    """
    keys = (*key, xp.bitwise_xor(xp.bitwise_xor(key[0], key[1]), _PARITY))
    x, y = xp.add(counter[0], keys[0]), xp.add(counter[1], keys[1])
    for block in range(5):
        for places in _ROTATIONS[block % 2]:
            x = xp.add(x, y)
            y = xp.bitwise_xor(_rotate_left(y, places, xp), x)
        x = xp.add(x, keys[(block + 1) % 3])
        y = xp.add(xp.add(y, keys[(block + 2) % 3]), block + 1)
    return x, y


def random_bits(key, stream, size, xp=ops):
    """`size` int32 of random bits, shape `(size,)`.

    Args:
        key: pair of integers or int32 tensors, for us (seed, training step).
        stream: Python integer. Different streams of one key are independent, whatever their sizes.
        size: Python integer, from 0 to 2^31 - 1.

    Example:
        >>> random_bits((7, 0), stream=1, size=5).shape[0]
        5
    """
    index = xp.arange((size + 1) // 2, dtype="int32")
    key = tuple(int32(word, xp) for word in key)
    words = threefry2x32(key, (index, xp.full_like(index, stream)), xp)
    return xp.concatenate(words)[:size]


@functools.cache
def _quantiles():
    """Normal quantiles at the midpoints of 65,536 equal cells, scaled to variance one (without: short by 2e-5)."""
    table = ndtri((np.arange(_LEVELS) + 0.5) / _LEVELS)
    return (table / np.sqrt(np.mean(table**2))).astype("float32")


def normal_quantile(level, xp=ops):
    """Standard normals from integers in [0, 2^16), monotone, as a table look-up: the same bits everywhere.

    Args: level: int32 of any shape.    Returns: float32 of the same shape, in [-4.33, 4.33].

    Example:
        >>> float(normal_quantile(int32(32768))[0]) > 0 > float(normal_quantile(int32(32767))[0])
        True
    """
    return xp.take(xp.array(_quantiles()), level, axis=0)


def uniform_levels(bits, xp=ops):
    """The upper 16 bits of every int32, as integers in [0, 2^16)."""
    return _shift_right(bits, 16, xp)


def normal(bits, xp=ops):
    """Standard normals from 32 random bits each, as (Q[upper half] + Q[lower half]) / sqrt(2).

    Two table look-ups, one addition, one product: no rounding that a compiler could reorder, unlike Box-Muller (3 ulp between
    backends) or the inverse error function (19 ulp). The sum fills the gaps of the table and reaches 6.1 standard deviations;
    it is not monotone in the bits, so point sets use `normal_quantile`.

    Args: bits: int32 of any shape.    Returns: float32 of the same shape.

    Example:
        >>> normal(random_bits((0, 0), stream=0, size=3)).shape[0]
        3
    """
    upper = normal_quantile(uniform_levels(bits, xp), xp)
    lower = normal_quantile(xp.bitwise_and(bits, _LEVELS - 1), xp)
    return xp.multiply(xp.add(upper, lower), np.float32(np.sqrt(0.5)))
