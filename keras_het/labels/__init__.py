"""Label tools: label errors, training methods, annotators, verified labels and synthetic noise."""

from keras_het.labels import methods
from keras_het.labels.choice import choose
from keras_het.labels.classifier import Classifier
from keras_het.labels.cleaning import clean
from keras_het.labels.issues.corrections import apply_corrections
from keras_het.labels.issues.page import report
from keras_het.labels.issues.ranking import find_issues
from keras_het.labels.synthetic import corrupt, pair_flip, symmetric
from keras_het.labels.verified.accuracy import verify_accuracy
from keras_het.labels.verified.errors_left import errors_left
from keras_het.labels.votes.aggregation import aggregate
from keras_het.labels.votes.annotators import annotators

__all__ = [
    "Classifier",
    "aggregate",
    "annotators",
    "apply_corrections",
    "choose",
    "clean",
    "corrupt",
    "errors_left",
    "find_issues",
    "methods",
    "pair_flip",
    "report",
    "symmetric",
    "verify_accuracy",
]
