"""Models with a planted fault, which only the backend "b" has: the parity check must find each and name its place.

The job of a backend sets `Switch.label`. Planted layers, losses, metrics and optimizers ask `faulty` at every call.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops

register = keras.saving.register_keras_serializable("faults")
stop = ops.stop_gradient


class Switch:
    """Label of the backend that runs."""

    label = None


def faulty(x=None, float32_only=False):
    """Returns whether a planted object computes with its fault. Some faults are in float32 alone."""
    is_other = float32_only and x is not None and keras.backend.standardize_dtype(x.dtype) != "float32"
    return Switch.label == "b" and not is_other


class Case(NamedTuple):
    """Planted fault.

    Attributes:
        name: text for the reader.
        make: function that returns the model.
        data: dict of x, y and sample_weight, or None: then the check makes the batch.
        expected: text that the answer must have, or several of which it must have one.
        named: False if the exit status alone counts.
        clean: False if the model has no run without the fault, or is another case's model without it.
    """

    name: str
    make: Callable[[], Any]
    data: dict | None
    expected: str | tuple[str, ...] | None
    named: bool = True
    clean: bool = True


# Functions with a fault. Each is a pair: the right function, and the wrong one.


def same(x):
    return x


def gradient(factor):
    """Returns the identity with a gradient that is times a factor."""
    return lambda x: stop(x) + factor * (x - stop(x))


def backward_of(values, gradients):
    """Returns the values of one tensor, with the gradient of another."""
    return stop(values) + (gradients - stop(gradients))


def index(x, axis):
    """Returns the index along an axis of each entry, also if the axis has no known length."""
    return ops.cumsum(ops.ones_like(x), axis) - 1


def where_row(number, wrong):
    return lambda x: ops.where(index(x, 0) == number, wrong(x), x)


def where_entry(row, column, wrong):
    return lambda x: ops.where(ops.logical_and(index(x, 0) == row, index(x, -1) == column), wrong(x), x)


def where_column(column, wrong):
    return lambda x: ops.where(index(x, -1) == column, wrong(x), x)


def round_mantissa(x, bits):
    """Returns float32 numbers with this many bits after the leading bit: 10 in TensorFloat-32, 7 in bfloat16."""
    scaled = x * (2.0 ** (23 - bits) + 1)
    return x + stop(scaled - (scaled - x) - x)


def beside(large, factor):
    """Returns a function that puts small features, times a factor, beside large ones."""
    return lambda x: ops.concatenate([large * x[:, :4], factor * x[:, 4:]], -1)


def beside_mask(factor):
    """Returns a function that masks entries in each row and column."""
    return lambda x: ops.where((index(x, 0) + index(x, -1)) % 3 == 0, -1e6, factor * x)


def small_last_channel(x):
    return x * ops.cast(np.array([1.0] * 7 + [1e-6]), x.dtype)


def nan_gradient(x):
    return stop(x) + ops.sqrt(ops.square(x - stop(x)))


def raises(x):
    raise NotImplementedError("no such operation here")


def unit_length(x, at_zero):
    length = ops.sqrt(ops.sum(ops.square(x), -1, keepdims=True))
    return ops.where(length == 0, at_zero + 0 * x, x / ops.where(length == 0, ops.ones_like(length), length))


def relu(at_zero):
    """Returns a ReLU with this gradient at zero."""
    return lambda x: ops.where(x > 0, x, ops.where(x == 0, at_zero * x, 0 * x))


def last_largest(x):
    return ops.one_hot(5 - ops.argmax(ops.flip(x, -1), -1), 6, dtype=x.dtype)


def max_over_time(shares_ties):
    """Returns the largest entry over time; its gradient reaches all ties in equal parts, or the whole each."""

    def call(x):
        largest = ops.max(x, 1, keepdims=True)
        is_largest = stop(ops.cast(x == largest, x.dtype))
        count = ops.sum(is_largest, 1) if shares_ties else 1.0
        return backward_of(ops.squeeze(largest, 1), ops.sum(x * is_largest, 1) / count)

    return call


FAULTS = {
    "scaled": (same, lambda x: 1.001 * x),
    "shifted": (same, lambda x: x + 1e-3),
    "no last column": (same, where_column(4, lambda x: 0 * x)),
    "one row": (same, where_row(3, lambda x: 1.01 * x)),
    "one entry": (same, where_entry(2, 777, lambda x: 1.001 * x)),
    "gradient 1.05": (same, gradient(1.05)),
    "gradient 1.5": (same, gradient(1.5)),
    "gradient 0.5": (same, gradient(0.5)),
    "no gradient": (same, stop),
    "NaN gradient": (same, nan_gradient),
    "double beside 1e6": (beside(1e6, 1.0), beside(1e6, 2.0)),
    "logits beside a mask": (beside_mask(1.0), beside_mask(1.01)),
    "gradient of a small channel": (
        small_last_channel, lambda x: small_last_channel(where_column(7, gradient(1.5))(x))
    ),
    "small row": (same, where_row(0, lambda x: 1.5 * x)),
    "NaN": (same, lambda x: x + np.nan),
    "NaN everywhere": (lambda x: x + np.nan, lambda x: x + np.nan),
    "NaN in a row everywhere": (where_row(1, lambda x: x + np.nan), where_row(1, lambda x: x + np.nan)),
    "infinite": (where_column(1, lambda x: 0 * x + 1e37), where_column(1, lambda x: x + np.inf)),
    "shape": (lambda x: ops.mean(x, -1, keepdims=True), lambda x: ops.mean(x, -1)),
    "dtype": (ops.round, lambda x: ops.cast(ops.round(x), "float16")),
    "raises": (same, raises),
    "zero rows": (lambda x: unit_length(x, 0.0), lambda x: unit_length(x, np.nan)),
    "gradient at zero": (relu(0.0), relu(1.0)),
    "first of ties": (lambda x: ops.one_hot(ops.argmax(x, -1), 6, dtype=x.dtype), last_largest),
    "gradient of ties": (max_over_time(True), max_over_time(False)),
    "exchanged": (lambda x: x["first"] - 2 * x["second"], lambda x: x["second"] - 2 * x["first"]),
}  # fmt: skip


class Configured:
    """Layer or optimizer with a `fault` in its config."""

    def __init__(self, *arguments, fault, **options):
        super().__init__(*arguments, **options)
        self.fault = fault

    def get_config(self):
        return {**super().get_config(), "fault": self.fault}


@register
class Planted(layers.Layer):
    """One of `FAULTS`, always or only "in training" or "at inference", and perhaps in float32 alone."""

    def __init__(self, fault, when="always", float32_only=False, **kwargs):  # which Keras reads for the config
        super().__init__(**kwargs)
        self.fault, self.when, self.float32_only = fault, when, float32_only
        self.supports_masking = True

    def call(self, x, training=False):
        is_on = {"always": True, "in training": bool(training), "at inference": not training}[self.when]
        right, wrong = FAULTS[self.fault]
        return (wrong if is_on and faulty(x, self.float32_only) else right)(x)


@register
class PlantedIdentity(Planted):
    """Layer that Keras does not run when it loads a model, because its shapes are known."""

    def compute_output_shape(self, shape):
        return shape


# Layers with weights.


def product(x, kernel):
    return ops.matmul(x, kernel) if len(kernel.shape) == 2 else ops.conv(x, kernel, padding="same")


def reduced(bits):
    """Returns a product of rounded numbers, with the gradients of that."""
    return lambda x, kernel, bias: product(round_mantissa(x, bits), round_mantissa(kernel, bits)) + bias


def reduced_backward(x, kernel, bias):
    rounded = product(round_mantissa(x, 10), round_mantissa(kernel, 10))
    return backward_of(product(x, kernel), rounded) + bias


def with_kernel(change):
    return lambda x, kernel, bias: product(x, change(kernel)) + bias


MAPS = {
    "TF32": reduced(10),
    "bfloat16": reduced(7),
    "TF32 backward": reduced_backward,
    "frozen kernel": with_kernel(stop),
    "one entry of the gradient": with_kernel(where_entry(5, 7, gradient(1.1))),
    "small row of the gradient": with_kernel(where_row(5, gradient(2.0))),
    "transposed": with_kernel(lambda kernel: ops.swapaxes(kernel, 0, 1)),
}
FLOAT32_MAPS = ("TF32", "bfloat16", "TF32 backward")


@register
class PlantedMap(layers.Layer):
    """Dense layer, or convolution of images, with one of `MAPS`."""

    def __init__(self, units, fault, **kwargs):
        super().__init__(**kwargs)
        self.units, self.fault = units, fault

    def build(self, shape):
        sizes = (shape[-1], self.units) if len(shape) < 4 else (3, 3, shape[-1], self.units)
        self.kernel = self.add_weight(shape=sizes, initializer="glorot_uniform", name="kernel")
        self.bias = self.add_weight(shape=(self.units,), initializer="random_normal", name="bias")

    def call(self, x):
        wrong = MAPS[self.fault] if faulty(x, self.fault in FLOAT32_MAPS) else with_kernel(same)
        return wrong(x, ops.convert_to_tensor(self.kernel), ops.convert_to_tensor(self.bias))

    def compute_output_shape(self, shape):
        return (*shape[:-1], self.units)


@register
class PlantedAdapter(PlantedMap):
    """Dense layer with a frozen kernel and a trained product of low rank, as in LoRA."""

    def build(self, shape):
        super().build(shape)
        self.kernel.trainable = False
        self.down = self.add_weight(shape=(shape[-1], 2), initializer="random_normal", name="down")
        self.up = self.add_weight(shape=(2, self.units), initializer="random_normal", name="up")

    def call(self, x):
        down = stop(self.down) if faulty(x) else ops.convert_to_tensor(self.down)
        return ops.matmul(x, self.kernel) + self.bias + 2.0 * ops.matmul(ops.matmul(x, down), self.up)


@register
class PlantedOuter(Configured, layers.Layer):
    """Layer that calls an inner layer, but not on the backend with the fault."""

    def __init__(self, **options):
        super().__init__(**options)
        self.inner = layers.Activation("tanh", name="inner")

    def call(self, x):
        return x if faulty(x) else self.inner(x)


@register
class PlantedPenalty(layers.Layer):
    """Layer with an own loss, which is dropped."""

    def call(self, x):
        if not faulty(x):
            self.add_loss(0.1 * ops.mean(ops.square(x)))
        return x


@register
class PlantedFile(Configured, layers.Dense):
    """Dense layer whose file is wrong."""

    def __init__(self, *arguments, factor=1.0, **options):
        super().__init__(*arguments, **options)
        self.factor = factor

    def call(self, x):
        return self.factor * super().call(x)

    def save_own_variables(self, store):
        wrong = self.fault if faulty() else None
        kernel = ops.convert_to_numpy(self.kernel)
        store["kernel"] = kernel.astype("float16").astype(kernel.dtype) if wrong == "rounded" else kernel
        if wrong != "forgotten":
            store["bias"] = ops.convert_to_numpy(self.bias)

    def load_own_variables(self, store):
        self.kernel.assign(store["kernel"])
        if "bias" in store and not (faulty() and self.fault == "not loaded"):
            self.bias.assign(store["bias"])

    def get_config(self):
        config = {**super().get_config(), "factor": self.factor}
        lost = {"no factor": "factor", "no regularizer": "kernel_regularizer"}.get(self.fault if faulty() else None)
        return {name: value for name, value in config.items() if name != lost}


@register
class Block(layers.Layer):
    """Convolution, normalisation by the batch and ReLU in one layer, for deep models that load quickly."""

    def build(self, shape):
        self.kernel = self.add_weight(shape=(3, 3, shape[-1], shape[-1]), initializer="he_normal", name="kernel")
        self.gamma = self.add_weight(shape=(shape[-1],), initializer="ones", name="gamma")

    def call(self, x):
        x = ops.conv(x, self.kernel, padding="same")
        centred = x - ops.mean(x, (0, 1, 2), keepdims=True)
        variance = ops.mean(ops.square(centred), (0, 1, 2), keepdims=True)
        return ops.relu(self.gamma * centred / ops.sqrt(variance + 1e-3))

    def compute_output_shape(self, shape):
        return shape


# State.


@register
class PlantedNormalization(Configured, layers.BatchNormalization):
    """BatchNormalization whose moving statistics are wrong."""

    def call(self, x, training=None, mask=None):
        if not (training and faulty(x)):
            return super().call(x, training=training, mask=mask)
        if self.fault == "momentum":
            self.momentum = 0.95
        mean, variance = ops.copy(self.moving_mean), ops.copy(self.moving_variance)
        outputs = super().call(x, training=training, mask=mask)
        if self.fault == "frozen mean":
            self.moving_mean.assign(mean)
        if self.fault == "unbiased":
            self.moving_variance.assign(variance * self.momentum + ops.var(x, 0) * 4 / 3 * (1 - self.momentum))
        return outputs

    def save_own_variables(self, store):
        super().save_own_variables(store)
        if faulty() and self.fault == "not saved":
            del store["2"]

    def load_own_variables(self, store):
        for number, variable in enumerate(self._trainable_variables + self._non_trainable_variables):
            if str(number) in store:
                variable.assign(store[str(number)])


@register
class PlantedCounter(Configured, layers.Layer):
    """Layer that counts its steps, and keeps the largest entry that it has seen."""

    def build(self, shape):
        self.steps = self.add_weight(shape=(), initializer="zeros", dtype="int32", trainable=False, name="steps")
        self.largest = self.add_weight(shape=(), initializer="zeros", trainable=False, name="largest")

    def call(self, x, training=False):
        wrong = self.fault if faulty(x) else None
        if training or wrong == "counts at inference":
            self.steps.assign_add({"counts twice": 2, "counts nothing": 0}.get(wrong, 1))
        if training:
            seen = ops.mean(x) if wrong == "mean" else ops.max(x)
            self.largest.assign(ops.maximum(self.largest, ops.cast(seen, self.largest.dtype)))
        return x


# Random layers.


@register
class PlantedDropout(Configured, layers.Dropout):
    def call(self, x, training=False):
        if not faulty(x):
            return super().call(x, training=training)
        if self.fault == "at inference":
            return super().call(x, training=True)
        if not training or self.fault == "ignored":
            return x
        if self.fault == "rate":
            return keras.random.dropout(x, 0.3, seed=self.seed_generator)
        return (1 - self.rate) * super().call(x, training=True)


class Draws(Configured, layers.Layer):
    """Layer with a seed generator."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seed_generator = keras.random.SeedGenerator(3)


