"""The trace of T as a penalty."""

import keras
import numpy as np
import pytest
from keras import ops

from benchmarks.baselines import Trace
from keras_het.layers import NoiseTransition
from tests.layers import test_noise_transition_annotators as annotators
from tests.layers.test_noise_transition import LABELS, LOSS, UNITS, T, X, make_model, rows

pytestmark = pytest.mark.once


def test_the_trace_against_numpy_and_its_descent():
    regularizer = Trace(0.3)
    value = float(regularizer(ops.convert_to_tensor(T.astype("float32"))))
    assert value == pytest.approx(0.3 * np.trace(T), rel=1e-4)
    assert regularizer.from_config(regularizer.get_config()).strength == 0.3
    layer = NoiseTransition(UNITS, regularizer=regularizer)
    model = make_model(layer)
    model.compile(keras.optimizers.SGD(0.1), LOSS)
    before = float(regularizer(rows(layer)))
    for _ in range(10):
        model.train_on_batch(X, LABELS)
    assert float(regularizer(rows(layer))) < before


def test_it_sums_over_annotators():
    annotators.test_a_regularizer_sums_over_annotators(Trace(0.3))


def test_a_negative_strength_is_refused():
    with pytest.raises(ValueError, match="`strength` must be a finite float32 number at least 0"):
        Trace(-1)
