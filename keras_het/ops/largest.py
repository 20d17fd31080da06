"""A maximum that an empty batch has, too, and that stays on the accelerator."""

from keras import ops


def largest(x, least, axis):
    """The maximum over an axis, which stays as one of one entry; `least` if it would be less, or of nothing.

    (Keras' `max` has `initial` for that, but its tensor is on the processor on PyTorch, and has another shape for an
    empty batch.)
    """
    if 0 in x.shape:
        return ops.sum(x, axis=axis, keepdims=True) + least  # the sum of nothing is 0
    return ops.maximum(ops.max(x, axis=axis, keepdims=True), least)