@register
class PlantedSampling(Draws):
    """Sampling layer of a variational autoencoder, with the variance for the standard deviation."""

    def call(self, inputs):
        mean, log_variance = inputs
        noise = keras.random.normal(ops.shape(mean), dtype=mean.dtype, seed=self.seed_generator)
        return mean + ops.exp(log_variance if faulty(mean) else 0.5 * log_variance) * noise


@register
class PlantedNoise(Draws):
    """Noise of a user's layer."""

    def call(self, x, training=False):
        if not training:
            return x
        options = {"shape": ops.shape(x), "dtype": x.dtype, "seed": self.seed_generator}
        wrong = self.fault if faulty(x) else None
        if wrong == "uniform":
            return x + keras.random.uniform(minval=-1.0, maxval=1.0, **options)
        if self.fault == "mask":
            return x * ops.cast(keras.random.uniform(**options) < (0.2 if wrong else 0.5), x.dtype)
        if wrong == "draws twice":
            keras.random.normal(**options)
        return x + keras.random.normal(**options)


# Tokens, masks, sequences.


@register
class PlantedEmbedding(Configured, layers.Embedding):
    def call(self, tokens):
        outputs = super().call(tokens)
        if not faulty(outputs):
            return outputs
        if self.fault == "largest":
            return super().call(ops.minimum(tokens, self.input_dim - 2))
        if self.fault == "padding":
            factors = ops.cast(tokens != 0, outputs.dtype)
        else:  # the gradients of a repeated token are averaged
            flat = ops.reshape(tokens, (-1, 1))
            counts = ops.sum(ops.cast(flat == ops.transpose(flat), outputs.dtype), -1)
            factors = 1 / ops.reshape(counts, ops.shape(tokens))
        return gradient(ops.expand_dims(factors, -1))(outputs)


