"""Objects that files hold, of every kind of the package, with inputs for those that are layers."""

import json
from typing import Any, NamedTuple

import keras
import numpy as np

import keras_het
from keras_het import covariances, integrators, layers, links, losses, metrics
from keras_het.models.temperature_scaler import TemperatureScaler

UNITS, FEATURES = 4, 6
X = np.random.default_rng(0).normal(size=(3, FEATURES)).astype("float32")
LOG_P = np.log(np.full((3, UNITS), 1 / UNITS, "float32"))
T = np.full((UNITS, UNITS), 0.1) + 0.6 * np.eye(UNITS)


def model(*ending):
    return keras.Sequential([keras.Input((FEATURES,)), *ending])


def early_learning():
    plain = model(keras.layers.Dense(UNITS))
    return keras_het.models.EarlyLearning(plain.inputs, plain.outputs[0], 10)


def subjects():
    """The objects by name, each with inputs, or None if it is no layer."""
    head = layers.HeteroscedasticDense
    small = integrators.QuasiMonteCarlo(8)
    heads = {
        "full head": head(UNITS, 2, integrator=small, seed=0),
        "efficient head": head(UNITS, 2, parameter_efficient=True, integrator=integrators.MonteCarlo(8), seed=0),
        "narrow head": head(UNITS, covariance=covariances.Narrow(2, width=3), integrator=small, seed=0),
        "latent head": head(UNITS, covariance=covariances.Latent(2), link="sigmoid", seed=0),
        "diagonal head": head(UNITS, covariance=covariances.Diagonal(), integrator=small, seed=0),
        "regression": layers.HeteroscedasticNormal(UNITS, 1, seed=0),
        "joint head": layers.JointHeteroscedasticDense(UNITS, 2, seed=0),
    }
    flips = {
        "transition": layers.NoiseTransition(UNITS, regularizer=keras.regularizers.L2(0.1)),
        "given transition": layers.NoiseTransition(UNITS, transition=T, trainable=False),
        "annotators": layers.NoiseTransition(UNITS, num_annotators=3),
        "scaler": TemperatureScaler(temperature=2.0),
    }
    others = [
        links.Sigmoid(),
        integrators.MonteCarlo(8),
        integrators.QuasiMonteCarlo(8, chunk_size=3),
        losses.ForwardCorrectedCrossentropy(T, from_logits=True),
        losses.SmoothedCrossentropy(0.2),
        losses.GeneralizedCrossentropy(0.6),
        losses.SymmetricCrossentropy(0.3, 0.8),
        losses.AnnotatorsLoss(),
        losses.MultivariateNormalNLL(),
        losses.JointMultiLabelCrossentropy(),
        metrics.ExpectedCalibrationError(),
        model(keras.layers.Dense(UNITS), TemperatureScaler()),
        early_learning(),
    ]
    return {
        **{name: (made, X) for name, made in heads.items()},
        **{name: (made, LOG_P) for name, made in flips.items()},
        **{type(made).__name__: (made, None) for made in others},
    }


class Subject(NamedTuple):
    """An object as a file holds it, and inputs if it is a layer."""

    config: Any
    x: Any


def serialized():
    made = {
        name: Subject(json.loads(json.dumps(keras.saving.serialize_keras_object(each))), x)
        for name, (each, x) in subjects().items()
    }
    keras.utils.clear_session()
    return made


KNOWN = serialized()
