"""Seconds, memory and errors of heads, losses and covariances."""
