"""The heat map of a covariance draws every entry beside the names of its classes."""

import numpy as np
import pytest
from matplotlib import style
from matplotlib.figure import Figure

from keras_het.labels.report.figures import draw_covariance

pytestmark = pytest.mark.once

NAMES = ["cat", "$dog$ $", "a very long name of a class", "<b>"]


def matrix_of(classes):
    factor = np.random.default_rng(1).normal(size=(classes, 3))
    return factor @ factor.T + np.eye(classes)


def drawn_axes(matrix, names=None):
    ax = Figure(layout="constrained").add_subplot()
    draw_covariance(matrix, names or [str(i) for i in range(len(matrix))], ax)
    return ax


@pytest.mark.parametrize("kind", ["default", "dark_background"])
def test_zero_has_the_colour_of_the_background_and_any_name_is_written(kind):
    with style.context(kind):
        ax = drawn_axes(matrix_of(4), NAMES)
        ax.figure.canvas.draw()
        middle = ax.images[0].cmap(0.5)[:3]
    assert np.abs(np.array(middle) - ax.get_facecolor()[:3]).max() < 0.1


@pytest.mark.parametrize("classes", [1, 2, 10, 100])
def test_covariance_has_all_entries_in_the_order_of_its_names(classes):
    matrix, names = matrix_of(classes), [f"c{i}" for i in range(classes)]
    ax = drawn_axes(matrix, names)
    drawn = ax.images[0].get_array().filled(np.nan)
    assert len(ax.get_yticks()) <= 30
    written = [int(label.get_text()[1:]) for label in ax.get_yticklabels()]
    places = ax.get_yticks().astype(int)
    expected = np.where(np.eye(classes, dtype=bool), np.nan, matrix)
    np.testing.assert_array_equal(drawn[np.ix_(places, places)], expected[np.ix_(written, written)])
    np.testing.assert_array_equal(np.sort(drawn, axis=None), np.sort(expected, axis=None))
    low, high = ax.images[0].get_clim()
    assert low == -high < 0


def test_alike_classes_are_neighbours_in_the_map_and_one_without_noise_has_a_place():
    matrix = np.eye(6)
    for i, j in ((0, 3), (1, 4), (2, 5)):
        matrix[i, j] = matrix[j, i] = 0.9
    order = [int(label.get_text()) for label in drawn_axes(matrix).get_xticklabels()]
    assert {frozenset(order[k : k + 2]) for k in (0, 2, 4)} == {frozenset(pair) for pair in ((0, 3), (1, 4), (2, 5))}
    matrix = np.diag([0.0, 1.0, 2.0, 0.0])
    assert drawn_axes(matrix).images[0].get_array().shape == (4, 4)
