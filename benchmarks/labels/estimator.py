"""Temperatures of `HeteroscedasticClassifier`, and examples held out or not, beside logistic regression.

python -m benchmarks.labels.estimator [--quick] [--repeats SEEDS] [--output FOLDER]      (on KERAS_BACKEND)

Tables of scikit-learn with planted wrong labels, all other arguments the defaults; accuracy on clean test labels.
Nothing is chosen by clean labels. Writes estimator.md.
"""

import itertools

import numpy as np
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.lib import harness
from benchmarks.lib.results import publish
from keras_het import HeteroscedasticClassifier

TWINS = {3: 8, 8: 3, 1: 7, 7: 1, 4: 9, 9: 4}  # digits that look alike
SIZES = {"digits": (datasets.load_digits, 1000), "breast cancer": (datasets.load_breast_cancer, 350)}
TASKS = [
    ("digits", "none", 0.0),
    ("digits", "symmetric", 0.2),
    ("digits", "symmetric", 0.4),
    ("digits", "look-alikes", 0.3),
    ("breast cancer", "none", 0.0),
    ("breast cancer", "symmetric", 0.2),
]
CHOICES = list(itertools.product((1.5, 5.0, 15.0), (0.0, 0.1)))


def noisy(y, noise, rate, rng):
    """Labels, a share of which name another class, or of six digits the one that looks alike."""
    wrong, classes = rng.random(len(y)) < rate, y.max() + 1
    if noise == "look-alikes":
        return np.where(wrong, [TWINS.get(label, label) for label in y.tolist()], y)
    return np.where(wrong, (y + rng.integers(1, classes, len(y))) % classes, y)


def accuracies(data, noise, rate, seed, epochs):
    """The accuracy of logistic regression, and of every choice."""
    load, size = SIZES[data]
    x, y = load(return_X_y=True)
    rng = np.random.default_rng(seed)
    train, test = np.split(rng.permutation(len(x)), [size])
    labels = noisy(y, noise, rate, rng)[train]
    found = {"logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))}
    for temperature, fraction in CHOICES:
        found[name_of(temperature, fraction)] = HeteroscedasticClassifier(
            temperature=temperature, validation_fraction=fraction, epochs=epochs, random_state=seed
        )
    return {name: model.fit(x[train], labels).score(x[test], y[test]) for name, model in found.items()}


def name_of(temperature, fraction):
    """A choice in words."""
    return f"temperature {temperature:g}" + (", a tenth held out" if fraction else "")


def row(task, seeds, epochs):
    """The cells of a task: means over the seeds, and of the differences to logistic regression the standard error."""
    runs = [accuracies(*task, seed, epochs) for seed in range(seeds)]
    base = np.array([run["logistic regression"] for run in runs])
    cells = [f"{task[0]}, {task[1]} {task[2]:.0%}", f"{base.mean():.3f}"]
    for name in list(runs[0])[1:]:
        gain = np.array([run[name] for run in runs]) - base
        cells.append(f"{gain.mean():+.3f} +- {gain.std(ddof=len(gain) > 1) / len(gain) ** 0.5:.3f}")
    print(cells, flush=True)
    return cells


def main():
    arguments = harness.command_line(__doc__, repeats=5).parse_args()
    seeds, epochs, tasks = (1, 2, TASKS[-1:]) if arguments.quick else (arguments.repeats, 50, TASKS)
    head = ["wrong labels", "logistic regression", *(name_of(*choice) for choice in CHOICES)]
    title = f"accuracy, and its difference to logistic regression, {seeds} seeds"
    publish(arguments.output, "estimator", {title: [head, *(row(task, seeds, epochs) for task in tasks)]}, range(seeds))


if __name__ == "__main__":
    main()
