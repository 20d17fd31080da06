"""Every refusal names the argument, the rule and the value received."""

import numpy as np
import pytest
from keras import ops

import keras_het
from keras_het.constraints import RowStochastic
from keras_het.covariances import Latent, LowRank
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import (
    HeteroscedasticDense,
    HeteroscedasticNormal,
    JointHeteroscedasticDense,
    LearnedTemperature,
    NoiseTransition,
)
from tests.common import check_refusal, each_refusal, refused_arguments
from tests.layers.test_noise_transition import LOG_P

pytestmark = pytest.mark.refusal

POSITIVE = "be a finite float32 number greater than 0"
SEED = "be an integer in [0, 2147483647]"
CLASSES = "be an integer in [1, 16777216]"
FACTORS = "`num_factors` must be None or an integer in "
SHAPE = "`transition` must have shape "
GIB = "T must keep within 1 GiB, and has "
FLOAT32 = 'be "float32" or "float64"; '
OTHERS = ("relu", "sigmoid", "log_softmax", "nothing", len, 3)
HEAD = {
    "num_factors": [("be None or an integer in [1, units]; a diagonal covariance has 0", -1, 2.5, 12)],
    "temperature":
        [(POSITIVE, 0, -1.0, float("nan"), 10**400, 1e-60), ("be a number, or a LearnedTemperature(...)", "warm")],
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
    "units": [("be ", 0)],
    "features": [("be ", 2.5)],
    "batch": [("be ", -1)],
    "num_factors": [("be ", 0)],
    "memory": [("be ", "2GB")],
}


def latent(features=6, **arguments):
    covariance = Latent(arguments.pop("num_factors", None))
    return HeteroscedasticDense(4, covariance=covariance, **arguments)(np.zeros((1, features), "float32"))


def normal(*arguments, **named):
    return lambda: HeteroscedasticNormal(*arguments, **named)


def flips(*arguments, **named):
    return lambda: NoiseTransition(*arguments, **named)


def stored(matrix):
    """Loads a weight as from a file."""
    layer = NoiseTransition(4, name="flips")
    layer.build((None, 4))
    layer.load_own_variables({"transition": np.asarray(matrix, "float32")})


STORED = "The stored weight `transition` of 'flips' must be finite and of shape (4, 4)."
NEGATIVE = np.eye(4) - 0.1 + 0.4 * np.roll(np.eye(4), 1, 1)
REFUSED = {
    **refused_arguments(HeteroscedasticDense, HEAD, units=10),
    **refused_arguments(keras_het.estimate_cost, COST, units=10, features=10),
    **refused_arguments(LearnedTemperature, {"lower": [(POSITIVE, 0.0)]}),
    **refused_arguments(NoiseTransition, {"num_classes": [("be an integer in [2, 16777216]", 1)]}),
    **refused_arguments(NoiseTransition, {"num_annotators": [(CLASSES, 0)]}, num_classes=3),
    **refused_arguments(
        NoiseTransition, {"dtype": [(FLOAT32, "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")]}, num_classes=4
    ),
    f"`units` must {CLASSES}. Received: units=0": lambda: HeteroscedasticDense(0, link="sigmoid"),
    "`link` must be a Link, one of the names 'softmax', 'sigmoid', 'normal_cdf', or":
        lambda: HeteroscedasticDense(10, link="probit"),
    "NormalCDF, or have `closed_form` of its own, for the integrator ClosedForm. Received: link=Softmax()":
        lambda: (HeteroscedasticDense(10, integrator="closed_form")),
    "`parameter_efficient` must be False without factors. Received: parameter_efficient=True, num_factors=0":
        lambda: (HeteroscedasticDense(10, 0, parameter_efficient=True)),
    **refused_arguments(HeteroscedasticDense, ACTIVATION, units=3),
    "give an activation by name, activation='softmax'. Received: num_factors='softmax'":
        lambda: HeteroscedasticDense(3, "softmax"),
    '"sigmoid", for probabilities; "softmax" needs link="softmax"':
        lambda: HeteroscedasticDense(3, link="sigmoid", activation="softmax"),
    "`activation` must be None: the layer returns a distribution":
        lambda: JointHeteroscedasticDense(3, activation="sigmoid"),
    "`rank` must be given as num_factors=2. Received: rank=2...": normal(2, rank=2),
    "`temperature` must be given when the head is made...temperature=2.0. ...scale_temperature":
        lambda: setattr(HeteroscedasticDense(3), "temperature", 2.0),
    "512 MiB": lambda: HeteroscedasticDense(10**7, 0, integrator=QuasiMonteCarlo(256)),
    f"`num_factors` must {CLASSES}. Received: num_factors=0": lambda: latent(num_factors=0),
    "`covariance` must be None, or `parameter_efficient` its default": lambda: latent(parameter_efficient=True),
    "`upper` must be a finite float32 number greater than 2. Received: ": lambda: LearnedTemperature(2.0, 1.0),
    "`initial` must be a finite float32 number greater than 1": lambda: LearnedTemperature(1.0, 9.0, 0.5),
    "`initial` must be less than `upper`. Received: initial=9.0, upper=9.0": lambda: LearnedTemperature(1.0, 9.0, 9.0),
    FACTORS: normal(2, 3),
    "`activation` must be None": normal(2, "relu"),
    "`initial_scale` must be a finite float32 number": normal(2, initial_scale=0.0),
    "`covariance` must be None, or": normal(2, covariance=LowRank(1), initial_scale=2.0),
    "`covariance` must have noise of the targets": normal(2, covariance=Latent(2)),
    "`stop_features` must be True or False": normal(2, stop_features=1),
    "`level` must be in (0, 1)": lambda: normal(3, 2)().interval(np.zeros((1, 13)), 1.0),
    "`num_samples` must be an integer at least 1": lambda: normal(3, 2)().sample(np.zeros((1, 13)), 0),
    f"{GIB}13.411. Received: num_classes=60000, outlier_class=False": flips(60_000),
    f"{GIB}1.0001. Received: num_classes=16384, outlier_class=True": flips(16_384, outlier_class=True),
    "and has 1.1176. Received: num_classes=1000...num_annotators=300": flips(1000, num_annotators=300),
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
    "`lower` must be below 1 / 3": lambda: RowStochastic(0.5)(ops.ones((3, 3))),
    STORED: lambda: stored(np.eye(4) * np.nan),
    f"{STORED} Received: shape (5, 5)": lambda: stored(np.eye(5)),
    "`transition` must have rows that sum to one. Received: row 0 sums to 2": lambda: stored(2 * np.eye(4)),
    "`transition` must not be negative. Received: -0.1 at [0, 2]": lambda: stored(NEGATIVE),
}  # fmt: skip


@each_refusal(REFUSED)
def test_refusals(text, call):
    check_refusal(text, call)
