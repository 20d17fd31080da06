"""The demo: its noises, what it says of them, its texts and picture, and one tiny run from the command line."""

import json
import re
import subprocess
import sys

import keras
import numpy as np
import pytest

from benchmarks import demo
from benchmarks.demo import __main__, data, findings, story, texts, training
from keras_het.analysis import find_label_issues
from keras_het.labels.diagnosis import diagnose

pytestmark = pytest.mark.once

BACKEND = keras.config.backend()
TINY = demo.Settings(examples=200, epochs=16, starts=1, folds=2)
SWAPPED = findings.Diagnosis(0.4, [findings.Flip(i, (i + 1) % 10, 50) for i in range(10)])
NOTHING = findings.Diagnosis(0.4, [])


def make_finding(noise="random flips", seed=0, early_stopping=0.9, chosen=0.95, method="label smoothing", **changes):
    figures = {"said": NOTHING, "planted": NOTHING, "issues": findings.Quality(10, 0.9, 0.8), "pairs": None}
    figures |= {"reason": f"{method}: it predicts more.", "planted_pairs": [[1, 8], [3, 9]]}
    return story.Finding(
        noise=noise, seed=seed, early_stopping=early_stopping, chosen=chosen, method=method, **{**figures, **changes}
    )


class TestData:
    """Noisy labels, and a clean test that no noise touches."""

    @pytest.mark.parametrize(("noise", "rate"), [("swapped pairs", 0.4), ("random flips", 0.45), ("look-alikes", 0.4)])
    def test_the_labels_are_noisy_and_the_test_is_clean(self, noise, rate):
        found, others = demo_data(noise), demo_data("swapped pairs", examples=200)
        assert (found.x.shape, found.test_x.shape) == ((1280, 64), (517, 64))
        assert found.wrong.mean() == pytest.approx(rate, abs=0.05)
        known = {row.tobytes(): label for row, label in zip(*digits(), strict=True)}
        for x, y in ((found.x, found.true), (found.test_x, found.test_y)):
            assert [known[(16 * row.astype("float64")).tobytes()] for row in x] == y.tolist()
        np.testing.assert_array_equal(others.test_x, found.test_x)
        np.testing.assert_array_equal(others.x, found.x[:200])
        np.testing.assert_array_equal(found.images.reshape(-1, 64), 1.0 - found.x)

    def test_each_noise_is_the_one_that_its_name_says(self):
        pairs = {(flip.true, flip.label) for flip in findings.planted(demo_data("swapped pairs")).flips}
        assert pairs == {(i, (i + 1) % 10) for i in range(10)}
        assert findings.planted(demo_data("random flips")).flips == []
        alike = demo_data("look-alikes")
        assert 0 < len(findings.planted(alike).flips) < 15
        assert findings.planted_pairs(alike, 2) == [(3, 9), (1, 8)]  # of ten digits the likest

    def test_a_missing_package_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
        text = "The demo needs scikit-learn, which is not installed: pip install scikit-learn"
        with pytest.raises(ImportError, match=re.escape(text)):
            demo_data("look-alikes")


def demo_data(noise, examples=1280):
    return data.load_data(noise, 0, examples)


def digits():
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


class TestFindings:
    """By hand: a hundred examples of each of three classes, 40 of the first with the label of the second."""

    true, labels = np.arange(3).repeat(100), np.array([1] * 40 + [0] * 60 + [1] * 100 + [2] * 100)
    p = np.eye(3)[true].astype("float32")

    def test_the_share_and_the_flips(self):
        noisy = (self.p + 0.1) * np.random.default_rng(0).gamma(50.0, size=self.p.shape)  # some are clearer than others
        found = findings.said(diagnose(noisy / noisy.sum(axis=1, keepdims=True), self.labels))
        assert found.share == pytest.approx(40 / 300)
        assert [flip[:2] for flip in found.flips] == [(0, 1)]
        assert 10 < found.flips[0].count <= 40
        assert findings.said(diagnose(self.p, self.true)) == (0.0, [])

    def test_precision_and_recall(self):
        wrong = self.true != self.labels
        assert findings.quality(find_label_issues(self.p, self.labels), wrong) == (40, 1.0, 1.0)
        others = np.roll(wrong, 10)  # 30 of the 40 are named
        assert findings.quality(find_label_issues(self.p, self.labels), others) == (40, 0.75, 0.75)
        none = findings.quality(find_label_issues(self.p, self.true), wrong)
        assert (none.named, none.recall) == (0, 0.0)
        assert np.isnan(none.precision)


