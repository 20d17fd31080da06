import keras
import numpy as np
import pytest
from keras import ops
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.special import expit

from keras_het.ops.nodes import pseudo_random, quasi_random
from tests import reference
from tests.common import refuses, to_numpy
from tests.gradients import second_derivative, value_and_gradients
from tests.marks import grid
from tests.ops.expected import PLAIN, assert_same_gradients, log_expected_softmax

UNITS, FACTORS, SAMPLES = 6, 3, 50
KINDS = ["diagonal", "full", "shared", "parameter_efficient"]
EVERY_KIND = grid(KINDS, span=["full", "parameter_efficient"])


def problem(kind, batch=(5,), scale=1.0, loc_scale=2.0, seed=0):
    """Arguments of `log_expected_softmax` as float32 arrays; absent ones are left out."""
    rng = np.random.default_rng(seed)
    arguments = {
        "loc": rng.normal(size=(*batch, UNITS)) * loc_scale,
        "scale_diag": rng.uniform(0.1, 1.0, size=(*batch, UNITS)) * scale,
        "factor": rng.normal(size=(*batch, UNITS, FACTORS) if kind == "full" else (UNITS, FACTORS)) * scale,
        "row_scale": rng.normal(size=(*batch, UNITS)),
        "temperature": np.array(1.3),
    }
    dropped = {
        "diagonal": ("factor", "row_scale"),
        "full": ("row_scale",),
        "shared": ("row_scale",),
        "parameter_efficient": (),
    }[kind]
    return {name: value.astype("float32") for name, value in arguments.items() if name not in dropped}


def nodes_of(kind, num_samples=SAMPLES, seed=0):
    # In NumPy: JAX would compile every operation.
    return pseudo_random((seed, 0), num_samples, UNITS, 0 if kind == "diagonal" else FACTORS, np)


def evaluate(arguments, nodes, **options):
    return to_numpy(log_expected_softmax(**{"factor": None, **arguments}, nodes=nodes, **options))


def oracle(arguments, nodes):
    eps_diag, eps_factor = (to_numpy(x) for x in nodes)
    given = {name: value for name, value in arguments.items() if name != "temperature"}
    logits = reference.logits_at(**given, eps_diag=eps_diag, eps_factor=eps_factor)
    return reference.log_mean_softmax(logits, np.float64(arguments["temperature"]))


def gradients(arguments, nodes, upstream, **options):
    names, upstream = list(arguments), ops.convert_to_tensor(upstream)

    def loss(tensors):
        return ops.sum(
            log_expected_softmax(**{"factor": None, **dict(zip(names, tensors, strict=True))}, nodes=nodes, **options)
            * upstream
        )

    return dict(zip(names, value_and_gradients(loss, list(arguments.values()))[1], strict=True))


