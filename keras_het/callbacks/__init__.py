"""Callbacks: two for models with a `NoiseTransition`, and one that records every training example by epoch."""

from keras_het.callbacks.training_dynamics import TrainingDynamics
from keras_het.callbacks.transitions import ReleaseTransition, TransitionMonitor

__all__ = ["ReleaseTransition", "TrainingDynamics", "TransitionMonitor"]