class TestTexts:
    """What is printed."""

    def test_a_paragraph_of_swapped_pairs(self):
        more = findings.Diagnosis(0.38, [*SWAPPED.flips[:2], findings.Flip(3, 2, 9)])
        text = texts.paragraph(make_finding("swapped pairs", said=more, planted=SWAPPED))
        assert text.splitlines() == [
            "SWAPPED PAIRS",
            "accuracy      0.900 by early stopping, 0.950 by keras_het.choose",
            "method        label smoothing: it predicts more.",
            "disagreement  with 38% of the labels, by its model; 40% are wrong",
            "classes       labelled as another one too often for chance: 0 as 1, 1 as 2, 3 as 2 (2 of 3 are",
            "              right, 10 were planted)",
            "which ones    10 labels are named as wrong: 90% of them are, and they are 80% of all wrong ones",
        ]

    def test_a_paragraph_where_nothing_is_found(self):
        none = findings.Quality(0, np.nan, 0.0)
        text = texts.paragraph(make_finding("look-alikes", issues=none, pairs=[]))
        assert "classes       none is labelled as another one more often than by chance (none planted)" in text
        assert "holds no two classes for each other" in text
        assert text.endswith("which ones    no label is named as wrong")

    def test_the_pairs_of_a_head_are_counted(self):
        found = texts.pairs_in_words([[3, 9], [4, 6]], [[1, 8], [3, 9], [5, 8]])
        assert found.endswith("says: 3 - 9, 4 - 6 (1 of 2 are of the 3 most confused)")

    def test_the_table_has_losses_and_standard_errors(self):
        many = [
            make_finding("look-alikes", seed, early_stopping=0.8, chosen=chosen, method=method)
            for seed, (chosen, method) in enumerate([(0.77, "b"), (0.79, "a"), (0.78, "b")])
        ]
        rows = texts.table(many)
        assert rows[0] == list(texts.HEAD)
        assert rows[1] == [
            "look-alikes", "0.800 +- 0.000", "0.780 +- 0.006", "-2.0 +- 0.6", "b 2, a 1",
            "0.900 +- 0.000", "0.800 +- 0.000",
        ]  # fmt: skip
        assert texts.table([make_finding()])[1][:5] == ["random flips", "0.900", "0.950", "+5.0", "label smoothing"]

    def test_words_are_of_the_first_seed_and_the_table_of_all(self):
        both = [make_finding(seed=seed, chosen=0.91 + 0.02 * seed) for seed in (0, 1)]
        text = texts.describe(demo.Settings(seeds=2, noises=("random flips",)), both)
        assert text.count("RANDOM FLIPS") == 1
        assert "0.920 +- 0.010" in text
        assert "Means over 2 seeds" in " ".join(text.split())
        assert "Means over" not in texts.describe(demo.Settings(), both[:1])
        assert max(map(len, text.splitlines())) <= 110


