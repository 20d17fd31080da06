"""Settings for the whole process, beside those of `keras.config`."""

from keras_het.config.blocks import compile_blocks

__all__ = ["compile_blocks"]
