"""Losses, metrics, optimizer and activation of a converted model."""

import warnings

import keras
import numpy as np
import pytest
from keras import layers, losses, metrics
from numpy.testing import assert_allclose

import keras_het
from keras_het import heteroscedastic, homoscedastic
from keras_het.losses import GeneralizedCrossentropy
from keras_het.models import heteroscedastic_regression, scale_temperature
from keras_het.reading.check import collect_warnings
from keras_het.reading.head_noise import logit_normal
from tests.common import compiled, refuses, session, to_numpy
from tests.models.checks import UNITS, check_file, sharpen
from tests.models.small_models import FEATURES, X, Y, functional, sequential

pytestmark = pytest.mark.once

VECTORS = np.eye(UNITS, dtype="float32")[Y]


def converted(model, **arguments):
    """Converts and checks a model; a warning is an error."""
    new = heteroscedastic(model, 1, **arguments)
    assert new.compiled
    collect_warnings(new)
    return new


def test_a_compiled_model_gives_a_compiled_one_that_trains_as_it_is():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 10, 0.5)
    old = sharpen(sequential("softmax"))
    old.compile(
        keras.optimizers.SGD(schedule, momentum=0.9),
        losses.CategoricalCrossentropy(label_smoothing=0.1, reduction="sum"),
        loss_weights=2.0,
        metrics=["accuracy", "categorical_crossentropy", metrics.TopKCategoricalAccuracy(2, name="top")],
        weighted_metrics=[metrics.CategoricalCrossentropy(name="weighted")],
        run_eagerly=True,
    )
    before, new = old.evaluate(X, VECTORS, return_dict=True, verbose=0), converted(old, seed=0)
    assert new.loss is old.loss
    assert new.optimizer is not old.optimizer
    assert new.optimizer.get_config() == old.optimizer.get_config()
    assert (new.run_eagerly, new.jit_compile) == (True, False)
    after = new.evaluate(X, VECTORS, return_dict=True, verbose=0)
    assert list(after) == list(before)
    assert after == pytest.approx(before, rel=0.05)
    new.fit(X, VECTORS, verbose=0)
    assert int(new.optimizer.iterations) > 0 == int(old.optimizer.iterations)
    assert [metric.name for metric in old.metrics] == [metric.name for metric in new.metrics]
    assert not {id(metric) for metric in old.metrics} & {id(metric) for metric in new.metrics}


@pytest.mark.parametrize(("activation", "loss"), [
    ("softmax", "sparse_categorical_crossentropy"),
    ("softmax", ["categorical_crossentropy"]),
    ("softmax", {"predictions": losses.categorical_crossentropy}),
    ("softmax", {"class_name": "CategoricalCrossentropy", "config": {"label_smoothing": 0.1}}),
    ("sigmoid", losses.BinaryCrossentropy()),
    (None, losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=2)),
    (None, [GeneralizedCrossentropy(from_logits=True)]),
    ("log_softmax", {"predictions": losses.CategoricalCrossentropy(from_logits=True)}),
])  # fmt: skip
def test_every_form_of_a_loss_stays(activation, loss):
    new = converted(compiled(functional(activation), "adam", loss, metrics=["accuracy"]))
    assert new.loss == loss
    assert homoscedastic(new).loss == loss


def test_a_loss_and_metric_by_the_name_of_an_output_get_the_new_name_and_no_metrics_stay_none():
    named = {"loss_weights": {"p": 0.5}, "metrics": {"p": ["accuracy"]}}
    model = functional(None, layers.Softmax(name="p"))
    new = converted(compiled(model, "sgd", {"p": "sparse_categorical_crossentropy"}, **named), name="het")
    assert list(new.loss) == ["het"]
    assert set(new.evaluate(X, Y, verbose=0, return_dict=True)) >= {"accuracy", "loss"}
    assert converted(compiled(functional("softmax"), "sgd", "sparse_categorical_crossentropy", metrics={})).compiled
    of_logits = losses.SparseCategoricalCrossentropy(from_logits=True)
    for activation, loss in (("softmax", "sparse_categorical_crossentropy"), (None, of_logits)):
        model = compiled(functional(activation), "sgd", loss)
        with pytest.warns(UserWarning, match="The new model is not compiled"):  # the loss is of another link
            assert not heteroscedastic(model, 1, warm_start=False, link="sigmoid").compiled
    assert not heteroscedastic(functional("softmax")).compiled


