"""Nodes: the standard normal points over which an expectation is averaged, shared by a batch.

Every rule takes a `key`, the pair (seed, training step). The diagonal noise e_K and the factor noise e_R come from different
streams or different coordinates of it, so they are independent also when K = R.
"""

from typing import Any, NamedTuple

import numpy as np
from keras import ops
from scipy.stats import qmc

from keras_het.ops import random

DIAGONAL_STREAM, FACTOR_STREAM, SHIFT_STREAM, SCRAMBLE_STREAM = range(4)
SOBOL_DIMENSIONS = qmc.Sobol.MAXDIM
_BITS = 16
_DIRECTIONS: dict[tuple, np.ndarray] = {}  # not a cache of functools: PyTorch's compiler looks through those, into SciPy


class Nodes(NamedTuple):
    """S points of the standard normal noise: `eps_diag` is e_K, shape `(S, K)`; `eps_factor` is e_R, shape `(S, R)`, or None."""

    eps_diag: Any
    eps_factor: Any = None

    @property
    def num_samples(self):
        """S, a Python integer."""
        return self.eps_diag.shape[0]


def _normals(key, stream, rows, columns, xp):
    bits = random.random_bits(key, stream, rows * columns, xp)
    return xp.reshape(random.normal(bits, xp), (rows, columns))


def pseudo_random(key, num_samples, units, num_factors, xp=ops):
    """Independent standard normals (plain Monte Carlo).

    Args:
        key: (seed, step), integers or int32 tensors.    num_samples, units, num_factors: S, K and R, Python integers.
        xp: `keras.ops`, or `numpy` to compute on the host; the bits are the same.
    Returns: `Nodes`, float32.

    Example:
        >>> nodes = pseudo_random((0, 0), num_samples=8, units=3, num_factors=2)
        >>> tuple(nodes.eps_diag.shape), tuple(nodes.eps_factor.shape)
        ((8, 3), (8, 2))
    """
    return Nodes(
        _normals(key, DIAGONAL_STREAM, num_samples, units, xp),
        _normals(key, FACTOR_STREAM, num_samples, num_factors, xp),
    )


def antithetic(key, num_samples, units, num_factors, xp=ops):
    """Pseudo-random nodes in pairs e, -e, which integrate every odd function exactly; same arguments as `pseudo_random`.

    Example:
        >>> nodes = antithetic((0, 0), num_samples=8, units=3, num_factors=2)
        >>> bool(ops.all(nodes.eps_diag[4:] == -nodes.eps_diag[:4]))
        True
    """
    half = pseudo_random(key, (num_samples + 1) // 2, units, num_factors, xp)
    return Nodes(*(xp.concatenate([e, xp.negative(e)])[:num_samples] for e in half))


def quasi_random(key, num_samples, units, num_factors, xp=ops):
    """Scrambled Sobol points with a random digital shift: unbiased for any S, with a smaller error than random points.

    The point with binary digits n_0 n_1 ... is shift XOR (n_0 v_0) XOR (n_1 v_1) ..., with v the scrambled direction numbers, so
    doubling a table log2(S) times builds the whole set from `(log2(S), K + R)` integers. The factors take the first, best
    dimensions; classes beyond Sobol's 21,201 dimensions get pseudo-random noise. An S that is not a power of two takes the
    first S points of the next power. Same arguments as `pseudo_random`.

    Source: Sobol 1967; direction numbers of Joe and Kuo 2008 (from SciPy); linear scramble of Matousek 1998.

    Example:
        >>> nodes = quasi_random((0, 0), num_samples=4, units=1, num_factors=0)
        >>> int(ops.sum(nodes.eps_diag > 0))             # two points in each half
        2
    """
    dimensions = min(units + num_factors, SOBOL_DIMENSIONS)
    levels = random.uniform_levels(random.random_bits(key, SHIFT_STREAM, dimensions, xp), xp)[None]
    for direction in directions(dimensions, num_samples):
        levels = xp.concatenate([levels, xp.bitwise_xor(levels, xp.array(direction[None]))])
    points = random.normal_quantile(levels[:num_samples], xp)
    eps_diag = points[:, num_factors:]
    missing = units + num_factors - dimensions
    if missing:
        eps_diag = xp.concatenate([eps_diag, _normals(key, DIAGONAL_STREAM, num_samples, missing, xp)], axis=1)
    return Nodes(eps_diag, points[:, :num_factors])


def directions(dimensions, num_samples):
    """Direction numbers of every Sobol dimension, linearly scrambled, shape `(log2(S), dimensions)`, 16 bits each; log2 rounded up.

    SciPy lists the points in Gray-code order, so point 2^(j+1) - 1 is direction number j itself. The scramble is a random
    lower-triangular binary matrix with unit diagonal per dimension, from our own bits, so that no SciPy version changes it.
    """
    count = (num_samples - 1).bit_length()
    if (dimensions, count) not in _DIRECTIONS:
        _DIRECTIONS[dimensions, count] = _compute_directions(dimensions, count)
    return _DIRECTIONS[dimensions, count]


def _compute_directions(dimensions, count):
    engine = qmc.Sobol(dimensions, scramble=False, bits=30)
    points = np.empty((count, dimensions))
    for j in range(count):
        engine.fast_forward(2 ** (j + 1) - 1 - engine.num_generated)
        points[j] = engine.random(1)[0]
    return _scramble((points * 2**_BITS).astype("int32"))


def _scramble(levels):
    bits = random.random_bits((0, 0), SCRAMBLE_STREAM, _BITS * levels.shape[1], np).reshape(_BITS, -1)
    scrambled = np.zeros_like(levels)
    for place in range(_BITS):  # from the most significant digit down
        unit = 1 << (_BITS - 1 - place)
        above = (1 << _BITS) - 2 * unit  # digit `place` may depend on the digits above it
        mask = (bits[place] & above) | unit
        scrambled |= (np.bitwise_count(levels & mask).astype("int32") & 1) * unit
    return scrambled
