"""A page about probably wrong labels, confused classes, and how far probabilities can be trusted.

It needs three packages: pip install matplotlib jinja2 pillow.
"""

from keras_het.report.page import report

__all__ = ["report"]