class TestTrainings:
    """Nothing but noisy labels decides."""

    def test_no_training_sees_a_right_label(self):
        blind = demo_data("look-alikes", 200)._replace(true=None, test_x=None, test_y=None)
        progress = training.Progress(TINY.starts + TINY.trainings_of_choose + 1, verbose=0)
        stopped = training.early_stopping(blind, TINY, 0, progress)
        choice = training.chosen(blind, TINY, 0, progress)
        assert progress.done == TINY.starts + TINY.trainings_of_choose
        training.confused(blind, TINY, 0, progress)
        assert progress.done == TINY.starts + TINY.trainings_of_choose + 1
        assert np.isfinite(choice.probabilities).all()  # so all folds were measured
        assert stopped.output_shape == choice.model.output_shape == (None, 10)

    @pytest.mark.planted
    def test_a_look_at_the_test_is_caught(self):
        blind = demo_data("look-alikes", 200)._replace(true=None, test_x=None, test_y=None)
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
        with pytest.raises(TypeError):
            training.accuracy(model, blind)

    def test_the_bar_goes_on_where_trainings_are_not_needed(self, capsys):
        progress = training.Progress(4)
        progress.on_train_end()
        progress.reach(3)
        assert progress.done == 3
        progress.on_train_end()
        progress.reach(4)
        printed = capsys.readouterr().out
        assert "1/4" in printed
        assert printed.count("4/4") == 1
        assert printed.endswith("\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "`seeds` must be an integer at least 1. Received: seeds=0"),
        ({"epochs": 0}, "`epochs` must be an integer at least 1. Received: epochs=0"),
        ({"starts": 0}, "`starts` must be an integer at least 1. Received: starts=0"),
        ({"folds": 1}, "`folds` must be an integer at least 2. Received: folds=1"),
        ({"examples": 99}, "`examples` must be an integer at least 100. Received: examples=99"),
        ({"examples": 1281}, "`examples` must be at most 1280. Received: examples=1281"),
        (
            {"noises": ("look-alikes", "none")},
            "`noises` must be one or more of 'swapped pairs', 'random flips', 'look-alikes'. Received: 'none'",
        ),
        (
            {"noises": ()},
            "`noises` must be one or more of 'swapped pairs', 'random flips', 'look-alikes'. Received: none",
        ),
    ],
)
def test_settings_are_checked_before_anything_runs(change, message, tmp_path):
    with pytest.raises(ValueError, match=re.escape(message)):
        demo.run(demo.Settings()._replace(**change), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def in_this_process(monkeypatch):
    """The command does not start again."""
    monkeypatch.setenv("KERAS_BACKEND", BACKEND)
    monkeypatch.setenv(__main__.CACHE, "none")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--examples", "1"], "`examples` must be an integer at least 100. Received: examples=1"),
        (["--seeds", "0"], "`seeds` must be an integer at least 1. Received: seeds=0"),
        (["--noises", "some"], "Received: 'some'"),
    ],
)
@pytest.mark.usefixtures("in_this_process")
def test_command_line_reports_a_bad_argument(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_info:
        __main__.main(["--backend", BACKEND, *arguments])
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


@pytest.mark.usefixtures("in_this_process")
def test_another_backend_starts_a_process_of_its_own(monkeypatch):
    calls = []
    other = "torch" if BACKEND != "torch" else "jax"
    monkeypatch.setattr(__main__, "choose_backend", lambda requested: requested)
    monkeypatch.setattr(
        subprocess, "call", lambda command: calls.append((command, __main__.os.environ["KERAS_BACKEND"])) or 7
    )
    arguments = ["--backend", other, "--quick"]
    assert __main__.main(arguments) == 7
    assert calls == [([sys.executable, "-m", "benchmarks.demo", *arguments], other)]


def test_on_jax_it_starts_again_where_compiled_programs_are_kept(monkeypatch):
    calls = []
    monkeypatch.setenv("KERAS_BACKEND", BACKEND)
    monkeypatch.delenv(__main__.CACHE, raising=False)
    monkeypatch.setattr(__main__, "choose_backend", lambda requested: requested)
    monkeypatch.setattr(subprocess, "call", lambda command, env: calls.append((command, env)) or 7)
    assert __main__.main(["--backend", "jax"]) == 7
    ((command, environment),) = calls
    assert command == [sys.executable, "-m", "benchmarks.demo", "--backend", "jax"]
    assert environment["KERAS_BACKEND"] == "jax"
    assert environment[__main__.CACHE]
    assert environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"


@pytest.mark.usefixtures("in_this_process")
def test_the_command_tells_and_draws_the_story(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo, "QUICK", TINY._replace(noises=("look-alikes", "swapped pairs")))
    output = tmp_path / "out"
    assert __main__.main(["--quick", "--epochs", "15", "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    for text in ("LOOK-ALIKES", "SWAPPED PAIRS", "200 digits", "HeteroscedasticDense", f"Backend {BACKEND}"):
        assert text in printed
    assert str((output / "report" / "report.html").resolve()) in printed
    assert "Digits with wrong labels: look-alikes" in (output / "report" / "report.html").read_text()
    assert (output / "demo.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((output / "results.json").read_text())
    assert results["backend"] == BACKEND
    assert results["settings"]["epochs"] == 15
    assert [line["noise"] for line in results["findings"]] == ["look-alikes", "swapped pairs"]
    assert all(0.0 <= line["chosen"] <= 1.0 for line in results["findings"])
    assert [line["pairs"] is None for line in results["findings"]] == [False, True]


def test_the_picture_has_the_accuracies_the_methods_and_as_many_images_as_there_are(tmp_path):
    from matplotlib.figure import Figure

    from benchmarks.demo import figure

    drawn = Figure()
    figure.draw_bars(drawn, [make_finding(seed=seed, chosen=0.95 + 0.02 * seed) for seed in (0, 1)])
    texts_of = [text.get_text() for text in drawn.axes[0].texts]
    assert texts_of == ["90", "96", "label smoothing (2 of 2)"]
    drawn = Figure()
    figure.draw_bars(drawn, [make_finding(seed=seed, method=name) for seed, name in enumerate("bacb")])
    assert drawn.axes[0].texts[-1].get_text() == "b (2 of 4)\na (1 of 4), ..."
    digits_of = demo_data("swapped pairs", 200)
    p = 0.9 * np.eye(10)[digits_of.true] + 0.01
    trial = story.Trial(make_finding(), digits_of, None, find_label_issues(p, digits_of.labels))
    drawn = Figure()
    figure.draw_images(drawn, [trial])
    titles = [axes.get_title() for axes in drawn.axes]
    assert len(titles) == figure.PICTURES
    worst = trial.issues.index[0]
    assert titles[0] == f"{digits_of.labels[worst]} \N{RIGHTWARDS ARROW} {digits_of.true[worst]}"
    clean = trial._replace(issues=find_label_issues(p, digits_of.true))
    drawn = Figure()
    figure.draw_images(drawn, [clean])
    assert not any(axes.get_title() for axes in drawn.axes)
