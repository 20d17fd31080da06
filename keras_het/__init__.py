"""Classification under noisy labels in Keras 3: heteroscedastic heads for JAX, TensorFlow and PyTorch."""

import importlib
import sys

import keras_het.base.environment as _environment  # noqa: F401 first: later imports would fail with an unclear error
from keras_het import (
    analysis,
    callbacks,
    covariances,
    distribution,
    explain,
    integrators,
    label_noise,
    layers,
    links,
    losses,
    metrics,
    models,
    training,
    truth,
)
from keras_het.base.missing_name import missing_name as _missing_name
from keras_het.base.version import __version__ as __version__
from keras_het.labels.report import report
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.layers.estimate_cost import estimate_cost
from keras_het.models import DeepEnsemble, heteroscedastic, homoscedastic
from keras_het.reading.check import check
from keras_het.training import choose, clean_labels, tune

__all__ = [
    "DeepEnsemble",
    "HeteroscedasticDense",
    "NoiseTransition",
    "analysis",
    "callbacks",
    "check",
    "choose",
    "clean_labels",
    "covariances",
    "distribution",
    "estimate_cost",
    "explain",
    "heteroscedastic",
    "homoscedastic",
    "integrators",
    "label_noise",
    "layers",
    "links",
    "losses",
    "metrics",
    "models",
    "report",
    "training",
    "truth",
    "tune",
]


ESTIMATORS = {"HeteroscedasticClassifier": "classifier", "NoisyLabelClassifier": "noisy_label_classifier"}


def __dir__() -> list[str]:
    return sorted([*__all__, *ESTIMATORS, "__version__"])


def __getattr__(name: str) -> type:
    """Imports the classes that need scikit-learn only when they are used."""
    if name not in ESTIMATORS:
        raise _missing_name(sys.modules[__name__], name)
    try:
        module = importlib.import_module(f"keras_het.estimator.{ESTIMATORS[name]}")
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} needs scikit-learn: pip install scikit-learn. {error}") from error
    return getattr(module, name)
