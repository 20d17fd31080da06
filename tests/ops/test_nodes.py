import zlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from keras_het.integrators import QuasiMonteCarlo
from keras_het.ops import nodes
from tests.checks import check_independent, check_moments
from tests.common import to_numpy
from tests.marks import grid

SIZES = [(1, 2, 0), (5, 3, 3), (64, 1, 1), (100, 7, 2)]
RULES = [nodes.pseudo_random, nodes.antithetic, nodes.quasi_random]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("size", grid(SIZES, span=[(5, 3, 3)]), ids=str)
def test_host_and_backend_give_the_same_nodes(rule, size):
    (num_samples, units, num_factors), drawn, host = size, rule((3, 4), *size), rule((3, 4), *size, np)
    for tensor, array, width in zip(drawn, host, (units, num_factors), strict=True):
        assert_array_equal(to_numpy(tensor), array)
        assert (array.shape, array.dtype) == ((num_samples, width), "float32")
        half = num_samples // 2
        assert rule is not nodes.antithetic or num_samples % 2 or (array[half:] == -array[:half]).all()  # pairs


@pytest.mark.statistical
@pytest.mark.once
@pytest.mark.parametrize("rule", [nodes.pseudo_random, nodes.quasi_random])
@pytest.mark.parametrize("seed", range(3))
def test_nodes_are_uncorrelated_standard_normals_also_when_units_equal_factors(rule, seed, base_seed, redraws):
    # One point of each of many steps: independent by construction for every rule, unlike the points of one Sobol set.
    drawn = [rule((base_seed + seed, step), 1, 6, 6, np) for step in range(redraws(4000))]
    eps_diag, eps_factor = (np.concatenate(part) for part in zip(*drawn, strict=True))
    check_moments(eps_diag, 0.0, np.eye(6))
    check_moments(eps_factor, 0.0, np.eye(6))
    check_independent(eps_diag, eps_factor)


def cells(eps, count):
    """The cells of equal probability, `count` of them, a power of two, that hold the normals, `(S, K)`."""
    first = (np.arange(count, dtype="uint64") * (2**32 // count)).astype("uint32").view("int32")
    return np.searchsorted(nodes.random.normal(first, np), eps, side="right") - 1


@pytest.mark.once
@pytest.mark.parametrize("power", [0, 1, 5, 10])
def test_every_coordinate_has_one_point_in_each_cell(power):
    """Of 40 factors and 45 classes. The first two dimensions are a (0, m, 2)-net, with a point in each square cell."""
    count = 1 << power
    factors = nodes.quasi_random((9, 1), 256, 3, 2, np).eps_factor
    assert len({tuple(cell) for cell in cells(factors, 16)}) == 256
    eps = np.concatenate(nodes.quasi_random((9, 1), count, 45, 40, np), axis=1)
    assert_array_equal(np.sort(cells(eps, count), axis=0), np.repeat(np.arange(count)[:, None], 85, axis=1))


def correlations(columns):
    """Computes the correlation of every two columns; 0 on the diagonal."""
    standard = (columns - columns.mean(0)) / columns.std(0)
    correlation = standard.T @ standard / len(columns)
    np.fill_diagonal(correlation, 0.0)
    return correlation


@pytest.mark.once
@pytest.mark.parametrize("units", [1000, 3000])
@pytest.mark.parametrize("num_factors", [0, 15, 50])
@pytest.mark.parametrize("num_samples", [64, 256])
def test_no_two_classes_share_their_noise_at_inference(units, num_factors, num_samples):
    """Columns in random order have correlations of deviation 1 / sqrt(S): 7.5 of them are one in 10^13, of 4.5e6."""
    constant = QuasiMonteCarlo(num_samples).constant_nodes(units, num_factors)
    assert np.abs(correlations(np.concatenate(constant, axis=1))).max() < 7.5 / np.sqrt(num_samples)
    for step in range(3) if (units, num_factors, num_samples) == (1000, 0, 256) else ():
        # A pair may share how large its noise is, and not the sign of it. Squares have longer tails.
        squares = np.square(nodes.quasi_random((0, step), num_samples, units, 0, np).eps_diag)
        assert np.abs(correlations(squares)).max() < 9 / np.sqrt(num_samples)


@pytest.mark.once
@pytest.mark.parametrize("num_samples", [16, 32, 64, 128, 256, 1024])
def test_no_pair_of_dimensions_is_correlated_over_the_steps(num_samples):
    """Mean squares: 1 / S of a Latin pair, 1 / 16 at most of Sobol's first dimensions, above the limit of more."""
    drawn = (nodes.quasi_random((3, step), num_samples, 40, 0, np).eps_diag for step in range(40))
    mean_squares = np.mean([np.square(correlations(columns)) for columns in drawn], axis=0)
    assert mean_squares.max() < 1 / 16 + 4 / num_samples


@pytest.mark.once
@pytest.mark.statistical
def test_the_digital_shift_is_unbiased_and_fresh_at_every_step(base_seed, redraws):
    steps = range(redraws(4000))
    means = np.array([nodes.quasi_random((base_seed, step), 3, 2, 1, np).eps_diag.mean(0) for step in steps])
    assert np.all(np.abs(means.mean(0)) < 4.9 * means.std(0) / np.sqrt(len(means)))  # false alarm 1e-6 each
    assert len(np.unique(means[:, 0])) > 0.925 * len(means)  # of 65,536 possible ones: 0.97 of 4000 are expected


@pytest.mark.once
def test_blocks_of_columns_on_the_host_do_not_show_and_few_points_are_the_first_of_many(monkeypatch):
    whole = nodes.quasi_random((0, 3), 50, 30, 40, np)
    monkeypatch.setattr(nodes, "_HOST_ELEMENTS", 50 * 7)
    for a, b in zip(nodes.quasi_random((0, 3), 50, 30, 40, np), whole, strict=True):
        assert_array_equal(a, b)
    many, few = (nodes.quasi_random((1, 2), count, 3, 2, np) for count in (64, 50))
    for a, b in zip(many, few, strict=True):
        assert_array_equal(a[:50], b)


def test_the_noise_of_a_seed_never_changes():
    """Other nodes would change every saved model's predictions."""
    assert zlib.crc32(nodes.directions(32, 1024).astype("<i4").tobytes()) == 1193755764
    for rule, expected in zip(RULES, (4188559140, 1573079811, 393704266), strict=True):
        assert zlib.crc32(b"".join(x.astype("<f4").tobytes() for x in rule((1, 2), 100, 7, 40, np))) == expected