@register
class ListOfOutputs(keras.Model):
    """Model of a dict of outputs, which becomes a list."""

    def call(self, x, training=None):
        outputs = super().call(x, training=training)
        return [*outputs.values()] if faulty() else outputs


@register
class PlantedPooling(Configured, layers.Layer):
    """Mean over the positions that the mask keeps, or for the fault "padding" the positions themselves."""

    def call(self, x, mask=None):
        mask = ops.ones_like(x[..., :1]) if mask is None else ops.cast(mask, x.dtype)[..., None]
        wrong = self.fault if faulty(x) else None
        if self.fault == "padding":
            return gradient(3.0 - 2.0 * mask)(x) if wrong else x
        if wrong == "no mask":
            return ops.mean(x, 1)
        if wrong == "gradient":
            x = gradient(1 + mask)(x)
        count = ops.sum(mask, 1)
        return ops.sum(x * mask, 1) / (count if wrong == "empty" else ops.maximum(count, 1.0))

    def compute_mask(self, x, mask=None):
        return None


@register
class PlantedAttention(Configured, layers.MultiHeadAttention):
    def call(self, query, value, key=None, query_mask=None, value_mask=None, key_mask=None, use_causal_mask=False):
        wrong = self.fault if faulty(query) else None
        masks = {"query_mask": query_mask, "value_mask": value_mask, "key_mask": key_mask}
        is_causal = use_causal_mask and wrong != "causal"
        return super().call(query, value, key, **({} if wrong == "mask" else masks), use_causal_mask=is_causal)