@pytest.mark.on_tensorflow
@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize(
    "options", [{}, {"chunk_size": 8}, {"chunk_size": 1}, PLAIN, {"chunk_size": 8, "streamed": False}], ids=str
)
def test_value_at_given_nodes(kind, options):
    arguments, nodes = problem(kind), nodes_of(kind)
    assert_allclose(evaluate(arguments, nodes, **options), oracle(arguments, nodes), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", EVERY_KIND)
@pytest.mark.parametrize("loc_scale", grid([2.0, 40.0], span=[40.0]))
@pytest.mark.parametrize("chunk_size", [8, None])
def test_streamed_gradient_equals_plain_autodiff(kind, loc_scale, chunk_size):
    arguments, nodes = problem(kind, loc_scale=loc_scale), nodes_of(kind)
    upstream = np.random.default_rng(1).normal(size=arguments["loc"].shape).astype("float32")
    streamed = gradients(arguments, nodes, upstream, chunk_size=chunk_size)
    assert_same_gradients(streamed, gradients(arguments, nodes, upstream, **PLAIN))


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_gradient_against_finite_differences_in_float64(kind):
    arguments, nodes = problem(kind), nodes_of(kind)
    upstream = np.random.default_rng(1).normal(size=arguments["loc"].shape).astype("float32")
    analytic, rng = gradients(arguments, nodes, upstream), np.random.default_rng(2)
    for name, gradient in analytic.items():
        direction, step = rng.normal(size=gradient.shape), 1e-5

        def loss(sign, name=name, direction=direction, step=step):
            moved = {**arguments, name: np.float64(arguments[name]) + sign * step * direction}
            return np.sum(oracle(moved, nodes) * upstream)

        slope = (loss(1) - loss(-1)) / (2 * step)
        assert_allclose(np.sum(gradient * direction), slope, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.on_tensorflow
@pytest.mark.parametrize(("difference", "scale"), [(0.5, 0.3), (-2.0, 1.0), (6.0, 3.0)])
def test_two_classes_against_the_one_dimensional_integral(difference, scale):
    """p_0 = E[sigmoid(N(difference, s^2) / tau)] with s^2 = 2 scale^2 + (V_0 - V_1)^2."""
    tau, factor = 0.9, np.array([[[0.7], [-0.2]]], "float32") * scale
    deviation = np.sqrt(2 * scale**2 + float(np.diff(factor[0, :, 0])[0]) ** 2)
    integrand = lambda z: expit((difference + deviation * z) / tau) * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)  # noqa: E731
    expected = quad(integrand, -12, 12, epsabs=1e-12)[0]
    loc = np.array([[difference, 0.0]], "float32")
    values = [
        np.exp(
            to_numpy(
                log_expected_softmax(loc, np.full_like(loc, scale), factor, quasi_random((0, s), 4096, 2, 1, np), tau)
            )[0, 0]
        )
        for s in range(16)
    ]
    error = np.std(values, ddof=1) / 4
    assert abs(np.mean(values) - expected) < 7 * error  # Student's t, 15 degrees of freedom: 4e-6
    assert error < 1e-4


EXTREMES = {
    "large logits, loud noise": ([1e4, -1e4, 0.0, 9e3, -5e3, 1e4], [1e3] * 6),
    "one quiet class among loud ones": ([0.0, 5.0, -5.0, 2.0, 1.0, 0.0], [1e3, 1e3, 1e-3, 1e3, 1e3, 1e3]),
    "all equal": ([3.0] * 6, [1.0] * 6),
    "large offset": ([1e4, 1e4 - 1, 1e4 + 2, 1e4, 1e4, 1e4 + 1], [0.5] * 6),
}


def extreme(name, kind):
    """Arguments of an extreme case; the factor of each kind is as loud as the diagonal."""
    loc, scale = (np.array([x], "float32") for x in EXTREMES[name])
    factor = np.random.default_rng(0).normal(size=(1, UNITS, FACTORS)).astype("float32")
    arguments = {"loc": loc, "scale_diag": scale, "temperature": np.float32(1.5)}
    added = {
        "diagonal": {},
        "full": {"factor": factor * scale[..., None]},
        "parameter_efficient": {"factor": factor[0], "row_scale": scale},
    }
    return {**arguments, **added[kind]}


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize(("kind", "options"), [
    pytest.param("diagonal", {"chunk_size": 16}, marks=pytest.mark.once),
    ("full", {"chunk_size": 16}),
    pytest.param("full", PLAIN, marks=pytest.mark.once),
    pytest.param("parameter_efficient", {"chunk_size": 16}, marks=pytest.mark.once),
])  # fmt: skip
def test_extremes_are_finite_and_agree_with_float64(name, kind, options):
    arguments, nodes = extreme(name, kind), nodes_of(kind)
    assert_allclose(evaluate(arguments, nodes, **options), oracle(arguments, nodes), rtol=1e-3, atol=1e-3)
    for label in range(0, UNITS, 2):  # the quiet class is one of them
        upstream = -np.eye(UNITS, dtype="float32")[[label]]
        for parameter, gradient in gradients(arguments, nodes, upstream, **options).items():
            assert np.all(np.isfinite(gradient)), (parameter, label)
            check_slope(oracle, arguments, nodes, upstream, parameter, gradient)


def check_slope(oracle, arguments, nodes, upstream, parameter, gradient):
    """Asserts that the float64 oracle has this gradient along a random direction, to 1e-3 of the gradient's size."""
    value = np.float64(arguments[parameter])
    direction = np.random.default_rng(0).normal(size=value.shape)
    step = 1e-4 if parameter == "loc" else 1e-7 * np.abs(value).max()
    ends = [
        np.sum(oracle({**arguments, parameter: value + sign * step * direction}, nodes) * upstream) for sign in (1, -1)
    ]
    slope, size = (ends[0] - ends[1]) / (2 * step), np.sum(np.abs(gradient * direction))
    assert_allclose(np.sum(gradient * direction), slope, rtol=1e-3, atol=1e-3 * max(size, 1.0), err_msg=parameter)


def check_hard_example(function):
    """Asserts a finite loss above that of p = 1e-12 and a gradient that still pulls the label up."""
    loc = np.array([[30.0, -30.0, 0.0]], "float32")

    def loss(tensors):
        return -ops.sum(function(*tensors)[..., 1])

    value, (gradient,) = value_and_gradients(loss, [loc])
    assert np.isfinite(value)
    assert value > -np.log(1e-12)
    assert gradient[0, 1] < -0.5


def test_a_mislabelled_example_keeps_its_gradient():
    nodes = pseudo_random((0, 0), 64, 3, 0, np)
    for options in ({"chunk_size": 16}, PLAIN):
        check_hard_example(
            lambda loc, options=options: log_expected_softmax(loc, ops.ones_like(loc), None, nodes, **options)
        )


def test_float64_where_the_backend_computes_in_it():
    if keras.config.backend() != "tensorflow":
        pytest.skip("matrix products are float32 here: torch by Keras' choice, JAX without its x64 mode")
    arguments, nodes = {name: np.float64(value) for name, value in problem("full").items()}, nodes_of("full")
    log_p = evaluate(arguments, nodes)
    assert log_p.dtype == "float64"
    assert_allclose(log_p, oracle(arguments, nodes), rtol=1e-12, atol=1e-12)


def test_nodes_of_another_size_are_refused():
    arguments, nodes = problem("full"), pseudo_random((0, 0), 8, UNITS - 1, FACTORS, np)
    with refuses(r"`nodes` must have the 6 units of the distribution. Received: 5"):
        evaluate(arguments, nodes)
    with refuses(r"`nodes` must have the 3 factors of the distribution. Received: 2"):
        evaluate(arguments, pseudo_random((0, 0), 8, UNITS, 2, np))


def test_as_many_classes_as_imagenet_21k():
    rng, shape = np.random.default_rng(0), (2, 21_843)
    loc, row_scale = rng.normal(size=(2, *shape)).astype("float32")
    arguments = {
        "loc": loc,
        "scale_diag": np.ones(shape, "float32"),
        "factor": np.ones((shape[1], 2), "float32"),
        "row_scale": row_scale,
    }
    arguments["temperature"] = np.float32(0.4)
    nodes = quasi_random((0, 0), 3, shape[1], 2, np)
    assert_allclose(evaluate(arguments, nodes), oracle(arguments, nodes), rtol=1e-5, atol=1e-5)
    assert all(
        np.all(np.isfinite(gradient)) for gradient in gradients(arguments, nodes, np.ones(shape, "float32")).values()
    )


def test_plain_operations_have_second_derivatives():
    arguments, nodes = problem("full", batch=(1,)), nodes_of("full")
    direction = np.random.default_rng(3).normal(size=(1, UNITS)).astype("float32")

    def loss(t):
        moved = ops.convert_to_tensor(arguments["loc"]) + t * ops.convert_to_tensor(direction)
        return log_expected_softmax(**{**arguments, "loc": moved}, nodes=nodes, **PLAIN)[0, 0]

    step = 1e-3
    ends = [
        oracle({**arguments, "loc": np.float64(arguments["loc"]) + t * direction}, nodes)[0, 0]
        for t in (-step, 0.0, step)
    ]
    assert_allclose(second_derivative(loss, 0.0), (ends[0] - 2 * ends[1] + ends[2]) / step**2, rtol=1e-3)
