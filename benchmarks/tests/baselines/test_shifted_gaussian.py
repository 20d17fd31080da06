"""Shifted Gaussian noise (SGN): its head, and its loss over many steps, against SciPy in float64."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops
from scipy import linalg, special
from scipy.stats import multivariate_normal

from benchmarks.baselines import LogisticNormal, ShiftedGaussianNLL
from keras_het import check
from keras_het.losses import with_index
from keras_het.models import DistributionModel
from tests.gradients import value_and_gradients

pytestmark = pytest.mark.once

EXAMPLES, UNITS, FEATURES = 12, 4, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32")
LABELS = RNG.integers(UNITS, size=EXAMPLES)
INDEX = with_index(EXAMPLES)
ARGUMENTS = {"label_decay": 0.8, "momentum": 0.6, "smoothing": 0.01}


def make_model(units=UNITS, num_factors=1):
    inputs = keras.Input((FEATURES,))
    return DistributionModel(inputs, LogisticNormal(units, num_factors, seed=0)(inputs))


def make_loss(num_classes=UNITS, **kwargs):
    loss = ShiftedGaussianNLL(EXAMPLES, num_classes, **{"reduction": "none", **ARGUMENTS, **kwargs})
    return loss.attach(make_model(num_classes))


def packed(count, units=UNITS, factors=1, rng=RNG):
    """Outputs of a head, float32: mu, d = 1, V, and no step."""
    loc, factor = rng.normal(size=(count, units - 1)), rng.normal(size=(count, (units - 1) * factors))
    return np.concatenate([3 * loc, np.ones_like(loc), factor, -np.ones((count, 1))], -1).astype("float32")


def label_of(targets, smoothing=0.01):
    units = targets.shape[-1]
    return np.log((1 - smoothing) * targets + smoothing / units) @ linalg.helmert(units).T


def densities(targets, outputs):
    """-log N of each example, by SciPy."""
    size = targets.shape[-1]
    loc, factor = outputs[:, :size].astype("float64"), outputs[:, 2 * size : -1].astype("float64")
    factor = factor.reshape(len(loc), size, -1)
    covariance = np.eye(size) + factor @ factor.swapaxes(1, 2)
    return -np.array([multivariate_normal.logpdf(*each) for each in zip(targets, loc, covariance, strict=True)])


class Oracle:
    """The loss and its memory, float64, by the docstring's formula."""

    def __init__(self, label_decay=0.8, momentum=0.6, first=0):
        self.decay, self.momentum, self.first = label_decay, momentum, first
        self.averages, self.epochs = np.zeros((EXAMPLES, UNITS - 1)), np.zeros(EXAMPLES, int)

    def __call__(self, index, outputs, vectors):
        losses = []
        for n, row, vector in zip(index, outputs, vectors, strict=True):
            t, mu = label_of(vector[None])[0], row[: UNITS - 1].astype("float64")
            shift = (1 - self.decay ** (self.epochs[n] + self.first)) * (t - self.averages[n])
            losses.append(densities((t - shift)[None], row[None])[0])
            beta = self.momentum if self.epochs[n] else 0.0
            self.averages[n] = beta * self.averages[n] + (1 - beta) * mu
            self.epochs[n] += 1
        return np.array(losses)


def largest_difference(oracle, factors=1, **kwargs):
    """How far the losses of eight batches are from the oracle's, relative to one."""
    loss, rng, worst = make_loss(**kwargs), np.random.default_rng(1), 0.0
    for _ in range(8):
        index, outputs = rng.permutation(EXAMPLES)[:7], packed(7, factors=factors, rng=rng)
        found = ops.convert_to_numpy(loss(LABELS[index], outputs, INDEX[index]))
        expected = oracle(index, outputs, np.eye(UNITS)[LABELS[index]])
        worst = max(worst, np.max(np.abs(found / expected - 1)))
    np.testing.assert_allclose(ops.convert_to_numpy(loss.averages), oracle.averages, atol=1e-5)
    return worst


@pytest.mark.smoke
@pytest.mark.parametrize("factors", [0, 1, 2])
def test_losses_and_averages_of_many_steps_are_those_of_the_oracle(factors):
    assert largest_difference(Oracle(), factors) < 2e-5


@pytest.mark.planted
def test_planted_bugs_are_caught():
    """The first epoch counted as one, and a decay that is wrong in its second digit."""
    assert largest_difference(Oracle(first=1)) > 1e-2
    assert largest_difference(Oracle(label_decay=0.81)) > 1e-3
    with pytest.raises(AssertionError):
        largest_difference(Oracle(momentum=0.61))


