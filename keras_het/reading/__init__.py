"""Readers of finished models: their outputs, losses, metrics and data. Nothing here changes a model."""
