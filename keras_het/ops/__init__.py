"""Pure functions of tensors, written against `keras.ops`; noise is always an argument.

Users need none of them. A link, a covariance or an integrator of a new kind takes them from their modules.
"""