def test_the_gradient_is_that_of_the_oracle_with_the_averages_held():
    loss, outputs = make_loss(reduction="sum"), packed(EXAMPLES)
    before = RNG.normal(size=(EXAMPLES, UNITS - 1))
    rows = np.concatenate([before, np.full((EXAMPLES, 1), 3.0)], -1)
    loss.rows.assign(np.concatenate([rows, np.zeros((1, UNITS))]).astype("float32"))
    (found,) = value_and_gradients(lambda t: loss(LABELS, t[0], INDEX), [outputs])[1]
    t = label_of(np.eye(UNITS)[LABELS])
    target = t - (1 - 0.8**3) * (t - before)
    assert np.all(found[:, -1] == 0)
    for column in [*range(UNITS - 1), *range(2 * (UNITS - 1), outputs.shape[1] - 1)]:
        shift = 1e-5 * np.eye(outputs.shape[1])[column]
        slopes = (densities(target, outputs + shift) - densities(target, outputs - shift)) / 2e-5
        np.testing.assert_allclose(found[:, column], slopes, rtol=1e-4, atol=1e-4)


def test_without_an_index_or_without_a_shift_it_is_the_plain_density_and_nothing_is_remembered():
    loss, outputs = make_loss(), packed(EXAMPLES)
    plain = densities(label_of(np.eye(UNITS)[LABELS]), outputs)
    for _ in range(2):  # the first visit
        loss.rows.assign(np.zeros(loss.rows.shape))
        np.testing.assert_allclose(ops.convert_to_numpy(loss(LABELS, outputs, INDEX)), plain, rtol=2e-5)
    before = loss.rows.numpy()
    np.testing.assert_allclose(ops.convert_to_numpy(loss(LABELS, outputs)), plain, rtol=2e-5)
    np.testing.assert_array_equal(loss.rows.numpy(), before)
    loss = make_loss(label_decay=1.0)
    for _ in range(3):
        np.testing.assert_allclose(ops.convert_to_numpy(loss(LABELS, outputs, INDEX)), plain, rtol=2e-5)


@pytest.mark.parametrize("units", [2, UNITS])
def test_labels_of_any_form_agree_and_label_vectors_are_targets(units):
    outputs, labels = packed(EXAMPLES, units), LABELS % units
    expected = densities(label_of(np.eye(units)[labels]), outputs)
    for form in (labels, labels[:, None], np.eye(units)[labels]):
        np.testing.assert_allclose(ops.convert_to_numpy(make_loss(units)(form, outputs, INDEX)), expected, rtol=2e-5)
    vectors = RNG.dirichlet(np.ones(units), size=EXAMPLES)
    found = ops.convert_to_numpy(make_loss(units)(vectors, outputs, INDEX))
    np.testing.assert_allclose(found, densities(label_of(vectors), outputs), rtol=2e-5)


def test_ignored_labels_do_not_count_and_a_label_that_is_no_class_is_nan_and_spoils_nothing():
    outputs, labels = packed(EXAMPLES), np.where(np.arange(EXAMPLES) % 3, LABELS, -1)
    kept = labels >= 0
    loss = make_loss(reduction="sum_over_batch_size", ignore_class=-1)
    expected = densities(label_of(np.eye(UNITS)[labels[kept]]), outputs[kept])
    assert float(loss(labels, outputs, INDEX)) == pytest.approx(expected.mean(), rel=2e-5)
    assert np.all(ops.convert_to_numpy(loss.averages)[~kept] == 0)
    loss = make_loss()
    for wrong in (UNITS, -1):
        each = ops.convert_to_numpy(loss(np.where(np.arange(EXAMPLES) == 3, wrong, LABELS), outputs, INDEX))
        assert np.isnan(each[3])
        assert np.isfinite(np.delete(each, 3)).all()
        assert np.isfinite(loss.rows.numpy()).all()


def test_extreme_outputs_have_finite_losses_and_gradients():
    outputs = packed(EXAMPLES)
    outputs[:, : UNITS - 1] *= 1e3
    outputs[:, 2 * (UNITS - 1) : -1] *= 1e3
    value, (found,) = value_and_gradients(lambda t: make_loss(reduction="sum")(LABELS, t[0], INDEX), [outputs])
    assert np.isfinite(value)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("num_factors", [0, 1, 3])
def test_the_head_predicts_the_softmax_of_the_basis_times_the_mean(num_factors):
    head = LogisticNormal(UNITS, num_factors, seed=0)
    head.build(X.shape)
    head.set_weights([RNG.normal(size=weight.shape) for weight in head.get_weights()])
    kernel, bias, *rest = (np.asarray(weight, "float64") for weight in head.get_weights())
    outputs = head(X)
    assert tuple(outputs.shape) == head.compute_output_shape(X.shape) == (EXAMPLES, 3 * (2 + num_factors) + 1)
    p = special.softmax((X @ kernel + bias) @ linalg.helmert(UNITS), -1)
    np.testing.assert_allclose(ops.convert_to_numpy(head.predictions(outputs)), p, rtol=1e-4, atol=1e-6)
    outputs = ops.convert_to_numpy(outputs)
    np.testing.assert_array_equal(outputs[:, 3:6], 1.0)
    if num_factors:
        np.testing.assert_allclose(outputs[:, 6:-1], X @ rest[0] + rest[1], rtol=1e-4, atol=1e-5)


