"""One engine for every call that trains: it chooses methods, finds wrong labels, and chooses hyperparameters."""

from keras_het.training.candidates import (
    DEFAULTS,
    AnnotatorTransitions,
    Candidate,
    EarlyLearning,
    EarlyStopping,
    ForwardCorrection,
    Heteroscedastic,
    LabelSmoothing,
    LinearDiscriminant,
    MajorityVote,
)
from keras_het.training.choose import choose
from keras_het.training.clean import clean_labels
from keras_het.training.folds import cross_val_probabilities
from keras_het.training.held_out import noisy_nll
from keras_het.training.task import Task
from keras_het.training.tune import tune

__all__ = [
    "DEFAULTS",
    "AnnotatorTransitions",
    "Candidate",
    "EarlyLearning",
    "EarlyStopping",
    "ForwardCorrection",
    "Heteroscedastic",
    "LabelSmoothing",
    "LinearDiscriminant",
    "MajorityVote",
    "Task",
    "choose",
    "clean_labels",
    "cross_val_probabilities",
    "noisy_nll",
    "tune",
]
