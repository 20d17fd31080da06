"""Callbacks that log the noise of a head or of a `NoiseTransition`, or steer training.

They release T when the base model has learned, and remember what a model says of its training examples by epoch.
"""

from keras_het.callbacks.heteroscedastic_monitor import HeteroscedasticMonitor
from keras_het.callbacks.training_dynamics import TrainingDynamics
from keras_het.callbacks.transitions import ReleaseTransition, TransitionMonitor

__all__ = [
    "HeteroscedasticMonitor",
    "ReleaseTransition",
    "TrainingDynamics",
    "TransitionMonitor",
]
