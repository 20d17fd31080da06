"""Trainings that must stay finite: what is reported of one that does not, and that the forms compute the same."""

import keras
import numpy as np
import pytest

from benchmarks.cost import divergence, gpu
from keras_het.ops.low_rank import _FactorNormal

pytestmark = pytest.mark.once

SIZES = {"examples": 60, "B": 30, "D": 8, "K": 20, "R": 2, "steps": 6}  # more logits than MAX_PLAIN_LOGITS


def follow():
    return divergence.follow(1.0, 1e-3, **SIZES)


def test_labels_have_errors_and_features_have_classes():
    """The nearest of the centres of one half predicts the labels of the other half, but for their errors."""
    x, y = divergence.draw(4000, 1280, 10)
    np.testing.assert_allclose([x.mean(), x.std()], [0, 1], atol=1e-4)
    centers = np.stack([x[:2000][y[:2000] == k].mean(axis=0) for k in range(10)])
    distances = np.sum(centers**2, axis=1) - 2 * x[2000:] @ centers.T
    accuracy = np.mean(np.argmin(distances, axis=1) == y[2000:])
    assert 0.3 < accuracy < 1 - divergence.ERROR_RATE + 0.04  # by chance 0.1


@pytest.mark.parametrize("form", gpu.FORMS)
def test_every_form_takes_the_same_steps(form, monkeypatch):
    assert list(divergence.FORMS) == gpu.FORMS
    expected = follow()
    calls = []
    for owner, name, function in divergence.FORMS[form]:
        monkeypatch.setattr(owner, name, lambda *x, f=function: (calls.append(f), f(*x))[1])
    result = follow()
    assert set(calls) == {function for *_, function in divergence.FORMS[form]}
    assert (result["step"], result["not finite"]) == (SIZES["steps"], [])
    assert result["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert result["largest"] == pytest.approx(expected["largest"], rel=1e-3)


@pytest.mark.planted
@pytest.mark.skipif(keras.config.backend() != "torch", reason="the other backends call `vjp` once, to compile it")
def test_a_gradient_that_is_nan_from_the_third_step_on_is_named(monkeypatch):
    vjp, calls = _FactorNormal.vjp, []

    def planted(self, cotangent, chunk):
        calls.append(None)  # one chunk a step
        grad_scale_diag, grad_factor_and_loc = vjp(self, cotangent, chunk)
        return grad_scale_diag * (np.nan if len(calls) > 2 else 1.0), grad_factor_and_loc

    monkeypatch.setattr(_FactorNormal, "vjp", planted)
    result = follow()
    assert result["step"] == len(calls) == 3
    names = [name.split("/")[-2:] for name in result["not finite"]]
    assert names == [["scale_diag", "kernel"], ["scale_diag", "bias"]]
    assert np.isfinite(result["loss"])
    assert np.isnan(result["largest"])


def test_the_table_names_the_step_and_a_crash_and_the_exit_code_counts_the_package_alone(monkeypatch):
    outcomes = {
        "package": {"step": 3, "loss": 1.0, "largest": np.nan, "not finite": ["head/kernel"]},
        "none": {"step": 1215, "loss": 1.0, "largest": 2.0, "not finite": []},
    }
    settings = []

    def fresh(backend, what, environment, form, **row):
        settings.append(environment)
        if form not in outcomes:
            raise RuntimeError("row failed:\nTraceback\nCUDA_ERROR_LAUNCH_FAILED\n")
        return outcomes[form]

    monkeypatch.setattr(gpu, "fresh", fresh)
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    table = gpu.training_table("jax", is_quick=False)
    assert len(table) == 1 + 2 * 2 * 3
    assert table[1] == ["package", "1", "on", "step 3: head/kernel", "1.0000", "nan"]
    assert table[2] == ["both in the loop", "1", "on", "failed: CUDA_ERROR_LAUNCH_FAILED", "", ""]
    assert table[-1] == ["none", "5", "off", "step 1215: finite", "1.0000", "2.000"]
    assert settings[0] == {"XLA_FLAGS": "--mine"}
    assert settings[-1] == {"XLA_FLAGS": "--mine --xla_gpu_enable_triton_gemm=false"}
    assert len(gpu.not_finite(table)) == 4
    assert [line[2] for line in gpu.training_table("torch", is_quick=True)[1:]] == [""] * 3
