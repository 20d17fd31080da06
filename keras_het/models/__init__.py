"""Whole models: conversion of pretrained ones, and weights of other packages."""

from keras_het.models.conversion import heteroscedastic, homoscedastic
from keras_het.models.edward2 import from_edward2

__all__ = ["from_edward2", "heteroscedastic", "homoscedastic"]
