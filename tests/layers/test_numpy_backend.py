"""Predictions on Keras' NumPy backend, which cannot train: they are those of the other backends."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once

PREDICT = """
import keras
import numpy as np
from keras_het.commands import doctor_reference

assert keras.config.backend() == "numpy"
head = doctor_reference.make_head()
inputs = np.linspace(-1.0, 1.0, 2 * doctor_reference.FEATURES, dtype="float32").reshape(2, -1)
model = keras.Sequential([keras.Input((doctor_reference.FEATURES,)), head])
_, expected = doctor_reference.stored()["outputs"]
np.testing.assert_allclose(model.predict(inputs, verbose=0), expected, rtol=0, atol=1e-5)
model.compile("sgd", head.link.loss())
try:
    model.fit(inputs, np.arange(2), verbose=0)
except NotImplementedError as error:
    print(error)
"""


def test_numpy_predicts_as_the_other_backends_and_keras_refuses_to_train_there():
    environment = {**os.environ, "KERAS_BACKEND": "numpy"}
    result = subprocess.run([sys.executable, "-c", PREDICT], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "fit not implemented for NumPy backend" in result.stdout
