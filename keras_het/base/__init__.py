"""Helpers that every part of the package can use; they need only Keras and NumPy."""
