"""What every test starts from: no display, and a Keras without state of earlier tests (names, dtype policy, global seeds)."""

import keras
import pytest

try:
    import matplotlib
except ImportError:  # an extra
    pass
else:
    matplotlib.use("agg")


@pytest.fixture(autouse=True)
def clear_keras_session():
    yield
    keras.utils.clear_session(free_memory=False)
