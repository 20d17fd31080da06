"""The atlas of floors: its bounds by brute force and by drawn labels, and no published result beyond one."""

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.floors import bounds, limits, tasks, training
from benchmarks.floors.__main__ import options_of, wanted
from benchmarks.lib import pages
from benchmarks.lib.views.rows import BOUNDED
from keras_het.explain import calibration

pytestmark = pytest.mark.once


def published(name, title):
    return pages.run_of(name).tables[title]


RATE = 0.3  # of flips between two classes in one dimension


def two_classes(x):
    """p(true | x) and p(noisy | x) of x ~ N(1, 1) and N(-1, 1), among five classes of which three have no example."""
    first = 1 / (1 + np.exp(-2 * x))
    p = np.zeros((len(x), 5))
    p[:, :2] = np.stack([first, 1 - first], axis=1)
    return p, np.where(np.arange(5) < 2, (1 - RATE) * p + RATE * p[:, [1, 0, 2, 3, 4]], 0.0)


def by_hermite(nodes=200):
    """Examples of the two classes, and the weights of their mean."""
    x, weights = np.polynomial.hermite_e.hermegauss(nodes)
    return np.concatenate([x + 1, x - 1]), np.tile(weights / weights.sum() / 2, 2)


def test_the_bounds_of_two_classes_in_one_dimension_are_those_of_a_fine_grid():
    x, weights = by_hermite()
    nll, group, within, noisy, clean, *_ = bounds.of_posteriors(*two_classes(x)) @ weights
    grid = np.linspace(-12, 12, 200_001)
    density = (norm.pdf(grid - 1) + norm.pdf(grid + 1)) / 2
    first = RATE + (1 - 2 * RATE) / (1 + np.exp(-2 * grid))
    entropy = -first * np.log(first) - (1 - first) * np.log(1 - first)
    assert nll == pytest.approx(np.trapezoid(density * entropy, grid), abs=1e-9)
    assert within == pytest.approx(nll)
    assert group == pytest.approx(0, abs=1e-12)
    # A kink, where the classes part, is what quadrature by polynomials rounds off.
    assert noisy == pytest.approx(np.trapezoid(density * np.maximum(first, 1 - first), grid), abs=2e-3)
    assert clean == pytest.approx(norm.cdf(1), abs=2e-3)


def test_no_other_prediction_of_two_classes_is_better_than_a_bound():
    x, weights = by_hermite()
    p, q = two_classes(x)
    nll, _, _, noisy, clean, *_ = bounds.of_posteriors(p, q) @ weights
    rng, rows = np.random.default_rng(0), np.arange(len(x))
    for slope, shift in rng.normal(size=(50, 2)):
        logit = slope * x + shift
        log_guess = -np.stack([np.logaddexp(0, -logit), np.logaddexp(0, logit)], axis=1)
        best = log_guess.argmax(axis=1)
        assert -(q[:, :2] * log_guess).sum(axis=1) @ weights > nll
        assert q[rows, best] @ weights <= noisy
        assert p[rows, best] @ weights <= clean


@pytest.mark.parametrize("name", tasks.NOISES)
def test_bounds_agree_with_drawn_labels(name):
    found, drawn = (way(tasks.NOISES[name], 10, 20_000) for way in (bounds.bounds, bounds.simulated))
    for figure in bounds.FIGURES:
        error = np.hypot(found[figure].error, drawn[figure].error)
        assert abs(found[figure].value - drawn[figure].value) < 5 * error + 1e-6, figure
    assert found["noisy NLL"].error < drawn["noisy NLL"].error / 10


def test_bounds_are_those_that_were_computed_by_hand():
    """Where x tells the class, the noisy NLL is the entropy of a row of T; the rate by input is known or ignored."""

    def entropy(rate):
        return -(1 - rate) * np.log(1 - rate) - rate * np.log(rate / 4)

    same, by_input = (bounds.bounds(tasks.NOISES[name], 10, 20_000) for name in ("by group", "by group, rate by input"))
    assert same["noisy NLL"].value == pytest.approx(entropy(0.4), abs=1e-3)
    assert by_input["noisy NLL"].value == pytest.approx((entropy(0.05) + entropy(0.75)) / 2, abs=1e-3)
    for found in (same, by_input):
        assert found["noisy accuracy"].value == pytest.approx(0.6, abs=1e-3)
        assert found["ideal: clean ECE"].value == pytest.approx(0.4, abs=1e-3)


