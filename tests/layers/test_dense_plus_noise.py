"""A head is the `Dense` layer that it replaces, plus noise: start, speed, penalties and outputs without noise."""

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax

from keras_het import covariances
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from tests.common import compiled, refuses, sparse_crossentropy, to_numpy
from tests.marks import grid

FEATURES, UNITS, EXAMPLES, STEPS = 64, 15, 256, 20
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32"), RNG.integers(UNITS, size=EXAMPLES)
KINDS = {
    "R = 1": lambda: covariances.LowRank(1),
    "R = 15": lambda: covariances.LowRank(15),
    "parameter-efficient": lambda: covariances.ParameterEfficient(15),
    "diagonal": covariances.Diagonal,
}


def glorot():
    return {"kernel_initializer": keras.initializers.GlorotUniform(1)}


def head_of(covariance, **arguments):
    integrator = QuasiMonteCarlo(64)
    return HeteroscedasticDense(UNITS, covariance=covariance, integrator=integrator, seed=0, **glorot() | arguments)


def model_of(layer):
    model = keras.Sequential([keras.Input((FEATURES,)), layer])
    return compiled(model, keras.optimizers.Adam(1e-3), sparse_crossentropy())


def log_p(model):
    values = log_softmax(model.predict(X, batch_size=EXAMPLES, verbose=0).astype("float64"), axis=-1)
    return values - values.mean(axis=-1, keepdims=True)


def root_mean_square(values):
    return float(np.sqrt(np.square(values).mean()))


def start_and_movement(layer):
    model = model_of(layer)
    start = log_p(model)
    model.fit(X, Y, batch_size=EXAMPLES, epochs=STEPS, verbose=0)
    return root_mean_square(start), root_mean_square(log_p(model) - start)


def deviation(head):
    return root_mean_square(np.sqrt(to_numpy(head.logit_distribution(X).variance())))


@pytest.mark.on_jax
@pytest.mark.parametrize("kind", grid(KINDS, span=["R = 15"]))
def test_a_new_head_starts_and_moves_like_dense(kind):
    dense, head = map(start_and_movement, (keras.layers.Dense(UNITS, **glorot()), head_of(KINDS[kind]())))
    assert head[0] == pytest.approx(dense[0], rel=0.05)
    assert 0.7 < head[1] / dense[1] < 1.5


def growth(num_factors, multiplier=1.0):
    """Returns the standard deviation of the noise that 20 steps of Adam add; without factors it is the noise of d."""
    kind = covariances.LowRank(num_factors) if num_factors else covariances.Diagonal()
    head = head_of(type(kind).from_config({**kind.get_config(), "learning_rate_multiplier": multiplier}))
    start = deviation(head)
    model_of(head).fit(X, Y, batch_size=EXAMPLES, epochs=STEPS, verbose=0)
    return float(np.sqrt(deviation(head) ** 2 - start**2))


@pytest.mark.once
@pytest.mark.parametrize(("kind", "num_factors"), [(covariances.Diagonal, 0), (covariances.LowRank, 3)])
def test_the_multiplier_alone_sets_how_fast_the_noise_grows_and_not_where_it_starts(kind, num_factors):
    slow, fast = (kind(learning_rate_multiplier=each) for each in (0.2, 1.0))
    assert deviation(head_of(slow)) == pytest.approx(deviation(head_of(fast)), rel=1e-5)
    assert growth(num_factors, 0.2) < 0.5 * growth(num_factors, 1.0)
    assert num_factors == 0 or growth(15) == pytest.approx(growth(1), rel=0.3)


@pytest.mark.once
def test_independent_noise_learns_as_fast_as_the_multiplier_says():
    """At the start, a step of the bias of d moves d by 1 - 1 / e of the multiplier times the step."""
    for multiplier, initial_scale in ((1.0, 0.15), (0.2, 0.15), (1.0, 0.01)):
        kind = covariances.Diagonal(learning_rate_multiplier=multiplier, initial_scale=initial_scale, min_scale=0.0)
        head = head_of(kind)
        model_of(head)
        start, bias = deviation(head), head.covariance.scale_diag_layer.bias
        assert start == pytest.approx(initial_scale, rel=1e-5)
        bias.assign(bias + 1e-4)
        assert deviation(head) - start == pytest.approx(1e-4 * multiplier * (1 - np.exp(-1)), rel=0.02)