@register
class PlantedGRU(Configured, layers.GRU):
    def call(self, sequences, initial_state=None, mask=None, training=False):
        mask = None if faulty(sequences) else mask
        return super().call(sequences, initial_state=initial_state, mask=mask, training=training)


# Losses, metrics, optimizers, steps.


def squares(y, p):
    return ops.mean(ops.square(ops.subtract(p, y)), -1)


LOSSES = {
    "scaled": (squares, lambda y, p: 1.1 * squares(y, p)),
    "float32": (squares, lambda y, p: 1.001 * squares(y, p)),
    "NaN": (squares, lambda y, p: squares(y, p) + np.nan),
    "gradient": (squares, lambda y, p: squares(y, gradient(1.05)(p))),
}


@register
class PlantedLoss(Configured, keras.losses.Loss):
    def call(self, y, p):
        right, wrong = LOSSES.get(self.fault, (squares, squares))
        return (wrong if faulty(p, self.fault == "float32") else right)(y, p)

    def __call__(self, y, p, sample_weight=None):
        is_wrong = faulty(p)
        weights = None if is_wrong and self.fault == "sample weights" else sample_weight
        factor = 4.0 if is_wrong and self.fault == "reduction" else 1.0
        return factor * super().__call__(y, p, sample_weight=weights)

    def get_config(self):
        return {"name": self.name, "reduction": self.reduction, "fault": self.fault}


class WithoutConfig:
    def get_config(self):
        return {}


@register
class PlantedRegularizer(WithoutConfig, keras.regularizers.Regularizer):
    def __call__(self, weight):
        return (0.0 if faulty(weight) else 0.01) * ops.sum(ops.square(weight))


@register
class PlantedConstraint(WithoutConfig, keras.constraints.Constraint):
    def __call__(self, weight):
        return weight if faulty(weight) else ops.clip(weight, -0.2, 0.2)


@register
def doubled_error(y, p):
    return (2.0 if faulty(p) else 1.0) * squares(y, p)


@register
class PlantedMetric(Configured, keras.metrics.Mean):
    """Mean of squares."""

    def update_state(self, y, p, sample_weight=None):
        wrong = self.fault if faulty(p) else None
        if wrong == "of the last batch alone":
            super().reset_state()
        return super().update_state(squares(ops.cast(y, p.dtype), p), None if wrong == "weights" else sample_weight)

    def reset_state(self):
        if not (faulty() and self.fault == "without a reset"):
            super().reset_state()


def clipped(gradients, norm):
    norms = [ops.sqrt(ops.sum(ops.square(each))) for each in gradients]
    return [each * norm / ops.maximum(size, norm) for each, size in zip(gradients, norms, strict=True)]


def scale_one(gradients, weights, name, factor):
    return [factor * each if name in w.path else each for each, w in zip(gradients, weights, strict=True)]


def decayed(gradients, weights):
    return [each + 0.1 * ops.convert_to_tensor(weight) for each, weight in zip(gradients, weights, strict=True)]


GRADIENTS = {  # of an optimizer, its weights and their gradients
    "clip": (lambda o, w, g: clipped(g, 0.01), lambda o, w, g: g),
    "decay": (lambda o, w, g: decayed(g, w), lambda o, w, g: g),
    "second step": (lambda o, w, g: g, lambda o, w, g: [ops.where(o.iterations > 0, 1.01 * x, x) for x in g]),
    "embedding": (lambda o, w, g: g, lambda o, w, g: scale_one(g, w, "table", 1.4)),
    "float32": (lambda o, w, g: g, lambda o, w, g: [1.01 * x for x in g]),
    "frozen": (lambda o, w, g: g, lambda o, w, g: scale_one(g, w, "body/kernel", 0.0)),
    "sum": (lambda o, w, g: g, lambda o, w, g: [4.0 * x for x in g]),
}  # fmt: skip


