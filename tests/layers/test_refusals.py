"""Every refusal names the argument, the rule and the value received."""

import re

import keras
import numpy as np
import pytest
from keras import ops

import keras_het
from keras_het.covariances import Diagonal, Latent, LowRank, Narrow, ParameterEfficient
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense, HeteroscedasticNormal, JointHeteroscedasticDense, NoiseTransition
from keras_het.models.temperature_scaler import TemperatureScaler
from tests.checks import refusals, refused_arguments
from tests.common import built, compiled, refuses, session, sparse_crossentropy, to_numpy
from tests.gradients import layer_gradients
from tests.layers.test_noise_transition import LOG_P

pytestmark = pytest.mark.refusal

POSITIVE = "be a finite float32 number greater than 0"
SEED = "be an integer in [0, 2147483647]"
CLASSES = "be an integer in [1, 16777216]"
FACTORS = "`num_factors` must be None or an integer in "
SHAPE = "`transition` must have shape "
GIB = "T must have at most 1 GiB, but would have "
FLOAT32 = 'be "float32" or "float64"; '
OTHERS = ("relu", "sigmoid", "log_softmax", "nothing", len, 3)
HEAD = {
    "num_factors": [("...[1, units]. For no factors, use covariances.Diagonal(), or num_factors=0 of", -1, 2.5, 12)],
    "temperature": [(POSITIVE, 0, -1.0, float("nan"), 10**100, 1e-60, "warm")],
    "integrator": [("...or a serialised dict", ""), ("...'closed_form', 'taylor', or a serialised dict", "simpson")],
    "units": [('...2; one unit, for two classes, needs link="sigmoid"', 1)],
    "seed": [(SEED, -1, 1 << 31, 1.5)],
    "use_bias": [("be True or False", "no")],
    "dtype": [("", "float16", "int8_from_float32", "mixed_bfloat16")],
}  # fmt: skip
ACTIVATION = {
    "activation": [
        ('be None, for log-probabilities, or "softmax", for probabilities; "sigmoid" needs link="sigmoid"', *OTHERS)
    ],
    "initial_scale": [("be an argument of the covariance: covariance=keras_het.covariances.LowRank(...", 0.5)],
    "num_samples": [("be an argument of the integrator: integrator=keras_het.integrators.QuasiMonteCarlo(9)", 9)],
    "num_mc_samples": [("be an argument of the integrator: integrator=keras_het.integrators.QuasiMonteCarlo(9)", 9)],
    "test_mc_samples": [("...QuasiMonteCarlo(..., inference_samples=9)", 9)],
    "rank": [("be given as num_factors=2", 2)],
}
COST = {
    name: [("be ", value)]
    for name, value in {"units": 0, "features": 2.5, "batch": -1, "num_factors": 0, "memory": "2GB"}.items()
}


def latent(features=6, **arguments):
    covariance = Latent(arguments.pop("num_factors", None))
    return HeteroscedasticDense(4, covariance=covariance, **arguments)(np.zeros((1, features), "float32"))


def normal(*arguments, **named):
    return lambda: HeteroscedasticNormal(*arguments, **named)


def flips(*arguments, **named):
    return lambda: NoiseTransition(*arguments, **named)


def building(shape, *arguments, **named):
    return lambda: HeteroscedasticDense(*arguments, **named).build(shape)


def stored(matrix):
    layer = built(NoiseTransition(4, name="flips"), (None, 4))
    layer.load_own_variables({"transition": np.asarray(matrix, "float32")})


