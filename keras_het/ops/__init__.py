"""Pure functions of tensors, written against `keras.ops`; noise is always an argument.

Import them from their modules to write your own link, covariance or integrator.
"""
