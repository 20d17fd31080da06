"""Verified labels of a random sample: clean accuracy, and the label errors left."""
