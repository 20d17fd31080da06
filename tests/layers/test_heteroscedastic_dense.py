"""Weights, logit distribution and outputs of the head, against NumPy."""

import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, log_softmax

from keras_het import integrators, layers
from keras_het.base.serializable import resolve
from keras_het.covariances import Latent, Narrow
from keras_het.explain import explain
from keras_het.links import Softmax
from keras_het.reading.ending import endings
from keras_het.reading.probabilities import predict_probabilities
from tests import reference
from tests.common import built, reloaded, to_numpy
from tests.gradients import layer_gradients
from tests.layers.heads import (
    EVERY_HEAD,
    EXAMPLES,
    FEATURES,
    HEADS,
    UNITS,
    X,
    built_head,
    make_head,
    numpy_distribution,
)
from tests.marks import grid


class WithoutNoise(integrators.Integrator):
    needs = "mean"

    def integrate(self, link, normal, key=None):
        return ops.log_softmax(normal.loc, axis=-1) if link.activation == "softmax" else normal.loc


@pytest.mark.parametrize(("loss", "has_activation"), [
    ("sparse_categorical_crossentropy", True),
    (keras.losses.CategoricalCrossentropy(), True),
    ("binary_crossentropy", True),
    (keras.losses.SparseCategoricalCrossentropy(from_logits=True), False),
    (keras.losses.BinaryCrossentropy(from_logits=True), False),
], ids=lambda value: getattr(value, "name", str(value)))  # fmt: skip
def test_the_usual_losses_have_the_value_and_the_gradient_of_numpy(loss, has_activation):
    """At a spread of 60 Keras' losses clip probabilities, below 1e-7, where a clip has no gradient."""
    name, loss = getattr(loss, "name", loss), keras.losses.get(loss)
    link = "sigmoid" if name == "binary_crossentropy" else "softmax"
    given = {"link": link, "activation": link if has_activation else None, "integrator": WithoutNoise()}
    head = built_head("diagonal", temperature=1.0, **given)
    vectors = np.eye(UNITS, dtype="float32")[np.arange(EXAMPLES) % UNITS]
    y = vectors.argmax(-1) if name.startswith("sparse") else vectors
    for x in (X, 60 * X):
        z = x.astype("float64") @ head.loc_layer.kernel.numpy() + head.loc_layer.bias.numpy()
        p, divisor = (expit(z), z.size) if link == "sigmoid" else (np.exp(log_softmax(z, axis=-1)), EXAMPLES)
        log_p = -np.logaddexp(0, -z * (2 * vectors - 1)) if link == "sigmoid" else log_softmax(z, axis=-1)[vectors > 0]
        value, gradients = layer_gradients(head, lambda outputs: ops.mean(loss(y, outputs)), x)
        expected = x.T @ (p - vectors) / divisor
        assert_allclose(gradients["loc/kernel"], expected, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(expected).max()))
        if x is X:
            assert_allclose(value, -log_p.mean(), rtol=1e-5)
        else:
            assert log_p.min() < np.log(1e-7)
            assert value < 15.5 or not has_activation


@pytest.mark.once
@pytest.mark.parametrize("activation", ["softmax", keras.activations.softmax, None, "linear"])
def test_an_activation_survives_a_file_and_is_read_by_all(activation, tmp_path):
    model = keras.Sequential([keras.Input((FEATURES,)), make_head("full", activation=activation)])
    model.compile("sgd", None if activation in (None, "linear") else "categorical_crossentropy", metrics=["accuracy"])
    loaded, head = reloaded(model, tmp_path), model.layers[-1]
    assert_array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))
    returns = endings(loaded)[0].returns
    assert returns == ("log-probabilities" if activation in (None, "linear") else "probabilities")
    p = to_numpy(head.probabilities(X))
    assert_allclose(p.sum(-1), 1.0, rtol=1e-5)
    assert_allclose(predict_probabilities(loaded, X), p, rtol=1e-5)
    assert explain(model, X[:1], count=1).classes[0].probability == pytest.approx(p[0].max(), rel=1e-5)


