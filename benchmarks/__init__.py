"""Experiments and measurements of keras_het: the arena, costs, labels, and what they share; README.md lists them."""