BYTES = "at most 16 GiB on each device, but would have ... Received: units=200000, num_factors="
STORED = "The stored weight `transition` of 'flips' must be finite and of shape (4, 4)."
NEGATIVE = np.eye(4) - 0.1 + 0.4 * np.roll(np.eye(4), 1, 1)
REFUSED = {
    **refused_arguments(HeteroscedasticDense, HEAD, units=10),
    **refused_arguments(keras_het.estimate_cost, COST, units=10, features=10),
    **refused_arguments(Narrow, {"width": [("be an integer ...", 0, -1, 2.5, "16", None, True)]}),
    **refused_arguments(NoiseTransition, {"num_classes": [("be an integer in [2, 16777216]", 1)]}),
    **refused_arguments(NoiseTransition, {"num_annotators": [(CLASSES, 0)]}, num_classes=3),
    **refused_arguments(
        NoiseTransition, {"dtype": [(FLOAT32, "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")]}, num_classes=4
    ),
    f"`units` must {CLASSES}. Received: units=0": lambda: HeteroscedasticDense(0, link="sigmoid"),
    "`link` must be a Link, one of the names 'softmax', 'sigmoid', or":
        lambda: HeteroscedasticDense(10, link="probit"),
    "Sigmoid, or define `closed_form` for the integrator ClosedForm. Received: link=Softmax()":
        lambda: (HeteroscedasticDense(10, integrator="closed_form")),
    "`parameter_efficient` must be False without factors. Received: parameter_efficient=True, num_factors=0":
        lambda: (HeteroscedasticDense(10, 0, parameter_efficient=True)),
    **refused_arguments(HeteroscedasticDense, ACTIVATION, units=3),
    "pass an activation by name, activation='softmax'. Received: num_factors='softmax'":
        lambda: HeteroscedasticDense(3, "softmax"),
    '"sigmoid", for probabilities; "softmax" needs link="softmax"':
        lambda: HeteroscedasticDense(3, link="sigmoid", activation="softmax"),
    "`activation` must be None: the layer returns a distribution":
        lambda: JointHeteroscedasticDense(3, activation="sigmoid"),
    "`rank` must be given as num_factors=2. Received: rank=2...": normal(2, rank=2),
    "512 MiB": lambda: HeteroscedasticDense(10**7, 0, integrator=QuasiMonteCarlo(256)),
    f"`num_factors` must {CLASSES}. Received: num_factors=0": lambda: latent(num_factors=0),
    "`covariance` must be None, or `parameter_efficient` its default": lambda: latent(parameter_efficient=True),
    FACTORS: normal(2, 3),
    f"{FACTORS}...Received: num_factors='relu'": normal(2, "relu"),
    "{'activation': 'relu'}": normal(2, activation="relu"),
    "`initial_scale` must be a finite float32 number": normal(2, initial_scale=0.0),
    "`covariance` must be None, or": normal(2, covariance=LowRank(1), initial_scale=2.0),
    "`covariance` must have noise of the targets": normal(2, covariance=Latent(2)),
    "`stop_features` must be True or False": normal(2, stop_features=1),
    "`level` must be a number in (0, 1). Received: level=1.0": lambda: normal(3, 2)().interval(np.zeros((1, 13)), 1.0),
    f"{GIB}13.411. Received: num_classes=60000, outlier_class=False": flips(60_000),
    f"{GIB}1.0001. Received: num_classes=16384, outlier_class=True": flips(16_384, outlier_class=True),
    "but would have 1.1176. Received: num_classes=1000...num_annotators=300": flips(1000, num_annotators=300),
    f"{SHAPE}(3, 3). Received: shape (4, 4)": flips(3, transition=np.eye(4)),
    f"{SHAPE}(4, 4)": flips(3, outlier_class=True, transition=np.eye(3)),
    "`transition` must be an array of numbers. Received: a list; could not convert":
        flips(2, transition=[["a", 0], [0, 1]]),
    "row 1 sums to 0.5": flips(2, transition=[[1, 0], [0.2, 0.3]]),
    f"{SHAPE}(3, 3) or (2, 3, 3). Received: shape (3, 3, 3)": flips(3, num_annotators=2, transition=[np.eye(3)] * 3),
    "`transition[1]` must have rows that sum to one. Received: row 0 sums to 2":
        flips(2, num_annotators=2, transition=[np.eye(2), 2 * np.eye(2)]),
    "size of T, 3 (num_classes, and one more with outlier_class=True). Received: input_shape=(64, 4)":
        lambda: (NoiseTransition(3)(LOG_P)),
    **{f"The input must have shape (..., D)...Received: input_shape={shape}": building(shape, 3)
       for shape in ((4,), (None,), (2, None))},
    "expected axis -1 of input shape to have value 4, but received input with shape (2, 5)":
        lambda: built(HeteroscedasticDense(3), (2, 4))(np.zeros((2, 5), "float32")),
    f"{BYTES}200000": building((None, 8), 200_000, 200_000, integrator=QuasiMonteCarlo(1)),
    f"{BYTES}200000...":
        building((None, 8), 200_000, 200_000, parameter_efficient=True, integrator=QuasiMonteCarlo(1)),
    STORED: lambda: stored(np.eye(4) * np.nan),
    f"{STORED} Received: shape (5, 5)": lambda: stored(np.eye(5)),
    "`transition` must have rows that sum to one. Received: row 0 sums to 2": lambda: stored(2 * np.eye(4)),
    "`transition` must not be negative. Received: -0.1 at [0, 2]": lambda: stored(NEGATIVE),
}  # fmt: skip


SCALES = {"min_scale": [("be a finite float32 number at least 0", -1e-3)], "initial_scale": [(POSITIVE, 0)]}
OF_COVARIANCES = [refused_arguments(kind, SCALES) for kind in (Diagonal, LowRank, ParameterEfficient, Latent)]
test_refusals = refusals(REFUSED, *OF_COVARIANCES, errors=(ValueError, TypeError))


@pytest.mark.smoke
def test_float64_is_obeyed_or_refused():
    if keras.config.backend() == "tensorflow":
        assert "float64" in str(HeteroscedasticDense(3, dtype="float64")(np.zeros((2, 4))).dtype)
    else:
        with refuses(r"`dtype` must be \"float32\" on the backend .* Received: dtype='float64'"):
            HeteroscedasticDense(3, dtype="float64")


