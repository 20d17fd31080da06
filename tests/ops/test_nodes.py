import zlib

import numpy as np
import pytest
from keras import ops

from keras_het.ops import nodes
from tests.checks import check_independent, check_moments

RULES = [nodes.pseudo_random, nodes.antithetic, nodes.quasi_random]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("num_samples", "units", "num_factors"), [(1, 2, 0), (5, 3, 3), (64, 1, 1), (100, 7, 2)])
def test_host_and_backend_give_the_same_nodes(rule, num_samples, units, num_factors):
    drawn = rule((3, 4), num_samples, units, num_factors)
    host = rule((3, 4), num_samples, units, num_factors, np)
    for tensor, array, width in zip(drawn, host, (units, num_factors), strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(tensor), array)
        assert array.shape == (num_samples, width)
        assert array.dtype == "float32"


@pytest.mark.parametrize("rule", [nodes.pseudo_random, nodes.quasi_random])
@pytest.mark.parametrize("seed", range(3))
def test_nodes_are_uncorrelated_standard_normals_also_when_units_equal_factors(rule, seed):
    # One point of each of many steps: independent by construction for every rule, unlike the points of one Sobol set.
    drawn = [rule((seed, step), 1, 6, 6, np) for step in range(4000)]
    eps_diag, eps_factor = (np.concatenate(part) for part in zip(*drawn, strict=True))
    check_moments(eps_diag, 0.0, np.eye(6))
    check_moments(eps_factor, 0.0, np.eye(6))
    check_independent(eps_diag, eps_factor)


def test_large_pseudo_random_sets_have_independent_columns():
    drawn = nodes.pseudo_random((11, 0), 1 << 16, 8, 8, np)
    check_moments(np.concatenate(drawn, axis=1), 0.0, np.eye(16))


def test_antithetic_nodes_come_in_pairs():
    drawn = nodes.antithetic((0, 0), 10, 4, 3, np)
    for eps in drawn:
        np.testing.assert_array_equal(eps[5:], -eps[:5])
    assert nodes.antithetic((0, 0), 9, 4, 3, np).num_samples == 9


@pytest.mark.parametrize("power", [0, 1, 5, 10])
def test_every_sobol_coordinate_has_one_point_in_each_cell(power):
    count = 1 << power
    eps = np.concatenate(nodes.quasi_random((9, 1), count, 40, 5, np), axis=1)
    edges = np.float64(nodes.random.normal_quantile(np.arange(0, 1 << 16, (1 << 16) // count), np))
    cells = np.searchsorted(edges, eps, side="right") - 1
    np.testing.assert_array_equal(np.sort(cells, axis=0), np.repeat(np.arange(count)[:, None], 45, axis=1))


def test_sobol_factors_fill_the_plane_evenly():
    """The first two dimensions are a (0, m, 2)-net: each of the 16 x 16 cells holds one of 256 points."""
    eps = nodes.quasi_random((9, 1), 256, 3, 2, np).eps_factor
    edges = nodes.random.normal_quantile(np.arange(4096, 1 << 16, 4096), np)
    cells = np.searchsorted(edges, eps, side="right")
    assert len({tuple(cell) for cell in cells}) == 256


def test_a_count_between_powers_of_two_takes_the_first_points():
    whole, part = (nodes.quasi_random((1, 2), count, 3, 2, np) for count in (64, 50))
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[:50], b)


def test_the_digital_shift_is_unbiased_and_fresh_at_every_step():
    means = np.array([nodes.quasi_random((0, step), 3, 2, 1, np).eps_diag.mean(0) for step in range(4000)])
    assert np.all(np.abs(means.mean(0)) < 4.9 * means.std(0) / np.sqrt(len(means)))  # false alarm 1e-6 each
    assert len(np.unique(means[:, 0])) > 3700  # of 65,536 possible ones: 3,880 are expected


def test_sobol_beats_random_points_on_a_smooth_integral():
    """E[exp(sum(e) / 4)] in 10 dimensions: the root-mean-square error over 50 steps is at most a third."""
    exact = np.exp(10 / 32)

    def error(rule):
        values = [np.exp(np.concatenate(rule((0, step), 256, 7, 3, np), axis=1).sum(1) / 4).mean() for step in range(50)]
        return np.sqrt(np.mean((np.array(values) - exact) ** 2))

    assert error(nodes.quasi_random) < error(nodes.pseudo_random) / 3


def test_classes_beyond_the_last_sobol_dimension_get_random_noise():
    units = nodes.SOBOL_DIMENSIONS + 30
    drawn = nodes.quasi_random((0, 0), 64, units, 2, np)
    assert drawn.eps_diag.shape == (64, units)
    assert drawn.eps_factor.shape == (64, 2)
    tail = drawn.eps_diag[:, -32:]
    assert len(np.unique(tail)) > 2000
    check_independent(tail, drawn.eps_diag[:, :4])


def test_scrambled_direction_numbers_never_change():
    """A different table would change every saved model's predictions."""
    assert zlib.crc32(nodes.directions(100, 1024).astype("<i4").tobytes()) == 910843953
