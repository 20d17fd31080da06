"""The covariance of a head over a data set, and the pairs of classes that are beyond chance."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.stats import binom

from keras_het.analysis import confused_pairs, covariance
from keras_het.analysis.covariance import _beyond_chance
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from tests.checks import FALSE_ALARM

UNITS, FACTORS, FEATURES, EXAMPLES = 12, 3, 6, 50
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32")
NAMES = list("abcdefghijkl")
HEADS = {
    "full": {},
    "parameter_efficient": {"parameter_efficient": True},
    "diagonal": {"num_factors": 0},
    "sigmoid": {"link": "sigmoid"},
}


def make_head(**arguments):
    head = HeteroscedasticDense(UNITS, **{"num_factors": FACTORS, "seed": 0, "name": "head", **arguments})
    head.build((None, FEATURES))
    for weight in head.weights[:-1]:
        weight.assign(RNG.normal(size=weight.shape) * 0.3)
    return head


def plant(head):
    """Classes b and f rise and fall together, c and g against each other; the others have a factor of little noise."""
    kernel = 0.02 * np.random.default_rng(1).normal(size=(FEATURES, UNITS, FACTORS))
    first, second = (np.kron(signs, np.ones((FEATURES // 2, FACTORS))) for signs in ([[1.0], [1.0]], [[1.0], [-1.0]]))
    kernel[:, 1], kernel[:, 5], kernel[:, 2], kernel[:, 6] = 1.3 * first, 1.3 * first, second, -second
    head.factor.kernel.assign(kernel.reshape(FEATURES, -1))
    head.factor.bias.assign(np.zeros(UNITS * FACTORS))
    return head


@pytest.mark.parametrize("kind", HEADS)
def test_the_mean_is_that_of_the_head_itself(kind):
    head = make_head(**HEADS[kind])
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Rescaling(2.0), head])
    expected = ops.convert_to_numpy(head.covariance(2 * X)).mean(axis=0)
    np.testing.assert_allclose(covariance(model, X, batch_size=16), expected, rtol=1e-4, atol=1e-5)


def functional(*behind):
    def make(head):
        inputs = keras.Input((FEATURES,))
        outputs = head(keras.layers.Identity()(inputs))
        for layer in behind:
            outputs = layer(outputs)
        return keras.Model(inputs, outputs)

    return make


MODELS = {
    "functional": functional(),
    "before flips": functional(NoiseTransition(UNITS)),
    "before flips at inference": functional(NoiseTransition(UNITS, apply_at_inference=True)),
    "before a softmax": functional(keras.layers.Softmax()),
    "inside a model": lambda head: keras.Sequential([keras.Input((FEATURES,)), functional()(head), keras.layers.Softmax()]),
}


@pytest.mark.parametrize("kind", MODELS)
def test_planted_pairs_are_found_in_whole_models(kind):
    model = MODELS[kind](plant(make_head()))
    before = [weight.numpy() for weight in model.variables]
    pairs = confused_pairs(model, X, NAMES)
    assert [(pair.first, pair.second, pair.covariance > 0) for pair in pairs] == [("b", "f", True), ("c", "g", False)]
    matrix = covariance(model, X)
    assert [pair.covariance for pair in pairs] == pytest.approx([matrix[1, 5], matrix[2, 6]])
    for now, then in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(now.numpy(), then)


def test_numbers_count_and_a_data_set():
    model = functional()(plant(make_head()))
    (pair,) = confused_pairs(model, X, count=1)
    assert (pair.first, pair.second) == (1, 5)
    data = ((X[i : i + 16], np.zeros(len(X[i : i + 16]))) for i in range(0, EXAMPLES, 16))
    assert confused_pairs(model, data, count=1)[0].covariance == pytest.approx(pair.covariance)
    assert confused_pairs(functional()(make_head(num_factors=0)), X) == []


def alarms(draw, shuffles=9, trials=400):
    """How often any pair of classes is returned for weights that are drawn anew; S and the diagonal are given."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.normal(size=(30, 4)) + 0.5, np.ones((30, 1))], axis=1)
    second, diagonal, center = x.T @ x / 30, np.diag(rng.uniform(0.1, 2.0, size=5)), np.eye(5) - 0.2

    def covariance_of(factor):
        return center @ (diagonal + sum(part.T @ second @ part for part in factor.transpose(2, 0, 1))) @ center

    return sum(bool(_beyond_chance(covariance_of, draw(rng), shuffles, rng)) for _ in range(trials))


@pytest.mark.parametrize("noise", [lambda rng: rng.normal(size=(5, 5, 2)), lambda rng: rng.uniform(-1, 1, size=(5, 5, 2))])
def test_noise_is_returned_as_rarely_as_is_said(noise):
    """Once in shuffles + 1 times: 10% of 400."""
    assert binom.ppf(FALSE_ALARM / 2, 400, 0.1) <= alarms(noise) <= binom.isf(FALSE_ALARM / 2, 400, 0.1)


def test_weights_that_two_classes_share_are_caught_by_the_same_check():
    def shared(rng):
        factor = rng.normal(size=(5, 5, 2))
        factor[:, 1] = 2 * factor[:, 0]
        return factor

    assert alarms(shared) > binom.isf(FALSE_ALARM / 2, 400, 0.1)


def two_heads():
    inputs = keras.Input((FEATURES,))
    heads = [HeteroscedasticDense(UNITS, name=name)(inputs) for name in ("one", "two")]
    return keras.Model(inputs, keras.layers.Add()(heads))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: covariance(keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(3)]), X), "HeteroscedasticDense"),
        (lambda: covariance(two_heads(), X), "`layer` must name one of its HeteroscedasticDense layers: 'one', 'two'"),
        (lambda: covariance(functional()(make_head()), X[:0]), "`x` must have at least one example. Received: none"),
        (lambda: confused_pairs(functional()(make_head()), X, ["a"]), "a name for each of the 12 classes. Received: 1"),
        (
            lambda: confused_pairs(functional()(make_head()), X, shuffles=0),
            "`shuffles` must be an integer at least 1. Received: shuffles=0",
        ),
        (lambda: confused_pairs(functional()(make_head()), X, count=-1), "`count` must be an integer at least 0. Received: count=-1"),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert text in str(error.value)


def test_one_of_two_heads_can_be_named():
    assert covariance(two_heads(), X, layer="two").shape == (UNITS, UNITS)
