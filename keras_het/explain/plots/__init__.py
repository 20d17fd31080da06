"""Figures of results computed elsewhere; they need Matplotlib: pip install matplotlib.

Each function draws on `ax`, or on a new figure, and returns the axes. It opens no window and changes no setting of
other figures. Text, edges and the middle of colour maps follow the style in use, light or dark.
"""

from keras_het.explain.plots.drawing import covariance, pairs, reliability

__all__ = [
    "covariance",
    "pairs",
    "reliability",
]
