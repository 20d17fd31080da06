"""Random heads of every covariance, link, integrator, shape and dtype, and what each must do."""

import pathlib
import tempfile
from typing import Any, NamedTuple

import keras
import numpy as np
from hypothesis import strategies as st
from keras import ops

from keras_het import covariances, integrators, layers
from tests import layer_contract
from tests.common import session
from tests.gradients import layer_gradients

COVARIANCES = ("short", "Diagonal", "LowRank", "ParameterEfficient", "Narrow", "Latent")
SUM = 1e-4  # by which probabilities may miss one: the rounding of float32 over 40 classes and their logs


class Case(NamedTuple):
    head: dict[str, Any]
    covariance: tuple[str, dict[str, Any]]
    integrator: tuple[str, dict[str, Any]]
    x: np.ndarray
    policy: str
    weight_scale: float
    is_saved: bool

    def make(self):
        (name, own), (rule, sizes) = self.covariance, self.integrator
        given = own if name == "short" else {"covariance": getattr(covariances, name)(**own)}
        return layers.HeteroscedasticDense(**self.head, **given, integrator=getattr(integrators, rule)(**sizes))

    def built(self):
        head, rng = self.make(), np.random.default_rng([self.head["seed"], 1])
        head.build((None, self.x.shape[-1]))
        for weight in head.trainable_weights:
            if self.weight_scale:
                weight.assign(self.weight_scale * rng.standard_normal(weight.shape).astype(weight.dtype))
        return head


@st.composite
def cases(draw):
    def one(*values):
        return draw(st.sampled_from(values))

    link, covariance, regularizer = one("softmax", "sigmoid"), one(*COVARIANCES), one(None, "l2")
    units, features = draw(st.integers(1 if link == "sigmoid" else 2, 40)), draw(st.integers(1, 12))
    most = features if covariance == "Latent" else units
    factors = st.none() | st.integers(0 if covariance == "short" else 1, min(most, 5))
    own = {} if covariance == "Diagonal" else {"num_factors": draw(factors)}
    if covariance != "short":
        own |= {"initial_scale": one(1e-3, 0.15, 3.0), "min_scale": one(0.0, 1e-3, 1.0), "regularizer": regularizer}
        own["initializer"] = one("zeros", keras.initializers.RandomNormal(stddev=0.1, seed=1))
    if covariance == "Narrow":
        own["width"] = draw(st.integers(1, 4))
    rule = one("MonteCarlo", "QuasiMonteCarlo", "Taylor" if link == "softmax" else "ClosedForm")
    sizes = {"antithetic": one(True, False)} if rule == "MonteCarlo" else {}
    if rule.endswith("MonteCarlo"):
        sizes |= {"num_samples": draw(st.integers(1, 200)), "chunk_size": one(None, 1, 7, 1000)}
        sizes["inference_samples"] = draw(st.none() | st.integers(1, 200))
    head = {"units": units, "link": link, "temperature": one(0.1, 1.0, 5.0, 1000.0), "use_bias": one(True, False)}
    head |= {"kernel_regularizer": regularizer, "seed": draw(st.integers(0, 2**31 - 1)), "name": "head"}
    head["dtype"] = one("float32", "float64") if keras.config.backend() == "tensorflow" else "float32"
    shape = (*draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)), features)
    x = one(0.0, 1.0, 100.0, 1e4) * np.random.default_rng(head["seed"]).standard_normal(shape)
    x = x.astype(one("float32", "float64", "float16", "int32", "uint8", "bool"))
    policy = one("float32", "mixed_bfloat16", "mixed_float16", "float16")
    weight_scale, is_saved = one(0.0, 0.5, 3.0), draw(st.integers(0, 7)) == 7
    return Case(head, (covariance, own), (rule, sizes), x, policy, weight_scale, is_saved)


def check(case):
    with session(policy=case.policy):
        head = case.built()
        check_outputs(head, case.x)
        check_gradients(head, case.x)
        layer_contract.check_config(case.make)
        if case.is_saved:
            with tempfile.TemporaryDirectory() as folder:
                x = case.x.reshape(-1, case.x.shape[-1])
                layer_contract.check_saved(case.make, x, pathlib.Path(folder))


def check_outputs(head, x):
    """Asserts shape, dtype and finite numbers, equal predictions before and after a step, and probabilities."""
    first, again, trained, after = (
        ops.convert_to_numpy(head(x, training=training)) for training in (False, False, True, False)
    )
    for outputs in (first, trained):
        assert outputs.shape == tuple(head.compute_output_shape(x.shape)), f"shape {outputs.shape}"
        assert outputs.dtype == head.compute_dtype, f"dtype {outputs.dtype}"
        assert np.isfinite(outputs).all(), f"outputs are not finite, training={outputs is trained}"
    np.testing.assert_array_equal(again, first, err_msg="a second prediction")
    np.testing.assert_array_equal(after, first, err_msg="a prediction after a step")
    p = ops.convert_to_numpy(head.probabilities(x)).astype("float64")
    assert ((p >= 0) & (p <= 1 + SUM)).all(), f"probabilities from {p.min()} to {p.max()}"
    if head.link.activation == "softmax":
        worst = np.abs(p.sum(-1) - 1).max(initial=0.0)
        assert worst < SUM, f"the sum of probabilities is off by {worst:.2g}"


def check_gradients(head, x):
    shape = head.compute_output_shape(x.shape)
    direction = ops.convert_to_tensor(np.random.default_rng(2).standard_normal(shape), head.compute_dtype)
    _, gradients = layer_gradients(head, lambda outputs: ops.sum(outputs * direction), x)
    for name, gradient in gradients.items():
        assert gradient is None or np.isfinite(gradient).all(), f"the gradient of {name} is not finite"
