"""Joint models against oracles: sums over all label vectors, brute force for label maps, SciPy for regressions."""

import itertools

import keras
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from keras_het.explain import covariance, joint_labels, regression_scores, sample_segmentations, segmentation_scores
from keras_het.explain.distributions import JointLabels
from keras_het.layers import HeteroscedasticDense, JointHeteroscedasticDense, StochasticSegmentation
from keras_het.models import DistributionModel
from keras_het.ops.normal import DiagonalNormal
from keras_het.ops.packed import pack
from tests.checks import refusals
from tests.losses.test_multivariate_normal import parts

pytestmark = pytest.mark.once

LABELS, EXAMPLES = 3, 4
VECTORS = np.array(list(itertools.product((0, 1), repeat=LABELS)))
X = np.random.default_rng(0).normal(size=(EXAMPLES, 2)).astype("float32")


def joint_model(num_factors=2):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((2,))
    model = DistributionModel(inputs, JointHeteroscedasticDense(LABELS, num_factors, seed=0)(inputs))
    model.set_weights([10 * w if w.ndim else w for w in model.get_weights()])  # much noise, and no bias of zeros
    return model


@pytest.fixture(scope="module", params=[0, 2])
def found(request):
    return joint_labels(joint_model(request.param), X, num_samples=1024)


@pytest.fixture
def of_each(found):
    return np.exp([found.log_prob(vector) for vector in VECTORS])


def test_the_probabilities_of_all_vectors_of_samples_and_of_each_label_given_the_others(found, of_each):
    np.testing.assert_allclose(of_each.sum(0), 1.0, atol=1e-4)
    np.testing.assert_allclose(np.einsum("mn,mc->nc", of_each, VECTORS), found.probabilities, atol=2e-3)
    np.testing.assert_array_equal(found.most_likely(VECTORS), of_each.argmax(0))
    samples = found.sample(4000, seed=1)
    assert samples.dtype == "int8"
    shares = np.array([(samples == vector).all(-1).mean(0) for vector in VECTORS])
    np.testing.assert_allclose(shares, of_each, atol=5 * 0.5 / np.sqrt(4000))
    np.testing.assert_array_equal(found.sample(2, seed=1), samples[:2])
    y = VECTORS[[1, 6, 3, 7]].copy()
    y[0, 0] = -1
    p = found.conditional_probabilities(y)
    for example, label in itertools.product(range(EXAMPLES), range(LABELS)):
        free = (y[example] == -1) | (np.arange(LABELS) == label)
        known = ((y[example] == VECTORS) | free).all(1)
        share = of_each[known & (VECTORS[:, label] == 1), example].sum() / of_each[known, example].sum()
        assert p[example, label] == pytest.approx(share, abs=1e-4)


def test_samples_of_sure_labels_do_not_overflow_and_the_covariance_of_a_joint_head_can_be_analysed():
    outputs = pack(DiagonalNormal(np.array([[-1e3, 1e3]], "float32"), np.ones((1, 2), "float32")))
    joint = JointLabels(np.array([[0.0, 1.0]]), keras.ops.convert_to_numpy(outputs), 8)
    np.testing.assert_array_equal(joint.sample(3), np.tile([0, 1], (3, 1, 1)))
    model = joint_model()
    expected = keras.ops.convert_to_numpy(model.head.logit_covariance(X)).mean(0)
    np.testing.assert_allclose(covariance(model, X), expected, rtol=1e-4)


@pytest.mark.parametrize(("call", "text"), [
    (lambda found: found.log_prob([1, 0]), r"`labels` must have shape .* or \(3,\). Received: shape \(2,\)"),
    (lambda found: found.log_prob([1, 0, 2]), r"`labels` must be 0, 1, or -1 for a missing label. .*: 2 at \[2\]"),
    (lambda found: found.most_likely([1, 0, 1]), "`candidates` must be 0 or 1, of shape"),
    (lambda found: found.most_likely(np.zeros((0, 3))), r"M > 0. Received: shape \(0, 3\)"),
    (lambda found: joint_labels(keras.Sequential([keras.Input((2,)), HeteroscedasticDense(3)]), X),
     "`model` must be a DistributionModel of a JointHeteroscedasticDense"),
])  # fmt: skip
def test_refusals(found, call, text):
    with pytest.raises(ValueError, match=text):
        call(found)


class Planted:
    """A model whose two pixels share one factor: both are of class 1 or none is."""

    head = StochasticSegmentation(2, num_factors=1)

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
        orders = itertools.permutations(range(4))
        matched.append(max(np.mean([1 - across[i, twice[j]] for i, j in enumerate(order)]) for order in orders))
    expected = [np.mean(x) for x in (energy, diversity, matched)]
    np.testing.assert_allclose([found.energy_distance, found.diversity, found.matched_iou], expected, atol=1e-12)
    assert (found.num_samples, found.num_references) == (4, 2)


MAPS, PLANTED, PLAIN = np.zeros((2, 3, 4), int), Planted(1.0, 1.0), [keras.Input((2,)), HeteroscedasticDense(3)]
OF_A_SEGMENTATION = "`model` must be a DistributionModel of a StochasticSegmentation"