def margin(y_true, y_pred):
    """Computes a crossentropy and a penalty of raw logits, which is 0 for log-probabilities."""
    crossentropy = losses.categorical_crossentropy(y_true, y_pred, from_logits=True)
    return crossentropy + 0.1 * keras.ops.logsumexp(y_pred, axis=-1) ** 2


@pytest.mark.parametrize("form", [lambda loss: loss, lambda loss: [loss], lambda loss: {"predictions": loss}])
@pytest.mark.parametrize(
    "loss", ["categorical_hinge", losses.categorical_hinge, losses.CategoricalHinge(), losses.CategoricalHinge, margin]
)
def test_a_loss_of_raw_logits_that_a_shift_changes_is_left_to_the_user(loss, form):
    """Compiled, the new model would start with another value of the loss."""
    old = compiled(functional(), "sgd", form(loss))
    new, text = warned(keras_het.heteroscedastic, old, 1, keep_activation=True, seed=0)
    assert "`loss` must accept log-probabilities, which the head 'predictions' returns. Use keras.losses." in text
    assert "Received: loss=" in text
    function = keras.losses.get(loss)
    values = [np.mean(to_numpy(function(VECTORS, each.predict(X, verbose=0)))) for each in (old, new)]
    assert abs(values[0] - values[1]) > 0.1
    sigmoid = compiled(functional(), "sgd", form(loss))
    value = sigmoid.evaluate(X, VECTORS, verbose=0)
    kept = converted(sigmoid, link="sigmoid")  # a sigmoid needs the raw logits, which stay
    assert kept.evaluate(X, VECTORS, verbose=0) == pytest.approx(value, rel=0.05)


def warned(convert, *arguments, keep_activation=False, **named):
    """Returns the result of a conversion, which is not compiled, and its warning."""
    with warnings.catch_warnings(record=True) as caught:  # pytest.warns would raise others, of the backends
        warnings.simplefilter("always")
        new = convert(*arguments, keep_activation=keep_activation, **named)
    assert not new.compiled
    (found,) = [warning for warning in caught if "The new model is not compiled: " in str(warning.message)]
    assert found.filename == __file__
    return new, str(found.message)


def custom(y_true, y_pred):
    return keras.ops.mean(y_pred, axis=-1)


class Inheriting(losses.SparseCategoricalCrossentropy):
    """Computes what Keras' class does."""


class Computing(losses.SparseCategoricalCrossentropy):
    """Takes probabilities, whatever it was made with."""

    def call(self, y_true, y_pred):
        return -keras.ops.mean(keras.ops.log(y_pred))


class Weighted(losses.SparseCategoricalCrossentropy):
    """Cannot be made of its configuration, which lacks the weight."""

    def __init__(self, weight=1.0, **arguments):
        super().__init__(**arguments)
        self.weight = weight


class Counting(metrics.SparseCategoricalAccuracy):
    """Nothing of its own but the class."""


class Ranked(metrics.AUC):
    """Computes something else than Keras' class does."""

    def result(self):
        return 1.0 - super().result()


NO_COUNTERPART = [
    {"loss": "sparse_categorical_crossentropy"},
    {"loss": "kl_divergence"},
    {"loss": "mse"},
    {"metrics": [metrics.Precision()]},
    {"loss": "binary_crossentropy"},
    {"loss": custom},
    {"loss": Computing()},
    {"loss": Weighted(2.0)},
    {"metrics": ["accuracy", custom]},
    {"metrics": [Ranked()]},
]


@pytest.mark.parametrize("arguments", NO_COUNTERPART)
def test_what_has_no_match_is_warned_of_and_the_model_is_not_compiled(arguments):
    old = compiled(functional("softmax"), "sgd", **{"loss": None, **arguments})
    assert "has no known match (keep_activation=True keeps it). `" in warned(keras_het.heteroscedastic, old, 1)[1]
    assert converted(old).loss == old.loss


def test_a_subclass_that_only_inherits_is_what_it_inherits_from():
    inherited = [Counting(), metrics.SparseCategoricalCrossentropy()]
    old = compiled(functional("softmax"), "sgd", Inheriting(ignore_class=1), metrics=inherited)
    assert converted(old).loss is old.loss
    old.compile("sgd", Inheriting())
    assert "Use Inheriting(from_logits=True)" in warned(keras_het.heteroscedastic, old, 1)[1]
    wrong = compiled(heteroscedastic(functional("softmax"), 1, keep_activation=False), "sgd", Inheriting())
    with refuses(r"`loss` must accept log-probabilities, .* Use Inheriting\(from_logits=True\)"):
        keras_het.check(wrong)


