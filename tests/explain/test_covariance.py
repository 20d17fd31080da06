"""The covariance of a head, pairs of classes beyond chance, and the uncertainty of an example against integrals."""

import sys

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import entr, expit
from scipy.stats import binom

from keras_het.base.validation import as_float64
from keras_het.covariances import Latent
from keras_het.explain import confused_pairs, covariance, explain, uncertainty
from keras_het.explain.head_covariance import _beyond_chance
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from tests.checks import FALSE_ALARM, refusals
from tests.common import assert_same_arrays, built
from tests.layers.heads import HEADS, built_head, with_covariance

pytestmark = pytest.mark.once

UNITS, FACTORS, FEATURES, EXAMPLES = 12, 3, 30, 200
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32")
NAMES = list("abcdefghijkl")


def make_head(**arguments):
    options = {"num_factors": FACTORS, "temperature": 2.0, "seed": 0, "name": "head", **arguments}
    head = built(HeteroscedasticDense(UNITS, **options), (None, FEATURES))
    for weight in head.weights[:-1]:
        weight.assign(RNG.normal(size=weight.shape) * 0.3)
    return head


def plant(head):
    """Classes b and f rise and fall together, c and g against each other; the others have a factor of little noise."""
    kernel = 0.02 * np.random.default_rng(1).normal(size=(FEATURES, UNITS, FACTORS))
    first, second = (np.kron(signs, np.ones((FEATURES // 2, FACTORS))) for signs in ([[1.0], [1.0]], [[1.0], [-1.0]]))
    kernel[:, 1], kernel[:, 5], kernel[:, 2], kernel[:, 6] = 1.3 * first, 1.3 * first, second, -second
    head.covariance.factor_layer.kernel.assign(kernel.reshape(FEATURES, -1))
    head.covariance.factor_layer.bias.assign(np.zeros(UNITS * FACTORS))
    return head


@pytest.mark.parametrize("kind", HEADS)
def test_the_mean_is_that_of_the_head_itself(kind):
    head = built_head(kind, FEATURES, units=UNITS, temperature=2.0, learning_rate_multiplier=0.6)
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Rescaling(2.0), head])
    expected = ops.convert_to_numpy(head.logit_covariance(2 * X)).mean(axis=0) / head.temperature**2
    np.testing.assert_allclose(covariance(model, X, batch_size=16), expected, rtol=1e-4, atol=1e-5)


def functional(*behind):
    def make(head):
        inputs = keras.Input((FEATURES,))
        outputs = head(keras.layers.Identity()(inputs))
        for layer in behind:
            outputs = layer(outputs)
        return keras.Model(inputs, outputs)

    return make


def test_dense_prediction_needs_no_factor_of_every_pixel_and_one_of_two_heads_can_be_named(monkeypatch):
    """A map of images has V of (B, H, W, K, R); d and the inputs say all that is needed."""
    head = make_head()
    model = keras.Sequential([keras.Input((4, 5, FEATURES)), head])
    images = X[:40].reshape(2, 4, 5, FEATURES)
    expected = ops.convert_to_numpy(head.logit_covariance(images)).mean(axis=(0, 1, 2)) / head.temperature**2
    monkeypatch.setattr(head.covariance.factor_layer, "call", None)  # V is not computed
    np.testing.assert_allclose(covariance(model, images), expected, rtol=1e-4, atol=1e-5)
    assert covariance(two_heads(), X, layer="two").shape == (UNITS, UNITS)


MODELS = {
    "functional": functional(),
    "before flips": functional(NoiseTransition(UNITS)),
    "before a softmax": functional(keras.layers.Softmax()),
    "inside a model": lambda head: keras.Sequential([functional()(head), keras.layers.Softmax()]),
}


@pytest.mark.parametrize("kind", MODELS)
def test_planted_pairs_are_found_in_whole_models(kind):
    model = MODELS[kind](plant(make_head()))
    before = [weight.numpy() for weight in model.variables]
    pairs = confused_pairs(model, X, NAMES)
    assert [(pair.first, pair.second, pair.covariance > 0) for pair in pairs] == [("b", "f", True), ("c", "g", False)]
    matrix = covariance(model, X)
    assert [pair.covariance for pair in pairs] == pytest.approx([matrix[1, 5], matrix[2, 6]])
    correlations = matrix / np.sqrt(np.outer(np.diagonal(matrix), np.diagonal(matrix)))
    assert [pair.correlation for pair in pairs] == pytest.approx([correlations[1, 5], correlations[2, 6]])
    assert_same_arrays(model.variables, before)


@pytest.mark.smoke
def test_numbers_count_and_a_data_set():
    model = functional()(plant(make_head()))
    (pair,) = confused_pairs(model, X, count=1)
    assert (pair.first, pair.second) == (1, 5)
    data = ((X[i : i + 16], np.zeros(len(X[i : i + 16]))) for i in range(0, EXAMPLES, 16))
    assert confused_pairs(model, data, count=1)[0].covariance == pytest.approx(pair.covariance)
    assert confused_pairs(functional()(make_head(num_factors=0)), X) == []


def test_of_several_models_a_pair_counts_that_all_have_with_one_sign():
    """Of two heads with the planted pairs, c and g go against each other in the one and together in the other."""
    one, other = plant(make_head()), plant(make_head())
    kernel = ops.convert_to_numpy(other.covariance.factor_layer.kernel).reshape(FEATURES, UNITS, FACTORS).copy()
    kernel[:, 6] = kernel[:, 2]
    other.covariance.factor_layer.kernel.assign(kernel.reshape(FEATURES, -1))
    models = [functional()(head) for head in (one, other)]
    assert {pair.covariance > 0 for pair in confused_pairs(models[1], X)} == {True}
    (pair,) = confused_pairs(models, X, NAMES)
    assert (pair.first, pair.second) == ("b", "f")
    alone = [next(pair for pair in confused_pairs(model, X, NAMES) if pair.first == "b") for model in models]
    assert pair.covariance == pytest.approx(np.mean([pair.covariance for pair in alone]))
    assert pair.correlation == pytest.approx(np.mean([pair.correlation for pair in alone]))
    with pytest.raises(ValueError, match=r"`model` must be a model, or a list with at least one. Received: none"):
        confused_pairs([], X)


def full(x):
    x = np.concatenate([x[:, :3], np.ones((len(x), 1))], axis=1)
    return (4, 5, 2), lambda factor: hollow(np.einsum("mkr,mn,nlr->kl", factor, x.T @ x / len(x), factor))


def hollow(matrix):
    matrix = matrix - np.diag(np.diagonal(matrix))
    rows = matrix - matrix.mean(axis=1, keepdims=True)
    return rows - rows.mean(axis=0)


def parameter_efficient(x):
    weight = x.T @ x / len(x)
    return (1, 5, 40), lambda factor: hollow(factor[0] @ factor[0].T * weight)


def alarms(draw, form=full, draws=9, trials=400, seed=3):
    rng = np.random.default_rng(seed)
    shape, shared_of = form(rng.normal(size=(30, 5)) + 0.5)

    def is_any():
        factor = draw(rng, shape)
        return bool(len(_beyond_chance(shared_of, factor, shared_of(factor), draws, rng)[0]))

    return sum(is_any() for _ in range(trials))


@pytest.mark.statistical
@pytest.mark.parametrize("form", [full, parameter_efficient])
@pytest.mark.parametrize("noise", [
    lambda rng, shape: rng.normal(size=shape),
    lambda rng, shape: rng.uniform(-1, 1, size=shape),
    lambda rng, shape: rng.normal(size=shape) * rng.lognormal(sigma=1.0, size=(1, shape[1], 1)),
    lambda rng, shape: rng.normal(size=shape) * np.array([5.0, 5.0, 1.0, 1.0, 1.0])[:, None],  # two large classes
])  # fmt: skip
def test_noise_is_returned_as_rarely_as_is_said(noise, form, base_seed, redraws):
    """Once in draws + 1 times: 10% of them."""
    trials = redraws(400)
    found = alarms(noise, form, trials=trials, seed=base_seed + 3)
    assert binom.ppf(FALSE_ALARM / 2, trials, 0.1) <= found <= binom.isf(FALSE_ALARM / 2, trials, 0.1)


@pytest.mark.parametrize("efficient", [False, True])
def test_a_planted_pair_is_found_beside_classes_of_unequal_sizes(efficient):
    """Of small weights, lognormal in size, those of b and f are alike and large."""
    rng, factors = np.random.default_rng(2), 12
    head = built(HeteroscedasticDense(UNITS, factors, parameter_efficient=efficient, name="head"), (None, FEATURES))
    sizes = 0.1 * rng.lognormal(sigma=1.0, size=(UNITS, 1))
    weights = sizes * rng.normal(size=(1 if efficient else FEATURES, UNITS, factors))
    weights[:, 5] = weights[:, 1] = rng.choice([-1.0, 1.0], weights[:, 1].shape)
    if efficient:
        head.covariance.factor_layer.kernel.assign(weights[0])
        head.covariance.row_scale_layer.bias.assign(np.ones(UNITS))
    else:
        head.covariance.factor_layer.kernel.assign(weights.reshape(FEATURES, -1))
    (pair,) = confused_pairs(functional()(head), X, NAMES)
    assert (pair.first, pair.second, pair.covariance > 0) == ("b", "f", True)


def two_heads():
    inputs = keras.Input((FEATURES,))
    heads = [HeteroscedasticDense(UNITS, name=name)(inputs) for name in ("one", "two")]
    return keras.Model(inputs, keras.layers.Add()(heads))


POINTS = np.array([[1.0, 0.5], [-2.0, 0.3], [0.1, -1.5]], "float32")


def model_of(units, **arguments):
    arguments = with_covariance(**{"temperature": 1.5, "initial_scale": 1.5, "seed": 0, **arguments})
    head = HeteroscedasticDense(units, **arguments)
    model = keras.Sequential([keras.Input((2,)), head])
    head.loc_layer.kernel.assign(np.random.default_rng(1).normal(size=(2, units)))
    return model, head


def exact(mean, variance):
    points, weights = np.polynomial.hermite_e.hermegauss(200)
    p = expit(mean[..., None] + np.sqrt(variance)[..., None] * points)
    weights = weights / weights.sum()
    whole = p @ weights
    return entr(whole) + entr(1 - whole), (entr(p) + entr(1 - p)) @ weights


@pytest.mark.smoke
@pytest.mark.parametrize(("units", "link"), [(2, "softmax"), (3, "sigmoid")])
def test_two_exclusive_classes_are_one_logit_and_labels_that_are_not_exclusive_add_up(units, link):
    model, head = model_of(units, num_factors=1, link=link)
    normal = head.logit_distribution(POINTS)
    mean, covariance = as_float64(normal.loc), as_float64(normal.covariance())
    logits = np.eye(3) if link == "sigmoid" else np.array([[1.0, -1.0]])  # of the labels, or of the first class
    variance = np.einsum("lk,nkj,lj->nl", logits, covariance, logits)
    whole, expected = (each.sum(axis=1) for each in exact(mean @ logits.T / 1.5, variance / 1.5**2))
    found = uncertainty(model, POINTS, num_samples=1024)
    np.testing.assert_allclose(found.entropy, whole, atol=2e-3)
    np.testing.assert_allclose(found.expected_entropy, expected, atol=2e-3)
    np.testing.assert_allclose(found.difference, whole - expected, atol=2e-3)
    assert (found.difference > 0.05).all()


def test_without_noise_nothing_is_uncertain_by_it_and_a_class_left_out_has_no_entropy():
    model, _ = model_of(4, num_factors=1, initial_scale=1e-6, min_scale=0.0)
    found, log_p = uncertainty(model, POINTS), model.predict(POINTS, verbose=0)
    np.testing.assert_allclose(found.difference, 0.0, atol=1e-6)
    np.testing.assert_allclose(found.noise_sd, 0.0, atol=1e-5)
    np.testing.assert_allclose(found.entropy, -np.sum(np.exp(log_p) * log_p, axis=1), rtol=1e-5)
    # Its logit is -inf, and 0 log 0 is 0, not nan.
    model, head = model_of(3, num_factors=1)
    head.loc_layer.bias.assign([0.0, 0.0, -np.inf])
    found = uncertainty(model, POINTS)
    assert np.isfinite(found.entropy).all()
    assert (found.entropy <= np.log(2) + 1e-6).all()


def test_noise_of_the_features_keeps_the_bounds_and_many_classes_are_cut_into_rows(monkeypatch):
    found = uncertainty(model_of(4, covariance=Latent, initial_scale=0.15)[0], POINTS)
    assert (found.difference >= 0).all()
    assert (found.entropy <= np.log(4) + 1e-6).all()
    assert (found.noise_sd > 0).all()
    model, _ = model_of(3, num_factors=1)
    whole = uncertainty(model, POINTS)
    monkeypatch.setattr(sys.modules["keras_het.explain.explanation"], "BLOCK_ELEMENTS", 256 * 3)
    for name, one in vars(uncertainty(model, POINTS)).items():
        np.testing.assert_allclose(one, getattr(whole, name), atol=1e-6)


ANIMALS, EYE = ["cat", "lynx", "dog", "wolf"], np.eye(4, dtype="float32")


def confusing():
    """Makes an accurate head that confuses 0 and 1 (negative covariance), and 2 and 3 (positive)."""
    head = HeteroscedasticDense(4, num_factors=2, temperature=2.0, seed=0)
    model = keras.Sequential([keras.Input((4,)), head])
    head.loc_layer.kernel.assign(4 * np.eye(4))
    head.covariance.factor_layer.bias.assign(np.array([[2, 0], [-2, 0], [0, 1], [0, 1.2]]).ravel())
    return model, head


@pytest.mark.smoke
def test_an_explanation_by_the_dense_matrix():
    model, head = confusing()
    found = explain(model, EYE[:1], ANIMALS, count=2)
    matrix, p = as_float64(head.logit_covariance(EYE[:1]))[0] / 4.0, np.exp(model.predict(EYE[:1], verbose=0))[0]
    order = np.argsort(-p)[:2]
    assert [one.name for one in found.classes] == [ANIMALS[i] for i in order]
    np.testing.assert_allclose([one.probability for one in found.classes], p[order], rtol=1e-5)
    sds = np.sqrt(np.diagonal(matrix))
    np.testing.assert_allclose([one.noise_sd for one in found.classes], sds[order], rtol=1e-4)
    pair = found.pairs[0]
    assert {pair.first, pair.second} == {"cat", "lynx"}
    assert pair.covariance == pytest.approx(matrix[0, 1], rel=1e-4)
    assert pair.correlation == pytest.approx(matrix[0, 1] / (sds[0] * sds[1]), rel=1e-4)
    pairs = [frozenset((pair.first, pair.second)) for pair in explain(model, EYE[:1], count=4).pairs]
    assert len(pairs) == len(set(pairs)) == 4  # each once
    text = str(found)
    assert "cat: probability 0." in text
    assert "one or the other (correlation -" in text
    assert "nats (entropy)" in text


test_errors_say_what_is_wrong = refusals([
    (lambda: covariance(two_heads(), X), "`layer` must name one of its HeteroscedasticDense layers: 'one', 'two'"),
    (lambda: covariance(functional()(make_head()), X[:0]), "`x` must have at least one example. Received: none"),
    (lambda: confused_pairs(functional()(make_head()), X, ["a"]), "a name for each of the 12 classes. Received: a lis"),
    (lambda: covariance(functional()(make_head()), np.where(np.arange(len(X))[:, None] == 3, np.nan, X)),
     "must give finite scales"),
    (lambda: confused_pairs(functional()(make_head(parameter_efficient=True, num_factors=5)), X),
     "random signs often change no covariance. Use `covariance` instead. Received: num_factors=5, draws=99"),
    (lambda: confused_pairs([functional()(HeteroscedasticDense(units, 2)) for units in (3, 5)], X),
     "`model` must be models of the same classes. Received: 3, 5 classes"),
    (lambda: confused_pairs(functional()(make_head()), X, draws=0), "`draws` must be an integer at least 1. Received:"),
    (lambda: confused_pairs(functional()(make_head()), X, count=-1), "`count` must be an integer at least 0. Received"),
    (lambda: uncertainty(model_of(3)[0], POINTS[:0]), "`x` must have at least one example. Received: none"),
    (lambda: uncertainty(model_of(3)[0], POINTS, num_samples=0), "`num_samples` must be an integer at least 1"),
    (lambda: uncertainty(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]), POINTS),
     "must end in a HeteroscedasticDense layer"),
    (lambda: explain(confusing()[0], EYE), "`x` must be one example with a batch axis, such as x[:1]. Received: 4 exa"),
    (lambda: explain(keras.Sequential([keras.Input((5, 4)), HeteroscedasticDense(3)]), np.zeros((1, 5, 4))),
     "must make one prediction for each example, from features of shape (N, D). Received: features of"),
    (lambda: explain(confusing()[0], EYE[:1], ["cat"]), "a name for each of the 4 classes. Received: a list of 1"),
])  # fmt: skip