@pytest.mark.once
@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_without_noise_a_head_is_dense_divided_by_the_temperature(temperature):
    covariance = covariances.Diagonal(initial_scale=1e-6, min_scale=0.0)
    arguments = {
        "kernel_regularizer": keras.regularizers.L2(0.1),
        "bias_regularizer": keras.regularizers.L1(0.1),
        "kernel_constraint": keras.constraints.MaxNorm(0.5),
        "bias_constraint": keras.constraints.NonNeg(),
        "bias_initializer": "ones",
    }
    head = head_of(covariance, temperature=temperature, **arguments)
    dense = keras.layers.Dense(UNITS, **glorot(), **arguments)
    models = [model_of(head), model_of(dense)]
    assert_array_equal(to_numpy(head.loc_layer.kernel), to_numpy(dense.kernel))
    expected = log_softmax(models[1].predict(X, verbose=0).astype("float64") / temperature, axis=-1)
    assert_allclose(models[0].predict(X, verbose=0), expected, atol=1e-5)
    assert sum(map(to_numpy, head.losses)) == pytest.approx(sum(map(to_numpy, dense.losses)), rel=1e-5)
    for model in models:
        model.compile(keras.optimizers.SGD(0.5), sparse_crossentropy())
        model.fit(X, Y, batch_size=EXAMPLES, epochs=5, verbose=0)
    if temperature == 1.0:  # the same steps, penalties and constraints
        assert_allclose(to_numpy(head.loc_layer.kernel), to_numpy(dense.kernel), rtol=1e-4, atol=1e-5)
        assert_allclose(to_numpy(head.loc_layer.bias), to_numpy(dense.bias), rtol=1e-4, atol=1e-5)
    for layer in (head.loc_layer, dense):
        assert to_numpy(layer.bias).min() >= 0.0
        assert np.linalg.norm(to_numpy(layer.kernel), axis=0).max() < 0.5 + 1e-5


@pytest.mark.on_tensorflow
@pytest.mark.smoke
@pytest.mark.parametrize("link", grid(["softmax", "sigmoid"], span=["softmax"]))
@pytest.mark.parametrize("kind", ["parameter-efficient", "latent"])
def test_a_shared_weight_has_a_gradient_outside_a_graph(kind, link):
    """TensorFlow's custom gradients refuse variables, which a temperature of 1 passes on undivided."""
    covariance = covariances.ParameterEfficient(3) if kind == "parameter-efficient" else covariances.Latent(3)
    head = head_of(covariance, link=link)
    head.integrator = QuasiMonteCarlo(256, chunk_size=32)
    outputs = to_numpy(head(X[:8], training=True))
    assert outputs.shape == (8, UNITS)
    assert np.isfinite(outputs).all()


@pytest.mark.once
@pytest.mark.parametrize("frozen", ["loc_layer", "covariance"])
def test_a_frozen_part_stays_frozen_in_a_copy(frozen):
    head = head_of(covariances.LowRank(2))
    model_of(head)
    getattr(head, frozen).trainable = False
    copy = HeteroscedasticDense.from_config(head.get_config())
    model_of(copy)
    trained = [[weight.path.split("/", 1)[1] for weight in each.trainable_weights] for each in (head, copy)]
    assert trained[0] == trained[1]
    assert len(trained[1]) == (4 if frozen == "loc_layer" else 2)
    head.trainable = False
    copy = HeteroscedasticDense.from_config(head.get_config())
    copy.trainable = True
    model_of(copy)
    assert len(copy.trainable_weights) == 6
    for wrong in (["__class__"], ["seed"], "loc_layer", 5, None, [None]):
        config = head.get_config()
        with refuses("`frozen` must be a list of the names 'loc_layer', 'covariance'"):
            HeteroscedasticDense.from_config({**config, "frozen": wrong})
        assert config == head.get_config()
