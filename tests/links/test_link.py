"""Links: averages of their outputs, and their losses."""

import numpy as np
import pytest
from keras import ops
from scipy.special import expit, log_softmax, logit

from keras_het import links
from keras_het.base.serializable import resolve
from tests.common import refuses

NAMES = ["softmax", "sigmoid"]


def outputs_of(link, scale=3.0):
    outputs = scale * np.random.default_rng(0).normal(size=(5, 2, 4))
    return log_softmax(outputs, axis=-1) if link.activation == "softmax" else outputs


@pytest.mark.once
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("axis", [0, 1])
def test_average_is_that_of_the_probabilities_and_a_number(name, axis):
    link = resolve(links.Link, name)
    members = outputs_of(link)
    given = ops.convert_to_tensor(np.moveaxis(members, 0, axis).astype("float32"))
    result = ops.convert_to_numpy(link.average(given, axis))
    expected = np.log(np.exp(members).mean(0)) if link.activation == "softmax" else logit(expit(members).mean(0))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    if link.activation == "softmax":
        np.testing.assert_allclose(np.exp(result).sum(-1), 1.0, rtol=1e-5)
        assert np.exp(members.mean(0)).sum(-1).max() < 0.9  # what keras.layers.Average would give
    members = ops.convert_to_tensor(outputs_of(link, 1e3).astype("float32"))  # improbable outputs
    assert np.isfinite(ops.convert_to_numpy(link.average(members))).all()
    np.testing.assert_allclose(link.average([members[0], members[1]]), link.average(members[:2]))
    np.testing.assert_allclose(link.average(members[:1]), members[0], rtol=1e-5, atol=1e-4)


def test_average_of_what_is_no_ensemble_is_refused():
    link = resolve(links.Link, "softmax")
    with pytest.raises(ValueError, match=r"`outputs` must have one shape. Received: shapes "):
        link.average([np.zeros((2, 3)), np.zeros((1, 3))])
    for axis in (2, -1):
        with refuses(r"`axis` must be before the last axis, which has the classes. Received: axis="):
            link.average(np.zeros((2, 5, 3)), axis)


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_that_of_the_probabilities(name):
    link = resolve(links.Link, name)
    outputs, softmax = outputs_of(link)[0].astype("float32"), link.activation == "softmax"
    labels = np.array([3, 0]) if softmax else np.array([[0, 1, 1, 0], [1, 0, 0, 0]])
    p = np.exp(outputs) if softmax else expit(outputs)
    of_labels = p[[0, 1], labels] if softmax else np.where(labels, p, 1 - p)
    np.testing.assert_allclose(float(link.loss()(labels, outputs)), -np.log(of_labels).mean(), rtol=1e-4)
