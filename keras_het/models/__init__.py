"""Whole models: conversion, joint distributions, early-learning regularisation and temperature scaling."""

from keras_het.models.conversion import heteroscedastic, homoscedastic
from keras_het.models.distribution_model import DistributionModel
from keras_het.models.early_learning import EarlyLearning, with_index
from keras_het.models.regression import heteroscedastic_regression
from keras_het.models.temperature_scaler import scale_temperature

__all__ = [
    "DistributionModel",
    "EarlyLearning",
    "heteroscedastic",
    "heteroscedastic_regression",
    "homoscedastic",
    "scale_temperature",
    "with_index",
]
