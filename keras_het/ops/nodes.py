"""Nodes: the standard normal points over which an expectation is averaged, shared by a batch.

Every rule has these arguments: `key`, the pair (seed, training step), integers or int32 tensors; S, K and R, Python
integers; and `xp`, `keras.ops`, or `numpy` to compute the same bits on the host. The diagonal noise e_K and the factor
noise e_R come from different streams or coordinates of the key, so they are independent even if K = R.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops
from scipy.stats import qmc

from keras_het.base.compiler import outside_graph
from keras_het.base.eager import constant
from keras_het.base.tensor import Tensor, reshape
from keras_het.ops import random

DIAGONAL_STREAM, FACTOR_STREAM, SHIFT_STREAM, SCRAMBLE_STREAM, LATIN_STREAM = range(5)
# (number of points, number of good Sobol dimensions). With more dimensions, some pair of dimensions is correlated by
# more than 1/4 (root mean square over the shifts), and would share its noise in every set.
SOBOL_DIMENSIONS = ((256, 32), (64, 15), (32, 6), (1, 2))
_BITS = 32
_CELL_ROUNDS, _OFFSET_ROUNDS = 4, 1
_LATIN_WORDS = 2 * (_CELL_ROUNDS + _OFFSET_ROUNDS)
_HOST_ELEMENTS = 1 << 20  # computed at once on the host
# Not a cache of functools, because PyTorch's compiler would trace through it into SciPy.
_DIRECTIONS: dict[tuple, np.ndarray] = {}


class Nodes(NamedTuple):
    """S points of the standard normal noise.

    Attributes:
        eps_diag: e_K, shape `(S, K)`.
        eps_factor: e_R, shape `(S, R)`, or None.
    """

    eps_diag: Tensor
    eps_factor: Tensor = None

    @property
    def num_samples(self) -> int:
        """Number of nodes S, a Python integer."""
        return self.eps_diag.shape[0]


def _normals(key: Any, sizes: dict[int, int], xp: Any) -> list[Tensor]:
    """Returns normals of several streams, `{stream: size}`; on the host, stream by stream to save memory."""
    if xp is np:
        return [random.random_normals(key, stream, size, np) for stream, size in sizes.items()]
    return [random.normal(bits) for bits in random.random_streams(key, sizes)]


@outside_graph
def pseudo_random(key: Any, num_samples: int, units: int, num_factors: int, xp: Any = ops) -> Nodes:
    """Returns independent standard normals (plain Monte Carlo)."""
    sizes = {DIAGONAL_STREAM: num_samples * units, FACTOR_STREAM: num_samples * num_factors}
    diagonal, factor = _normals(key, sizes, xp)
    return Nodes(reshape(diagonal, (num_samples, units)), reshape(factor, (num_samples, num_factors)))


def antithetic(key: Any, num_samples: int, units: int, num_factors: int, xp: Any = ops) -> Nodes:
    """Returns pseudo-random nodes in pairs e, -e, which integrate every odd function exactly.

    One node has no partner if `num_samples` is odd.

    Example:
        >>> nodes = antithetic((0, 0), num_samples=8, units=3, num_factors=2)
        >>> bool(ops.all(nodes.eps_diag[4:] == -nodes.eps_diag[:4]))
        True
    """
    half = pseudo_random(key, (num_samples + 1) // 2, units, num_factors, xp)
    return Nodes(*(xp.concatenate([e, xp.negative(e)])[:num_samples] for e in half))


@outside_graph
def quasi_random(key: Any, num_samples: int, units: int, num_factors: int, xp: Any = ops) -> Nodes:
    """Returns scrambled Sobol points in the first dimensions, a Latin hypercube in the others.

    They are unbiased, with less error than random points. The factors come first, because they matter most, and then
    the classes. With at least 256 nodes, 32 dimensions are Sobol's; with at least 64, 15 dimensions. Each dimension has
    one point in each of S cells of equal probability, if S is a power of two. Any other S uses the first S points of
    the next power.

    A Sobol point with binary digits n_0 n_1 ... is shift XOR (n_0 v_0) XOR (n_1 v_1) ..., with v the scrambled
    direction numbers. So doubling a table log2(S) times builds the whole set. The Latin hypercube permutes the cells of
    each dimension at random, and puts a point anywhere in its cell. Sobol's later dimensions would not do: pairs of
    them have correlations of up to 0.95, with any scramble.

    Source: Sobol 1967; direction numbers of Joe and Kuo 2008 (from SciPy); linear scramble of Matousek 1998; McKay,
        Beckman and Conover 1979 for the Latin hypercube.

    Example:
        >>> nodes = quasi_random((0, 0), num_samples=4, units=1, num_factors=0)
        >>> int(ops.sum(nodes.eps_diag > 0))  # two points in each half
        2
    """
    dimensions = sobol_dimensions(num_samples, units + num_factors)
    latin_dimensions, latin_factors = units + num_factors - dimensions, num_factors - dimensions
    sizes = {SHIFT_STREAM: dimensions, LATIN_STREAM: _LATIN_WORDS * latin_dimensions}
    shift, words = random.random_streams(key, sizes, xp)
    points = _sobol(shift, num_samples, xp)
    if not latin_dimensions:
        return Nodes(points[:, num_factors:], points[:, :num_factors])
    words = reshape(words, (_LATIN_WORDS, latin_dimensions))
    if latin_factors <= 0:
        return Nodes(_diagonal_nodes(points[:, num_factors:], words, xp), points[:, :num_factors])
    table = _latin_hypercube(words, num_samples, xp)
    return Nodes(table[:, latin_factors:], xp.concatenate([points, table[:, :latin_factors]], axis=1))


def sobol_dimensions(num_samples: int, dimensions: int) -> int:
    """Returns the number of Sobol dimensions."""
    return min(dimensions, next(good for min_samples, good in SOBOL_DIMENSIONS if num_samples >= min_samples))


def _sobol(shift: Tensor, num_samples: int, xp: Any) -> Tensor:
    """Returns Sobol points as normals, `(S, dimensions)`, from the random bits of their shift, `(dimensions,)`."""
    return random.normal(shift ^ constant(_sobol_levels, num_samples, shift.shape[0], beside=shift, xp=xp), xp)


def _sobol_levels(num_samples: int, dimensions: int, xp: Any) -> Tensor:
    """Returns the bits of the Sobol points before the shift, int32 of shape `(S, dimensions)`."""
    levels = xp.zeros((1, dimensions), dtype="int32")
    for direction in directions(dimensions, num_samples):
        levels = xp.concatenate([levels, levels ^ xp.array(direction[None], dtype="int32")])
    return levels[:num_samples]


def _diagonal_nodes(points: Tensor, words: Tensor, xp: Any) -> Tensor:
    """Returns e_K, `(S, K)`: Sobol's `points` for the first classes, and a Latin hypercube of `words` for the others.

    The table is made for all classes at once: if two tables were joined, devices that share the classes would have to
    exchange columns.
    """
    num_samples, first = points.shape
    if not first:
        return _latin_hypercube(words, num_samples, xp)
    table = _latin_hypercube(xp.pad(words, ((0, 0), (first, 0))), num_samples, xp)
    if xp is np:
        table[:, :first] = points
        return table
    column = xp.arange(table.shape[1], dtype="int32")
    return xp.where(column < first, xp.take(points, xp.minimum(column, first - 1), axis=1), table)


def _latin_hypercube(words: Tensor, num_samples: int, xp: Any) -> Tensor:
    """Returns a Latin hypercube, `(S, columns)`, from random bits for its columns."""
    if xp is not np:
        return _latin_columns(words, num_samples, xp)
    points, step = np.empty((num_samples, words.shape[1]), "float32"), max(1, _HOST_ELEMENTS // num_samples)
    for start in range(0, words.shape[1], step):
        points[:, start : start + step] = _latin_columns(words[:, start : start + step], num_samples, np)
    return points


def _latin_columns(words: Tensor, num_samples: int, xp: Any) -> Tensor:
    """Returns normals, `(S, columns)`.

    The upper bits of point s are its cell, a permutation of s; the lower bits are its offset in the cell.
    """
    bits = max(1, (num_samples - 1).bit_length())
    order = constant(_order, num_samples, beside=words, xp=xp)
    cell = random.permute(order, bits, words[: 2 * _CELL_ROUNDS], xp)
    offset = random.permute(cell, 32, words[2 * _CELL_ROUNDS :], xp)
    return random.normal(random.shift_left(cell, 32 - bits) | random.shift_right(offset, bits), xp)


def _order(num_samples: int, xp: Any) -> Tensor:
    return xp.arange(num_samples, dtype="int32")[:, None]


def directions(dimensions: int, num_samples: int) -> np.ndarray:
    """Returns scrambled direction numbers of 32 bits for the Sobol dimensions, `(log2(S) rounded up, dimensions)`.

    SciPy lists the points in Gray-code order, so point 2^(j+1) - 1 is direction number j itself. The scramble is
    linear: per dimension, a random lower-triangular binary matrix with unit diagonal. It comes from `random_bits`, so
    no SciPy version changes it.
    """
    count = (num_samples - 1).bit_length()
    if (dimensions, count) not in _DIRECTIONS:
        _DIRECTIONS[dimensions, count] = _compute_directions(dimensions, count)
    return _DIRECTIONS[dimensions, count]


def _compute_directions(dimensions: int, count: int) -> np.ndarray:
    engine = qmc.Sobol(dimensions, scramble=False, bits=_BITS)
    points = np.empty((count, dimensions))
    for j in range(count):
        engine.fast_forward(2 ** (j + 1) - 1 - engine.num_generated)
        points[j] = engine.random(1)[0]
    return _scramble((points * 2.0**_BITS).astype("int64"))


def _scramble(levels: Tensor) -> np.ndarray:
    bits = random.random_bits((0, 0), SCRAMBLE_STREAM, _BITS * levels.shape[1], np).reshape(_BITS, -1).astype("int64")
    scrambled = np.zeros_like(levels)
    for digit in range(_BITS):  # the most significant first
        unit = 1 << (_BITS - 1 - digit)
        above = (1 << _BITS) - 2 * unit  # a digit can depend only on the digits above it
        mask = (bits[digit] & above) | unit
        scrambled |= (np.bitwise_count(levels & mask).astype("int64") & 1) * unit
    return scrambled.astype("uint32").view("int32")
