"""Accuracy after `labels.clean` drops or corrects the label errors.

python -m benchmarks.labels.cleaning [--folds 3] [--epochs 12 50] [--output FOLDER] [--quick] [--render]

Digits with seven kinds of noise. All models train for the same fixed number of epochs, on noisy training and validation
labels together. The test labels are clean. All rows share the same out-of-sample probabilities. "Certain" are the
confident issues, which `labels.clean` drops; "all" are all disagreements.

The default action was chosen on seeds 0 to 4. Seeds 20 to 24 test it, with the shorter training. Results are JSON
lines, and a later run adds what is missing.
"""

import json

import numpy as np

from benchmarks.labels.diagnosis import planted, probabilities
from benchmarks.lib import harness, noises, tasks
from benchmarks.lib.lines import gain
from benchmarks.lib.results import publish
from benchmarks.lib.trials import BATCH, make_model

CHOSEN_ON, OTHERS = range(5), range(20, 25)  # seeds
ACTIONS = ("drop certain", "drop all", "correct certain", "correct all")


def figures(noise, seed, folds, epochs):
    """Returns clean accuracy of a model on all labels and after each action, and the rate of label errors."""
    from keras_het.explain import predict_probabilities
    from keras_het.labels import find_issues
    from keras_het.labels.issues import all_issues

    x, true, labels, units, backbone = planted("digits", noise, seed)
    test = noises.make("digits", noise, seed).test
    p = probabilities(x, labels, units, backbone, seed, folds, epochs).astype("float64")
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
    lines = [["noise", "label errors", "disagreements", "all labels", *ACTIONS]]
    for noise in dict.fromkeys(row["noise"] for row in rows):
        of = {key: np.array([row[key] for row in rows if row["noise"] == noise]) for key in rows[0] if key != "noise"}
        gains = [of[action] - of["plain"] for action in ACTIONS]
        means = [f"{of[key].mean():.3f}" for key in ("wrong", "issues", "plain")]
        lines.append([noise, *means, *(gain(100 * points, 1) for points in gains)])
    return lines


def tables(rows):
    """Returns a table for each length of training, with separate tables for the seeds that chose the default."""
    result = {}
    for row in rows:
        seeds = "the seeds of the choice" if row["seed"] in CHOSEN_ON else "other seeds"
        result.setdefault(f"{row['epochs']} epochs, {seeds}", []).append(row)
    return {title: table(own) for title, own in result.items()}


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--epochs", type=int, nargs="+", default=[12, 50])
    parser.add_argument("--quick", action="store_true", help="one seed, two epochs, to see that it runs")
    parser.add_argument("--render", action="store_true", help="only show what the file has")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "cleaning.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    lengths = [2] if options.quick else options.epochs
    trainings = [(length, seed) for length in lengths for seed in ([0] if options.quick else CHOSEN_ON)]
    trainings += [] if options.quick else [(min(lengths), seed) for seed in OTHERS]
    done = {(row["epochs"], row["noise"], row["seed"]) for row in rows}
    wanted = [(epochs, noise, seed) for epochs, seed in trainings for noise in noises.NOISES]
    for epochs, noise, seed in [] if options.render else wanted:
        if (epochs, noise, seed) not in done:
            result = figures(noise, seed, options.folds, epochs)
            rows.append({"epochs": epochs, "noise": noise, "seed": seed, **result})
            with file.open("a") as lines:
                lines.write(json.dumps(rows[-1]) + "\n")
            print(json.dumps(rows[-1]), flush=True)
    publish(options.output, "cleaning", tables(rows), sorted({row["seed"] for row in rows}))


if __name__ == "__main__":
    main()