@pytest.mark.parametrize("name", tasks.NOISES)
def test_p_of_noisy_labels_is_the_share_that_is_drawn(name):
    noise, units, count = tasks.NOISES[name], 10, 40_000
    x = np.repeat(tasks.draw(noise, units, 4, 5).x, count, axis=0)
    x[:, :-1] *= 0.2  # between the classes
    p, rng = tasks.posterior(x, units), np.random.default_rng(0)
    q = tasks.noisy(p, tasks.rate_of(noise, x), noise.flip)
    np.testing.assert_allclose(q.sum(axis=1), 1, rtol=1e-5)
    y = (p.cumsum(axis=1) > rng.random((len(p), 1))).argmax(axis=1)
    flipped = rng.random(len(y)) < tasks.rate_of(noise, x)[:, 0]
    drawn = np.where(flipped, noise.flip.draw(y, p, rng), y).reshape(4, count)
    shares = np.stack([np.bincount(row, minlength=units) for row in drawn]) / count
    np.testing.assert_allclose(shares, q[::count], atol=5 * np.sqrt(0.25 / count))


def test_the_value_of_the_gap_is_the_calibration_error():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=500)
    labels = rng.integers(4, size=500)
    gaps = bounds.gap(p.max(axis=1), (p.argmax(axis=1) == labels).astype(float))
    assert gaps.mean() == pytest.approx(calibration(p, labels).error)


def test_the_distance_is_zero_for_the_ideal_prediction_and_has_its_parts():
    noise, units = tasks.NOISES["by class"], 20
    drawn = tasks.draw(noise, units, 500, 0)
    q = tasks.noisy(tasks.posterior(drawn.x, units), tasks.rate_of(noise, drawn.x), noise.flip).astype("float64")
    ideal = training.measured(np.log(np.maximum(q, 1e-30)), drawn, noise)
    assert abs(ideal["distance"].mean()) < 1e-6
    flat = training.measured(np.full((500, units), -np.log(units)), drawn, noise)
    entropy = -(q * np.log(np.maximum(q, 1e-30))).sum(axis=1)
    np.testing.assert_allclose(flat["distance"], np.log(units) - entropy, atol=1e-5)
    inside = flat["distance within the group"].mean()
    assert inside == pytest.approx(np.log(5), abs=0.02)  # each group of the two has one label
    assert flat["distance of the group"].mean() == pytest.approx(flat["distance"].mean() - inside)


def test_no_published_result_passes_a_bound():
    found = limits.published(published)
    assert len(found) > 250
    names = {task for each in found for task in BOUNDED if each.name.startswith(task)}
    assert names == set(BOUNDED)
    assert not limits.passing(found)


@pytest.mark.planted
@pytest.mark.parametrize("figure", [*bounds.FLOORS, *bounds.CEILINGS])
def test_a_result_that_passes_a_bound_is_found(figure):
    found = limits.published(published)
    own = next(each for each in found if each.figure == figure)
    step = 1.1 * limits.limit(len(found)) * max(own.error, own.ideal)
    planted = own._replace(value=own.bound + (step if figure in bounds.CEILINGS else -step))
    assert limits.passing([*found[1:], planted]) == [planted]
    within = own._replace(value=(own.bound + planted.value) / 2)
    assert not limits.passing([*found[1:], within])


def test_the_figures_of_the_recipe_are_those_of_dense_and_what_is_added():
    found = {(each.name, each.figure): each for each in limits.of_recipe(published, "recipe", "noisy NLL")}
    rows = {row[1]: row for row in published("recipe", "beside Dense, all chosen by noisy NLL")[1:5]}
    assert rows["Dense"][0] == "groups, 1000 classes, 20 each"
    dense, full = (rows[method][6].split(" +- ") for method in ("Dense", "full"))
    own = found["groups, 1000 classes, 20 each, full, by noisy NLL", "noisy NLL"]
    assert own.value == pytest.approx(float(dense[0]) + float(full[0]))
    assert own.error == pytest.approx(np.hypot(float(dense[1]), float(full[1])), abs=1e-4)
    assert own.bound == pytest.approx(1.2277, abs=1e-3)
    assert own.ideal == pytest.approx(0.88 / 20_000**0.5, rel=0.01)


def test_the_limit_grows_with_the_number_of_comparisons():
    assert limits.limit(1) == pytest.approx(3.0)
    assert 4 < limits.limit(100) < 5


def test_a_training_ends_with_the_figures_of_both_choices_and_a_model_begins_anew(monkeypatch):
    monkeypatch.setitem(tasks.LENGTHS, 10, (1000, 2000))
    _, line, again = (training.run("by group", 10, 20, "diagonal", 0) for _ in range(3))  # the first one compiles
    assert again["choices"] == line["choices"]
    for choice in line["choices"].values():
        assert 1 <= choice["epoch"] <= 2
        figures = {name: value for name, (value, _) in choice["figures"].items()}
        assert 0 < figures["distance"] < 2
        assert figures["distance"] == pytest.approx(figures["noisy NLL"] - 1.2276, abs=0.1)


def test_the_seeds_are_finished_one_after_the_other_and_1000_classes_have_one(tmp_path):
    keys = wanted(options_of(["--output", str(tmp_path), "--seeds", "2"]))
    assert [key[-1] for key in keys] == sorted(key[-1] for key in keys)
    assert {key[-1] for key in keys if key[1] == 1000} == {0}
