"""The demo: its noise, its choice of temperatures, its errors, and one tiny run from the command line."""

import json
import re
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest

from keras_het import __main__
from keras_het.commands import demo, demo_report

pytestmark = pytest.mark.once

BACKEND = keras.config.backend()


def make_run(method="Dense", seed=0, temperature=1.0, accuracy=0.5, covariance=None):
    return demo.Run(
        method,
        seed,
        temperature,
        20,
        {temperature: 1.0},
        accuracy,
        nll=1.0,
        ece=0.1,
        seconds=1.0,
        covariance=covariance,
    )


def test_data_has_clean_test_labels_and_noisy_others():
    data, clean = demo.load_data(0.4, seed=0), demo.load_data(0.0, seed=0)
    for part, reference in zip(data[:3], clean[:3], strict=True):
        np.testing.assert_array_equal(part.features, reference.features)
        assert part.labels.min() >= 0
        assert part.labels.max() <= 9
    rates = [np.mean(part.labels != reference.labels) for part, reference in zip(data[:3], clean[:3], strict=True)]
    assert 0.3 < rates[0] < 0.5
    assert 0.3 < rates[1] < 0.5
    assert rates[2] == 0.0
    assert data.confusions.sum() == sum(
        np.sum(part.labels != reference.labels) for part, reference in zip(data[:2], clean[:2], strict=True)
    )
    assert np.diag(data.confusions).sum() == clean.confusions.sum() == 0


def test_rows_have_the_runs_of_a_method_by_seed():
    dense, full = demo.summarise(
        [make_run(seed=1, temperature=5.0, accuracy=0.2), make_run("full"), make_run(seed=0, accuracy=0.4)]
    )
    assert (dense.method, dense.temperatures, dense.epochs) == ("Dense", (1.0, 5.0), (20, 20))
    np.testing.assert_array_equal(dense.accuracy, [0.4, 0.2])
    assert (full.method, full.temperatures) == ("full", (1.0,))


def test_what_a_method_chooses_is_the_best_of_its_list_by_noisy_labels():
    data = demo.load_data(0.4, seed=0)
    settings = demo.Settings(epochs=10, temperatures=(0.1, 5.0), extend=False)
    found = demo.train("full", 0, data, settings)
    assert found.scores[found.temperature] == min(found.scores.values())
    assert set(found.scores) == {0.1, 5.0}
    assert found.epochs in (5, 10)
    assert found.covariance.shape == (10, 10)
    again = demo.train("full", 0, data, settings)
    assert (again.accuracy, again.scores) == (found.accuracy, found.scores)


