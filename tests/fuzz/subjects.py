"""Objects that files hold, of every kind of the package, with inputs for those that are layers."""

import json
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_het import covariances, integrators, layers, losses, models
from keras_het.covariances.low_rank import PixelLowRank, UnitRows
from keras_het.models.rescaling import RescaledConstraint, RescaledRegularizer
from keras_het.models.temperature_scaler import TemperatureScaler

UNITS, FEATURES = 4, 6
X = np.random.default_rng(0).normal(size=(3, FEATURES)).astype("float32")
LOG_P = np.log(np.full((3, UNITS), 1 / UNITS, "float32"))
T = np.full((UNITS, UNITS), 0.1) + 0.6 * np.eye(UNITS)


def ends(layer):
    inputs = keras.Input((2,))
    return inputs, layer(inputs)


# How to make what needs arguments, or has sizes that may be None.
MADE = {
    "HeteroscedasticDense": lambda: layers.HeteroscedasticDense(4, seed=0),
    "NoiseTransition": lambda: layers.NoiseTransition(3, num_annotators=2),
    "Clock": lambda: layers.HeteroscedasticDense(4).clock,
    "UnitRows": lambda: UnitRows(2, seed=0),
    "Latent": lambda: covariances.Latent(2),
    "LowRank": lambda: covariances.LowRank(2),
    "Narrow": lambda: covariances.Narrow(2, width=3),
    "ParameterEfficient": lambda: covariances.ParameterEfficient(2),
    "MonteCarlo": lambda: integrators.MonteCarlo(8, inference_samples=8, chunk_size=4),
    "QuasiMonteCarlo": lambda: integrators.QuasiMonteCarlo(8, inference_samples=8, chunk_size=4),
    "ForwardCorrectedCrossentropy": lambda: losses.ForwardCorrectedCrossentropy(np.eye(2)),
    "EarlyLearning": lambda: models.EarlyLearning(*ends(keras.layers.Dense(2)), 4),
    "DistributionModel": lambda: models.DistributionModel(*ends(layers.JointHeteroscedasticDense(2, seed=0))),
    "HeteroscedasticNormal": lambda: layers.HeteroscedasticNormal(4, 2, seed=0),
    "JointHeteroscedasticDense": lambda: layers.JointHeteroscedasticDense(4, seed=0),
    "JointSegmentationCrossentropy": lambda: losses.JointSegmentationCrossentropy(2),
    "PixelLowRank": lambda: PixelLowRank(2),
    "RescaledConstraint": lambda: RescaledConstraint(keras.constraints.MaxNorm(), 2.0),
    "RescaledRegularizer": lambda: RescaledRegularizer(keras.regularizers.L2(), 2.0),
    "StochasticSegmentation": lambda: layers.StochasticSegmentation(4, seed=0),
}


KNOWN_TO_KERAS = sorted(keras.saving.get_custom_objects().items())
KINDS = [kind for name, kind in KNOWN_TO_KERAS if name.startswith("keras_het>") and isinstance(kind, type)]


def new(kind):
    return MADE.get(kind.__name__, kind)()


def subjects():
    head, small = layers.HeteroscedasticDense, integrators.QuasiMonteCarlo(8)
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
    of_logits = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(UNITS), TemperatureScaler()])
    return {
        **{name: (made, X) for name, made in heads.items()},
        **{name: (made, LOG_P) for name, made in flips.items()},
        **{kind.__name__: (new(kind), None) for kind in KINDS},
        "scaled model": (of_logits, None),
    }


class Subject(NamedTuple):
    config: Any
    x: Any


def serialized(made):
    return json.loads(json.dumps(keras.saving.serialize_keras_object(made)))


KNOWN = {name: Subject(serialized(made), x) for name, (made, x) in subjects().items()}
keras.utils.clear_session()
