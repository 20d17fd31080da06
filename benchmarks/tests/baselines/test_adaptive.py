"""Heteroskedastic adaptive regularisation, against gradients by finite differences in NumPy, float64."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy import special

from benchmarks.baselines import AdaptivelyRegularizedCrossentropy, adaptive_strengths
from keras_het.layers import HeteroscedasticDense
from keras_het.losses import with_index
from tests.gradients import value_and_gradients
from tests.losses import indexed_contract as contract
from tests.losses.indexed_contract import EXAMPLES, FEATURES, LABELS, LOGITS, UNITS, X, make_model, without_state

pytestmark = pytest.mark.once

STRENGTHS = np.random.default_rng(3).uniform(0.1, 2.0, size=EXAMPLES)


def make_loss(**kwargs):
    return AdaptivelyRegularizedCrossentropy(STRENGTHS, **{"from_logits": True, **kwargs})


def loss_of_features(h, kernel, bias, label):
    return -special.log_softmax(h @ kernel + bias)[label]


def oracle(x, kernel, bias, labels, strengths, power=1.0):
    """The loss of every example, its gradient for the features a finite difference."""
    losses = []
    for h, label, strength in zip(np.asarray(x, "float64"), labels, strengths, strict=True):
        steps = 1e-6 * np.eye(len(h))
        ends = [[loss_of_features(h + sign * step, kernel, bias, label) for sign in (1, -1)] for step in steps]
        gradient = [(up - down) / 2e-6 for up, down in ends]
        losses.append(loss_of_features(h, kernel, bias, label) + strength * np.linalg.norm(gradient) ** power)
    return np.array(losses)


def weights_of(model):
    return [weight.numpy().astype("float64") for weight in model.layers[-1].trainable_variables]


@pytest.mark.planted
@pytest.mark.parametrize("activation", [None, "softmax", "log_softmax"])
def test_values(activation):
    model = make_model(activation=activation)
    loss = make_loss(reduction="none", from_logits=activation != "softmax").attach(model)
    each = ops.convert_to_numpy(loss(LABELS, model(X), with_index(EXAMPLES)))
    expected = oracle(X, *weights_of(model), LABELS, STRENGTHS)
    np.testing.assert_allclose(each, expected, rtol=1e-6, atol=1e-6)
    # A planted bug: the square.
    assert np.abs(each - oracle(X, *weights_of(model), LABELS, STRENGTHS, power=2.0)).max() > 1e-3


def test_the_gradient_reaches_the_kernel_by_both_ways():
    model = make_model()
    layer, loss = model.layers[-1], make_loss().attach(model)
    kernel, bias = weights_of(model)

    def of_outputs(outputs):
        return loss(LABELS, outputs, with_index(EXAMPLES))

    state = [variable.numpy() for variable in loss.state.variables]
    _, found = value_and_gradients(
        lambda w: _at(layer, loss, of_outputs, w), [kernel.astype("float32"), bias.astype("float32")]
    )
    assert [variable.numpy().tolist() for variable in loss.state.variables] == [values.tolist() for values in state]
    for place in [(0, 0), (1, 2), (4, 3)]:
        ends = []
        for sign in (1, -1):
            moved = kernel.copy()
            moved[place] += sign * 1e-4
            ends.append(oracle(X, moved, bias, LABELS, STRENGTHS).mean())
        assert found[0][place] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4, abs=1e-5)
    ends = [oracle(X, kernel, bias + sign * 1e-4 * np.eye(UNITS)[1], LABELS, STRENGTHS).mean() for sign in (1, -1)]
    assert found[1][1] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4, abs=1e-5)


def _at(layer, loss, of_outputs, weights):
    """The loss with other weights of the layer, as a trainer of JAX has them."""
    mapping = [*zip(layer.trainable_variables, weights, strict=True), *((v, v.value) for v in loss.state.variables)]
    with keras.StatelessScope(state_mapping=mapping):
        return of_outputs(layer(X))


@pytest.mark.smoke
def test_training_is_a_step_along_that_gradient():
    """One step of SGD on every backend: the kernel moves by what the oracle's loss says."""
    model = make_model()
    before, bias = weights_of(model)
    model.compile(keras.optimizers.SGD(1.0), make_loss().attach(model))
    model.fit(X, LABELS, sample_weight=with_index(EXAMPLES), batch_size=EXAMPLES, verbose=0)
    after, _ = weights_of(model)
    near = np.zeros_like(before)
    near[2, 1] = 1e-4
    ends = [oracle(X, before + sign * near, bias, LABELS, STRENGTHS).mean() for sign in (1, -1)]
    assert (before - after)[2, 1] == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4, abs=1e-5)


