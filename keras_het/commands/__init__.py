"""The commands of `python -m keras_het`: demo, report and doctor."""