@pytest.mark.parametrize(("shape", "text"), [
    (False, "`input_shape` must be a tuple of at least one size. Received: input_shape=False"),
    ({"a": 1}, "`input_shape` must be a tuple of at least one size. Received: input_shape={'a': 1}"),
    ((2, "x"), "`input_shape[-1]` must be an integer in [0, 4294967296]. Received: input_shape[-1]='x'"),
    ((2, 1 << 62), f"`input_shape[-1]` must be an integer in [0, 4294967296]. Received: input_shape[-1]={1 << 62}"),
], ids=["no shape", "names", "text", "huge"])  # fmt: skip
@pytest.mark.parametrize("layer", [HeteroscedasticDense(3), NoiseTransition(3), TemperatureScaler()], ids=repr)
def test_a_shape_of_a_hostile_file_is_refused_in_words(layer, shape, text):
    with refuses(f"^{re.escape(text)}$"):
        layer.build(shape)


@pytest.mark.parametrize("mode", ["full", "larger_than", "list_of_layers"])
def test_rematerialisation_is_refused(mode):
    """It would run the counter twice: silently on PyTorch, where the gradient is that of other noise than the loss."""
    options = {"larger_than": {"output_size_threshold": 1}, "list_of_layers": {"layer_names": ["head"]}}
    with keras.RematScope(mode=mode, **options.get(mode, {})):
        head = HeteroscedasticDense(3, name="head")
        with refuses(r"The head must not be rematerialised, because .* Received: the layer 'head' in such a scope"):
            head(np.zeros((2, 4), "float32"), training=True)
    with keras.RematScope(mode="list_of_layers", layer_names=["hidden"]):  # of other layers
        hidden = keras.layers.Dense(4, "relu", name="hidden")
        model = keras.Sequential([keras.Input((4,)), hidden, HeteroscedasticDense(3)])
        compiled(model, "sgd", sparse_crossentropy(), run_eagerly=True)
        model.fit(np.ones((8, 4)), np.arange(8) % 3, batch_size=4, verbose=0)
    assert int(to_numpy(model.layers[-1].clock.step)) == 2


@pytest.mark.skipif(keras.config.backend() != "torch", reason="only PyTorch has autocast")
def test_autocast_is_refused():
    import torch

    head, x = HeteroscedasticDense(3), np.zeros((2, 4), "float32")
    head(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for method in (head, head.logit_covariance, head.probabilities):
            with refuses(r"must be called outside `torch.autocast`.* Received: matrix products in torch.bfloat16"):
                method(x)
        with torch.autocast("cpu", enabled=False):
            assert head(x).dtype == torch.float32


@pytest.mark.skipif(keras.config.backend() != "torch", reason="only PyTorch has torch.func")
def test_functional_gradients_on_pytorch_need_plain_operations_and_the_stateless_call():
    import torch

    head = built(HeteroscedasticDense(3, integrator=QuasiMonteCarlo(8, chunk_size=8)), (None, 4))
    weights, state = (
        [v.value.detach() for v in part] for part in (head.trainable_variables, head.non_trainable_variables)
    )
    loss = lambda weights: head.stateless_call(weights, state, torch.ones(2, 4), training=True)[0][:, 0].sum()  # noqa: E731
    assert all(torch.isfinite(gradient).all() for gradient in torch.func.grad(loss)(weights))
    with pytest.raises(RuntimeError, match="in-place operation"):
        torch.func.grad(lambda x: head(x, training=True)[:, 0].sum())(torch.ones(2, 4))


@pytest.mark.smoke
@pytest.mark.parametrize("floatx", ["bfloat16", "float16"])
def test_a_training_step_in_a_session_of_half_precision(floatx):
    with session(floatx):
        head = built(HeteroscedasticDense(3, num_factors=2, seed=0), (None, 4))
        value, gradients = layer_gradients(head, lambda log_p: ops.sum(log_p[:, 0]), np.ones((2, 4), "float32"))
    assert np.isfinite(value)
    for name, gradient in gradients.items():
        assert gradient.dtype == "float32", name
        assert np.isfinite(gradient).all(), name


def test_a_head_that_was_refused_can_be_built_again():
    head = HeteroscedasticDense(3, covariance=Latent(20))
    with refuses("`num_factors` must be None or an integer"):
        head(np.zeros((2, 8), "float32"))
    assert tuple(head(np.zeros((2, 30), "float32")).shape) == (2, 3)
    head = HeteroscedasticDense(3, covariance=Latent(2), integrator=QuasiMonteCarlo(1 << 20))
    with refuses("`num_samples` must keep the table of nodes"):
        head(np.zeros((2, 200), "float32"))
    assert not head.weights
    head.integrator = QuasiMonteCarlo(16)
    assert tuple(head(np.zeros((2, 200), "float32")).shape) == (2, 3)
