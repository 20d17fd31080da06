"""Figures draw the numbers that they are given, on the axes that they are given, and change nothing else."""

import importlib
import sys

import numpy as np
import pytest

from keras_het.explain import calibration, plots
from keras_het.explain.covariance import ConfusedPair
from keras_het.explain.plots.drawing import ON_DARK, ON_LIGHT
from tests.checks import refusals

pytestmark = pytest.mark.once

plt = importlib.import_module("matplotlib.pyplot")
RNG = np.random.default_rng(0)
P, Y = RNG.dirichlet(np.ones(4), 200), RNG.integers(4, size=200)
CALIBRATION = calibration(P, Y)
PAIRS = [
    ConfusedPair("cat", "dog", 0.5, 0.9),
    ConfusedPair("$x", "$\\frac", -0.3, -0.8),
    ConfusedPair("a" * 99, 7, 0.1, 0.2),
]
NAMES = ["cat", "$dog$ $", "a very long name of a class", "<b>"]


def matrix_of(classes):
    factor = np.random.default_rng(1).normal(size=(classes, 3))
    return factor @ factor.T + np.eye(classes)


FIGURES = {
    "reliability": lambda ax=None: plots.reliability(CALIBRATION, ax),
    "covariance": lambda ax=None: plots.covariance(matrix_of(4), NAMES, ax),
    "pairs": lambda ax=None: plots.pairs(PAIRS, ax),
    "no pairs": lambda ax=None: plots.pairs([], ax),
}


@pytest.fixture(autouse=True)
def close_figures():
    plt.close("all")  # those of other tests of this process
    yield
    plt.close("all")


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_a_figure_is_drawn_on_the_axes_given_and_changes_no_setting(figure, style):
    with plt.style.context(style):
        before, given = dict(plt.rcParams), plt.subplots()[1]
        assert FIGURES[figure](given) is given
        assert len(plt.get_fignums()) == 1
        given.figure.canvas.draw()
        made = FIGURES[figure]()
        assert made is not given
        made.figure.canvas.draw()
        assert dict(plt.rcParams) == before


def test_every_public_figure_is_tested():
    assert set(plots.__all__) == {name for name in FIGURES if name != "no pairs"}


def test_reliability_has_the_numbers_that_it_draws():
    ax = plots.reliability(CALIBRATION)
    filled = CALIBRATION.count > 0
    right, gaps = ax.containers
    np.testing.assert_allclose([bar.get_height() for bar in right], CALIBRATION.accuracy[filled])
    np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in gaps], CALIBRATION.confidence[filled])
    np.testing.assert_allclose([bar.get_x() for bar in right], CALIBRATION.edges[:-1][filled], atol=1e-12)
    assert ax.get_title() == f"Expected calibration error {CALIBRATION.error:.3f}"
    (density,) = ax.child_axes
    np.testing.assert_allclose([bar.get_height() for bar in density.patches], CALIBRATION.count / 200)


@pytest.mark.parametrize("classes", [1, 2, 10, 100])
def test_covariance_has_all_entries_in_the_order_of_its_names(classes):
    matrix, names = matrix_of(classes), [f"c{i}" for i in range(classes)]
    ax = plots.covariance(matrix, names)
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
    order = [int(label.get_text()) for label in plots.covariance(matrix).get_xticklabels()]
    assert {frozenset(order[k : k + 2]) for k in (0, 2, 4)} == {frozenset(pair) for pair in ((0, 3), (1, 4), (2, 5))}
    matrix = np.diag([0.0, 1.0, 2.0, 0.0])
    assert plots.covariance(matrix).images[0].get_array().shape == (4, 4)


def test_pairs_have_their_numbers_names_and_meaning():
    ax = plots.pairs(PAIRS)
    bars = sorted(ax.patches, key=lambda bar: bar.get_y())
    np.testing.assert_allclose([bar.get_width() for bar in bars], [0.5, -0.3, 0.1])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[:2] == ["cat - dog", "$x - $\\frac"]
    assert labels[2] == f"{'a' * 8}…{'a' * 7} - 7"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["rise and fall together", "one or the other"]
    assert bars[0].get_facecolor() != bars[1].get_facecolor()
    many = plots.pairs([ConfusedPair(i, i + 1, 1.0, 1.0) for i in range(100)])
    assert len(many.patches) == 20
    assert many.get_title().endswith("20 of 100")


test_errors_say_what_is_wrong = refusals([
    (lambda: plots.covariance(np.ones((2, 3))), "`matrix` must be a square matrix. Received: shape (2, 3)"),
    (lambda: plots.covariance(np.full((2, 2), np.nan)), "`matrix` must have at least one class, and finite entries"),
    (lambda: plots.covariance(np.eye(2), ["a"]), "a name for each of the 2 classes. Received: a list of 1"),
    (lambda: plots.covariance(np.eye(2), "ab"),
     "`class_names` must be a sequence with a name for each of the 2 classes. Received: a str"),
])  # fmt: skip


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match="The figure needs matplotlib, which is not installed: pip install matplotlib"
    ):
        plots.reliability(CALIBRATION)


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in plt.matplotlib.colors.to_rgb(color)]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize(("colors", "background"), [(ON_LIGHT, 1.0), (ON_DARK, 0.0)])
def test_colors_have_contrast_on_their_background(colors, background):
    """At least 3 to 1, as WCAG 2.2 asks of graphics."""
    for color in colors:
        bright, dark = sorted([luminance(color), background], reverse=True)
        assert (bright + 0.05) / (dark + 0.05) >= 3
