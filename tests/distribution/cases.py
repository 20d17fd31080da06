"""The models that several devices train: every head and link, layers and losses beside them, small, with data."""

import functools
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het import covariances, integrators, layers, losses
from keras_het.models import DistributionModel, EarlyLearning, with_index

UNITS, FEATURES, BATCH, STEPS = 8, 5, 16, 50
EXAMPLES, RNG = BATCH * STEPS, np.random.default_rng(0)
X = RNG.normal(size=(EXAMPLES, FEATURES)).astype("float32")
CLASSES = RNG.integers(UNITS, size=EXAMPLES)
VECTORS = RNG.integers(2, size=(EXAMPLES, UNITS)).astype("float32")
TARGETS = RNG.normal(size=(EXAMPLES, UNITS)).astype("float32")
PIXELS = RNG.normal(size=(EXAMPLES, 3, FEATURES)).astype("float32")
MAPS = RNG.integers(UNITS, size=(EXAMPLES, 3))
SAMPLER = functools.partial(integrators.QuasiMonteCarlo, 32)

COVARIANCES = {
    "diagonal": covariances.Diagonal,
    "full": functools.partial(covariances.LowRank, 3),
    "narrow": functools.partial(covariances.Narrow, 3, width=2),
    "parameter-efficient": functools.partial(covariances.ParameterEfficient, 3),
    "latent": functools.partial(covariances.Latent, 3),
}
LINKS = ("softmax", "sigmoid")


class Case(NamedTuple):
    model: Any
    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None


def of_head(covariance: str, link: str = "softmax", integrator: Any = None, **arguments: Any) -> Case:
    integrator = integrator or (SAMPLER() if link == "softmax" else None)
    head = layers.HeteroscedasticDense(
        UNITS, covariance=COVARIANCES[covariance](), link=link, integrator=integrator, seed=0, name="head", **arguments
    )
    return compiled(network(head), head.link.loss(), X, VECTORS if link == "sigmoid" else CLASSES)


def network(*last: Any) -> keras.Model:
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(6, "relu", name="features"), *last])


def compiled(model: keras.Model, loss: Any, x: np.ndarray, y: np.ndarray, weight: Any = None) -> Case:
    """A case of a model; on PyTorch and with replicas of TensorFlow nothing is compiled."""
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, jit_compile=keras.config.backend() == "jax")
    return Case(model, x, y, weight)


def of_transition() -> Case:
    head = layers.HeteroscedasticDense(UNITS, 3, integrator=SAMPLER(), seed=0, name="head")
    transition = layers.NoiseTransition(UNITS, regularizer=keras.regularizers.L2(0.01))
    return compiled(network(head, transition), head.link.loss(), X, CLASSES)


def of_distribution(kind: Any, loss: Any, x: np.ndarray, y: np.ndarray) -> Case:
    inputs, head = keras.Input(x.shape[1:]), kind(UNITS, 3, seed=0, name="head")
    return compiled(DistributionModel(inputs, head(inputs)), loss, x, y)


def of_early_learning() -> Case:
    plain = network(keras.layers.Dense(UNITS, name="logits"))
    model = EarlyLearning(plain.inputs, plain.outputs[0], EXAMPLES)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return compiled(model, loss, X, CLASSES, with_index(EXAMPLES))


CASES = {
    **{f"{kind} {link}": functools.partial(of_head, kind, link) for kind in COVARIANCES for link in LINKS},
    "full Monte Carlo": lambda: of_head("full", integrator=integrators.MonteCarlo(32)),
    "full, sampled sigmoid": lambda: of_head("full", "sigmoid", SAMPLER()),
    "full Taylor": lambda: of_head("full", integrator=integrators.Taylor()),
    "transition": of_transition,
    "label vectors": lambda: of_distribution(
        layers.JointHeteroscedasticDense, losses.JointMultiLabelCrossentropy(8), X, VECTORS
    ),
    "pixels": lambda: of_distribution(
        layers.StochasticSegmentation, losses.JointSegmentationCrossentropy(UNITS, 8), PIXELS, MAPS
    ),
    "targets": lambda: of_distribution(layers.HeteroscedasticNormal, losses.MultivariateNormalNLL(), X, TARGETS),
    "early learning": of_early_learning,
}
