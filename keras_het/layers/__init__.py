"""Layers, a file each."""

from keras_het.layers.heteroscedastic_dense import HeteroscedasticDense

__all__ = ["HeteroscedasticDense"]
