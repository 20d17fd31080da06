"""How the index of an example comes to a loss."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_het.losses import EarlyLearningRegularizedCrossentropy, GeneralizedCrossentropy, with_index
from keras_het.losses.indexed import IndexedCrossentropy


def test_weights_and_indices():
    np.testing.assert_array_equal(with_index(3), [[1, 0], [1, 1], [1, 2]])
    np.testing.assert_array_equal(with_index(2, [0.5, 2.0]), [[0.5, 0], [2.0, 1]])
    assert with_index(2).dtype == "float32"


def attached():
    loss = EarlyLearningRegularizedCrossentropy(4, 3, from_logits=True)
    return loss.attach(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]))


@pytest.mark.refusal
@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: with_index(0), "`num_examples` must be an integer in [1, 16777216]. Received: num_examples=0"),
        (
            lambda: with_index((1 << 24) + 1),
            "`num_examples` must be an integer in [1, 16777216]. Received: num_examples=16777217",
        ),
        (lambda: with_index(3, [1.0]), "`sample_weight` must have shape (3,). Received: shape (1,)"),
        (
            lambda: attached()(np.zeros(4), np.ones((4, 3))),
            (
                "`sample_weight` must have the index of every example: "
                "`fit(x, y, sample_weight=keras_het.losses.with_index(len(y)))`; "
                "data of validation need none, after training. Received: no index"
            ),
        ),
        (
            lambda: attached()(np.zeros((1, 4)), np.ones((1, 4, 3)), with_index(4)),
            "`y_pred` must have shape (B, K): an example has one index. Received: shape (1, 4, 3)",
        ),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(ValueError) as error:
        call()
    assert str(error.value) == text


def test_indices_that_half_precision_would_round_are_refused():
    loss = EarlyLearningRegularizedCrossentropy(3000, 3, from_logits=True)
    weights = ops.cast(with_index(3000)[:4], "float16")
    with pytest.raises(ValueError, match="`sample_weight` must be float32 for more than 2048 examples"):
        loss.attach(keras.Sequential())(np.zeros(4), np.zeros((4, 3)), weights)


def test_a_loss_that_remembers_nothing_takes_no_index():
    with pytest.raises(
        ValueError, match=r"weights with an index are for losses that remember .* Received: shape \(4, 2\)"
    ):
        GeneralizedCrossentropy(from_logits=True)(np.zeros(4), np.zeros((4, 3), "float32"), with_index(4))


def test_a_subclass_must_define_it():
    loss = IndexedCrossentropy(4).attach(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]))
    with pytest.raises(NotImplementedError, match="IndexedCrossentropy must define indexed_crossentropy"):
        loss(np.zeros(4), np.ones((4, 3)), with_index(4))
