"""Benchmark of segmentation: its annotators, and the scores of the planted distribution."""

import numpy as np
import pytest

from benchmarks.labels import segmentation

pytestmark = pytest.mark.once


@pytest.fixture(params=[segmentation.Segments, segmentation.Discs])
def task(request, monkeypatch):
    monkeypatch.setattr(segmentation, "TRAIN", 20)
    monkeypatch.setattr(segmentation, "TEST", 30)
    return request.param(0)


def test_annotators_draw_different_maps_whose_entropy_is_stated(task):
    for maps in task.maps.swapaxes(0, 1):
        _, counts = np.unique(maps.reshape(len(maps), -1), axis=0, return_counts=True)
        share = counts / len(maps)
        assert -(share * np.log(share)).sum() == pytest.approx(task.entropy)
    assert task.y.shape == task.maps.shape[1:]
    same = (task.y == task.maps).reshape(*task.maps.shape[:2], -1).all(-1)
    assert same[task.annotators, np.arange(len(task.x))].all()


def test_samples_of_the_planted_distribution_have_its_exact_figures(task):
    rng = np.random.default_rng(0)
    draws = [segmentation.scores(task, task.planted(100, rng), task.entropy) for _ in range(3)]
    result, exact = np.mean(draws, axis=0), segmentation.exact(task)
    known = ~np.isnan(exact)
    np.testing.assert_allclose(result[known], np.array(exact)[known], rtol=0.2)
    samples = segmentation.sample_pixels(task.maps[:, 20:].mean(0), 100, rng)
    assert segmentation.borders(samples) > 2 * segmentation.borders(task.maps[:, 20:])
    assert segmentation.nll_by_pixel(task.maps[:, 20:].mean(0), task.y[20:]) > 3 * task.entropy


def test_borders_and_whole_maps_by_hand():
    maps = np.array([[[0, 1, 1, 0]], [[0, 0, 0, 0]]])
    assert segmentation.borders(maps) == 1.0
    assert segmentation.borders(np.array([[[[0, 1], [1, 1]]]])) == 2.0
    samples = np.array([[[0, 1, 1, 0]], [[0, 1, 0, 0]]])
    assert segmentation.whole(samples, maps) == (0.5, 1.0)
