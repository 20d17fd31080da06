"""One engine for every call that trains: it chooses methods, finds wrong labels, and chooses hyperparameters."""

from keras_het.training.candidates import (
    DEFAULTS,
    Candidate,
    EarlyLearning,
    EarlyStopping,
    ForwardCorrection,
    Heteroscedastic,
    LabelSmoothing,
    LinearDiscriminant,
    Task,
)
from keras_het.training.choose import choose
from keras_het.training.clean import clean_labels
from keras_het.training.folds import cross_val_probabilities
from keras_het.training.held_out import noisy_nll
from keras_het.training.tune import tune

__all__ = [
    "DEFAULTS",
    "Candidate",
    "EarlyLearning",
    "EarlyStopping",
    "ForwardCorrection",
    "Heteroscedastic",
    "LabelSmoothing",
    "LinearDiscriminant",
    "Task",
    "choose",
    "clean_labels",
    "cross_val_probabilities",
    "noisy_nll",
    "tune",
]
