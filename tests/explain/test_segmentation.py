"""Drawn label maps against the planted Gaussian, and their scores by hand and by brute force."""

import itertools
import types

import numpy as np
import pytest

from keras_het.explain import sample_segmentations, segmentation_scores

pytestmark = pytest.mark.once


class Planted:
    """A model whose two pixels share one factor: both are of class 1 or none is."""

    head = types.SimpleNamespace(units=2)

    def __init__(self, factor, scale):
        self.factor, self.scale = factor, scale

    def predict_distribution(self, x, **arguments):
        loc, scale = np.zeros((len(x), 2, 2)), np.full((len(x), 2, 2), self.scale)
        factor = np.tile(np.array([0.0, self.factor]), (len(x), 2, 1))
        return np.concatenate([loc, scale, factor, np.full((len(x), 2, 1), -1.0)], axis=-1)


@pytest.mark.parametrize(("factor", "scale", "equal"), [(2.0, 0.0, 1.0), (0.0, 1.0, 0.5)])
def test_pixels_share_the_noise_of_the_factors_and_not_their_own(factor, scale, equal):
    maps = sample_segmentations(Planted(factor, scale), np.zeros((30, 1)), 200)
    assert maps.shape == (200, 30, 2)
    assert np.mean(maps[..., 0] == maps[..., 1]) == pytest.approx(equal, abs=0.03)
    assert np.mean(maps) == pytest.approx(0.5, abs=0.03)
    assert np.abs(np.corrcoef(maps[:, 0, 0], maps[:, 1, 0])[0, 1]) < 0.3  # images have noise of their own
    np.testing.assert_array_equal(maps, sample_segmentations(Planted(factor, scale), np.zeros((30, 1)), 200))


def distance(a, b, classes):
    """1 - IoU by sets."""
    parts = []
    for label in range(1, classes):
        one, other = ({*np.flatnonzero(m.ravel() == label)} for m in (a, b))
        parts.append(1.0 - len(one & other) / len(one | other) if one | other else 0.0)
    return np.mean(parts)


def test_the_scores_against_sets_and_all_matchings():
    rng = np.random.default_rng(0)
    samples, references = rng.integers(3, size=(4, 2, 2, 3)), rng.integers(3, size=(2, 2, 2, 3))
    found = segmentation_scores(samples, references, num_classes=3)
    energy, diversity, matched = [], [], []
    for n in range(2):
        across, among, own = (
            np.array([[distance(a[n], b[n], 3) for b in second] for a in first])
            for first, second in ((samples, references), (samples, samples), (references, references))
        )
        energy.append(2 * across.mean() - among.mean() - own.mean())
        diversity.append(among.mean())
        twice = [0, 0, 1, 1]
        matched.append(
            max(np.mean([1 - across[i, twice[j]] for i, j in enumerate(p)]) for p in itertools.permutations(range(4)))
        )
    expected = [np.mean(x) for x in (energy, diversity, matched)]
    np.testing.assert_allclose([found.energy_distance, found.diversity, found.matched_iou], expected, atol=1e-12)
    assert (found.num_samples, found.num_references) == (4, 2)


def test_salt_and_pepper_has_its_exact_energy_distance():
    """Segments wholly on or off against pixels on by chance: 2 (3/4) - 2/3 - 1/2, up to empty maps."""
    rng = np.random.default_rng(0)
    references = np.stack([np.zeros((20, 24), int), np.ones((20, 24), int)])
    found = segmentation_scores(rng.integers(2, size=(100, 20, 24)), references)
    assert found.energy_distance == pytest.approx(1.5 - 2 / 3 - 0.5, abs=0.02)
    whole = np.repeat(rng.permuted(np.tile([0, 1], (20, 50)), axis=1).T[..., None], 24, axis=-1)
    assert segmentation_scores(whole, references).energy_distance == pytest.approx(0.0, abs=1e-12)


def test_refusals():
    with pytest.raises(ValueError, match="`references` must have the shape"):
        segmentation_scores(np.zeros((2, 3, 4)), np.zeros((2, 3, 5)))
    with pytest.raises(ValueError, match="`num_samples` must be an integer in"):
        sample_segmentations(Planted(1.0, 1.0), np.zeros((1, 1)), 0)
