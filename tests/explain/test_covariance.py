"""The covariance of a head over a data set, and the pairs of classes that are beyond chance."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.stats import binom

from keras_het.explain import confused_pairs, covariance
from keras_het.explain.head_covariance import _beyond_chance
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from tests.checks import FALSE_ALARM, refusals
from tests.common import assert_same_arrays, built
from tests.layers.heads import HEADS, built_head

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
    "inside a model": lambda head: keras.Sequential(
        [keras.Input((FEATURES,)), functional()(head), keras.layers.Softmax()]
    ),
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
    """Returns the shape of a factor, and a function from its weights to the covariances between classes."""
    x = np.concatenate([x[:, :3], np.ones((len(x), 1))], axis=1)
    return (4, 5, 2), lambda factor: low_rank(x.T @ x / len(x), factor)


def hollow(matrix):
    matrix = matrix - np.diag(np.diagonal(matrix))
    rows = matrix - matrix.mean(axis=1, keepdims=True)
    return rows - rows.mean(axis=0)


def low_rank(second, factor):
    right = np.einsum("mn,nkr->mrk", second, factor).reshape(-1, 5)
    return hollow(factor.transpose(0, 2, 1).reshape(-1, 5).T @ right)


def parameter_efficient(x):
    """Does the same for a factor that all examples share, with rows scaled by `x`."""
    weight = x.T @ x / len(x)
    return (1, 5, 40), lambda factor: hollow(factor[0] @ factor[0].T * weight)


def alarms(draw, form=full, draws=9, trials=400, seed=3):
    """Counts how often any pair of classes is returned for new random weights and the same inputs."""
    rng = np.random.default_rng(seed)
    shape, shared_of = form(rng.normal(size=(30, 5)) + 0.5)

    def is_any():
        factor = draw(rng, shape)
        return bool(len(_beyond_chance(shared_of, factor, shared_of(factor), draws, rng)[0]))

    return sum(is_any() for _ in range(trials))


def of_unequal_sizes(rng, shape):
    return rng.normal(size=shape) * rng.lognormal(sigma=1.0, size=(1, shape[1], 1))


def two_large_classes(rng, shape):
    return rng.normal(size=shape) * np.array([5.0, 5.0, 1.0, 1.0, 1.0])[None, :, None]


@pytest.mark.statistical
@pytest.mark.parametrize("form", [full, parameter_efficient])
@pytest.mark.parametrize("noise", [
    lambda rng, shape: rng.normal(size=shape),
    lambda rng, shape: rng.uniform(-1, 1, size=shape),
    of_unequal_sizes,
    two_large_classes,
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
    weights = (
        rng.normal(size=(1 if efficient else FEATURES, UNITS, factors))
        * 0.1
        * rng.lognormal(sigma=1.0, size=(UNITS, 1))
    )
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


test_errors_say_what_is_wrong = refusals([
    (lambda: covariance(two_heads(), X), "`layer` must name one of its HeteroscedasticDense layers: 'one', 'two'"),
    (lambda: covariance(functional()(make_head()), X[:0]), "`x` must have at least one example. Received: none"),
    (lambda: confused_pairs(functional()(make_head()), X, ["a"]),
     "a name for each of the 12 classes. Received: a list of 1"),
    (lambda: covariance(functional()(make_head()), np.where(np.arange(len(X))[:, None] == 3, np.nan, X)),
     "must give finite scales"),
    (lambda: confused_pairs(functional()(make_head(parameter_efficient=True, num_factors=5)), X),
     "random signs often change no covariance. Use `covariance` instead. Received: num_factors=5, draws=99"),
    (lambda: confused_pairs([functional()(HeteroscedasticDense(units, 2)) for units in (3, 5)], X),
     "`model` must be models of the same classes. Received: 3, 5 classes"),
    (lambda: confused_pairs(functional()(make_head()), X, draws=0),
     "`draws` must be an integer at least 1. Received: draws=0"),
    (lambda: confused_pairs(functional()(make_head()), X, count=-1),
     "`count` must be an integer at least 0. Received: count=-1"),
])  # fmt: skip