def test_it_makes_the_regularised_class_smoother():
    """The mean norm of the gradient, after training, of strong against weak strengths."""
    norms = []
    for weight in (0.0, 3.0):
        keras.utils.set_random_seed(0)
        model = make_model()
        loss = AdaptivelyRegularizedCrossentropy(np.full(EXAMPLES, weight), from_logits=True)
        model.compile(keras.optimizers.SGD(0.05), loss.attach(model))
        model.fit(X, LABELS, sample_weight=with_index(EXAMPLES), epochs=20, verbose=0, shuffle=False)
        both = [oracle(X, *weights_of(model), LABELS, np.full(EXAMPLES, one)) for one in (0.0, 1.0)]
        norms.append(np.mean(both[1] - both[0]))
    assert norms[1] < 0.8 * norms[0]


@pytest.mark.parametrize("scale", [1e3, 0.0])
def test_extremes_are_finite(scale):
    model = make_model(kernel_initializer="zeros") if not scale else make_model()
    loss = make_loss().attach(model)
    value, (gradient,) = value_and_gradients(
        lambda t: without_state(loss, LABELS, t[0], with_index(EXAMPLES)), [scale * LOGITS]
    )
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


def test_strengths_of_zero_are_the_plain_crossentropy():
    loss, plain = (
        AdaptivelyRegularizedCrossentropy(np.zeros(EXAMPLES), from_logits=True),
        keras.losses.SparseCategoricalCrossentropy,
    )
    value = contract.number(loss.attach(make_model())(LABELS, LOGITS, with_index(EXAMPLES)))
    assert value == pytest.approx(contract.number(plain(from_logits=True)(LABELS, LOGITS)), rel=1e-6)


def test_the_contract_of_indexed_losses(tmp_path):
    contract.check_unattached_and_unindexed_are_refused(make_loss)
    contract.check_without_index_it_is_the_plain_crossentropy(make_loss)
    contract.check_empty_and_single_batches(make_loss)
    contract.check_saved_and_loaded(make_loss, tmp_path)


def test_the_layer_of_a_model_without_a_graph_is_given():
    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.last = keras.layers.Dense(UNITS)

        def call(self, inputs):
            return self.last(inputs)

    model = Subclassed()
    model.compile("sgd", make_loss().attach(model, layer=model.last))
    model.fit(X, LABELS, sample_weight=with_index(EXAMPLES), verbose=0)
    with pytest.raises(ValueError, match=r"`model` must end in a Dense layer.*`layer` must be given"):
        make_loss().attach(Subclassed())
    with pytest.raises(ValueError, match=r"`layer` must be a Dense layer\. Received: a Dropout"):
        make_loss().attach(model, layer=keras.layers.Dropout(0.5))


def test_a_head_of_this_package_is_refused():
    model = keras.Sequential([keras.Input((FEATURES,)), HeteroscedasticDense(UNITS)])
    loss = make_loss()
    with pytest.raises(ValueError, match="`model` must end in a Dense layer, whose gradient has a formula"):
        loss.attach(model)
    with pytest.raises(ValueError, match="must be attached"):
        loss(LABELS, LOGITS, with_index(EXAMPLES))


def test_strengths_of_classes():
    labels, noise = np.array([0, 0, 1, 2, 2, 2]), np.array([0.1, 0.4, 0.0])
    expected = noise**0.6 / np.array([2, 1, 3]) ** 0.4
    np.testing.assert_allclose(adaptive_strengths(labels, noise), expected[labels] / expected.max())
    assert adaptive_strengths(labels, np.zeros(3)).tolist() == [0.0] * 6


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda: AdaptivelyRegularizedCrossentropy([[1.0]]),
            "`strengths` must be finite, of shape (N,). Received: shape (1, 1)",
        ),
        (
            lambda: AdaptivelyRegularizedCrossentropy([np.inf]),
            "`strengths` must be finite, of shape (N,). Received: shape (1,)",
        ),
        (
            lambda: AdaptivelyRegularizedCrossentropy([1.0, -1.0]),
            "`strengths` must not be negative. Received: -1 at [0, 1]",
        ),
        (
            lambda: adaptive_strengths(np.array([0]), [1.5]),
            "`noise` must be in [0, 1]. Received: noise=np.float64(1.5)",
        ),
        (
            lambda: adaptive_strengths(np.array([0]), [0.5, 0.5]),
            "`labels` must have an example of every class. Received: none of class 1",
        ),
    ],
)
def test_bad_arguments(function, message):
    with pytest.raises(ValueError) as error:
        function()
    assert str(error.value) == message
