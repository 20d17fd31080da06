"""A page that says which labels are probably wrong, which classes are confused, and how far probabilities can be
trusted.

It needs Matplotlib and Jinja: pip install "keras-het[report]".
"""

from keras_het.report.findings import Findings, collect
from keras_het.report.page import report

__all__ = ["Findings", "collect", "report"]