def predicted(count, units, factors, seed=0):
    rng = np.random.default_rng(seed)
    mean, scale = rng.normal(size=(count, units)), np.exp(0.5 * rng.normal(size=(count, units)))
    factor = rng.normal(size=(count, units, factors))
    noise = scale * rng.normal(size=mean.shape) + np.einsum("nkr,nr->nk", factor, rng.normal(size=(count, factors)))
    outputs = np.concatenate([mean, scale, factor.reshape(count, -1), np.full((count, 1), -1.0)], axis=1)
    return outputs.astype("float32"), mean + noise


def test_the_scores_of_drawn_targets_are_those_of_scipy():
    outputs, y = predicted(20, 3, 2)
    mean, covariance = parts(outputs.astype("float64"), 3)
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    found = regression_scores(outputs, y)
    nll = [-multivariate_normal.logpdf(*row) for row in zip(y, mean, covariance, strict=True)]
    assert found.nll == pytest.approx(np.mean(nll), rel=1e-5)
    np.testing.assert_allclose(found.rmse, np.sqrt(np.square(y - mean).mean(0)), rtol=1e-5)
    np.testing.assert_allclose(found.mae, np.abs(y - mean).mean(0), rtol=1e-5)
    crps = np.empty_like(y)
    for place in np.ndindex(y.shape):
        law, value = norm(mean[place], scale[place]), y[place]
        below = quad(lambda t, law=law: law.cdf(t) ** 2, value - 30, value)[0]
        crps[place] = below + quad(lambda t, law=law: law.sf(t) ** 2, value, value + 30)[0]
    np.testing.assert_allclose(found.crps, crps.mean(0), rtol=1e-5)
    low, high = norm.interval(0.9, mean, scale)
    np.testing.assert_allclose(found.coverage[1], ((low < y) & (y < high)).mean(0))
    np.testing.assert_allclose(found.width[1], (high - low).mean(0), rtol=1e-5)
    assert "inside 90%" in str(found)


@pytest.mark.parametrize("factors", [0, 2])
def test_outputs_in_float64_are_judged_in_float64(factors):
    """Means of 1e8, of which float32 holds no neighbour nearer than 8; the scores are those of the errors alone."""
    outputs, y = predicted(20, 3, factors)
    far = outputs.astype("float64") + np.where(np.arange(outputs.shape[1]) < 3, 1e8, 0.0)
    found, expected = regression_scores(far, y + 1e8), regression_scores(outputs, y)
    for name in ("nll", "distance", "rmse", "mae", "crps", "width"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-6)
    mean, covariance = parts(outputs.astype("float64"), 3)
    nll = [-multivariate_normal.logpdf(*row) for row in zip(y, mean, covariance, strict=True)]
    assert expected.nll == pytest.approx(np.mean(nll), rel=1e-12)


def test_coverage_and_distance_of_many_draws_are_right():
    outputs, y = predicted(20_000, 2, 1)
    scores = regression_scores(outputs, y)
    np.testing.assert_allclose(scores.coverage, np.broadcast_to([[0.5], [0.9], [0.95]], (3, 2)), atol=0.015)
    assert scores.distance == pytest.approx(1.0, abs=0.03)
    outputs[:, 2:-1] /= 2.0
    assert regression_scores(outputs, y).distance == pytest.approx(4.0, abs=0.12)


OUTPUTS, Y = predicted(4, 2, 1)
test_maps_and_targets_that_do_not_fit_are_refused = refusals([
    (lambda: segmentation_scores(MAPS, np.zeros((2, 3, 5))), "`references` must have the shape"),
    *((lambda wrong=wrong: segmentation_scores(MAPS, np.where(np.arange(4) == 1, wrong, MAPS)),
       "`references` must be integers in [0, 2), or pass `num_classes`") for wrong in (255, -1, 0.5, np.nan)),
    *((lambda index=index: segmentation_scores(MAPS[index], MAPS[index]), "`samples` must be maps of shape")
      for index in (np.s_[:0], np.s_[:, :0], np.s_[..., :0], np.s_[0, 0])),
    (lambda: segmentation_scores(MAPS, MAPS[:0]), "`references` must"),
    (lambda: sample_segmentations(PLANTED, np.zeros((1, 1)), 0), "`num_samples` must be an integer in"),
    (lambda: sample_segmentations(keras.Sequential(PLAIN), X, 2), OF_A_SEGMENTATION),
    (lambda: sample_segmentations(joint_model(), X, 2), OF_A_SEGMENTATION),
    (lambda: regression_scores(OUTPUTS, np.where(Y > 0, Y, np.nan)), "`targets` must be finite. Received: nan at"),
    (lambda: regression_scores(OUTPUTS * np.inf, Y), "`outputs` must be finite"),
    (lambda: regression_scores(OUTPUTS, Y[:3]), "`targets` must have shape"),
    (lambda: regression_scores(OUTPUTS[:0], Y[:0]), "`targets` must have shape"),
    (lambda: regression_scores(OUTPUTS, Y[:, :1]), "`outputs` must have 1"),
    (lambda: regression_scores(OUTPUTS, Y, levels=[0.9, 1.0]), "`levels` must be a sequence of numbers in (0, 1)"),
    (lambda: regression_scores(OUTPUTS, Y, levels=["all"]), "`levels` must be an array of numbers. Received: a list"),
    (lambda: regression_scores(-OUTPUTS, Y), "`outputs` must have standard deviations above 0 after the 2 means"),
])  # fmt: skip