@pytest.mark.once
@pytest.mark.parametrize(("features", "units", "arguments", "added"), [
    (2048, 1000, {}, 32_784_000),  # with 15 factors
    (2048, 21_843, {"num_factors": 50, "parameter_efficient": True}, 90_604_764),
    (2048, 1000, {"covariance": Narrow()}, 2_049_000 + 2048 * 16 + 17 * 15_000),
    (2048, 1000, {"num_factors": 0}, 2048 * 1000 + 1000),
    (5, 3, {}, 5 * 3 + 3 + 5 * 9 + 9),  # num_factors is at most units
])  # fmt: skip
def test_trainable_weights_added_to_a_dense_layer(features, units, arguments, added):
    integrator = integrators.QuasiMonteCarlo(16)
    head = layers.HeteroscedasticDense(units, integrator=integrator, kernel_initializer="zeros", **arguments)
    head.build((None, features))
    trained, others = (
        sum(map(np.size, map(to_numpy, weights))) for weights in (head.trainable_weights, head.non_trainable_weights)
    )
    assert (trained - (features * units + units), others) == (added, 1)


@pytest.mark.once
@pytest.mark.parametrize(("kind", "factor"), [
    ("full", ["factor/kernel", "factor/bias"]),
    ("parameter-efficient", ["row_scale/kernel", "row_scale/bias", "factor/kernel"]),
    ("narrow", ["factor_features/kernel", "factor/kernel", "factor/bias"]),
    ("diagonal", []),
])  # fmt: skip
def test_weights_have_stable_names_and_order_and_the_step_is_last(kind, factor):
    """Without a bias, only the mean has none."""
    head = make_head(kind, name="head")
    head(X)
    noise = [f"covariance/{name}" for name in ("scale_diag/kernel", "scale_diag/bias", *factor)]
    names = ["loc/kernel", "loc/bias", *noise]
    model = built(keras.Sequential([keras.layers.Dense(FEATURES, name="dense"), head]), X.shape)
    without = built(make_head(kind, use_bias=False, name="head"), X.shape)
    for weights in (head.weights, head.variables, model.weights[2:]):
        assert [weight.path.split("head/")[-1] for weight in weights] == [*names, "clock/step"]
    assert [weight.path.split("head/")[-1] for weight in head.trainable_variables] == names
    assert [weight.path.split("head/")[-1] for weight in without.trainable_weights] == ["loc/kernel", *noise]
    assert (head.clock.step.dtype, tuple(head.clock.step.shape), head.clock.step.trainable) == ("int32", (), False)


@pytest.mark.once
def test_initializers_and_regularizers_govern_the_weights_they_name():
    head = make_head(
        "parameter-efficient",
        kernel_initializer="ones",
        bias_initializer=keras.initializers.Constant(2.0),
        initializer=keras.initializers.Constant(3.0),
        kernel_regularizer=keras.regularizers.L1(1.0),
        bias_regularizer=keras.regularizers.L1(10.0),
        regularizer=keras.regularizers.L1(100.0),
    )
    head(X)
    kernel, bias, scale_kernel, _, row_kernel, _, factor, _ = head.get_weights()
    for expected, weights in ((1, [kernel]), (2, [bias]), (3, [scale_kernel, row_kernel])):
        assert all(np.all(weight == expected) for weight in weights)
    size = FEATURES * UNITS
    expected = [size, 10 * 2 * UNITS, 100 * 3 * size, 100 * 3 * size, 100 * np.abs(factor).sum()]
    assert_allclose(np.sort([to_numpy(loss) for loss in head.losses]), sorted(expected), rtol=1e-6)
    one_unit = {"units": 1, "num_factors": 1, "link": "sigmoid", "integrator": None, "initializer": "glorot_uniform"}
    for kind in ("full", "parameter-efficient"):  # kernels of one shape start different
        head = built(make_head(kind, **one_unit), (None, FEATURES))
        kernels = [weight.numpy() for weight in head.weights if weight.shape[:1] == (FEATURES,)]
        assert len(np.unique(kernels, axis=0)) == len(kernels) == 3


