"""Selection by held-out labels, which may be noisy: it trains models, and needs no clean label."""

from keras_het.selection.cross_validation import cross_val_probabilities
from keras_het.selection.held_out import noisy_nll
from keras_het.selection.tune import tune

__all__ = ["cross_val_probabilities", "noisy_nll", "tune"]
