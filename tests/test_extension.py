"""New link, covariance, integrator and loss in 65 lines, without a change of the package."""

import math

import keras
import numpy as np
import pytest
from keras import ops

import keras_het
from keras_het import explain
from keras_het.covariances import Covariance, Diagonal, LowRank, ParameterEfficient
from keras_het.integrators import ClosedForm, Integrator, QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.links import Link
from keras_het.losses.crossentropy import Crossentropy
from keras_het.ops import DiagonalNormal, Mean, Nodes, expectation
from tests.common import compiled, refuses, reloaded, to_numpy

pytestmark = pytest.mark.once


class CauchitMean(Mean):
    """log P_k = log mean_s a(u_sk), with the distribution function a of a Cauchy variable."""

    def terms(self, logits):
        return (0.5 + ops.arctan(logits) / math.pi,)

    def log_terms(self, logits, axis):
        return (ops.log(self.terms(logits)[0]),)

    def cotangent(self, logits, value, upstream):
        return upstream[..., None] * ops.exp(-value[..., None]) / (math.pi * (1.0 + ops.square(logits)))


@keras.saving.register_keras_serializable("tests")
class NormalizedCauchit(Link):
    """p_k = E[a(u_k)] / sum_j E[a(u_j)]."""

    mean = CauchitMean()

    def from_mean(self, value):
        return ops.log_softmax(value, axis=-1)


@keras.saving.register_keras_serializable("tests")
class Isotropic(Covariance):
    """One standard deviation for all classes, which depends on the input."""

    def distribution(self, x, loc):
        return DiagonalNormal(loc, ops.mean(self.standard_deviations(x), axis=-1, keepdims=True) * ops.ones_like(loc))


@keras.saving.register_keras_serializable("tests")
class SigmaPoints(Integrator):
    """Mean over two points for each dimension of the noise, sqrt(n) standard deviations from the mean."""

    needs = "mean"

    def integrate(self, link, normal, key=None):
        size = normal.size
        both = math.sqrt(sum(size)) * np.concatenate([np.eye(sum(size)), -np.eye(sum(size))]).astype("float32")
        nodes = Nodes(ops.convert_to_tensor(both[:, : size[0]]), ops.convert_to_tensor(both[:, size[0] :]))
        return link.from_mean(expectation(link.mean, normal, nodes, streamed=key is not None))


@keras.saving.register_keras_serializable("tests")
class MeanAbsoluteError(Crossentropy):
    """scale |p - t|_1 / 2, which is scale (1 - p_y) for one label (Ghosh et al. 2017)."""

    def __init__(self, scale: float = 1.0, **kwargs) -> None:
        super().__init__(**kwargs)
        self.scale = scale

    def crossentropy(self, targets, log_probs):
        return 0.5 * self.scale * ops.sum(ops.abs(ops.exp(log_probs) - targets), axis=-1)


ARGUMENTS = {"link": NormalizedCauchit, "covariance": Isotropic, "integrator": SigmaPoints}
rng = np.random.default_rng(0)
X = rng.normal(size=(64, 5)).astype("float32")
Y = X[:, :3].argmax(1)


def make_model(**arguments):
    model = keras.Sequential([keras.Input((5,)), HeteroscedasticDense(3, temperature=1.0, seed=0, **arguments)])
    return compiled(model, keras.optimizers.Adam(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))


@pytest.mark.parametrize(
    "names", [*((name,) for name in ARGUMENTS), pytest.param(tuple(ARGUMENTS), marks=pytest.mark.smoke)], ids=" ".join
)
def test_they_train_predict_and_come_back_from_a_file(names, tmp_path):
    model = make_model(**{name: ARGUMENTS[name]() for name in names})
    losses = model.fit(X, Y, epochs=5, batch_size=32, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    outputs = model.predict(X, verbose=0)
    np.testing.assert_allclose(np.exp(outputs).sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(ops.convert_to_numpy(model.layers[-1].probabilities(X)), np.exp(outputs), rtol=1e-5)
    loaded = reloaded(model, tmp_path)
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), outputs)
    assert all(isinstance(getattr(loaded.layers[-1], name), ARGUMENTS[name]) for name in names)


