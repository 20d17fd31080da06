"""Heteroscedastic output layers and label-noise tools for Keras 3, on JAX, TensorFlow and PyTorch."""

import importlib
import sys
from typing import Any

import keras_het.base.environment as _environment  # noqa: F401 first, because later imports would fail unclearly
from keras_het import (
    callbacks,
    covariances,
    distribution,
    explain,
    integrators,
    layers,
    links,
    losses,
    metrics,
    models,
    ops,
)
from keras_het.base.version import __version__ as __version__
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.layers.estimate_cost import estimate_cost
from keras_het.models import heteroscedastic, homoscedastic
from keras_het.reading.check import check

__all__ = [
    "HeteroscedasticDense",
    "NoiseTransition",
    "callbacks",
    "check",
    "covariances",
    "distribution",
    "estimate_cost",
    "explain",
    "heteroscedastic",
    "homoscedastic",
    "integrators",
    "labels",
    "layers",
    "links",
    "losses",
    "metrics",
    "models",
    "ops",
    "parity",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    """Imports `labels` and `parity` when they are used."""
    if name in ("labels", "parity"):
        try:
            return importlib.import_module(f"keras_het.{name}")
        except ModuleNotFoundError as error:
            if name != "labels":
                raise
            packages = "scikit-learn pandas jinja2"
            raise ImportError(f"keras_het.labels needs more packages: pip install {packages}. {error}") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
