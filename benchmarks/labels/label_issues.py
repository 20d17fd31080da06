"""Label errors that `labels.find_issues` finds with several models, beside cleanlab.

python -m benchmarks.labels.label_issues [--seeds 5] [--tasks NAME ...] [--folds 3] [--output FILE] [--quick] [--render]

Digits with 20% label errors, by look-alikes or at random, or with the labels of weak raters, small models that saw 60
examples each. Every model predicts out of sample. Temperature, strength of T's penalty and epoch are chosen by noisy
labels, with three choices for each method and the same L2. The true classes are only measured:

* average precision of the ranking by the score; chance has the rate of label errors,
* precision and recall of the flagged labels,
* of the correct issues in the task "pairs and random", how many have the correct kind, two classes of a planted pair or
  not: by the counts of confident examples alone, and by the covariance of the head or the learned T of the last fold.

The rows of `cleanlab` use the probabilities of Dense. They need cleanlab, which `python -m nox -s bench --
labels.label_issues` installs. Results are JSON lines, one for each task and seed. A later run adds what is missing.
"""

import functools

import keras
import numpy as np

from benchmarks.labels import recipe
from benchmarks.lib import corruption, harness, noises, tasks
from benchmarks.lib.lines import completed
from benchmarks.lib.results import publish
from benchmarks.lib.tuning import tune
from keras_het.callbacks import ReleaseTransition
from keras_het.labels import find_issues
from keras_het.layers import HeteroscedasticDense, NoiseTransition

METHODS = ("Dense", "full", "Dense and a learned T")
TEMPERATURES, STRENGTHS = (1.5, 5.0, 15.0), (0.03, 0.07, 0.14)
DECAY, RELEASE = 2e-3, 10  # L2 of all kernels; the epoch in which T is released
PAIRS = ((3, 8), (4, 9), (1, 7))


def noisy_digits(name, seed):
    """Returns digits in random order: examples, true classes, and noisy labels."""
    from sklearn.datasets import load_digits

    from keras_het.labels import corrupt, symmetric
    from keras_het.labels.synthetic import look_alike_transitions

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng([seed, 1]).permutation(len(y))
    x, y = (x[order] / 16.0).astype("float32"), y[order]
    if name == "weak raters":
        return x, y, noises.one_of(corruption.weak_raters(x, y, seed=[seed, 2]), [seed, 3])
    rows = symmetric(10, 0.08 if name == "pairs and random" else 0.2)
    if name == "look-alikes, 20%":
        rows = look_alike_transitions(x, y, 0.2)
    if name == "pairs and random":  # 20% more of three pairs
        for i, j in [*PAIRS, *(pair[::-1] for pair in PAIRS)]:
            rows[i] = 0.8 * rows[i] + 0.2 * np.eye(10)[j]
    return x, y, corrupt(y, rows, [seed, 2])


TASKS = ("look-alikes, 20%", "random, 20%", "weak raters", "pairs and random")


