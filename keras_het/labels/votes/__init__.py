"""Votes of several annotators: true classes, and the quality of the annotators."""
