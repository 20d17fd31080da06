"""The loss that is given T."""

import numpy as np
import pytest
from keras import ops
from scipy import special

from keras_het.layers import NoiseTransition
from keras_het.losses import ForwardCorrectedCrossentropy
from tests.common import sparse_crossentropy, to_numpy
from tests.losses.cases import EXAMPLES, LABELS, LOGITS, UNITS, T


def number(tensor):
    return float(to_numpy(tensor))


@pytest.mark.parametrize("loss", [ForwardCorrectedCrossentropy])
def test_the_identity_is_the_plain_crossentropy(loss):
    plain = special.logsumexp(LOGITS, axis=-1) - LOGITS[np.arange(EXAMPLES), LABELS]
    assert number(loss(np.eye(UNITS), from_logits=True)(LABELS, LOGITS)) == pytest.approx(plain.mean(), rel=1e-5)


def test_the_forward_correction_is_the_layer_with_a_fixed_t():
    layer = NoiseTransition(UNITS, transition=T, trainable=False)
    noisy = layer(ops.log_softmax(LOGITS), training=True)
    theirs = sparse_crossentropy()(LABELS, noisy)
    assert number(ForwardCorrectedCrossentropy(T, from_logits=True)(LABELS, LOGITS)) == pytest.approx(
        number(theirs), rel=1e-5
    )
