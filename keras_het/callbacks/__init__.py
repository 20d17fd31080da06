"""Callbacks that log the noise of a head or of a `NoiseTransition`, or steer training.

They release T when the base model has learned, remember what a model says of its training examples by epoch, and stop
training by that.
"""

from keras_het.callbacks.heteroscedastic_monitor import HeteroscedasticMonitor
from keras_het.callbacks.label_wave import LabelWave
from keras_het.callbacks.training_dynamics import TrainingDynamics
from keras_het.callbacks.transitions import ReleaseTransition, TransitionMonitor

__all__ = [
    "HeteroscedasticMonitor",
    "LabelWave",
    "ReleaseTransition",
    "TrainingDynamics",
    "TransitionMonitor",
]
