"""Covariances: arguments of their own, and what they refuse."""

import pytest

from keras_het.covariances import Diagonal, Latent, LowRank, ParameterEfficient

pytestmark = pytest.mark.once


@pytest.mark.parametrize("kind", [Diagonal, LowRank, ParameterEfficient, Latent])
@pytest.mark.parametrize(("arguments", "message"), [
    ({"min_scale": -1e-3}, "`min_scale` must be a finite float32 number at least 0. Received: min_scale=-0.001"),
    ({"initial_scale": 0}, "`initial_scale` must be a finite float32 number greater than 0. Received: initial_scale=0"),
], ids=["min_scale negative", "initial_scale too small"])  # fmt: skip
def test_errors_say_what_is_wrong(kind, arguments, message):
    with pytest.raises(ValueError) as error:
        kind(**arguments)
    assert str(error.value) == message
