"""Accuracy after `labels.clean` drops or corrects the label errors.

python -m benchmarks.labels.cleaning [--epochs 12 50] [--output FOLDER] [--quick] [--render]

Digits with seven kinds of noise. All models train for the same fixed number of epochs, on noisy training and validation
labels together. The test labels are clean. All rows share the same out-of-sample probabilities. "Certain" are the
issues, which `labels.clean` drops; "all" are all disagreements.

The action of an earlier `clean` was chosen on seeds 0 to 4. Seeds 20 to 24 test it, with the shorter training. Results
are JSON lines, and a later run adds what is missing.
"""

import numpy as np

from benchmarks.lib import experiments, lines, noises, tasks
from benchmarks.lib.trials import BATCH, accuracy, make_model
from keras_het.labels import clean, corrupt, find_issues

CHOSEN_ON, OTHERS = range(5), range(20, 25)  # seeds
FOLDS = 3
ACTIONS = ("drop certain", "drop all", "correct certain", "correct all")


def planted(noise, seed):
    """Returns digits, true labels (-1 for outliers) and noisy labels."""
    x, y, sizes, *_ = noises.digits()
    chosen = np.random.default_rng([seed, 1]).permutation(len(y))[: sum(sizes)]
    made = noises.NOISES[noise](x[chosen], y[chosen], [seed, 3])
    return made.x, made.y, corrupt(y[chosen], rows=made.rows, seed=[seed, 2])


def probabilities(task, seed):
    """Returns out-of-sample probabilities of the network of a task."""
    arguments = {"epochs": task.epochs, "folds": FOLDS, "batch_size": BATCH, "action": "keep", "seed": seed}
    p = clean(lambda: make_model(task, seed), *task.train, verbose=0, **arguments).probabilities
    return p.astype("float64")


def measured(options, epochs, noise, seed):
    """Yields the clean accuracy of a model on all labels and after each action, and the rate of label errors."""
    x, true, labels = planted(noise, seed)
    task = noises.make(noise, seed)._replace(train=tasks.Split(x, labels), epochs=epochs)
    issues = find_issues(probabilities(task, seed), labels)
    trained = {"plain": (labels, np.arange(len(labels)))} | {
        f"{act} {which}": cleaned(labels, issues, mask, act)
        for which, mask in {"certain": issues.is_issue, "all": issues.disagrees}.items()
        for act in ("drop", "correct")
    }
    row = {"issues": float(issues.disagrees.mean()), "wrong": float(np.mean(labels != true))}
    for name, (y, kept) in trained.items():
        model = make_model(task, seed)
        model.fit(x[kept], y[kept], batch_size=BATCH, epochs=epochs, verbose=0)
        row[name] = accuracy(model.predict(task.test.x, batch_size=1000, verbose=0), task.test.y)
    yield row


def cleaned(labels, issues, mask, action):
    """Returns labels and indices of the examples to train on, without the issues of a mask."""
    wrong = issues.index[mask]
    if action == "drop":
        return labels, np.setdiff1d(np.arange(len(labels)), wrong)
    corrected = labels.copy()
    corrected[wrong] = issues.suggested[mask]
    return corrected, np.arange(len(labels))


def table(rows):
    """Returns the accuracy of plain training, and the gain of each action, seed by seed."""
    result = [["noise", "label errors", "disagreements", "all labels", *ACTIONS]]
    for noise in dict.fromkeys(row["noise"] for row in rows):
        of = {key: np.array([row[key] for row in rows if row["noise"] == noise]) for key in rows[0] if key != "noise"}
        gains = [of[action] - of["plain"] for action in ACTIONS]
        means = [f"{of[key].mean():.3f}" for key in ("wrong", "issues", "plain")]
        result.append([noise, *means, *(lines.gain(100 * points, 1) for points in gains)])
    return result


def tables(rows):
    """Returns a table for each length of training, with separate tables for the seeds that chose the default."""
    result = {}
    for row in rows:
        seeds = "the seeds of the choice" if row["seed"] in CHOSEN_ON else "other seeds"
        result.setdefault(f"{row['epochs']} epochs, {seeds}", []).append(row)
    return {title: table(own) for title, own in result.items()}


def keys(options):
    """Yields the keys of all runs. The other seeds have the shorter training alone."""
    trainings = [(epochs, seed) for epochs in options.epochs for seed in options.seeds]
    trainings += [(min(options.epochs), seed) for seed in options.other_seeds]
    for epochs, seed in trainings:
        for noise in noises.NOISES:
            yield {"epochs": epochs, "noise": noise, "seed": seed}


def main():
    quick, fixed = {"epochs": [2], "seeds": [0], "other_seeds": []}, {"seeds": CHOSEN_ON, "other_seeds": OTHERS}
    experiments.run(__doc__, "cleaning", measured, tables, {"epochs": (12, 50)}, quick, fixed, keys=keys)


if __name__ == "__main__":
    main()
