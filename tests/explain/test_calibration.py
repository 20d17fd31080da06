"""The expected calibration error, by hand and beside the metric, and figures, which change nothing but their axes."""

import importlib
import sys

import keras
import numpy as np
import pytest

from keras_het.explain import calibration
from keras_het.explain.head_covariance import ConfusedPair, ConfusedPairs
from keras_het.metrics import ExpectedCalibrationError
from tests.checks import refusals

pytestmark = pytest.mark.once


NOT_SUMS = "must be in [0, 1] with rows that sum to 1: use np.exp of the log-prob"
test_errors_say_what_is_wrong = refusals([
    (lambda: calibration(np.ones(3), [0] * 3), "`probabilities` must be (N, K)"),
    (lambda: calibration(keras.Sequential(), np.ones((3, 2)), [0] * 3), "keras_het.explain.predict_probabilities("),
    (lambda: calibration(np.ones((3, 2)), [0]), "`probabilities` must be (N, K)"),
    (lambda: calibration(np.ones((0, 2)), []), "`probabilities` must be (N, K)"),
    (lambda: calibration([[0.5, 0.5]], [0], 0), "`num_bins` must be an integer at least 1"),
    (lambda: calibration([[0.5, 0.5]], [0], [0] * 500), f"Received: num_bins=[{66 * '0, '}0..."),
    (lambda: calibration([[0.5, 0.5]], [2]), "`labels` must be in [0, 2). Received: 2 at [0]"),
    (lambda: calibration(np.log([[0.5, 0.5]]), [0]), NOT_SUMS),
    (lambda: calibration([[np.nan, 1.0]], [0]), NOT_SUMS),
    (lambda: calibration([[0.2, 0.2]], [0]), NOT_SUMS),
])  # fmt: skip


def test_the_bins_of_calibration_hold_what_is_in_them():
    rng = np.random.default_rng(0)
    p = np.float32([rng.multinomial(997, shares) / 997 for shares in rng.dirichlet(np.ones(4), 500)])
    p[:2], y = np.eye(4)[:2], rng.integers(4, size=500)  # also the confidence of one
    found = calibration(p, y, num_bins=10)
    confidence, right = p.max(axis=1), p.argmax(axis=1) == y
    for b in range(10):
        inside = (confidence >= found.edges[b]) & (confidence < found.edges[b + 1] + (b == 9))
        assert found.count[b] == inside.sum()
        if inside.any():
            assert found.confidence[b] == pytest.approx(confidence[inside].mean())
            assert found.accuracy[b] == pytest.approx(right[inside].mean())
        else:
            assert np.isnan(found.accuracy[b])
            assert np.isnan(found.confidence[b])
    filled = found.count > 0
    gaps = np.abs(found.accuracy - found.confidence)[filled] * found.count[filled]
    assert found.error == pytest.approx(gaps.sum() / 500) == calibration(p, y, num_bins=10).error
    assert found.error == pytest.approx(float(ExpectedCalibrationError(num_bins=10)(y, p)), abs=1e-6)


plt = importlib.import_module("matplotlib.pyplot")
RNG = np.random.default_rng(0)
P, Y = RNG.dirichlet(np.ones(4), 200), RNG.integers(4, size=200)
CALIBRATION = calibration(P, Y)
ROWS = ("cat", "dog", 0.5, 0.9), ("$x", "$\\frac", -0.3, -0.8), ("a" * 99, 7, 0.1, 0.2)
PAIRS = ConfusedPairs(ConfusedPair(*row) for row in ROWS)
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


def test_figures_have_the_numbers_names_and_meaning_that_they_draw():
    ax, filled = CALIBRATION.plot(), CALIBRATION.count > 0
    right, gaps = ax.containers
    np.testing.assert_allclose([bar.get_height() for bar in right], CALIBRATION.accuracy[filled])
    np.testing.assert_allclose([bar.get_y() + bar.get_height() for bar in gaps], CALIBRATION.confidence[filled])
    np.testing.assert_allclose([bar.get_x() for bar in right], CALIBRATION.edges[:-1][filled], atol=1e-12)
    assert ax.get_title() == f"Expected calibration error {CALIBRATION.error:.3f}"
    (density,) = ax.child_axes
    np.testing.assert_allclose([bar.get_height() for bar in density.patches], CALIBRATION.count / 200)
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
    with pytest.raises(ImportError, match="needs matplotlib, which is not installed: pip install matplotlib"):
        CALIBRATION.plot()
