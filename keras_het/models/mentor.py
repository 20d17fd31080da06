"""A small network that tells wrong labels from right ones by how a model learns them."""

import keras

from keras_het.validation import check_integer


def mentor_net(num_classes: int, hidden: int = 20) -> keras.Model:
    """A small network that weighs an example by its loss in training: the learned curriculum of
    `SelfPacedCrossentropy`.

    It is trained on examples whose labels are known to be right or wrong, as `callbacks.MentorExamples` collects them
    while another model learns. Its numbers are losses, so it is of use for another model of the same data, or of data
    like it.

    Args:
        num_classes: K >= 2.
        hidden: width of its hidden layer.
    Input: `[features, labels]`. Features `(B, 3)`: the loss, by how much it is above the threshold of
        `SelfPacedCrossentropy`, the share of the training that is done. Labels as vectors, `(B, K)`, which become two
        numbers, as an embedding would make them.
    Output shape: `(B, 1)`: the probability that the label is right.
    Returns:
        a compiled model: `mentor.fit(examples.inputs, examples.is_right)`.
    Raises:
        ValueError: for other numbers.
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
