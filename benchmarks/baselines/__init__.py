"""Baselines: methods of the literature that are not worth a place in the package, kept to be compared.

The arena compares 27 methods on digits, and some more in later runs (docs/rivals.md). Each docstring begins with its
result: points of accuracy on clean test labels, compared with crossentropy that stops early, both with a Dense head,
means of five seeds. "Better" and "worse" mean by more than two standard errors.
"""

from benchmarks.baselines.active_passive import ActivePassiveCrossentropy
from benchmarks.baselines.anchors import estimate_by_anchors
from benchmarks.baselines.backward_corrected import BackwardCorrectedCrossentropy
from benchmarks.baselines.bootstrapped import BootstrappedCrossentropy
from benchmarks.baselines.density import density_subsets, stage_weights
from benchmarks.baselines.edward2 import from_edward2
from benchmarks.baselines.epsilon_softmax import EpsilonSoftmaxCrossentropy
from benchmarks.baselines.label_wave import LabelWave
from benchmarks.baselines.logistic_normal import LogisticNormal
from benchmarks.baselines.mentor_mix import MentorMix
from benchmarks.baselines.reference import reference_weights
from benchmarks.baselines.trace import Trace
from benchmarks.baselines.unit_diagonal import UnitDiagonal

__all__ = [
    "ActivePassiveCrossentropy",
    "BackwardCorrectedCrossentropy",
    "BootstrappedCrossentropy",
    "EpsilonSoftmaxCrossentropy",
    "LabelWave",
    "LogisticNormal",
    "MentorMix",
    "Trace",
    "UnitDiagonal",
    "density_subsets",
    "estimate_by_anchors",
    "from_edward2",
    "reference_weights",
    "stage_weights",
]
