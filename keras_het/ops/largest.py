"""A maximum that also serves an empty batch, and that stays on the accelerator."""

from keras import ops


def largest(x, least, axis):
    """The maximum over an axis, which keeps length one; at least `least`, and `least` for no entries.

    (`max` of Keras has `initial` for that, but on PyTorch its tensor is on the CPU, and it has another shape for an
    empty batch.)
    """
    if 0 in x.shape:
        return ops.sum(x, axis=axis, keepdims=True) + least  # the sum of nothing is 0
    return ops.maximum(ops.max(x, axis=axis, keepdims=True), least)
