"""The story of the demo: for each noise early stopping, the choice of a method, and what it found out."""

import json
import pathlib
import time
from typing import Any, NamedTuple

import keras

from benchmarks.demo import training
from benchmarks.demo.data import Data, import_extra, load_data
from benchmarks.demo.figure import draw
from benchmarks.demo.findings import Diagnosis, Quality, planted, planted_pairs, quality, said
from benchmarks.demo.settings import Settings, check_settings
from benchmarks.demo.texts import describe
from keras_het.analysis import find_label_issues
from keras_het.labels.report import report

OF_A_HEAD = "look-alikes"  # the noise whose pairs the covariance of a head is asked for


class Finding(NamedTuple):
    """The figures of one noise and seed; accuracies are those of clean test labels.

    Attributes:
        noise: its name.
        seed: of the data and the trainings.
        early_stopping: accuracy.
        chosen: accuracy of the model of `choose`.
        method: that was chosen.
        reason: for the choice.
        said: the `Diagnosis` by noisy labels.
        planted: the true one.
        issues: the `Quality` of the wrong labels that are named.
        pairs: that a head takes for each other, as [i, j]; None where no head was trained.
        planted_pairs: that the noise swaps most.
    """

    noise: str
    seed: int
    early_stopping: float
    chosen: float
    method: str
    reason: str
    said: Diagnosis
    planted: Diagnosis
    issues: Quality
    pairs: list[list[int]] | None
    planted_pairs: list[list[int]]


class Trial(NamedTuple):
    """One noise and seed.

    Attributes:
        finding: its figures.
        data: the digits.
        choice: what `choose` returned.
        issues: all labels, the worst first.
    """

    finding: Finding
    data: Data
    choice: Any
    issues: Any


def run(settings=None, output="keras_het_demo", verbose=1):
    """Trains, prints what was found, and writes `results.json`, `demo.png` and a report of the first noise.

    Args:
        settings: `Settings`, None for those of the demo.
        output: folder; it is made if it does not exist.
        verbose: 0 for no progress bar.
    Returns:
        A `Finding` for each seed and noise.
    Raises:
        ValueError: for settings outside their ranges.
        ImportError: if a package of the extra `demo` is missing; it names the package.
    """
    settings, output, start = check_settings(settings or Settings()), pathlib.Path(output), time.perf_counter()
    for package in ("matplotlib.figure", "sklearn.datasets", "jinja2"):
        import_extra(package)
    output.mkdir(parents=True, exist_ok=True)
    trials = _trials(settings, verbose)
    findings = [trial.finding for trial in trials]
    _save(settings, findings, output / "results.json")
    shown = trials[: len(settings.noises)]  # of the first seed
    draw(findings, shown, output / "demo.png")
    print(describe(settings, findings))
    print(f"\nPicture:  {(output / 'demo.png').resolve()}")
    print(f"Report:   {_report(shown[0], output / 'report').resolve()}  (open it in a browser)")
    print(f"It took {time.perf_counter() - start:.0f} seconds on {keras.config.backend()}.")
    return findings


def _trials(settings, verbose):
    """All trials, seed by seed."""
    of_noises = [settings.starts + settings.trainings_of_choose + (noise == OF_A_HEAD) for noise in settings.noises]
    progress = training.Progress(settings.seeds * sum(of_noises), verbose)
    return [_trial(noise, seed, settings, progress) for seed in range(settings.seeds) for noise in settings.noises]


def _trial(noise, seed, settings, progress):
    """Early stopping, the choice, and what is found by its probabilities."""
    data = load_data(noise, seed, settings.examples)
    stopped = training.early_stopping(data, settings, seed, progress)
    choice = training.chosen(data, settings, seed, progress)
    pairs = training.confused(data, settings, seed, progress) if noise == OF_A_HEAD else None
    issues = find_label_issues(choice.probabilities, data.labels)
    finding = Finding(
        noise,
        seed,
        training.accuracy(stopped, data),
        training.accuracy(choice.model, data),
        choice.name,
        choice.reason,
        said(choice.diagnosis),
        planted(data),
        quality(issues, data.wrong),
        None if pairs is None else [[pair.first, pair.second] for pair in pairs],
        [list(pair) for pair in planted_pairs(data, training.MOST_PAIRS)],
    )
    return Trial(finding, data, choice, issues)


def _save(settings, findings, path):
    content = {"backend": keras.config.backend(), "settings": settings._asdict()}
    path.write_text(json.dumps({**content, "findings": [_line(finding) for finding in findings]}, indent=1) + "\n")


def _line(finding):
    """A finding as dicts, lists, texts and numbers; a share of nothing, nan, as None."""
    said, planted = (
        {"share": found.share, "flips": [[flip.true, flip.label, flip.count] for flip in found.flips]}
        for found in (finding.said, finding.planted)
    )
    issues = {name: None if value != value else value for name, value in finding.issues._asdict().items()}
    return {**finding._asdict(), "said": said, "planted": planted, "issues": issues}


def _report(trial, folder):
    """The page of `keras_het.report` of one trial."""
    title = f"Digits with wrong labels: {trial.finding.noise}"
    model, data, p = trial.choice.model, trial.data, trial.choice.probabilities
    return report(model, data.x, data.labels, path=folder, probabilities=p, images=data.images, title=title)