@pytest.mark.smoke
def test_a_model_learns_and_comes_back_from_a_file(tmp_path):
    """Classes in corners, by every backend's compiled step: predictions and the memory come back."""
    x = np.eye(UNITS, FEATURES)[LABELS].astype("float32")
    model = make_model()
    loss = ShiftedGaussianNLL(EXAMPLES, UNITS, **ARGUMENTS)
    model.compile(keras.optimizers.Adam(0.3), loss.attach(model), metrics=["accuracy"])
    history = model.fit(x, LABELS, sample_weight=INDEX, epochs=15, verbose=0, validation_data=(x, LABELS)).history
    assert history["val_accuracy"][-1] == 1.0
    np.testing.assert_array_equal(loss.rows.numpy()[:-1, -1], 15)
    np.testing.assert_allclose(model.predict(x, verbose=0).sum(-1), 1.0, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.loss.attach(loaded)
    np.testing.assert_array_equal(loaded.loss.rows.numpy(), loss.rows.numpy())
    np.testing.assert_allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), rtol=1e-6)
    assert loaded.loss.get_config() == loss.get_config()
    assert loaded.head.get_config() == model.head.get_config()
    again = [one.fit(x, LABELS, sample_weight=INDEX, verbose=0, shuffle=False).history for one in (model, loaded)]
    assert again[0]["loss"] == pytest.approx(again[1]["loss"], rel=1e-4)


def test_a_model_of_two_classes_takes_one_hot_labels():
    y = np.eye(2)[LABELS % 2]
    model = make_model(2, num_factors=0)
    loss = ShiftedGaussianNLL(EXAMPLES, 2)
    model.compile("sgd", loss.attach(model), metrics=["categorical_accuracy"])
    assert np.isfinite(model.fit(X, y, sample_weight=INDEX, verbose=0).history["loss"][0])
    assert model.predict(X, verbose=0).shape == (EXAMPLES, 2)


def fit_with(num_classes):
    """Outputs of a head of 4 classes, which a loss of another number would read as another distribution."""
    model = make_model()
    model.compile("sgd", ShiftedGaussianNLL(EXAMPLES, num_classes).attach(model))
    model.fit(X, LABELS, sample_weight=INDEX, verbose=0)


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: LogisticNormal(1), "`units` must be an integer in [2, 16777216]. Received: units=1"),
        (lambda: LogisticNormal(4, 4), "`num_factors` must be an integer in [0, 3]. Received: num_factors=4"),
        (lambda: LogisticNormal(4, None), "`num_factors` must be an integer in [0, 3]. Received: num_factors=None"),
        (lambda: ShiftedGaussianNLL(8, 1), "`num_classes` must be an integer in [2, 16777216]. Received: num_classes"),
        (lambda: make_loss(label_decay=1.5), "`label_decay` must be in (0, 1]. Received: label_decay=1.5"),
        (lambda: make_loss(label_decay=0.0), "`label_decay` must be a finite float32 number greater than 0"),
        (lambda: make_loss(momentum=1.0), "`momentum` must be in [0, 1). Received: momentum=1.0"),
        (lambda: make_loss(smoothing=1.0), "`smoothing` must be in (0, 1). Received: smoothing=1.0"),
        (lambda: ShiftedGaussianNLL(1 << 24, 1000), "The averages must keep within 2 GiB, and have 62.5"),
        (lambda: ShiftedGaussianNLL(8, 4)(LABELS, packed(12), INDEX), "must be attached to the model that it trains"),
        (lambda: make_loss()(LABELS, packed(12)), "`sample_weight` must have the index of every example"),
        (lambda: make_loss()(LABELS, np.ones((12, 8)), INDEX), "`y_pred` must have shape (..., 3 (2 + R) + 1)"),
        (lambda: fit_with(num_classes=6), "`loss` must have num_classes=4, the units of the model"),
        (lambda: make_loss()(np.ones((12, 3)), packed(12), INDEX), "`y_true` must have num_classes=4 classes"),
    ],
)
def test_refusals(make, text):
    with pytest.raises(ValueError) as error:
        make()
    assert text in str(error.value)


def test_the_loss_fits_its_own_head_alone():
    model, x = make_model(), np.ones((EXAMPLES, FEATURES))
    model.compile("adam", make_loss().attach(model), metrics=["accuracy"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(model, x, LABELS)
    model.compile("adam", "sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match="`loss` must take distributions"):
        check(model)
