"""Heads on several devices: the layout of their weights for `keras.distribution`."""

from keras_het.distribution.layout_map import layout_map

__all__ = ["layout_map"]
