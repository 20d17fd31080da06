"""Heads inside models: compilers, masks, weights, determinism, the counter of steps, and untouched global states."""

import copy
import random
import shutil

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from keras_het.integrators import QuasiMonteCarlo
from tests.common import (
    StopAt,
    StopError,
    Subclassed,
    assert_same_arrays,
    built,
    reloaded,
    sparse_crossentropy,
    to_numpy,
)
from tests.layers.heads import (
    EXAMPLES,
    FEATURES,
    HEADS,
    LABELS,
    UNITS,
    X,
    built_head,
    make_head,
    make_model,
    set_random_weights,
    targets,
)
from tests.marks import grid

SEQUENCES = np.random.default_rng(3).normal(size=(4, 5, FEATURES)).astype("float32")


def functional(head):
    inputs = keras.Input((FEATURES,))
    return keras.Model(inputs, head(inputs))


@pytest.mark.on_jax
def test_sequential_functional_and_subclassed_models_train_alike():
    weights = []
    for make in (lambda head: keras.Sequential([head]), functional, Subclassed):
        model = make(make_head("full"))
        assert model(X).shape == (EXAMPLES, UNITS)
        set_random_weights(model)
        model.compile(keras.optimizers.SGD(0.2), sparse_crossentropy())
        model.fit(X, LABELS, batch_size=4, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    assert_alike(weights)


def assert_alike(weights):
    for other in weights[1:]:
        assert_all_close(weights[0], other)
    assert weights[0][-1] == 2


def assert_modes_train_alike(modes, kind, **arguments):
    weights = []
    for mode in modes:
        head = make_head(kind, **arguments)
        model = make_model(head, **mode)
        history = model.fit(X, targets(head.link), batch_size=4, shuffle=False, verbose=0)
        assert np.isfinite(history.history["loss"]).all()
        weights.append(model.get_weights())
    assert_alike(weights)


@pytest.mark.skipif(keras.config.backend() == "torch", reason="PyTorch has a test of its own: it compiles for a minute")
@pytest.mark.on_tensorflow
@pytest.mark.parametrize("kind", grid(["full", "parameter-efficient"], span=["full"], beyond=pytest.mark.thorough))
def test_training_is_the_same_with_jit_compile_on_and_off(kind):
    eager = [{"run_eagerly": True}] if keras.config.backend() == "tensorflow" else []  # on JAX the same as without jit
    assert_modes_train_alike([{"jit_compile": False}, {"jit_compile": True}, *eager], kind)


def compiled_by_pytorch(test):
    # PyTorch's compiler warns of its own imports, of caches that it traces through,
    # and of classes and gradients that it looks at.
    for module, category in (("torch\\.", "DeprecationWarning"), ("torch\\.", "UserWarning")):
        test = pytest.mark.filterwarnings(f"ignore::{category}:{module}")(test)
    test = pytest.mark.skipif(not shutil.which("g++"), reason="PyTorch compiles with g++")(test)
    return pytest.mark.skipif(keras.config.backend() != "torch", reason="for PyTorch")(test)


@pytest.mark.thorough
@compiled_by_pytorch
def test_training_and_prediction_are_the_same_compiled_by_pytorch():
    """A file of a model that JAX has compiled says so, and then PyTorch compiles it."""
    model = make_model(make_head("full", integrator=QuasiMonteCarlo(8, inference_samples=16)))
    model.compile("sgd", "mse", jit_compile=True)
    compiled = model.predict(X, verbose=0)  # first: nothing that an eager call has computed is there
    model.compile("sgd", "mse", jit_compile=False)
    assert_allclose(compiled, model.predict(X, verbose=0), rtol=1e-5, atol=1e-6)
    assert_modes_train_alike([{"jit_compile": False}, {"jit_compile": True}], "full", integrator=QuasiMonteCarlo(8))


def assert_all_close(first, second):
    for a, b in zip(first, second, strict=True):
        assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.on_jax
def test_sample_and_class_weights_weigh_the_examples():
    model = make_model(make_head("full"))
    start = model.get_weights()

    def step(x, y, **arguments):
        model.set_weights(start)
        model.fit(x, y, batch_size=EXAMPLES, shuffle=False, verbose=0, **arguments)
        return model.get_weights()

    ones, weights = np.ones(EXAMPLES, "float32"), np.array([2.0] * 4 + [0.0] * 4, "float32")
    weighted = step(X, LABELS, sample_weight=weights)  # the mean over 8 is then that over the first 4
    assert_all_close(weighted, step(np.tile(X[:4], (2, 1)), np.tile(LABELS[:4], 2), sample_weight=ones))
    assert not np.allclose(weighted[0], step(X, LABELS, sample_weight=ones)[0], atol=1e-4)

    class_weight = {label: 0.5 + label for label in range(UNITS)}
    weights = np.array([class_weight[label] for label in LABELS], "float32")
    assert_all_close(step(X, LABELS, class_weight=class_weight), step(X, LABELS, sample_weight=weights))


@pytest.mark.parametrize("activation", [None, pytest.param("softmax", marks=pytest.mark.once)])
def test_masks_pass_through_to_the_loss(activation):
    x = SEQUENCES.copy()
    x[:, 3:] = 0.0
    model = built(keras.Sequential([keras.layers.Masking(), make_head("full", activation=activation)]), x.shape)
    set_random_weights(model)
    model.compile(loss=sparse_crossentropy(from_logits=activation is None))
    y = np.random.default_rng(0).integers(UNITS, size=x.shape[:2])
    outputs = model.predict(x, verbose=0)
    log_p = outputs if activation is None else np.log(outputs)
    assert log_p.shape == (*x.shape[:2], UNITS)
    own = -np.take_along_axis(log_p, y[..., None], axis=-1)[..., 0]
    assert_allclose(model.evaluate(x, y, verbose=0), own[:, :3].mean(), rtol=1e-5)
    assert not np.isclose(own[:, :3].mean(), own.mean(), rtol=1e-3)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("kind", grid(["full", "parameter-efficient"], span=["full"]))
@pytest.mark.parametrize("shape", grid([(4, 5, FEATURES), (4, 2, 3, FEATURES)], span=[(4, 2, 3, FEATURES)]), ids=str)
def test_dense_prediction_trains_with_axes_of_unknown_length(kind, shape):
    x = np.random.default_rng(4).normal(size=shape).astype("float32")
    y = np.random.default_rng(5).integers(UNITS, size=shape[:-1])
    model = keras.Sequential([keras.Input((*(None for _ in shape[1:-1]), FEATURES)), make_head(kind)])
    set_random_weights(model)
    before = model.get_weights()
    model.compile(keras.optimizers.SGD(0.1), sparse_crossentropy())
    losses = model.fit(x, y, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert model.predict(x, verbose=0).shape == (*shape[:-1], UNITS)
    assert all(np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True))


@pytest.mark.once
@pytest.mark.parametrize(("units", "link"), [(2, "softmax"), (1, "sigmoid"), (2, "sigmoid")])
def test_the_fewest_classes_train(units, link):
    kind = "full" if link == "softmax" else "sigmoid"
    model, labels = make_model(make_head(kind, units=units, num_factors=1)), LABELS % 2
    y = labels if link == "softmax" else np.eye(2, dtype="float32")[labels][:, :units]
    losses = model.fit(X, y, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert model.predict(X, verbose=0).shape == (EXAMPLES, units)


@pytest.mark.once
def test_a_frozen_head_keeps_its_weights_and_draws_new_noise():
    head = make_head("full")
    head.trainable = False
    model = make_model(head, keras.layers.Dense(FEATURES))
    before = model.get_weights()
    model.fit(X, LABELS, verbose=0)
    after = model.get_weights()
    assert np.any(before[0] != after[0])
    assert_same_arrays(before[2:-1], after[2:-1])
    assert (before[-1], after[-1]) == (0, 1)


@pytest.mark.skipif(keras.config.backend() == "torch", reason="PyTorch runs eagerly: it traces nothing")
@pytest.mark.parametrize(
    "kind", grid(["full", "parameter-efficient", "diagonal", "sigmoid"], span=["full"], beyond=pytest.mark.thorough)
)
def test_batches_of_one_shape_are_traced_once(kind, monkeypatch):
    head, traces = make_head(kind), []
    call = type(head).call
    monkeypatch.setattr(
        type(head), "call", lambda self, *args, **kwargs: traces.append(1) or call(self, *args, **kwargs)
    )
    model = make_model(head, jit_compile=True)
    for _ in range(2):  # the second time with other noise, weights and counter
        model.fit(X, targets(head.link), batch_size=4, verbose=0)
        model.predict(X, batch_size=4, verbose=0)
        traces.append(0)
    first, second = (sum(part) for part in (traces[: traces.index(0)], traces[traces.index(0) + 1 :]))
    assert first > 0
    assert second == 0


def fit(model, epochs=2, **arguments):
    model.fit(X, targets(model.layers[-1].link), batch_size=4, epochs=epochs, shuffle=False, verbose=0, **arguments)
    return model.get_weights()


@pytest.mark.on_jax
@pytest.mark.parametrize("kind", ["full", pytest.param("sigmoid", marks=pytest.mark.once)])
@pytest.mark.parametrize("seed", [5, pytest.param(None, marks=pytest.mark.once)])
def test_predict_is_deterministic_also_after_training_and_a_reload(kind, seed, tmp_path):
    model = make_model(make_head(kind, seed=seed))
    before = model.predict(X, verbose=0)
    fit(model)
    first, second = (model.predict(X, verbose=0) for _ in range(2))
    assert_array_equal(first, second)
    assert not np.allclose(before, first)
    loaded = reloaded(model, tmp_path)
    assert_array_equal(loaded.predict(X, verbose=0), first)
    assert_same_arrays(fit(loaded), fit(model))  # the seed, the counter and the optimizer came along


@pytest.mark.parametrize("kind", grid(HEADS, span=["full", "sigmoid"]))
def test_training_depends_on_the_seed_and_on_the_step_and_inference_on_neither(kind):
    head, other = built_head(kind, seed=1), built_head(kind, seed=2)
    other.clock.step.assign(100)
    assert_array_equal(to_numpy(head(X)), to_numpy(other(X)))
    assert (int(head.clock.step.numpy()), int(other.clock.step.numpy())) == (0, 100)
    if head.integrator.needs != "mean":
        return
    head, same, other = built_head(kind, seed=1), built_head(kind, seed=1), built_head(kind, seed=2)
    first, second = to_numpy(head(X, training=True)), to_numpy(head(X, training=True))
    assert_array_equal(first, to_numpy(same(X, training=True)))
    for changed in (second, to_numpy(other(X, training=True)), to_numpy(head(X))):
        assert np.abs(changed - first).max() > 1e-3


@pytest.mark.on_jax
def test_a_run_killed_and_resumed_equals_the_run_that_was_not_bit_for_bit(tmp_path):
    def make(weight_seed):
        head, dense = make_head("parameter-efficient", seed=3), keras.layers.Dense(X.shape[-1])
        return make_model(head, dense, optimizer="adam", weight_seed=weight_seed)

    expected = fit(make(0), epochs=4)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup")
    with pytest.raises(StopError):
        fit(make(0), epochs=4, callbacks=[backup, StopAt(1, at_end=True)])
    resumed = make(1)  # its own weights are others and must be replaced
    epochs = keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: seen.append(epoch))
    seen = []
    weights = fit(resumed, epochs=4, callbacks=[keras.callbacks.BackupAndRestore(tmp_path / "backup"), epochs])
    assert seen == [2, 3]
    assert_same_arrays(weights, expected)
    assert weights[-1] == 8


@pytest.mark.on_jax
def test_validation_evaluation_and_prediction_do_not_advance_the_noise():
    plain, validated = make_model(make_head("full")), make_model(make_head("full"))
    expected = fit(plain)
    weights = fit(validated, validation_data=(X, LABELS), validation_batch_size=4)
    assert_same_arrays(weights, expected)
    assert weights[-1] == 4
    validated.evaluate(X, LABELS, verbose=0)
    validated.predict(X, verbose=0)
    assert int(validated.layers[-1].clock.step.numpy()) == 4


def states_after(call):
    keras.utils.set_random_seed(2021)
    call()
    return random.getstate(), np.random.get_state()[1].tolist(), to_numpy(keras.random.uniform((4,))).tolist()


def use(head):
    for training in (False, True):
        head(X, training=training)
    head.logit_distribution(X)
    head.logit_covariance(X)
    head.probabilities(X)
    type(head).from_config(head.get_config())


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("kind", grid(["full", "sampled sigmoid"], span=["full"]))
def test_our_calls_leave_the_global_generators_alone(kind):
    # Keras' random initializers draw their seeds; tables for seven classes are made here for the first time.
    arguments = {"units": 7, "kernel_initializer": "zeros"}
    untouched = states_after(lambda: None)
    assert states_after(lambda: use(make_head(kind, seed=1, **arguments))) == untouched
    for part, draw in enumerate((random.random, np.random.random, lambda: keras.random.uniform((1,)))):
        assert states_after(draw)[part] != untouched[part]  # the test can fail
    drawn = []
    for _ in range(2):  # a seed is drawn as Keras draws its own
        keras.utils.set_random_seed(0)
        drawn.append((make_head(kind, seed=None).seed, make_head(kind, seed=None).seed))
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[0][1]


@pytest.mark.parametrize("kind", grid(HEADS, span=["full", "sigmoid"]))
def test_our_calls_leave_the_arrays_and_objects_of_the_caller_alone(kind):
    x, config = X.copy(), make_head(kind).get_config()
    config_before, integrator = copy.deepcopy(config), HEADS[kind].get("integrator")
    integrator_before = integrator and integrator.get_config()
    head = type(make_head(kind)).from_config(config)
    head(x)
    set_random_weights(head)
    use(head)
    assert_array_equal(x, X)
    assert config == config_before
    assert (integrator and integrator.get_config()) == integrator_before
