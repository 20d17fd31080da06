"""Estimates of the cost against built heads, and the table."""

import keras
import pytest

import keras_het
from keras_het.layers import HeteroscedasticDense
from tests.common import refuses

pytestmark = pytest.mark.once


@pytest.mark.parametrize(("units", "features", "num_factors"), [(10, 40, 15), (60, 20, 30), (50, 16, 3)])
def test_parameters_are_those_of_the_heads(units, features, num_factors):
    for row in keras_het.estimate_cost(units, features, num_factors=num_factors).rows[1:]:
        most = {"diagonal": 0, "latent": features}.get(row.covariance, units)
        factors = {"num_factors": min(num_factors, most)} if most else {}
        covariance = getattr(keras_het.covariances, row.covariance.title().replace("_", ""))(**factors)
        head = HeteroscedasticDense(units, covariance=covariance)
        head.build((None, features))
        assert sum(weight.numpy().size for weight in head.trainable_weights) == row.parameters


def test_more_of_anything_costs_more():
    base = {"units": 1000, "features": 512, "batch": 64, "num_factors": 8, "num_samples": 64}
    for name in base:
        less, more = (keras_het.estimate_cost(**{**base, name: factor * base[name]}).rows for factor in (1, 4))
        for small, large in zip(less, more, strict=True):
            for cost in ("parameters", "train_bytes", "predict_bytes"):
                assert getattr(large, cost) >= getattr(small, cost), name
            assert large.train_bytes > large.predict_bytes
        assert any(large.train_bytes > small.train_bytes for small, large in zip(less, more, strict=True)), name
    few, many, default = (keras_het.estimate_cost(8, 512, num_samples=count).rows for count in (64, 256, None))
    assert default == [*few[:-1], many[-1]]  # a latent head has the default nodes of its features


def test_the_table_says_what_fits():
    result = keras_het.estimate_cost(20_000, 256, 32, memory=6e8)
    text = str(result)
    assert text.splitlines()[0].startswith("20000 classes, 256 features, batches of 32, R=15, S=256; ")
    for row, line in zip(result.rows, text.splitlines()[2:], strict=False):
        assert line.endswith("yes" if row.fits else "no")
        assert row.fits == (row.train_bytes <= 6e8)
    assert {row.fits for row in result.rows} == {True, False}
    assert repr(result) == text
    assert "fits" not in str(keras_het.estimate_cost(10, 10))


def test_devices_that_cannot_share_the_classes(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "torch")
    with refuses(r"`devices` must be 1 on the backend torch: .* Received: devices=4"):
        keras_het.estimate_cost(10, 10, devices=4)
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    with refuses("`units` must be divisible by the 4 devices that share the classes: use 12, with some unused"):
        keras_het.estimate_cost(10, 10, devices=4)
    one, four = (keras_het.estimate_cost(1000, 64, devices=count).rows for count in (1, 4))
    assert all(b.train_bytes < a.train_bytes for a, b in zip(one, four, strict=True))
