"""A page about probably wrong labels, confused classes, and how far probabilities can be trusted.

It needs Matplotlib and Jinja: pip install "keras-het[report]".
"""

from keras_het.report.page import report

__all__ = ["report"]
