"""Accuracy after `labels.clean` drops or corrects the label errors.

python -m benchmarks.labels.cleaning [--epochs 12 50] [--output FOLDER] [--quick] [--render]

Digits with seven kinds of noise. All models train for the same fixed number of epochs, on noisy training and validation
labels together. The test labels are clean. All rows share the same out-of-sample probabilities. "Certain" are the
confident issues, which `labels.clean` drops; "all" are all disagreements.

The default action was chosen on seeds 0 to 4. Seeds 20 to 24 test it, with the shorter training. Results are JSON
lines, and a later run adds what is missing.
"""

import numpy as np

from benchmarks.labels.diagnosis import planted, probabilities
from benchmarks.lib import harness, lines, noises, tasks
from benchmarks.lib.results import publish
from benchmarks.lib.trials import BATCH, make_model

CHOSEN_ON, OTHERS = range(5), range(20, 25)  # seeds
ACTIONS = ("drop certain", "drop all", "correct certain", "correct all")


def figures(epochs, noise, seed):
    """Returns clean accuracy of a model on all labels and after each action, and the rate of label errors."""
    from keras_het.explain import predict_probabilities
    from keras_het.labels import find_issues
    from keras_het.labels.issues import all_issues

    x, true, labels, units, backbone = planted("digits", noise, seed)
    test = noises.make("digits", noise, seed).test
    p = probabilities(x, labels, units, backbone, seed, epochs).astype("float64")
    choices = {"certain": find_issues(p, labels), "all": all_issues(p, labels)}
    trained = {"plain": (labels, np.arange(len(labels)))} | {
        f"{act} {which}": cleaned(labels, issues, act)
        for which, issues in choices.items()
        for act in ("drop", "correct")
    }
    row = {"issues": float(choices["all"].is_issue.mean()), "wrong": float(np.mean(labels != true))}
    for name, (y, kept) in trained.items():
        task = tasks.Task(tasks.Split(x[kept], y[kept]), None, None, units, epochs, backbone)
        model = make_model(task, seed)
        model.fit(*task.train, batch_size=BATCH, epochs=epochs, verbose=0)
        row[name] = float(np.mean(predict_probabilities(model, test.x).argmax(axis=1) == test.y))
    return row


def cleaned(labels, issues, action):
    """Returns labels and indices of the examples to train on, without the issues."""
    wrong = issues.index[issues.is_issue]
    if action == "drop":
        return labels, np.setdiff1d(np.arange(len(labels)), wrong)
    corrected = labels.copy()
    corrected[wrong] = issues.suggested[issues.is_issue]
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
    parser = harness.experiment(harness.parser_of(__doc__), epochs=[2], seeds=[0], other_seeds=[])
    parser.add_argument("--epochs", type=int, nargs="+", default=[12, 50])
    parser.set_defaults(seeds=CHOSEN_ON, other_seeds=OTHERS)
    options = parser.parse_args()
    wanted = () if options.render else keys(options)
    rows = lines.completed(options.output / "cleaning.jsonl", wanted, lambda *key: [figures(*key)])
    publish(options.output, "cleaning", tables(rows), sorted({row["seed"] for row in rows}))


if __name__ == "__main__":
    main()
