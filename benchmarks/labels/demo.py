"""The demo on five seeds: early stopping and `keras_het.choose` on three kinds of wrong labels of digits.

python -m benchmarks.labels.demo [--repeats 5] [--quick] [--output FOLDER]      (on the backend of KERAS_BACKEND)

Runs `python -m benchmarks.demo --seeds 5` and publishes what it found. Noisy labels alone decide; 517 clean labels only
measure. Early stopping trains on 1024 examples, and takes the best of three starts, and its epoch, by the accuracy on
256 noisy labels; `choose` gets all 1280. The picture is that of the page, with images of the first seed.
"""

import json
from types import SimpleNamespace

from benchmarks.demo import __main__ as demo
from benchmarks.demo.texts import table, with_error
from benchmarks.lib import harness
from benchmarks.lib.results import publish


def read(path):
    """The findings of `results.json`, with their fields as attributes."""
    return json.loads(path.read_text(), object_hook=lambda fields: SimpleNamespace(**fields)).findings


def noise_found(findings):
    """A row for each noise: the shares of wrong labels and of disagreement, the flips and the pairs that are found."""
    rows = [["wrong labels", "share", "the model disagrees with", "flips: right of found, planted", "pairs of a head"]]
    for noise in dict.fromkeys(line.noise for line in findings):
        own = [line for line in findings if line.noise == noise]
        shares = (with_error([getattr(line, name).share for line in own]) for name in ("planted", "said"))
        pairs = [] if own[0].pairs is None else [_pairs(line) for line in own]
        rows.append([noise, *shares, "; ".join(map(_flips, own)), "; ".join(pairs)])
    return rows


def _flips(line):
    found, planted = ({tuple(flip[:2]) for flip in getattr(line, name).flips} for name in ("said", "planted"))
    return f"{len(found & planted)} of {len(found)}, {len(planted)}"


def _pairs(line):
    right = [pair for pair in line.pairs if pair in line.planted_pairs]
    return f"{len(right)} of {len(line.pairs)}"


def by_seed(findings):
    """A row for each noise and seed."""
    rows = [["wrong labels", "seed", "early stopping", "chosen", "points", "method"]]
    for line in sorted(findings, key=lambda line: line.noise):
        points = f"{100 * (line.chosen - line.early_stopping):+.1f}"
        figures = f"{line.early_stopping:.3f}", f"{line.chosen:.3f}", points
        rows.append([line.noise, str(line.seed), *figures, line.method])
    return rows


def main():
    options = harness.command_line(__doc__, repeats=5).parse_args()
    folder, seeds = options.output / "demo", 1 if options.quick else options.repeats
    arguments = ["--seeds", str(seeds), *["--quick"] * options.quick]
    if demo.main([*arguments, "--output", str(folder)]):
        raise SystemExit(1)
    findings = read(folder / "results.json")
    tables = {"accuracy, and the wrong labels that are named": table(findings)}
    tables |= {"what is said of the noise, seed by seed": noise_found(findings), "each seed": by_seed(findings)}
    publish(options.output, "demo", tables, range(seeds))


if __name__ == "__main__":
    main()