def test_a_new_loss_trains_leaves_out_labels_is_checked_and_comes_back_from_a_file(tmp_path):
    loss = MeanAbsoluteError(2.0, from_logits=True, ignore_class=-1)
    assert (loss.name, loss.get_config()["scale"]) == ("mean_absolute_error", 2.0)
    value = loss(np.array([0, -1]), np.log([[0.25, 0.75], [0.5, 0.5]]).astype("float32"))
    assert float(ops.convert_to_numpy(value)) == pytest.approx(2.0 * 0.75)
    model = compiled(make_model(), keras.optimizers.Adam(0.1), loss)
    keras_het.check(model, X, Y)
    losses = model.fit(X, Y, epochs=5, batch_size=32, verbose=0).history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    assert reloaded(model, tmp_path).loss.get_config() == loss.get_config()
    model.compile("adam", MeanAbsoluteError())
    with refuses(r"`loss` must accept log-probabilities, .* Use MeanAbsoluteError\(from_logits=True\)"):
        keras_het.check(model)


def test_the_new_link_is_what_it_says():
    model = make_model(link=NormalizedCauchit(), integrator=QuasiMonteCarlo(1 << 12))
    normal = model.layers[-1].logit_distribution(X)
    loc, scale = (x[..., None].astype("float64") for x in to_numpy(normal.loc, ops.sqrt(normal.variance())))
    z, weights = np.polynomial.hermite_e.hermegauss(60)
    mean = np.sum(weights * (0.5 + np.arctan(loc + scale * z) / np.pi), axis=-1)
    np.testing.assert_allclose(np.exp(model.predict(X, verbose=0)), mean / mean.sum(-1, keepdims=True), atol=2e-3)
    assert keras_het.homoscedastic(model, units=5).layers[-1].units == 5  # a Dense layer of other classes


@keras.saving.register_keras_serializable("tests")
class Unexplained(LowRank):
    """Covariance with factors that does not say how to explain them."""

    factor_weights = Covariance.factor_weights


@pytest.mark.parametrize(("call", "text"), [
    (lambda: make_model(link=NormalizedCauchit(), integrator=ClosedForm()),
     r"`link` must be one of .*Sigmoid.* or define `closed_form` for the integrator ClosedForm."),
    (lambda: [make_model(covariance=one) for one in [Isotropic()] * 2],
     "`covariance` must be new for every head. Received: the covariance of a head of 3 units"),
    (lambda: make_model(covariance=Isotropic(), num_factors=2),
     "`covariance` must be None, or `num_factors` its default: pass it to the covariance.*Received: num_factors=2"),
    (lambda: make_model(covariance="banded"), "`covariance` must be a Covariance, or a serialised dict. Received"),
    (lambda: keras_het.homoscedastic(make_model(link=NormalizedCauchit())),
     "have a head with the link softmax or sigmoid"),
    (lambda: explain.covariance(make_model(covariance=Unexplained(1)), X),  # it would have the diagonal alone
     "The covariance must define `basis` and `factor_weights`.* Received: Unexplained with num_factors=1"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_does(call, text):
    with refuses(text):
        call()


@pytest.mark.parametrize("kind", [Diagonal, LowRank, ParameterEfficient])
def test_objects_make_what_the_short_spelling_makes(kind):
    factors, efficient = 0 if kind is Diagonal else 3, kind is ParameterEfficient
    short = {"num_factors": factors, "parameter_efficient": efficient}
    heads = [make_model(**arguments).layers[-1] for arguments in ({"covariance": kind()}, short)]
    assert [(head.num_factors, head.parameter_efficient) for head in heads] == [(factors, efficient)] * 2
    assert [weight.shape for weight in heads[0].weights] == [weight.shape for weight in heads[1].weights]
    assert HeteroscedasticDense.from_config(heads[0].get_config()).get_config() == heads[0].get_config()
