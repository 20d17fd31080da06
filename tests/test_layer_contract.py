"""Layer contract: it accepts a sound layer, and rejects one planted bug at a time."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from tests import layer_contract

pytestmark = pytest.mark.once

X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
Y = np.array([0, 1, 1, 0])
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@keras.saving.register_keras_serializable("keras_het_tests")
class Affine(keras.layers.Layer):
    """Sound layer: tanh(x) w + b in float32."""

    def __init__(self, units, offset=0.5, dtype="float32", **kwargs):
        super().__init__(dtype=dtype, **kwargs)
        self.units, self.offset = units, offset

    def build(self, input_shape):
        self.kernel = self.add_weight(name="kernel", shape=(input_shape[-1], self.units), initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(self.units,), initializer="zeros")

    def call(self, inputs):
        return ops.matmul(ops.tanh(inputs), self.kernel) + self.bias + self.offset

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units)

    def get_config(self):
        return {**super().get_config(), "units": self.units, "offset": self.offset}


def contract(cls, folder, units=2, **arguments):
    """Returns every checker by name, for layers of this class."""

    def make():
        return cls(units, **arguments)

    return {
        "config": lambda: layer_contract.check_config(make),
        "shapes": lambda: layer_contract.check_shapes(make, X),
        "unknown_batch": lambda: layer_contract.check_unknown_batch(make, X),
        "train_step": lambda: layer_contract.check_train_step(make, X, Y, LOSS),
        "gradients": lambda: layer_contract.check_gradients(make, X),
        "half_precision": lambda: layer_contract.check_half_precision(make, X, Y, LOSS, "mixed_bfloat16"),
        "saved_model": lambda: layer_contract.check_saved_model(make, X, folder),
        "saved_weights": lambda: layer_contract.check_saved_weights(make, X, folder),
    }


@pytest.mark.parametrize("name", contract(Affine, None))
def test_a_sound_layer_passes(name, tmp_path):
    contract(Affine, tmp_path)[name]()


def planted(name, caught=AssertionError, **arguments):
    """Registers a class under the name of the checker that must catch it."""

    def register(cls):
        BUGS.append((cls, name, caught, arguments))
        return keras.saving.register_keras_serializable("keras_het_tests")(cls)

    return register


BUGS = []


@planted("config", offset=2.0)
class ForgetsAnArgument(Affine):
    def get_config(self):
        return {key: value for key, value in super().get_config().items() if key != "offset"}


@planted("config", offset=2.0)
class ChangesAnArgument(Affine):
    def get_config(self):
        return {**super().get_config(), "offset": self.offset + 1}


@planted("shapes")
class SaysAnotherShape(Affine):
    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.units + 1)


@planted("shapes")
class ReturnsHalfPrecision(Affine):
    def call(self, inputs):
        return ops.cast(super().call(inputs), "float16")


@planted("shapes")
class FreezesTheBatch(Affine):
    def compute_output_shape(self, input_shape):
        return (input_shape[0] or 32, self.units)


@planted("unknown_batch")
class MixesExamples(Affine):
    def call(self, inputs):
        return super().call(inputs - ops.mean(inputs, axis=0))


@planted("train_step", caught=(AssertionError, UserWarning))  # Keras warns itself on two backends
class CutsAGradient(Affine):
    def call(self, inputs):
        return ops.stop_gradient(super().call(inputs)) + self.bias


@planted("train_step")
class ReturnsNan(Affine):
    def call(self, inputs):
        return super().call(inputs) + ops.log(-ops.ones_like(inputs[:, :1]))


@planted("gradients")
class LeavesAWeightOut(Affine):
    def build(self, input_shape):
        super().build(input_shape)
        self.add_weight(name="unused", shape=(2,))


@planted("half_precision")
class FollowsThePolicy(Affine):
    def __init__(self, units, offset=0.5, **kwargs):
        super().__init__(units, offset, **{"dtype": None, **kwargs})


@planted("half_precision")
class IsFarOffBehindHalfPrecision(Affine):
    def call(self, inputs):
        return super().call(inputs + 0.5 * (keras.config.dtype_policy().compute_dtype == "bfloat16"))


@planted("saved_model")
class HidesAWeight(Affine):
    count = itertools.count()

    def __init__(self, units, **kwargs):
        super().__init__(units, **kwargs)
        self.hidden = float(next(self.count))

    def call(self, inputs):
        return super().call(inputs) + self.hidden


@planted("saved_weights")
class SavesNoBias(Affine):
    def save_own_variables(self, store):
        store["0"] = self.kernel.numpy()

    def load_own_variables(self, store):
        self.kernel.assign(store["0"])


@pytest.mark.parametrize(("cls", "name", "caught", "arguments"), BUGS, ids=[cls.__name__ for cls, *_ in BUGS])
def test_a_planted_bug_is_caught(cls, name, caught, arguments, tmp_path):
    if name == "gradients" and keras.config.backend() != "torch":
        pytest.skip("gradients are checked on PyTorch")
    with pytest.raises(caught):
        contract(cls, tmp_path, **arguments)[name]()
