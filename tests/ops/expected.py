"""Expectations over nodes for both links, with random arguments and the same in float64."""

import numpy as np
from keras import ops
from numpy.testing import assert_allclose

from keras_het.ops.nodes import pseudo_random
from keras_het.ops.normal import finite
from keras_het.ops.sigmoid import SigmoidMean
from keras_het.ops.softmax import SoftmaxMean, remove_shift
from keras_het.ops.streaming import expectation
from tests import reference
from tests.common import low_rank_normal, to_numpy
from tests.gradients import value_and_gradients
from tests.marks import grid

PLAIN = {"chunk_size": 1 << 20, "streamed": False}  # all nodes at once, and no gradient of its own
UNITS, FACTORS, SAMPLES = 6, 3, 50
DROPPED = {"diagonal": "factor row_scale", "full": "row_scale", "shared": "row_scale", "parameter_efficient": ""}
EVERY_KIND = grid(DROPPED, span=["full", "parameter_efficient"])
LINKS = {  # mean, how the mean logits are centred, oracle
    "softmax": (SoftmaxMean(), remove_shift, reference.log_mean_softmax),
    "sigmoid": (SigmoidMean(), finite, reference.logit_mean_sigmoid),
}


def expected(loc, scale_diag, factor=None, row_scale=None, temperature=1.0, *, nodes, link="softmax", **options):
    """Computes log E[softmax(u / temperature)], u = loc + scale_diag * e_K + row_scale * (factor e_R), or the logit."""
    mean, center, _ = LINKS[link]
    normal = low_rank_normal(loc, scale_diag, factor, row_scale).standardized(center, temperature)
    return expectation(mean, normal, nodes, **options)


def problem(kind, batch=(5,), scale=1.0, loc_scale=2.0, seed=0):
    rng = np.random.default_rng(seed)
    arguments = {
        "loc": rng.normal(size=(*batch, UNITS)) * loc_scale,
        "scale_diag": rng.uniform(0.1, 1.0, size=(*batch, UNITS)) * scale,
        "factor": rng.normal(size=(*batch, UNITS, FACTORS) if kind == "full" else (UNITS, FACTORS)) * scale,
        "row_scale": rng.normal(size=(*batch, UNITS)),
        "temperature": np.array(1.3),
    }
    return {name: value.astype("float32") for name, value in arguments.items() if name not in DROPPED[kind].split()}


def nodes_of(kind, num_samples=SAMPLES, seed=0):
    # In NumPy: JAX would compile every operation.
    return pseudo_random((seed, 0), num_samples, UNITS, 0 if kind == "diagonal" else FACTORS, np)


def upstream_of(arguments, seed=1):
    return np.random.default_rng(seed).normal(size=arguments["loc"].shape).astype("float32")


def evaluate(arguments, nodes, **options):
    return to_numpy(expected(**arguments, nodes=nodes, **options))


def oracle(arguments, nodes, link="softmax"):
    eps_diag, eps_factor = (to_numpy(x) for x in nodes)
    given = {name: value for name, value in arguments.items() if name != "temperature"}
    logits = reference.logits_at(**given, eps_diag=eps_diag, eps_factor=eps_factor)
    return LINKS[link][2](logits, np.float64(arguments["temperature"]))


def gradients(arguments, nodes, upstream, **options):
    names, upstream = list(arguments), ops.convert_to_tensor(upstream)

    def loss(tensors):
        return ops.sum(expected(**dict(zip(names, tensors, strict=True)), nodes=nodes, **options) * upstream)

    return dict(zip(names, value_and_gradients(loss, list(arguments.values()))[1], strict=True))


def check_values(arguments, nodes, tolerance=1e-5, **options):
    values = oracle(arguments, nodes, options.get("link", "softmax"))
    assert_allclose(evaluate(arguments, nodes, **options), values, rtol=tolerance, atol=tolerance)


def check_slopes(arguments, nodes, upstream, **options):
    """Asserts that the oracle has each gradient along a random direction, to 1e-3 of the gradient's size."""
    link = options.get("link", "softmax")
    for parameter, gradient in gradients(arguments, nodes, upstream, **options).items():
        assert np.all(np.isfinite(gradient)), parameter
        value = np.float64(arguments[parameter])
        direction = np.random.default_rng(0).normal(size=value.shape)
        step = 1e-4 if parameter == "loc" else 1e-7 * np.abs(value).max()
        moved = [{**arguments, parameter: value + sign * step * direction} for sign in (1, -1)]
        first, second = (np.sum(oracle(each, nodes, link) * upstream) for each in moved)
        slope, size = (first - second) / (2 * step), np.sum(np.abs(gradient * direction))
        assert_allclose(np.sum(gradient * direction), slope, rtol=1e-3, atol=1e-3 * max(size, 1.0), err_msg=parameter)


def assert_same_gradients(result, expected):
    """Gradients, dicts by name, agree to 1e-5 of the largest entry of each."""
    assert list(result) == list(expected)
    for name, gradient in expected.items():
        largest = np.abs(gradient).max(initial=0)
        assert_allclose(result[name], gradient, rtol=1e-5, atol=1e-5 * largest + 1e-6, err_msg=name)