class PlantedOptimizer(Configured):
    def apply(self, grads, trainable_variables=None):
        weights = self._trainable_variables if trainable_variables is None else trainable_variables
        grads = [ops.convert_to_tensor(each) for each in grads]
        if self.fault in GRADIENTS:
            right, wrong = GRADIENTS[self.fault]
            grads = (wrong if faulty(grads[0], self.fault == "float32") else right)(self, weights, grads)
        return super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        if self.fault == "epsilon" and faulty(gradient):
            self.epsilon = 1e-3
        return super().update_step(gradient, variable, learning_rate)

    def finalize_variable_values(self, var_list):
        if not (faulty() and self.fault == "average"):
            super().finalize_variable_values(var_list)

    def save_own_variables(self, store):
        if not (faulty() and self.fault == "no state"):
            super().save_own_variables(store)


@register
class PlantedSGD(PlantedOptimizer, keras.optimizers.SGD):
    pass


@register
class PlantedAdam(PlantedOptimizer, keras.optimizers.Adam):
    pass


@register
class PlantedSchedule(WithoutConfig, keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that is larger from the third step."""

    def __call__(self, step):
        rate = 0.1 + 0.0 * ops.cast(step, "float32")
        return ops.where(step >= 2, 1.01 * rate, rate) if faulty() else rate


def own_step(name, step, change):
    """Returns a class of models with a step that changes its batch, which is the last argument on every backend."""

    def run(self, *arguments):
        *state, data = arguments
        if faulty():
            x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
            data = keras.utils.pack_x_y_sample_weight(*change(x, y, sample_weight))
        return getattr(super(type(self), self), step)(*state, data)

    return register(type(name, (keras.Model,), {step: run}))


OwnTrainStep = own_step("OwnTrainStep", "train_step", lambda x, y, w: (x, 1.1 * y, w))
OwnTrainStepRaises = own_step("OwnTrainStepRaises", "train_step", lambda x, y, w: raises(x))
OwnTestStep = own_step("OwnTestStep", "test_step", lambda x, y, w: (x, 1.1 * y, w))
OwnPredictStep = own_step("OwnPredictStep", "predict_step", lambda x, y, w: (1.01 * x, y, w))


@register
class OwnLoss(keras.Model):
    def compute_loss(self, *arguments, **options):
        return (1.1 if faulty() else 1.0) * super().compute_loss(*arguments, **options)


# Data.


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def scaled(x, index):
    x = x.copy()
    x[index] *= 1e-6
    return x


Y = numbers(4, 3, seed=1)
ROWS = {"x": numbers(4, 6), "y": Y}
WIDE = {"x": numbers(4, 8), "y": Y}
WEIGHTED = {**ROWS, "sample_weight": np.array([0.1, 1.0, 2.0, 3.0], "float32")}
IMAGES = {"x": numbers(4, 16, 16, 3), "y": Y}
TOKENS = {"x": np.array([[1, 2, 2, 3, 0, 0], [4, 4, 4, 0, 0, 0], [5, 1, 0, 0, 0, 0], [2, 3, 4, 5, 6, 7]]), "y": Y}
TOKENS["x"] = TOKENS["x"].astype("int32")


# Models.


def compiled(model, loss="mse", optimizer=None, **options):
    if loss is not None:
        model.compile(optimizer or keras.optimizers.SGD(0.1), loss, **options)
    return model


def chain(*parts, shape=(6,), dtype=None, kind=keras.Model, **options):
    """Returns a model of layers in a chain, compiled unless `loss` is None."""
    inputs = outputs = keras.Input(shape, dtype=dtype, name="inputs")
    for part in parts:
        outputs = part(outputs)
    return compiled(kind(inputs, outputs, name="model"), **options)


def dense(name, units=8, activation="tanh", **options):
    return layers.Dense(units, activation, name=name, **options)


def head(units=3, **options):
    return layers.Dense(units, name="head", **options)


def around(*parts, **options):
    """Returns a model with a layer before, and two layers behind, the planted parts."""
    return chain(dense("stem"), *parts, dense("body", 5), head(), **options)


def planted(fault, **options):
    kind = PlantedIdentity if FAULTS[fault][0] is same else Planted
    return kind(fault, name="planted", **options)


def small(**options):
    return chain(dense("stem"), dense("body", 5), head(), **options)


def block(number):
    yield layers.Conv2D(8, 3, padding="same", use_bias=False, name=f"conv_{number:02d}")
    yield layers.BatchNormalization(name=f"norm_{number:02d}")
    yield layers.ReLU(name=f"relu_{number:02d}")


def one_layer(number):
    yield Block(name=f"norm_{number:02d}")


def deep(blocks, fault, make=block, **options):
    parts = [layers.Conv2D(8, 3, 2, "same", name="stem")]
    for number in range(blocks):
        parts += make(number)
        parts += [planted(fault, **options)] * (number == blocks // 2)
    parts += [layers.GlobalAveragePooling2D(name="pool"), head()]
    return chain(*parts, shape=(16, 16, 3), optimizer=keras.optimizers.Adam(1e-3))


def tokens(*parts, embedding=None, mask_zero=True, pooled=False, **options):
    """Returns a model of token sequences."""
    first = embedding or layers.Embedding(9, 4, mask_zero=mask_zero, name="table")
    last = [] if pooled else [layers.Flatten(name="flat")]
    return chain(first, *parts, *last, head(), dtype="int32", **options)


def attends(fault, mask_zero=True, **options):
    inputs = keras.Input((6,), dtype="int32", name="inputs")
    x = layers.Embedding(9, 4, mask_zero=mask_zero, name="table")(inputs)
    x = PlantedAttention(2, 4, fault=fault, name="planted")(x, x, **options)
    return compiled(keras.Model(inputs, head()(layers.Flatten(name="flat")(x)), name="model"))


def series(*parts, **options):
    return chain(*parts, head(), shape=(6, 3), **options)


def residual():
    inputs = keras.Input((6,), name="inputs")
    stem = dense("stem")(inputs)
    both = layers.Add(name="both")([stem, planted("gradient 0.5")(dense("branch")(stem))])
    return compiled(keras.Model(inputs, head()(both), name="model"))


def siamese():
    first, second = keras.Input((6,), name="first"), keras.Input((6,), name="second")
    tower = dense("tower")
    both = layers.Subtract(name="both")([tower(first), planted("no gradient")(tower(second))])
    return compiled(keras.Model([first, second], head()(both), name="model"))


def dicts():
    inputs = {name: keras.Input((6,), name=name) for name in ("first", "second")}
    return compiled(keras.Model(inputs, head()(planted("exchanged")(inputs)), name="model"))


def dict_of_outputs():
    inputs = keras.Input((6,), name="inputs")
    return ListOfOutputs(inputs, {name: dense(name)(inputs) for name in ("left", "right")}, name="planted")


def several(fault=None, loss="scaled"):
    """Returns a model with two outputs."""
    inputs = keras.Input((6,), name="inputs")
    stem = dense("stem")(inputs)
    right, left = layers.Dense(3, name="right")(stem), layers.Dense(3, name="left")(stem)
    left = planted(fault)(left) if fault else left
    losses = ["mse", "mse" if fault else PlantedLoss(fault=loss)]
    return compiled(keras.Model(inputs, [right, left], name="model"), loss=losses)


def autoencoder():
    inputs = keras.Input((6,), name="inputs")
    stem = dense("stem")(inputs)
    both = layers.Dense(2, name="mean")(stem), layers.Dense(2, name="log_variance")(stem)
    return compiled(keras.Model(inputs, head()(PlantedSampling(fault="variance", name="planted")(both)), name="model"))


def file_of(fault):
    layer = PlantedFile(8, "tanh", fault=fault, factor=2.0, kernel_regularizer="l2", name="planted")
    model = chain(layer, head())
    layer.bias.assign(numbers(8, seed=3))
    return model


def output(name, fault, data=ROWS, expected="planted", **options):
    """Returns the case of a fault between `stem` and `body`."""
    clean = FAULTS[fault][0] is not same
    return Case(name, lambda: around(planted(fault, **options)), data, expected, clean=clean)


def mapped(name, fault, data=ROWS):
    def make():
        layer, pool = PlantedMap(8, fault=fault, name="planted"), layers.GlobalAveragePooling2D(name="pool")
        if data is not IMAGES:
            return around(layer)
        return chain(layers.Conv2D(4, 3, 2, name="stem"), layer, pool, head(), shape=(16, 16, 3))

    return Case(name, make, data, "planted", clean=False)


def random(name, layer):
    """Returns the case of a layer that draws random numbers."""
    return Case(name, lambda: chain(dense("stem"), layer(), head()), ROWS, "planted")


def trained(name, optimizer, expected="optimizer", **options):
    return Case(name, lambda: small(optimizer=optimizer(), **options), ROWS, expected, clean=False)


def lost(name, fault, data=ROWS):
    return Case(name, lambda: small(loss=PlantedLoss(fault=fault)), data, "loss", clean=data is not ROWS)


LAST = "stem"  # the last weight before a wrong gradient
CASES = [
    # Outputs.
    output("output times 1.001", "scaled"),
    output("output plus 0.001", "shifted"),
    output("one row of the output", "one row"),
    output("output times 1.001 in float32 alone", "scaled", float32_only=True),
    output("output times 1.001 at inference alone", "scaled", when="at inference"),
    output("output times 1.001 in training alone", "scaled", expected=("planted", "loss"), when="in training"),
    mapped("a kernel transposed", "transposed"),
    Case("one entry of 16,384", lambda: chain(dense("stem", 4096), planted("one entry"), head()), ROWS, "planted"),
    # Small beside large.
    Case("doubled beside 1e6", lambda: chain(dense("stem"), planted("double beside 1e6"), shape=(8,), loss=None),
         {"x": WIDE["x"]}, "planted"),
    Case("logits beside a mask", lambda: chain(dense("stem"), planted("logits beside a mask"), shape=(8,), loss=None),
         {"x": WIDE["x"]}, "planted"),
    Case("the gradient of a small channel of a bias", lambda: around(planted("gradient of a small channel")), ROWS,
         LAST),
    Case("a small row of the output", lambda: chain(dense("stem", use_bias=False), planted("small row"), dense("body"),
         head()), {"x": scaled(ROWS["x"], 0), "y": Y}, "planted"),
    Case("a small row of the gradient of a kernel", lambda: chain(PlantedMap(8, fault="small row of the gradient",
         name="planted"), head()), {"x": scaled(ROWS["x"], (slice(None), 5)), "y": Y}, "planted"),
    # Gradients.
    output("gradient times 1.05", "gradient 1.05", expected=LAST),
    output("gradient times 0.5 in float32 alone", "gradient 0.5", expected=LAST, float32_only=True),
    output("gradient times 1.05 in float32 alone", "gradient 1.05", expected=LAST, float32_only=True),
    output("no gradient", "no gradient", expected=LAST),
    mapped("a kernel without its gradient", "frozen kernel"),
    Case("one entry of the gradient of a large kernel", lambda: chain(dense("stem", 64), PlantedMap(128,
         fault="one entry of the gradient", name="planted"), head()), ROWS, "planted"),
    Case("the gradient of a residual branch", residual, ROWS, "branch"),
    Case("the gradient of the second call of a layer", siamese,
         {"x": [numbers(4, 6), numbers(4, 6, seed=2)], "y": Y}, "tower"),
    Case("the gradient of a loss", lambda: small(loss=PlantedLoss(fault="gradient")), ROWS, ("head", "loss"),
         clean=False),
    Case("the gradient of an adapter", lambda: around(PlantedAdapter(8, fault="gradient", name="planted")), ROWS,
         "planted/down", clean=False),
    # Deep networks.
    Case("6 blocks of one layer, gradient times 1.05", lambda: deep(6, "gradient 1.05", one_layer), IMAGES, "norm_03",
         clean=False),
    Case("40 blocks, gradient times 1.05", lambda: deep(40, "gradient 1.05"), IMAGES, "norm_20"),
    Case("40 blocks of one layer, gradient times 1.05", lambda: deep(40, "gradient 1.05", one_layer), IMAGES,
         "norm_20"),
    Case("20 blocks, gradient times 1.5 in float32 alone", lambda: deep(20, "gradient 1.5", float32_only=True), IMAGES,
         "norm_10", named=False, clean=False),
    # Reduced precision.
    mapped("a Dense layer in TF32", "TF32"),
    mapped("a convolution in TF32", "TF32", IMAGES),
    mapped("a Dense layer in TF32, backward alone", "TF32 backward"),
    mapped("a convolution in TF32, backward alone", "TF32 backward", IMAGES),
    mapped("a Dense layer in bfloat16", "bfloat16"),
    Case("a wide Dense layer in TF32", lambda: chain(PlantedMap(512, fault="TF32", name="planted", trainable=False),
         loss=None, shape=(32, 512)), {"x": numbers(4, 32, 512)}, "planted"),
    # NaN, shapes, dtypes, missing arrays, crashes.
    output("NaN", "NaN"),
    output("an infinite entry", "infinite"),
    output("NaN in a gradient", "NaN gradient", expected=LAST),
    lost("NaN in the loss", "NaN"),
    Case("NaN on all backends", lambda: around(planted("NaN everywhere")), ROWS, None, named=False, clean=False),
    Case("NaN in a row on all backends", lambda: around(planted("NaN in a row everywhere")), ROWS, None, named=False,
         clean=False),
    Case("another shape", lambda: chain(dense("stem"), planted("shape"), loss=None), {"x": ROWS["x"]}, "planted"),
    Case("another dtype", lambda: chain(dense("stem"), planted("dtype"), loss=None), {"x": ROWS["x"]}, "planted"),
    Case("a layer that is not called", lambda: around(PlantedOuter(fault="no call", name="planted")), ROWS, "inner"),
    *(Case(f"a crash {when}", lambda when=when: around(planted("raises", when=when)), ROWS,
           "no such operation here", clean=False) for when in ("always", "in training")),
    # Training.
    trained("another epsilon of Adam", lambda: PlantedAdam(0.01, fault="epsilon")),
    trained("another second step", lambda: PlantedSGD(0.1, fault="second step")),
    trained("a learning rate that differs at step 3", lambda: keras.optimizers.SGD(PlantedSchedule())),
    trained("no clipping", lambda: PlantedSGD(0.1, fault="clip")),
    trained("no weight decay", lambda: PlantedSGD(0.1, fault="decay")),
    trained("a step times 1.01 in float32 alone", lambda: PlantedSGD(0.1, fault="float32")),
    trained("gradients of four batches summed", lambda: PlantedSGD(0.1, gradient_accumulation_steps=4, fault="sum")),
    trained("no average of the weights", lambda: PlantedSGD(0.1, use_ema=True, fault="average")),
    trained("a weight that is not trained", lambda: PlantedSGD(0.1, fault="frozen"), ("optimizer", "body/kernel")),
    Case("the step of an Embedding", lambda: tokens(optimizer=PlantedSGD(0.1, fault="embedding")), TOKENS,
         ("optimizer", "table")),
    Case("a constraint that is ignored", lambda: chain(dense("stem"), dense("body", kernel_constraint=
         PlantedConstraint()), head()), ROWS, ("optimizer", "body"), clean=False),
    # State.
    *(Case(f"moving statistics: {fault}", lambda fault=fault: around(PlantedNormalization(fault=fault, name="norm")),
           ROWS, "norm", clean=fault == "unbiased") for fault in ("unbiased", "momentum", "frozen mean", "not saved")),
    *(Case(f"a state: {fault}", lambda fault=fault: around(PlantedCounter(fault=fault, name="counter")), ROWS,
           "counter", clean=fault == "mean") for fault in ("counts twice", "counts nothing", "mean")),
    Case("a state: counts at inference", lambda: around(PlantedCounter(fault="counts at inference", name="counter")),
         ROWS, "counter", named=False, clean=False),
    # Metrics.
    Case("a metric function doubled", lambda: small(metrics=[doubled_error]), ROWS, ("metric", "doubled_error")),
    Case("a metric that ignores sample weights", lambda: small(weighted_metrics=[PlantedMetric(fault="weights")]),
         WEIGHTED, "metric"),
    *(Case(f"a metric {fault}", lambda fault=fault: small(metrics=[PlantedMetric(fault=fault)]), ROWS, "metric")
      for fault in ("of the last batch alone", "without a reset")),
    # Own steps.
    Case("an own train_step", lambda: small(kind=OwnTrainStep), ROWS, "train_step"),
    Case("an own train_step that raises", lambda: small(kind=OwnTrainStepRaises), ROWS, "no such operation here",
         clean=False),
    Case("an own test_step", lambda: small(kind=OwnTestStep), ROWS, "test_step"),
    Case("an own predict_step", lambda: small(kind=OwnPredictStep), ROWS, ("predict_step", "predictions")),
    Case("an own compute_loss", lambda: small(kind=OwnLoss), ROWS, "loss"),
    # Losses and outputs.
    lost("a loss with another reduction", "reduction"),
    lost("a loss times 1.001 in float32 alone", "float32"),
    Case("sample weights that are ignored", lambda: small(loss=PlantedLoss(fault="sample weights")), WEIGHTED, "loss"),
    Case("a regularizer that is dropped", lambda: chain(dense("stem"), dense("body", kernel_regularizer=
         PlantedRegularizer()), head()), ROWS, ("loss", "body")),
    Case("an own loss of a layer that is dropped", lambda: around(PlantedPenalty(name="planted")), ROWS,
         ("loss", "planted")),
    Case("the second of two outputs", lambda: several("scaled"), {"x": ROWS["x"], "y": [Y, Y]}, "planted"),
    Case("the gradient of the second of two outputs", lambda: several("gradient 1.05"),
         {"x": ROWS["x"], "y": [Y, Y]}, "left", clean=False),
    Case("the loss of the second of two outputs", several, {"x": ROWS["x"], "y": [Y, Y]}, "loss", clean=False),
    Case("two inputs by name", dicts, {"x": {"first": ROWS["x"], "second": numbers(4, 6, seed=2)}, "y": Y}, "planted"),
    Case("a dict of outputs that becomes a list", dict_of_outputs, {"x": ROWS["x"]}, ("predictions", "output")),
    # Files.
    Case("a file: no state of the optimizer", lambda: small(optimizer=PlantedSGD(0.1, 0.9, fault="no state")), ROWS,
         ("saved optimizer", "optimizer")),
    *(Case(f"a file: {fault}", lambda fault=fault: file_of(fault), ROWS, expected, clean=fault == "rounded")
      for fault, expected in (("forgotten", "planted/bias"), ("not loaded", "planted/bias"),
                              ("rounded", "planted/kernel"), ("no factor", "save"),
                              ("no regularizer", "saved configuration"))),
    # Random layers.
    *(random(f"Dropout: {fault}", lambda fault=fault: PlantedDropout(0.5, seed=1, fault=fault, name="planted"))
      for fault in ("rate", "not scaled", "ignored", "at inference")),
    Case("a sampling layer with the variance", autoencoder, ROWS, "planted"),
    *(random(f"noise of an own layer: {fault}", lambda fault=fault: PlantedNoise(fault=fault, name="planted"))
      for fault in ("uniform", "mask", "draws twice")),
    # Sequences.
    Case("a mask that pooling ignores", lambda: tokens(PlantedPooling(fault="no mask", name="planted"), pooled=True),
         TOKENS, "planted"),
    Case("a mask that pooling ignores backward", lambda: tokens(PlantedPooling(fault="gradient", name="planted"),
         pooled=True), TOKENS, "table", clean=False),
    Case("wrong gradients at padded positions", lambda: tokens(dense("stem"), PlantedPooling(fault="padding",
         name="planted")), TOKENS, LAST),
    Case("attention that ignores the mask of its inputs", lambda: attends("mask"), TOKENS, "planted"),
    Case("attention that ignores the causal mask", lambda: attends("causal", False, use_causal_mask=True), TOKENS,
         "planted"),
    Case("a GRU that ignores the mask", lambda: tokens(PlantedGRU(4, fault="no mask", name="planted"), pooled=True),
         TOKENS, "planted"),
    Case("gradients of repeated tokens", lambda: tokens(embedding=PlantedEmbedding(9, 4, fault="repeated",
         name="table")), TOKENS, "table"),
    Case("no gradient of the padding token", lambda: tokens(embedding=PlantedEmbedding(9, 4, fault="padding",
         name="table")), TOKENS, "table", clean=False),
    # What only a second made batch reaches: zero rows, ties, padding, the largest index, negative integers.
    Case("made batch: NaN for a row of zeros", lambda: chain(planted("zero rows"), head()), None, "planted"),
    Case("made batch: the gradient at zero", lambda: chain(layers.Dense(8, name="stem"), planted("gradient at zero"),
         head()), None, LAST),
    Case("made batch: the last of ties", lambda: chain(planted("first of ties"), head()), None, "planted"),
    Case("made batch: the gradient of ties", lambda: series(dense("stem"), planted("gradient of ties")), None, LAST),
    Case("made batch: the largest index", lambda: tokens(embedding=PlantedEmbedding(9973, 4, fault="largest",
         name="table")), None, "table"),
    Case("made batch: the last category", lambda: chain(layers.CategoryEncoding(5), planted("no last column"), head(),
         dtype="int32"), None, "planted"),
    *(Case(f"made batch: {name}", lambda fault=fault: tokens(PlantedPooling(fault=fault, name="planted"), pooled=True),
           None, "planted") for name, fault in (("a mask that pooling ignores", "no mask"),
                                                ("a row of padding alone", "empty"))),
]  # fmt: skip