def out_of_sample(x, labels, method, seed, folds, epochs):
    """Returns out-of-sample probabilities of the true classes, and the model of the last fold."""
    from keras_het.explain import predict_probabilities
    from keras_het.labels.data import stratified_folds

    fold_of, p = stratified_folds(labels, folds, seed), np.empty((len(x), 10))
    for fold in range(folds):
        inside, outside = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        parts = (inside[len(inside) // 5 :], inside[: len(inside) // 5], outside)
        task = tasks.Task(*(tasks.Split(x[part], labels[part]) for part in parts), 10, epochs, tasks.dense(128, 128))
        model = chosen(task, method, seed)
        p[outside] = predict_probabilities(model, x[outside])
    return p / p.sum(axis=1, keepdims=True), model


def choices(method):
    """Returns three choices of the temperature, or of the strength of T's penalty. All have the same L2."""
    return STRENGTHS if method.endswith("T") else TEMPERATURES


def make_model(task, method, choice, seed):
    """Returns the compiled backbone and head of the task, followed by a learned T if the method has one."""
    if not method.endswith("T"):
        return recipe.make_model(task, recipe.Setting(method, choice, DECAY), seed)
    keras.utils.set_random_seed(seed)
    decay = functools.partial(keras.regularizers.L2, DECAY)
    head = keras.layers.Dense(task.units, "log_softmax", kernel_regularizer=decay())
    flips = NoiseTransition(task.units, regularizer=keras.regularizers.L2(choice))
    model = keras.Sequential([*task.backbone(task.train.x.shape[1:], decay), head, flips])
    optimizer = keras.optimizers.Adam(2 * recipe.LEARNING_RATE)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def chosen(task, method, seed):
    """Returns the model of the best choice and epoch, by the likelihood of noisy validation labels."""
    arguments = {"batch_size": recipe.BATCH, "epochs": task.epochs, "extend": False, "verbose": 0}
    if method.endswith("T"):
        arguments["callbacks"] = [ReleaseTransition(min(RELEASE, task.epochs // 3))]
    make = functools.partial(make_model, task, method, seed=seed)
    return tune(make, choices(method), *task.train, validation_data=task.validation, **arguments).model


def pairs_of(model, x, labels):
    """Returns the classes that a model reports as confused, or None if it reports nothing."""
    from keras import ops

    from keras_het.explain import confused_pairs
    from keras_het.labels.estimation import systematic_flips

    last = model.layers[-1]
    if isinstance(last, NoiseTransition):
        return np.argwhere(
            systematic_flips(ops.convert_to_numpy(last.transition) * np.bincount(labels, minlength=10)[:, None])
        )
    if not isinstance(last, HeteroscedasticDense):
        return None
    return [(pair.first, pair.second) for pair in confused_pairs(model, x, count=45) if pair.covariance < 0]


def figures(name, seed, folds, epochs):
    """Yields a dict for each method."""

    x, clean, labels = noisy_digits(name, seed)
    wrong = labels != clean
    for method in METHODS:
        p, model = out_of_sample(x, labels, method, seed, folds, epochs)
        issues = find_issues(p, labels)
        row = {
            "method": method,
            **quality(wrong, issues.index, issues.score, issues.is_issue),
            "kind by counts": kinds(name, clean, issues),
        }
        pairs = pairs_of(model, x, labels)
        yield row | {
            "kind by model": kinds(name, clean, None if pairs is None else find_issues(p, labels, pairs=pairs))
        }
        if method == "Dense" and (flags := cleanlab_flags(labels, p)) is not None:
            scores = p[np.arange(len(p)), labels]
            yield {
                "method": "cleanlab",
                **quality(wrong, np.arange(len(p)), scores, flags),
                "kind by counts": None,
                "kind by model": None,
            }


def quality(wrong, index, score, is_issue):
    """Returns average precision of the ranking, precision and recall of the cut, and the rate of label errors."""
    from sklearn.metrics import average_precision_score, precision_score, recall_score

    wrong = wrong[index]
    return {
        "wrong": float(wrong.mean()),
        "average precision": float(average_precision_score(wrong, -score)),
        "precision": float(precision_score(wrong, is_issue, zero_division=0)),
        "recall": float(recall_score(wrong, is_issue)),
    }


def kinds(name, clean, issues):
    """Returns how many issues with a correct suggestion have the correct kind, or None without planted pairs."""
    if name != "pairs and random" or issues is None:
        return None
    right = issues.is_issue & (clean[issues.index] == issues.suggested)
    planted = {frozenset(pair) for pair in PAIRS}
    is_planted = np.array(
        [frozenset(pair) in planted for pair in zip(issues.label.tolist(), issues.suggested.tolist(), strict=True)]
    )
    return float(np.mean((issues.kind == "confusable")[right] == is_planted[right]))


def cleanlab_flags(labels, p):
    """Returns a mask of the labels that cleanlab flags, or None if it is not installed."""
    try:
        from cleanlab.filter import find_label_issues
    except ImportError:
        return None
    return find_label_issues(labels, p, n_jobs=1)


def table(rows):
    """Returns means over the seeds with standard errors, and gains over Dense, seed by seed."""
    measures = ("average precision", "precision", "recall")
    shares = ("kind by counts", "kind by model")
    lines = [["task (wrong)", "method", *measures, *shares]]
    for task in dict.fromkeys(row["task"] for row in rows):
        task_rows = [row for row in rows if row["task"] == task]
        for method in dict.fromkeys(row["method"] for row in task_rows):
            cells = []
            for measure in measures:
                values, base = (method_values(task_rows, name, measure) for name in (method, "Dense"))
                cells.append(with_error(values, "") if method == "Dense" else with_error(values - base, "+"))
            cells += [with_error(method_values(task_rows, method, measure), "") for measure in shares]
            wrong = f"{task} ({np.mean([row['wrong'] for row in task_rows]):.0%})" if method == "Dense" else ""
            lines.append([wrong, method, *cells])
    return lines


def method_values(rows, method, measure):
    """Returns the values of a method over the seeds, without missing ones."""
    return np.array([row[measure] for row in rows if row["method"] == method and row.get(measure) is not None])


def with_error(values, sign):
    """Returns a mean and its standard error as text, bold beyond two standard errors."""
    if not len(values):
        return ""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    text = f"{values.mean():{sign}.3f} +- {error:.3f}"
    return f"**{text}**" if sign and abs(values.mean()) > 2 * error else text


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one seed, two epochs, to see that it runs")
    parser.add_argument("--render", action="store_true", help="only show what the file has")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    seeds, epochs = (1, 3) if options.quick else (options.seeds, 40)
    keys = [{"task": task, "seed": seed} for seed in range(0 if options.render else seeds) for task in options.tasks]
    rows = completed(options.output / "label_issues.jsonl", keys, lambda *key: figures(*key, options.folds, epochs))
    packages = [keras.config.backend(), "cleanlab"] if any(row["method"] == "cleanlab" for row in rows) else None
    publish(
        options.output,
        "label_issues",
        {"wrong labels that are found": table(rows)},
        sorted({row["seed"] for row in rows}),
        packages,
    )


if __name__ == "__main__":
    main()
