"""Callbacks that release or log a `NoiseTransition`, and one that records the training examples by epoch."""

from keras_het.callbacks.training_dynamics import TrainingDynamics
from keras_het.callbacks.transitions import ReleaseTransition, TransitionMonitor

__all__ = [
    "ReleaseTransition",
    "TrainingDynamics",
    "TransitionMonitor",
]