@pytest.mark.once
@pytest.mark.parametrize("kind", ["diagonal", "full", "parameter-efficient", "narrow"])
@pytest.mark.parametrize(("initial_scale", "temperature"), [(0.15, 5.0), (0.05, 0.3), (1e4, 1.0)])
def test_the_noise_starts_at_initial_scale_temperatures_half_of_it_in_the_factors(kind, initial_scale, temperature):
    normal = make_head(kind, initial_scale=initial_scale, temperature=temperature).logit_distribution(X)
    variance, expected = to_numpy(normal.variance()), np.full((len(X), UNITS), (initial_scale * temperature) ** 2)
    assert_allclose(variance, expected, rtol=1e-4)
    share = 1.0 if kind == "diagonal" else 0.5
    assert_allclose(np.square(to_numpy(normal.scale_diag)), share * expected, rtol=1e-4)


@pytest.mark.once
def test_the_factors_start_in_directions_of_the_seed_and_a_scale_below_min_scale_above_it():
    first, again, other = (to_numpy(make_head("full", seed=seed).logit_covariance(X[:1]))[0] for seed in (0, 0, 1))
    assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1 * np.diag(first).max()
    head = make_head("full", initial_scale=1e-6, temperature=1.0, min_scale=1e-3)
    assert_allclose(to_numpy(head.logit_distribution(X).scale_diag), 2e-3, rtol=1e-4)


