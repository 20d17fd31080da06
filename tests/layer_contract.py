"""Contract of every layer, as checkers that the tests of any layer can call.

Pass a layer as `make`, a function that returns it new and unbuilt, always with the same arguments. The checkers make
models around it.
"""

import inspect
import itertools
import json

import keras
import numpy as np

from tests.common import reloaded, session


def check_layer(make, x, y, loss, folder, left_out=()):
    """Runs all checks but those of half precision and of an unknown batch."""
    check_config(make)
    check_shapes(make, x)
    check_train_step(make, x, y, loss)
    check_gradients(make, x)
    check_saved(make, x, folder, left_out)


def check_config(make):
    """Asserts that the config has every argument, survives JSON, and makes a layer with the same config.

    Both `from_config` and Keras' registry make one.
    """
    layer = make()
    config = layer.get_config()
    arguments = set(inspect.signature(type(layer)).parameters) - {"kwargs"}
    assert arguments <= set(config), f"arguments missing from the config: {sorted(arguments - set(config))}"
    assert type(layer).from_config(config).get_config() == config, "from_config changes the config"
    serialized = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(json.loads(json.dumps(serialized)))
    assert type(again) is type(layer)
    assert again.get_config() == config, "a JSON round trip changes the config"


def check_shapes(make, x, dtype="float32"):
    """Asserts that symbolic and eager outputs have the shape of `compute_output_shape` and this dtype.

    They have them also when the batch size is unknown.
    """
    expected = tuple(make().compute_output_shape(x.shape))
    symbolic = make()(keras.Input(batch_shape=x.shape, dtype=x.dtype.name))
    unknown = make()(keras.Input(x.shape[1:], dtype=x.dtype.name))
    for outputs, shape in ((make()(x), expected), (symbolic, expected), (unknown, (None, *expected[1:]))):
        assert tuple(outputs.shape) == shape, f"shape {tuple(outputs.shape)}, not {shape}"
        assert keras.backend.standardize_dtype(outputs.dtype) == dtype, f"dtype {outputs.dtype}, not {dtype}"


def check_unknown_batch(make, x):
    """Asserts that a model accepts batches of any size, and that examples do not affect each other."""
    model = wrap(make(), x)
    together = model.predict(x, batch_size=len(x), verbose=0)
    for size in (1, len(x) - 1):
        apart = np.concatenate([model.predict_on_batch(x[:size]), model.predict_on_batch(x[size:])])
        np.testing.assert_allclose(apart, together, rtol=1e-5, atol=1e-6)


def check_train_step(make, x, y, loss, **options):
    """Asserts that two steps of `fit` have finite losses and move every trainable weight by finite amounts.

    Two, for the first of two kernels in a row has no gradient while the second is zero, as it may be at the start.
    `options` go to `compile`.
    """
    model = wrap(make(), x)
    before = [weight.numpy() for weight in model.trainable_weights]
    assert before, "the layer has no trainable weight"
    model.compile(keras.optimizers.SGD(0.1), loss, **options)
    history = model.fit(x, y, batch_size=len(x), epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all(), "the loss is not finite"
    for weight, start in zip(model.trainable_weights, before, strict=True):
        moved = np.abs(weight.numpy() - start)
        assert np.isfinite(moved).all(), f"{weight.path} is not finite"
        assert moved.max() > 0, f"{weight.path} did not move"
    return model


def check_gradients(make, x):
    """Asserts that on PyTorch the first step gives a gradient to every weight that requires one.

    DistributedDataParallel, which Keras 3.16 puts around a model, waits for them all: one without hangs, or raises at
    the second step. A zero is a gradient. Other backends have none by weight.
    """
    if keras.config.backend() == "torch":
        model = wrap(make(), x)
        model(x, training=True).sum().backward()
        missing = [name for name, each in model.named_parameters() if each.requires_grad and each.grad is None]
        assert not missing, f"no gradient: {missing}"


def check_half_precision(make, x, y, loss, policy, dtype="float32", tolerance=0.05):
    """Asserts that the layer computes in its dtype behind a layer in half precision.

    Weights, outputs and a train step have that dtype; the values are near the full ones.
    """
    full = wrap(make(), x, keras.layers.Dense(x.shape[-1]))
    expected = full.predict(x, verbose=0)
    with session(policy=policy):
        layer = make()
        half = wrap(layer, x, keras.layers.Dense(x.shape[-1]))
        half.set_weights(full.get_weights())
        outputs = half.predict(x, verbose=0)
        assert half.layers[0].compute_dtype == policy.removeprefix("mixed_")
        assert layer.compute_dtype == dtype, f"computes in {layer.compute_dtype}, not {dtype}"
        assert outputs.dtype == dtype, f"outputs in {outputs.dtype}, not {dtype}"
        assert {weight.dtype for weight in layer.trainable_weights} == {dtype}
        np.testing.assert_allclose(outputs, expected, atol=tolerance)
        check_train_step(lambda: keras.Sequential([keras.layers.Dense(x.shape[-1]), make()]), x, y, loss)


def check_saved(make, x, folder, left_out=()):
    """Asserts that a `.keras` file restores config, weights and exact predictions, and so does a file of weights.

    The latter fills a new layer with other weights; they are equal afterwards, but those left out, by name.
    """
    model, other = wrap(make(), x), wrap(make(), x)
    loaded = reloaded(model, folder)
    assert loaded.layers[-1].get_config() == model.layers[-1].get_config(), "the file changes the config"
    rng = np.random.default_rng(0)
    for first, weight in zip(model.weights, other.weights, strict=True):
        if first.name not in left_out:
            weight.assign(first.numpy() + rng.uniform(1, 9, size=weight.shape).astype(first.dtype))
    model.save_weights(folder / "model.weights.h5")
    other.load_weights(folder / "model.weights.h5")
    check_same(model, loaded, x)
    check_same(model, other, x)


def check_same(model, other, x):
    for a, b in itertools.zip_longest(model.weights, other.weights):
        assert a.name == b.name
        np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=a.path)
    outputs, others = (keras.ops.convert_to_numpy(m(x, training=False)) for m in (model, other))
    np.testing.assert_array_equal(outputs, others, err_msg="predictions")


def wrap(layer, x, *before):
    return keras.Sequential([keras.Input(x.shape[1:], dtype=x.dtype.name), *before, layer])
