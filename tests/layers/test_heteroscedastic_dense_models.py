"""Heads inside models of three kinds, compiled or not, with masks, sample weights and class weights."""

import shutil

import keras
import numpy as np
import pytest
from numpy.testing import assert_allclose

from keras_het.integrators import QuasiMonteCarlo
from tests.common import Subclassed, assert_same_arrays, built, sparse_crossentropy
from tests.layers.heads import EXAMPLES, FEATURES, LABELS, UNITS, X, make_head, make_model, set_random_weights, targets
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


def test_masks_pass_through_to_the_loss():
    x = SEQUENCES.copy()
    x[:, 3:] = 0.0
    model = built(keras.Sequential([keras.layers.Masking(), make_head("full")]), x.shape)
    set_random_weights(model)
    model.compile(loss=sparse_crossentropy())
    y = np.random.default_rng(0).integers(UNITS, size=x.shape[:2])
    log_p = model.predict(x, verbose=0)
    assert log_p.shape == (*x.shape[:2], UNITS)
    own = -np.take_along_axis(log_p, y[..., None], axis=-1)[..., 0]
    assert_allclose(model.evaluate(x, y, verbose=0), own[:, :3].mean(), rtol=1e-5)
    assert not np.isclose(own[:, :3].mean(), own.mean(), rtol=1e-3)


@pytest.mark.parametrize(("kind", "shape"), [("full", (4, 5, FEATURES)), ("parameter-efficient", (4, 2, 3, FEATURES))])
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
