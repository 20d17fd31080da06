"""Every kind of head keeps the contract of `tests/layer_contract.py`, the full one with every argument set."""

import functools

import keras
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_het.covariances import LowRank
from keras_het.integrators import MonteCarlo
from keras_het.layers import HeteroscedasticDense
from tests import layer_contract
from tests.layers.heads import EVERY_HEAD, X, make_head, make_loss, targets

ALL_ARGUMENTS = {
    "use_bias": False,
    "temperature": 2,
    "min_scale": 0.1,
    "integrator": MonteCarlo(7, antithetic=True, inference_samples=9, chunk_size=3),
    "kernel_initializer": keras.initializers.HeNormal(seed=1),
    "bias_initializer": "ones",
    "kernel_regularizer": keras.regularizers.L2(0.01),
    "bias_regularizer": "l1",
    "initializer": keras.initializers.RandomNormal(stddev=0.1, seed=2),
    "regularizer": keras.regularizers.L1L2(0.1, 0.2),
    "initial_scale": 1,
    "name": "head",
    "trainable": False,
}


@pytest.mark.parametrize("kind", EVERY_HEAD)
def test_contract(kind, tmp_path):
    make = functools.partial(make_head, kind)
    task = X, targets(make().link), make_loss(make().link)
    layer_contract.check_layer(make, *task, tmp_path)
    layer_contract.check_shapes(make, X.reshape(2, 4, -1))
    layer_contract.check_unknown_batch(make, X)
    for policy in ("mixed_bfloat16", "mixed_float16") if kind == "full" else ("mixed_bfloat16",):
        layer_contract.check_half_precision(make, *task, policy)


@pytest.mark.once
@settings(max_examples=50, deadline=None, derandomize=True, database=None)
@given(
    units=st.integers(2, 40),
    covariance=st.builds(
        LowRank,
        st.none() | st.integers(1, 2),
        min_scale=st.just(0.0) | st.floats(1e-30, 1),  # smaller numbers are lost in float32, and refused
        initial_scale=st.floats(2, 1e4),
    ),
    link=st.sampled_from(["softmax", "sigmoid"]),
    temperature=st.floats(1e-6, 1e6),
    integrator=st.builds(
        MonteCarlo,
        st.integers(1, 1 << 20),
        antithetic=st.booleans(),
        inference_samples=st.none() | st.integers(1, 1 << 20),
        chunk_size=st.sampled_from([None, 1, 1000]),
    ),
    seed=st.integers(0, 2**31 - 1),
)
def test_any_config_round_trips(covariance, **arguments):
    config = covariance.get_config()  # a covariance is for one head
    layer_contract.check_config(lambda: HeteroscedasticDense(covariance=LowRank.from_config(config), **arguments))


def test_the_config_holds_the_arguments_as_given_and_the_drawn_seed():
    head = make_head("full", seed=None, **ALL_ARGUMENTS)
    config = head.get_config()
    layer_contract.check_config(functools.partial(make_head, "full", **ALL_ARGUMENTS))
    assert (config["temperature"], config["use_bias"], config["trainable"]) == (2.0, False, False)
    covariance = config["covariance"]["config"]
    assert (covariance["min_scale"], covariance["initial_scale"], covariance["num_factors"]) == (0.1, 1.0, 2)
    assert config["seed"] == head.seed
    assert 0 <= head.seed < 2**31
    assert make_head("full", seed=None).seed != head.seed  # one in 2^31
    assert type(head).from_config(config).seed == head.seed
    for result, name in ((config, "integrator"), (covariance, "regularizer")):
        assert result[name]["config"] == ALL_ARGUMENTS[name].get_config()
