"""Small heads of every kind under test, with data and models for them."""

import functools

import keras
import numpy as np

from keras_het import links
from keras_het.base.serializable import resolve
from keras_het.covariances import Latent, Narrow
from keras_het.integrators import MonteCarlo, QuasiMonteCarlo, Taylor
from keras_het.layers import HeteroscedasticDense
from keras_het.layers.noisy_dense import make_covariance
from tests.marks import grid

UNITS, FEATURES, EXAMPLES = 4, 6, 8
NODES = 84  # a loop over chunks, and a remainder
HEADS = {
    "full": {"num_factors": 2, "integrator": QuasiMonteCarlo(NODES)},
    "parameter-efficient": {"num_factors": 2, "parameter_efficient": True, "integrator": QuasiMonteCarlo(NODES)},
    "diagonal": {"num_factors": 0, "integrator": QuasiMonteCarlo(NODES)},
    "sigmoid": {"num_factors": 2, "link": "sigmoid"},
    "taylor": {"num_factors": 2, "integrator": Taylor(), "initial_scale": 0.1},
    "narrow": {"covariance": functools.partial(Narrow, 2, width=3), "integrator": QuasiMonteCarlo(NODES)},
    "latent": {"covariance": Latent, "integrator": QuasiMonteCarlo(NODES)},
    "latent sigmoid": {"covariance": Latent, "link": "sigmoid"},
    "sampled sigmoid": {"num_factors": 2, "link": "sigmoid", "integrator": MonteCarlo(NODES)},
}
# Together these reach every covariance, link and integrator but those that parity compares on every backend.
EVERY_HEAD = grid(HEADS, span=["full", "latent sigmoid"])
X = np.random.default_rng(7).normal(size=(EXAMPLES, FEATURES)).astype("float32")
LABELS = np.random.default_rng(8).integers(UNITS, size=EXAMPLES)


OF_COVARIANCE = ("initializer", "regularizer", "initial_scale", "min_scale", "learning_rate_multiplier")


def make_head(kind, units=UNITS, seed=1, **arguments):
    """Returns a new, unbuilt head of this kind; passes arguments of its covariance on."""
    return HeteroscedasticDense(units, seed=seed, **with_covariance(**{**HEADS[kind], **arguments}))


def with_covariance(covariance=None, **arguments):
    """Arguments of a head, with an object for a class of covariance, and wherever the short spelling is too short."""
    own = {name: arguments.pop(name) for name in OF_COVARIANCE if name in arguments}
    if covariance is not None:
        return {**arguments, "covariance": covariance(**own)}
    if not own:
        return arguments
    short = {name: arguments.pop(name) for name in ("num_factors", "parameter_efficient") if name in arguments}
    return {**arguments, "covariance": make_covariance(**short, **own)}


def built_head(kind, features=FEATURES, weight_seed=0, **arguments):
    """Returns a head of this kind with weights from NumPy, even biases and the shared factor."""
    head = make_head(kind, **arguments)
    head.build((None, features))
    set_random_weights(head, weight_seed)
    return head


def set_random_weights(layer, seed=0, dtype="float32"):
    """Sets normal weights of standard deviation 0.5; keeps integer weights, the step counters."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        if weight.dtype == dtype:
            weight.assign(0.5 * rng.standard_normal(weight.shape))


def numpy_distribution(head, x):
    """Returns loc, scale_diag, factor and row_scale from `get_weights`, in float64."""
    kernel, bias, scale_kernel, scale_bias, *others = [
        weight.astype("float64") for weight in head.get_weights() if weight.dtype == "float32"
    ]
    loc, multiplier = x @ kernel + bias, head.covariance.learning_rate_multiplier
    unit = head.covariance.scale_unit
    affine = multiplier / unit * (x @ scale_kernel + scale_bias)
    scale_diag = unit * np.logaddexp(0, affine) + head.covariance.min_scale
    if head.parameter_efficient:
        row_kernel, row_bias, factor = others
        return loc, scale_diag, factor, multiplier * (x @ row_kernel + row_bias)
    if not head.num_factors:
        return loc, scale_diag, None, None
    if isinstance(head.covariance, Narrow):
        narrowing, factor_kernel, factor_bias = others
        factor_kernel = narrowing @ factor_kernel
    else:
        factor_kernel, factor_bias = others
    factor = multiplier / np.sqrt(head.num_factors) * (x @ factor_kernel + factor_bias)
    return loc, scale_diag, factor.reshape(*scale_diag.shape, head.num_factors), None


def make_model(head, *before, weight_seed=0, **compile_arguments):
    """Returns a compiled Sequential model of the layers `before` and the head, with weights from NumPy."""
    model = keras.Sequential([keras.Input((FEATURES,)), *before, head])
    set_random_weights(model, weight_seed)
    model.compile(**{"optimizer": keras.optimizers.SGD(0.2), "loss": make_loss(head.link), **compile_arguments})
    return model


def make_loss(link):
    return resolve(links.Link, link).loss()


def targets(link, labels=LABELS, units=UNITS):
    return labels if resolve(links.Link, link).activation == "softmax" else np.eye(units, dtype="float32")[labels]