@pytest.mark.parametrize(
    "metric", [metrics.AUC(from_logits=True), metrics.BinaryAccuracy(threshold=-0.7), "binary_accuracy", custom]
)
def test_the_logits_of_a_plain_softmax_head_are_not_normalised(metric):
    het = heteroscedastic(functional("softmax"), 1, keep_activation=False)
    het.compile("sgd", losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    assert homoscedastic(het).compiled
    het.compile("sgd", losses.SparseCategoricalCrossentropy(from_logits=True), metrics=[metric])
    assert "`metrics` must accept logits" in warned(keras_het.homoscedastic, het)[1]


@pytest.mark.filterwarnings("ignore:The temperature is")  # of an untrained model
@pytest.mark.parametrize("keys", ["dict", "plain"])
def test_a_dict_of_one_output_stays_a_dict(keys):
    named, inputs = (lambda part: {"scores": part} if keys == "dict" else part), keras.Input((FEATURES,))
    old = keras.Model(inputs, {"scores": layers.Dense(UNITS, "softmax", name="last")(inputs)})
    old.compile("sgd", named("sparse_categorical_crossentropy"), metrics=named(["accuracy"]))
    new = heteroscedastic(old)
    labels = {"scores": Y}
    for model in (new, homoscedastic(new), scale_temperature(old, X, Y), heteroscedastic(old, clone=True)):
        collect_warnings(model, X, labels)
        assert list(model.predict(X, verbose=0)) == ["scores"]
        assert np.isfinite(model.fit(X, labels, verbose=0).history["loss"]).all()
    joint = {"joint": True, "link": "sigmoid", "warm_start": False}
    for call in (lambda: heteroscedastic_regression(old, X, Y), lambda: heteroscedastic(old, **joint)):
        with refuses(r"`model` must return an array: pass keras.Model\(model.input, model.outp"):
            call()


def test_what_is_custom_is_kept_for_outputs_of_the_same_kind():
    own = Configured(3)
    for activation in ("softmax", "log_softmax", "log_sigmoid"):
        old = compiled(functional(activation), "sgd", custom, metrics=[custom, own])
        new = converted(old)
        assert new.loss is custom
        first, second = keras_het.base.internals.compile_arguments(new)["metrics"]
        assert first is custom
        assert (type(second), second.number) == (Configured, 3)
        assert second is not own
    assert homoscedastic(new).loss is custom
    assert "keep_activation=True keeps it" in warned(keras_het.heteroscedastic, old, 1)[1]
    for arguments in ({"loss": custom}, {"metrics": [own]}):
        old = compiled(functional(), "sgd", **{"loss": None, **arguments})
        assert "has no known match. `" in warned(keras_het.heteroscedastic, old, 1, keep_activation=True)[1]
    old = compiled(functional(), "sgd", "kl_divergence")  # no activation can be kept
    assert "keep_activation" not in warned(keras_het.heteroscedastic, old, 1, keep_activation=True)[1]


class Numbered(metrics.Mean):
    """Has an argument that its configuration lacks."""

    def __init__(self, number=1, **arguments):
        super().__init__(**arguments)
        self.number = number

    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_pred)


class Configured(Numbered):
    def get_config(self):
        return {**super().get_config(), "number": self.number}


class Required(Numbered):
    def __init__(self, number):
        super().__init__()


class Steep(keras.optimizers.SGD):
    """Has an argument that its configuration lacks."""

    def __init__(self, learning_rate=0.1, slope=1.0, **arguments):
        super().__init__(learning_rate, **arguments)
        self.slope = slope


class Unconfigured(keras.optimizers.SGD):
    def get_config(self):
        raise NotImplementedError("no configuration")


CANNOT_BE_MADE_AGAIN = {
    "a metric without its number": ("sgd", [Numbered(3)]),
    "a metric that needs a number": ("sgd", [Required(3)]),
    "a metric of a function": ("sgd", [metrics.MeanMetricWrapper(lambda y, p: p, name="own")]),
    "a learning rate of a function": (lambda: keras.optimizers.SGD(lambda: 0.1), []),
    "an optimizer without its slope": (lambda: Steep(slope=2.0), []),
    "an optimizer without a config": (Unconfigured, []),
}


@pytest.mark.parametrize("name", CANNOT_BE_MADE_AGAIN)
def test_a_metric_or_optimizer_that_cannot_be_made_again_is_not_shared(name):
    optimizer, metrics = CANNOT_BE_MADE_AGAIN[name]
    optimizer = optimizer() if callable(optimizer) else optimizer
    old = compiled(functional("softmax"), optimizer, custom if metrics else "categorical_crossentropy", metrics=metrics)
    _, text = warned(keras_het.heteroscedastic, old, 1, keep_activation=True)
    assert "cannot be rebuilt from its config: " in text
    assert not metrics or text.endswith(". Call its `compile`.")


