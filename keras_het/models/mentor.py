"""A small network that tells wrong labels from right ones by how a model learns them."""

import keras

from keras_het.base.validation import check_integer


def mentor_net(num_classes: int, hidden: int = 20) -> keras.Model:
    """Returns a small network that weighs examples by their losses: the learned curriculum of `SelfPacedCrossentropy`.

    Train it on examples whose labels are known to be right or wrong, which `callbacks.MentorExamples` collects while
    another model learns. Its features are losses, so it also serves another model of the same data, or of similar data.

    Args:
        num_classes: K >= 2.
        hidden: the width of its hidden layer, at least 1.
    Input shape: `[features, labels]`. The features `(B, 3)` are the loss, the loss minus the threshold of
        `SelfPacedCrossentropy`, and the share of the training that is done. The labels are vectors, `(B, K)`, which
        become two numbers, as in an embedding.
    Output shape: `(B, 1)`: the probability that the label is right.
    Returns:
        a compiled model: `mentor.fit(examples.inputs, examples.is_right)`.
    Raises:
        ValueError: for numbers out of range.
    Source: Jiang et al., ICML 2018, section 4, but for their LSTM over the losses of an example in several epochs.

    Example:
        >>> import numpy as np
        >>> mentor = mentor_net(num_classes=3)
        >>> mentor.predict([np.zeros((4, 3)), np.eye(3)[[0, 1, 2, 0]]], verbose=0).shape
        (4, 1)
    """
    check_integer("num_classes", num_classes, 2)
    check_integer("hidden", hidden, 1)
    features, labels = keras.Input((3,), name="features"), keras.Input((num_classes,), name="labels")
    embedded = keras.layers.Dense(2, use_bias=False, name="embedding")(labels)
    joined = keras.layers.Concatenate()([features, embedded])
    right = keras.layers.Dense(1, "sigmoid", name="is_right")(keras.layers.Dense(hidden, "relu", name="hidden")(joined))
    mentor = keras.Model([features, labels], right, name="mentor_net")
    mentor.compile(keras.optimizers.Adam(0.01), "binary_crossentropy")
    return mentor
