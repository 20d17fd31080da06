"""The command of `python -m keras_het`: doctor."""