@pytest.mark.smoke
def test_weights_stay_excluded_from_weight_decay():
    old = functional("softmax")
    below, head = old.layers[1], old.layers[-1]
    optimizer = keras.optimizers.AdamW(0.1)
    optimizer.exclude_from_weight_decay([below.kernel, head.kernel], ["bias"])
    new = converted(compiled(old, optimizer, "sparse_categorical_crossentropy"))
    new.optimizer.build(new.trainable_variables)  # Keras 3.16 refuses to say it before
    decays = [each.path.split("/")[-2:] for each in new.trainable_variables if new.optimizer._use_weight_decay(each)]
    assert decays == [["scale_diag", "kernel"], ["factor", "kernel"]]
    back = keras_het.homoscedastic(new)
    back.optimizer.build(back.trainable_variables)
    assert not any(map(back.optimizer._use_weight_decay, back.trainable_variables))
    optimizer = keras.optimizers.AdamW(0.1)
    other = keras.layers.Dense(3).add_weight(shape=(2,))  # kept: PyTorch's key is an id, which Python uses again
    optimizer.exclude_from_weight_decay([below.kernel, other])
    old = compiled(old, optimizer, "sparse_categorical_crossentropy")
    _, text = warned(keras_het.heteroscedastic, old, 1, keep_activation=True)
    assert "it lacks 1 of the 2 weights that the optimizer excludes from weight decay. Pass the new weights to" in text


def test_the_loss_is_scaled_as_it_was():
    old = functional("softmax")
    scaled = keras.optimizers.LossScaleOptimizer(keras.optimizers.AdamW(0.1), initial_scale=64.0)
    scaled.inner_optimizer.exclude_from_weight_decay(var_names=["bias"])
    new = converted(compiled(old, scaled, "sparse_categorical_crossentropy"))
    assert new.optimizer.get_config() == scaled.get_config()
    assert new.optimizer.inner_optimizer is not scaled.inner_optimizer
    new.fit(X, Y, verbose=0)
    assert not new.optimizer.inner_optimizer._use_weight_decay(new.layers[1].bias)
    with session(policy="mixed_float16"):
        plain = converted(compiled(old, "sgd", "sparse_categorical_crossentropy"))
        mixed = compiled(functional("softmax"), "sgd", "sparse_categorical_crossentropy")
    assert not isinstance(plain.optimizer, keras.optimizers.LossScaleOptimizer)
    assert type(mixed.optimizer) is type(converted(mixed).optimizer) is keras.optimizers.LossScaleOptimizer


@pytest.mark.parametrize("clone", [False, True])
@pytest.mark.parametrize(
    ("activation", "loss", "labels"), [("softmax", "sparse_categorical_crossentropy", Y), ("sigmoid", "bce", VECTORS)]
)
def test_a_kept_activation_returns_probabilities(activation, loss, labels, clone, tmp_path):
    old = sharpen(functional(activation))
    old.compile("sgd", loss, metrics=[metrics.AUC()] if activation == "sigmoid" else ["accuracy"])
    new = converted(old, clone=clone, seed=0)
    assert new.loss == loss
    head, p = new.layers[-1], new.predict(X, verbose=0)
    features = keras.Model(new.input, head.input).predict(X, verbose=0)
    log_p = head.integrator.integrate(head.link, logit_normal(head, features))
    assert_allclose(p, to_numpy(head.link.probabilities(log_p)), rtol=1e-5, atol=1e-6)
    assert np.abs(p - old.predict(X, verbose=0)).max() < 0.02
    new.fit(X, labels, verbose=0)
    check_file(new, X, tmp_path)
    keras_het.check(keras.models.load_model(tmp_path / "model.keras"))
    new.compile("sgd", loss=None)
    plain = homoscedastic(new, keep_activation=False)
    assert type(plain.layers[-1]) is layers.Dense
    assert plain.layers[-1].activation is keras.activations.linear


def test_the_activation_that_is_kept_is_that_of_the_new_link_and_none_of_logits():
    for activation in (None, "log_softmax"):
        assert heteroscedastic(functional(activation)).layers[-1].activation is keras.activations.linear
    softmax = heteroscedastic(sequential("sigmoid", units=1), units=3).layers[-1]
    assert softmax.activation is keras.activations.softmax
    with refuses("`keep_activation` must be True or False"):
        heteroscedastic(functional(), keep_activation="yes")
