"""Report on label errors, the kind of label noise, and calibration: pip install matplotlib jinja2 pillow."""

from keras_het.labels.reports.page import report

__all__ = ["report"]
