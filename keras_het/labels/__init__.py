"""Label tools: errors, methods for noisy labels, annotators, verified labels and synthetic noise."""

from keras_het.labels import methods
from keras_het.labels.aggregation import aggregate
from keras_het.labels.annotators import annotators
from keras_het.labels.choose import choose
from keras_het.labels.clean import clean
from keras_het.labels.corrections import apply_corrections
from keras_het.labels.diagnosis import diagnose
from keras_het.labels.errors_left import errors_left
from keras_het.labels.issues import find_issues
from keras_het.labels.methods import METHODS, Method
from keras_het.labels.next_labels import next_labels
from keras_het.labels.report import report
from keras_het.labels.synthetic import corrupt, look_alike_transitions, pair_flip, symmetric
from keras_het.labels.verified import verified_mean, verify_accuracy
from keras_het.labels.votes import votes_from_table

__all__ = [
    "METHODS",
    "Method",
    "aggregate",
    "annotators",
    "apply_corrections",
    "choose",
    "clean",
    "corrupt",
    "diagnose",
    "errors_left",
    "find_issues",
    "look_alike_transitions",
    "methods",
    "next_labels",
    "pair_flip",
    "report",
    "symmetric",
    "verified_mean",
    "verify_accuracy",
    "votes_from_table",
]
