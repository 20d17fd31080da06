"""Label tools: label errors, training methods, annotators, verified labels and synthetic noise."""

import importlib
import sys
from typing import Any

from keras_het.labels import methods
from keras_het.labels.aggregation import aggregate
from keras_het.labels.annotator_confusion import annotators
from keras_het.labels.checking_order import next_labels
from keras_het.labels.choice import choose
from keras_het.labels.cleaning import clean
from keras_het.labels.corrections import apply_corrections
from keras_het.labels.diagnosis import diagnose
from keras_het.labels.issues import find_issues
from keras_het.labels.methods import METHODS, Method
from keras_het.labels.remaining_errors import errors_left
from keras_het.labels.reports import report
from keras_het.labels.synthetic import corrupt, pair_flip, symmetric
from keras_het.labels.verified import verify_accuracy

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
    "methods",
    "next_labels",
    "pair_flip",
    "report",
    "symmetric",
    "verify_accuracy",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "Classifier"])


def __getattr__(name: str) -> Any:
    """Imports `Classifier` on first use, because it needs scikit-learn."""
    if name != "Classifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    try:
        return importlib.import_module("keras_het.labels.classifier").Classifier
    except ModuleNotFoundError as error:
        raise ImportError(f"Classifier needs scikit-learn: pip install scikit-learn. {error}") from error
