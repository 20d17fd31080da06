"""Callbacks: what becomes of the noise of a head, and of a `NoiseTransition`, which is released when the base model has
learned; the share of examples that a loss keeps; and what a mentor learns from.
"""

from keras_het.callbacks.heteroscedastic_monitor import HeteroscedasticMonitor
from keras_het.callbacks.kept_share import KeptShare
from keras_het.callbacks.mentor_examples import MentorExamples
from keras_het.callbacks.transitions import ReleaseTransition, TransitionMonitor

__all__ = [
    "HeteroscedasticMonitor",
    "KeptShare",
    "MentorExamples",
    "ReleaseTransition",
    "TransitionMonitor",
]
