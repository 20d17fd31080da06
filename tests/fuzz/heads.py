"""Random heads of every covariance, link, integrator, shape and dtype, and what each must do."""

import pathlib
import tempfile
import types

import keras
import numpy as np
from hypothesis import strategies as st
from keras import ops

from keras_het import covariances, integrators, layers
from tests import layer_contract
from tests.gradients import layer_gradients

SAMPLED = ("MonteCarlo", "QuasiMonteCarlo")
INTEGRATORS = {  # those that fit a link, with factors
    "softmax": (*SAMPLED, "Taylor"),
    "sigmoid": (*SAMPLED, "ClosedForm"),
}
COVARIANCES = ("short", "Diagonal", "LowRank", "ParameterEfficient", "Narrow", "Latent")
SUM = 1e-4  # by which probabilities may miss one: the rounding of float32 over 40 classes and their logs


class Case(types.SimpleNamespace):
    def make(self):
        return layers.HeteroscedasticDense(
            self.units, **self._covariance(), link=self.link, integrator=self._integrator(),
            temperature=self.temperature,
            use_bias=self.use_bias, kernel_regularizer=self.regularizer, seed=self.seed, dtype=self.dtype, name="head",
        )  # fmt: skip

    def _covariance(self):
        if self.covariance == "short":
            return {"num_factors": self.num_factors}
        arguments = {
            "initializer": keras.initializers.RandomNormal(stddev=0.1, seed=1) if self.starts_random else "zeros",
            "regularizer": self.regularizer,
            "initial_scale": self.initial_scale,
            "min_scale": self.min_scale,
        }
        if self.covariance != "Diagonal":
            arguments["num_factors"] = self.num_factors
        if self.covariance == "Narrow":
            arguments["width"] = self.width
        return {"covariance": getattr(covariances, self.covariance)(**arguments)}

    def _integrator(self):
        kind = getattr(integrators, self.integrator)
        if self.integrator not in SAMPLED:
            return kind()
        pairs = {"antithetic": self.antithetic} if self.integrator == "MonteCarlo" else {}
        return kind(self.num_samples, inference_samples=self.inference_samples, chunk_size=self.chunk_size, **pairs)

    def inputs(self):
        x = self.input_scale * np.random.default_rng(self.seed).standard_normal((*self.batch, self.features))
        return x.astype(self.input_dtype)

    def head(self):
        head, rng = self.make(), np.random.default_rng([self.seed, 1])
        head.build((None, self.features))
        for weight in head.trainable_weights:
            if self.weight_scale and "theta" not in weight.path:
                weight.assign(self.weight_scale * rng.standard_normal(weight.shape).astype(weight.dtype))
        return head


@st.composite
def cases(draw):
    """Cases in which every part fits the others."""
    link, covariance = draw(st.sampled_from(list(INTEGRATORS))), draw(st.sampled_from(COVARIANCES))
    units = draw(st.integers(1 if link == "sigmoid" else 2, 40))
    features = draw(st.integers(1, 12))
    most = features if covariance == "Latent" else units
    lowest = 0 if covariance == "short" else 1
    num_factors = 0 if covariance == "Diagonal" else draw(st.none() | st.integers(lowest, min(most, 5)))
    fitting = INTEGRATORS[link]
    float64 = keras.config.backend() == "tensorflow"
    return Case(
        units=units, features=features, batch=tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=3))),
        link=link, covariance=covariance, num_factors=num_factors, width=draw(st.integers(1, 4)),
        starts_random=draw(st.booleans()), initial_scale=draw(st.sampled_from([1e-3, 0.15, 3.0])),
        min_scale=draw(st.sampled_from([0.0, 1e-3, 1.0])), integrator=draw(st.sampled_from(fitting)),
        num_samples=draw(st.integers(1, 200)), inference_samples=draw(st.none() | st.integers(1, 200)),
        chunk_size=draw(st.sampled_from([None, 1, 7, 1000])), antithetic=draw(st.booleans()),
        temperature=draw(st.sampled_from([0.1, 1.0, 5.0, 1000.0])), use_bias=draw(st.booleans()),
        regularizer=draw(st.sampled_from([None, "l2"])),
        policy=draw(st.sampled_from(["float32", "mixed_bfloat16", "mixed_float16", "float16"])),
        dtype=draw(st.sampled_from(["float32", "float64"] if float64 else ["float32"])),
        input_dtype=draw(st.sampled_from(["float32", "float64", "float16", "int32", "uint8", "bool"])),
        input_scale=draw(st.sampled_from([0.0, 1.0, 100.0, 1e4])), weight_scale=draw(st.sampled_from([0.0, 0.5, 3.0])),
        seed=draw(st.integers(0, 2**31 - 1)), saves=draw(st.integers(0, 7)) == 7,
    )  # fmt: skip


def check(case):
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(case.policy)
    try:
        head, x = case.head(), case.inputs()
        check_outputs(head, x)
        check_sums(head, x)
        check_repeats(head, x)
        check_gradients(head, x)
        layer_contract.check_config(case.make)
        if case.saves:
            with tempfile.TemporaryDirectory() as folder:
                layer_contract.check_saved_model(case.make, x.reshape(-1, case.features), pathlib.Path(folder))
    finally:
        keras.config.set_dtype_policy(policy)
    return "saved and loaded" if case.saves else "held"


def numbers(head, x, training=False):
    return ops.convert_to_numpy(head(x, training=training))


def check_outputs(head, x):
    for training in (False, True):
        outputs = numbers(head, x, training)
        assert outputs.shape == tuple(head.compute_output_shape(x.shape)), f"shape {outputs.shape}"
        assert outputs.dtype == head.compute_dtype, f"dtype {outputs.dtype}"
        assert np.isfinite(outputs).all(), f"outputs are not finite, training={training}"


def check_sums(head, x):
    p = ops.convert_to_numpy(head.probabilities(x)).astype("float64")
    assert ((p >= 0) & (p <= 1 + SUM)).all(), f"probabilities from {p.min()} to {p.max()}"
    if head.link.activation == "softmax":
        worst = np.abs(p.sum(-1) - 1).max(initial=0.0)
        assert worst < SUM, f"the sum of probabilities is off by {worst:.2g}"


def check_repeats(head, x):
    first = numbers(head, x)
    np.testing.assert_array_equal(numbers(head, x), first, err_msg="a second prediction")
    numbers(head, x, training=True)
    np.testing.assert_array_equal(numbers(head, x), first, err_msg="a prediction after a step")


def check_gradients(head, x):
    shape = head.compute_output_shape(x.shape)
    direction = ops.convert_to_tensor(np.random.default_rng(2).standard_normal(shape), head.compute_dtype)
    _, gradients = layer_gradients(head, lambda outputs: ops.sum(outputs * direction), x)
    for name, gradient in gradients.items():
        assert gradient is None or np.isfinite(gradient).all(), f"the gradient of {name} is not finite"