@pytest.mark.parametrize("kind", EVERY_HEAD)
def test_logit_distribution_is_the_affine_maps_of_the_weights(kind):
    head = built_head(kind, learning_rate_multiplier=0.3)
    normal = head.logit_distribution(X)
    parts = dict(zip(("loc", "scale_diag", "factor", "row_scale"), numpy_distribution(head, X), strict=True))
    kernel = isinstance(head.covariance, Latent)
    assert len(normal.tensors) - kernel == sum(expected is not None for expected in parts.values())
    for name, expected in parts.items():
        if expected is not None:
            assert_allclose(to_numpy(getattr(normal, name)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.once
@pytest.mark.parametrize("kind", EVERY_HEAD)
def test_covariance_is_that_of_the_distribution_and_probabilities_are_those_of_the_outputs(kind):
    head, centering = built_head(kind), np.eye(UNITS) - 1 / UNITS
    raw, centered = to_numpy(head.logit_covariance(X, centered=False), head.logit_covariance(X, centered=True))
    expected = centered if isinstance(head.link, Softmax) else raw
    assert_array_equal(to_numpy(head.logit_covariance(X)), expected)
    assert_allclose(np.diagonal(raw, axis1=1, axis2=2), to_numpy(head.logit_distribution(X).variance()), rtol=1e-5)
    assert_allclose(centered, centering @ raw @ centering, rtol=1e-4, atol=1e-5)
    outputs, p = to_numpy(head(X), head.probabilities(X))
    if head.link.activation == "softmax":
        assert_allclose(p, np.exp(outputs), rtol=1e-6)
        assert_allclose(p.sum(-1), 1, rtol=1e-5)
        assert_allclose(np.exp(to_numpy(head(X, training=True))).sum(-1), 1, rtol=1e-5)
    else:
        assert_allclose(p, expit(outputs), rtol=1e-5)
        assert np.all((p > 0) & (p < 1))


def expected_outputs(head, x, nodes):
    """Returns the outputs at these nodes, in float64; noise of the features is all in a factor of the logits."""
    loc, scale_diag, factor, row_scale = numpy_distribution(head, x)
    eps_diag, eps_factor = nodes
    if isinstance(head.covariance, Latent):
        of_features = np.concatenate([scale_diag[..., None] * np.eye(scale_diag.shape[-1]), factor], axis=-1)
        factor, scale_diag = np.einsum("dk,...dr->...kr", head.get_weights()[0], of_features), np.zeros_like(loc)
        eps_diag, eps_factor = np.zeros((nodes.num_samples, 1)), np.concatenate(nodes, axis=1)
    logits = reference.logits_at(loc, scale_diag, eps_diag, factor, eps_factor, row_scale)
    oracles = {"Softmax": reference.log_mean_softmax, "Sigmoid": reference.logit_mean_sigmoid}
    return oracles[type(head.link).__name__](logits, head.temperature)


OF_MEANS = [kind for kind in HEADS if make_head(kind).integrator.needs == "mean"]


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("kind", grid(OF_MEANS, span=["full"]))
def test_outputs_are_the_mean_over_the_nodes_of_the_mode(kind):
    head = built_head(kind, temperature=0.8)
    size = head.covariance.size
    inference = resolve(integrators.Integrator, head.integrator).constant_nodes(*size)
    assert_allclose(to_numpy(head(X)), expected_outputs(head, X, inference), rtol=1e-5, atol=1e-5)
    for step in range(3):  # the key of training is (seed, step)
        training = head.integrator.draw((head.seed, step), head.integrator.training_nodes(size[0]), *size, np)
        assert_allclose(to_numpy(head(X, training=True)), expected_outputs(head, X, training), rtol=1e-5, atol=1e-5)
        assert int(head.clock.step.numpy()) == step + 1


def test_closed_form_sigmoid_is_the_integral_in_training_and_at_inference():
    head = built_head("sigmoid", temperature=0.8)
    loc, scale_diag, factor, _ = numpy_distribution(head, X)
    scale = np.sqrt(scale_diag**2 + (factor**2).sum(-1)) / head.temperature
    cases = zip((loc / head.temperature).ravel(), scale.ravel(), strict=True)
    log_p = np.reshape([reference.expected_sigmoid(mean, s)[0] for mean, s in cases], loc.shape)
    assert_allclose(to_numpy(head(X)), log_p - np.log(-np.expm1(log_p)), atol=1e-3)
    assert_array_equal(to_numpy(head(X, training=True)), to_numpy(head(X)))


@pytest.mark.once
@pytest.mark.parametrize("kind", EVERY_HEAD)
@pytest.mark.parametrize("training", [True, False])
def test_any_leading_axes_are_a_batch(kind, training):
    head, leading = built_head(kind), (2, 1, 4)
    flat, x = to_numpy(head(X, training=training)), X.reshape(*leading, FEATURES)
    head.clock.step.assign(0)
    outputs = to_numpy(head(x, training=training))
    assert_allclose(outputs, flat.reshape(*leading, UNITS), rtol=1e-5, atol=1e-5)
    assert tuple(head.logit_covariance(x).shape) == (*leading, UNITS, UNITS)


@pytest.mark.parametrize("kind", EVERY_HEAD)
@pytest.mark.parametrize("training", grid([True, False], span=[True]))
@pytest.mark.parametrize("leading", grid([(0,), (0, 3), (1,)], span=[(0, 3)]))
def test_batches_of_zero_and_one(kind, training, leading):
    outputs = to_numpy(built_head(kind)(np.zeros((*leading, FEATURES), "float32"), training=training))
    assert outputs.shape == (*leading, UNITS)
    assert np.isfinite(outputs).all()


@pytest.mark.parametrize("kind", EVERY_HEAD)
@pytest.mark.parametrize("dtype", grid(["float16", "bfloat16", "float64", "int32"], span=["float16"]))
def test_inputs_of_any_dtype_are_computed_in_float32(kind, dtype):
    head = built_head(kind)
    x = np.round(4 * X)  # small integers are exact in every dtype
    outputs = to_numpy(head(ops.cast(x, dtype) if dtype == "bfloat16" else x.astype(dtype)))
    assert outputs.dtype == "float32"
    assert_array_equal(outputs, to_numpy(head(x)))


@pytest.mark.once
@pytest.mark.parametrize("kind", ["parameter-efficient", "latent"])
def test_methods_keep_float32_inside_a_layer_of_lower_precision(kind):
    """These heads have tensors that are no outputs of a map, which Keras would round inside the other layer's call."""
    head = built_head(kind)

    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__(dtype="mixed_bfloat16")
            self.head = head

        def call(self, x):
            return self.head.logit_covariance(keras.ops.cast(x, "bfloat16"))

    rounded = to_numpy(keras.ops.cast(keras.ops.cast(X, "bfloat16"), "float32"))
    assert_allclose(to_numpy(Outer()(X)), to_numpy(head.logit_covariance(rounded)), rtol=1e-5, atol=1e-6)