def test_the_demo_does_not_repeat_the_advice_of_select(monkeypatch):
    """Its criterion is fixed, and its epochs are rounds."""
    real = demo.select

    def advising(*arguments, **named):
        warnings.warn("Epoch 4, the best by loss, has an accuracy of 0.7 on the validation labels", stacklevel=2)
        return real(*arguments, **named)

    monkeypatch.setattr(demo, "select", advising)
    settings = demo.Settings(temperatures=(1.5,), epochs=5, extend=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Epoch")
        assert demo.train("Dense", 0, demo.load_data(0.4, seed=0), settings).temperature == 1.5


def test_verdict_admits_that_the_plain_head_wins_and_when_nothing_is_clear():
    def row(method, accuracy, nll):
        return demo.Row(method, (1.0, 1.0), (5, 5), np.array(accuracy), np.array(nll), np.array([0.1, 0.1]), 1.0)

    rows = [
        row("Dense", [0.9, 0.9], [0.5, 0.7]),
        row("diagonal", [0.6, 0.6], [0.7, 0.7]),
        row("full", [0.8, 0.8], [0.6, 0.55]),
    ]
    accuracy, nll, _ = demo_report.verdict(rows)
    assert accuracy == "Best accuracy: Dense 0.900, full 0.800, a gain of 0.100 +- 0.000."
    assert (
        nll
        == "Best NLL: full 0.575, Dense 0.600, a gain of 0.025 +- 0.125 (within two standard errors: no clear winner)."
    )
    assert demo_report.headline(rows, "accuracy", "accuracy", 1.0) == "accuracy: Dense wins, full -0.100"
    assert demo_report.headline(rows, "nll", "NLL", -1.0) == "NLL: no clear winner"


def test_mean_and_standard_error():
    assert demo_report.mean_error([1.0, 2.0, 3.0]) == pytest.approx((2.0, 1.0 / np.sqrt(3.0)))
    assert demo_report.with_error([0.5]) == "0.500"


def test_initial_weights_are_those_of_the_seed_and_shared_by_the_methods():
    dense, full, other = (
        demo.make_model(arguments, 5.0, seed).get_weights() for arguments, seed in ((None, 3), ({}, 3), ({}, 4))
    )
    for ours, theirs in zip(dense, full, strict=False):  # backbone and mean: the first weights of both
        np.testing.assert_array_equal(ours, theirs)
    assert np.any(full[0] != other[0])


@pytest.mark.smoke
def test_plain_head_divides_its_logits():
    x = np.random.default_rng(0).standard_normal((4, 64)).astype("float32")
    one, five = (demo.make_model(None, temperature, 0).predict(x, verbose=0) for temperature in (1.0, 5.0))
    np.testing.assert_allclose(five, one / 5.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise": 1.0}, "`noise` must be a number in [0, 1). Received: noise=1.0"),
        ({"noise": -0.1}, "`noise` must be a number in [0, 1). Received: noise=-0.1"),
        ({"noise": float("nan")}, "`noise` must be a number in [0, 1). Received: noise=nan"),
        ({"noise": "much"}, "`noise` must be a number in [0, 1). Received: noise='much'"),
        ({"seeds": 0}, "`seeds` must be an integer at least 1. Received: seeds=0"),
        ({"epochs": 4}, "`epochs` must be an integer at least 5. Received: epochs=4"),
        ({"epochs": 12}, "`epochs` must be a multiple of 5. Received: epochs=12"),
        (
            {"temperatures": (1.5, 0.0)},
            "`temperatures` must be a finite float32 number greater than 0. Received: temperatures=0.0",
        ),
    ],
)
def test_settings_are_checked_before_anything_runs(change, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        demo.run(demo.Settings()._replace(**change), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(
        ImportError,
        match=re.escape("The demo needs scikit-learn, which is not installed: pip install scikit-learn"),
    ):
        demo.load_data(0.4, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--noise", "1"], "`noise` must be a number in [0, 1). Received: noise=1.0"),
        (["--seeds", "0"], "`seeds` must be an integer at least 1. Received: seeds=0"),
    ],
)
def test_command_line_reports_a_bad_argument(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_info:
        __main__.main(["demo", "--backend", BACKEND, *arguments])
    assert exit_info.value.code == 2
    assert message in capsys.readouterr().err


def test_backend_is_requested_or_from_the_environment_or_the_first_installed(monkeypatch):
    monkeypatch.setattr(__main__.environment, "installed_backends", lambda: ["tensorflow", "torch"])
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    assert __main__.choose_backend() == "torch"
    assert __main__.choose_backend("tensorflow") == "tensorflow"
    monkeypatch.delenv("KERAS_BACKEND")
    assert __main__.choose_backend() == "tensorflow"
    with pytest.raises(
        ValueError, match=re.escape("must be installed: pip install \"jax>=0.6\". Received: backend='jax'")
    ):
        __main__.choose_backend("jax")
    monkeypatch.setenv("KERAS_BACKEND", "numpy")
    with pytest.raises(
        ValueError, match=re.escape("`backend` must be one of jax, tensorflow, torch. Received: backend='numpy'")
    ):
        __main__.choose_backend()


def test_another_backend_starts_a_process_of_its_own(monkeypatch):
    calls = []
    other = "torch" if BACKEND != "torch" else "jax"
    monkeypatch.setenv("KERAS_BACKEND", BACKEND)
    monkeypatch.setattr(__main__, "choose_backend", lambda requested: requested)
    monkeypatch.setattr(
        subprocess, "call", lambda command: calls.append((command, __main__.os.environ["KERAS_BACKEND"])) or 7
    )
    arguments = ["demo", "--backend", other, "--quick"]
    assert __main__.main(arguments) == 7
    assert calls == [([sys.executable, "-m", "keras_het", *arguments], other)]


def test_the_command_trains_reports_and_draws(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KERAS_BACKEND", BACKEND)
    monkeypatch.setattr(demo, "QUICK", demo.Settings(seeds=1, epochs=5, temperatures=(5.0,)))
    assert __main__.main(["demo", "--quick", "--noise", "0.3", "--output", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "30% noisy labels" in printed
    assert "Best NLL" in printed
    for name in ("results.png", "covariance.png"):
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["backend"] == BACKEND
    assert [row["method"] for row in results["table"]] == list(demo.METHODS)
    assert all(run["accuracy"] > 0.15 for run in results["runs"])
    covariance = np.array(results["covariance"])
    np.testing.assert_allclose(covariance.sum(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(covariance, covariance.T, atol=1e-6)


def test_report_without_noise_has_no_planted_pairs(tmp_path):
    runs = [
        make_run(method, covariance=np.diag([1.0, 2.0, 3.0]) - 1.0 if method == "full" else None)
        for method in demo.METHODS
    ]
    result = demo.Result(
        demo.Settings(seeds=1, noise=0.0), runs, demo.summarise(runs), runs[2].covariance, np.zeros((3, 3), int)
    )
    assert "0 pairs are in both lists; chance would give 0.0." in demo_report.describe(result)
    demo_report.save(result, tmp_path)
    assert (tmp_path / "covariance.png").exists()
