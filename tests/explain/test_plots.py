"""Figures draw their numbers on the caller's axes, and change nothing else."""

import importlib
import sys

import numpy as np
import pytest

from keras_het.explain import calibration
from keras_het.explain.head_covariance import ConfusedPair, ConfusedPairs

pytestmark = pytest.mark.once

plt = importlib.import_module("matplotlib.pyplot")
RNG = np.random.default_rng(0)
P, Y = RNG.dirichlet(np.ones(4), 200), RNG.integers(4, size=200)
CALIBRATION = calibration(P, Y)
PAIRS = ConfusedPairs(
    [
        ConfusedPair("cat", "dog", 0.5, 0.9),
        ConfusedPair("$x", "$\\frac", -0.3, -0.8),
        ConfusedPair("a" * 99, 7, 0.1, 0.2),
    ]
)


FIGURES = {"reliability": CALIBRATION.plot, "pairs": PAIRS.plot, "no pairs": ConfusedPairs().plot}


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


def test_reliability_has_the_numbers_that_it_draws():
    ax, filled = CALIBRATION.plot(), CALIBRATION.count > 0
    right, gaps = ax.containers
    np.testing.assert_allclose([bar.get_height() for bar in right], CALIBRATION.accuracy[filled])
    np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in gaps], CALIBRATION.confidence[filled])
    np.testing.assert_allclose([bar.get_x() for bar in right], CALIBRATION.edges[:-1][filled], atol=1e-12)
    assert ax.get_title() == f"Expected calibration error {CALIBRATION.error:.3f}"
    (density,) = ax.child_axes
    np.testing.assert_allclose([bar.get_height() for bar in density.patches], CALIBRATION.count / 200)


def test_pairs_have_their_numbers_names_and_meaning():
    ax = PAIRS.plot()
    bars = sorted(ax.patches, key=lambda bar: bar.get_y())
    np.testing.assert_allclose([bar.get_width() for bar in bars], [0.5, -0.3, 0.1])
    labels = [label.get_text() for label in ax.get_yticklabels()]
    assert labels[:2] == ["cat - dog", "$x - $\\frac"]
    assert labels[2] == f"{'a' * 8}…{'a' * 7} - 7"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["rise and fall together", "one or the other"]
    assert bars[0].get_facecolor() != bars[1].get_facecolor()
    many = ConfusedPairs(ConfusedPair(i, i + 1, 1.0, 1.0) for i in range(100)).plot()
    assert len(many.patches) == 20
    assert many.get_title().endswith("20 of 100")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        ImportError, match="The figure needs matplotlib, which is not installed: pip install matplotlib"
    ):
        CALIBRATION.plot()
