"""Commands of `python -m keras_het`."""
