"""Time and memory from `x, y` to the answer, beside cleanlab, scikit-learn, and the floor.

python -m benchmarks.cost.answer [--examples N ...] [--features D ...] [--classes K ...] [--methods NAME ...]
                                 [--seconds 600] [--quick] [--output FOLDER]

Each answer is found in a process of its own: processor seconds (of both cores), seconds, GiB beside the data, and the
fraction of new examples whose true class is predicted. A call that takes longer than the limit is stopped, and is not
tried with more examples. Features are of classes that lie in 32 dimensions; a fifth of the labels is wrong, half of
those name the class that is nearest to the example. `LogisticRegressionCV` has scaled features, ten strengths and five
folds; cleanlab's `CleanLearning` a logistic regression. The floor is one product of the features with K columns for
each epoch. `neighbors` is the search of ten neighbours alone, with the fraction of the nearest that it finds.
"""

import json
import resource
import subprocess
import sys
import time

import numpy as np

from benchmarks.lib import harness
from benchmarks.lib.results import publish

EXAMPLES, FEATURES, CLASSES = (1_000, 10_000, 50_000), (384,), (10,)
EPOCHS, NEW, LATENT, WRONG, ASKED = 20, 2000, 32, 0.2, 2000


def drawn(count, features, classes, seed=0):
    """Features, noisy labels and true classes of training examples, and features and classes of new ones."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(classes, LATENT)) * 0.9
    basis = rng.normal(size=(LATENT, features)).astype("float32") / np.sqrt(LATENT)
    x, truth = np.empty((count + NEW, features), "float32"), rng.integers(classes, size=count + NEW)
    labels = truth.copy()
    for start in range(0, len(x), 8192):
        rows = slice(start, start + 8192)
        latent = centers[truth[rows]] + rng.normal(size=(len(truth[rows]), LATENT))
        x[rows] = latent.astype("float32") @ basis + 0.5 * rng.normal(size=(len(latent), features)).astype("float32")
        distances = np.square(centers).sum(axis=1) - 2.0 * latent @ centers.T
        distances[np.arange(len(latent)), truth[rows]] = np.inf
        other = np.where(
            rng.random(len(latent)) < 0.5, distances.argmin(axis=1), rng.integers(classes, size=len(latent))
        )
        labels[rows] = np.where(rng.random(len(latent)) < WRONG, other, truth[rows])
    return x[:count], labels[:count], truth[:count], x[count:], truth[count:]


def probabilities(x, truth, classes, seed=0):
    """Probabilities that are right for most, as an argument of `find_label_issues`, float32."""
    rng, p = np.random.default_rng(seed), np.full((len(x), classes), 0.4 / (classes - 1), "float32")
    shown = np.where(rng.random(len(x)) < 0.9, truth, rng.integers(classes, size=len(x)))
    p[np.arange(len(x)), shown] = 0.6
    return p


def chosen(x, labels, truth, new, classes):
    """Classes of new examples by what `choose` chooses."""
    import keras_het

    return keras_het.choose(None, x, labels, epochs=EPOCHS, verbose=0).model.predict(new, verbose=0).argmax(axis=1)


def cleaned(x, labels, truth, new, classes):
    """The same by `clean_labels`."""
    import keras_het

    return keras_het.clean_labels(None, x, labels, verbose=0).model.predict(new, verbose=0).argmax(axis=1)


def issues_by_features(x, labels, truth, new, classes):
    """Issues by features; nothing is predicted."""
    from keras_het.analysis import find_label_issues

    find_label_issues(features=x, labels=labels, verbose=0)


def neighbors(x, labels, truth, new, classes):
    """The search of neighbours, and its recall."""
    from keras_het.analysis import neighbors

    unit = neighbors._unit_rows(x)
    found = neighbors.nearest(unit, 10)
    asked = np.random.default_rng(1).permutation(len(x))[:ASKED]
    used = usage()
    right = neighbors.exact(unit, asked, 10)
    recall = np.mean([np.isin(row, other).mean() for row, other in zip(right, found[asked], strict=True)])
    return {"recall": float(recall), "used": used}


def regression(x, labels, truth, new, classes):
    """Classes of new examples by logistic regression, its strength by cross-validation."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = LogisticRegressionCV(Cs=10, cv=5, l1_ratios=(0,), use_legacy_attributes=False)
    return make_pipeline(StandardScaler(), model).fit(x, labels).predict(new)


def by_cleanlab(x, labels, truth, new, classes):
    """The same by cleanlab's `CleanLearning` with a logistic regression."""
    from cleanlab.classification import CleanLearning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    return CleanLearning(LogisticRegression()).fit(scaler.transform(x), labels).predict(scaler.transform(new))


def floor(x, labels, truth, new, classes):
    """One product of the features with K columns for each epoch."""
    columns = np.zeros((x.shape[1], classes), "float32")
    for _ in range(EPOCHS):
        x @ columns


def issues(p, labels):
    """Issues by probabilities."""
    from keras_het.analysis import find_label_issues

    find_label_issues(p, labels)


def issues_by_cleanlab(p, labels):
    """The same by cleanlab."""
    from cleanlab.filter import find_label_issues

    find_label_issues(labels, p)


OF_FEATURES = {
    "choose": chosen,
    "clean_labels": cleaned,
    "find_label_issues(features)": issues_by_features,
    "neighbors": neighbors,
    "LogisticRegressionCV": regression,
    "CleanLearning": by_cleanlab,
    "floor": floor,
}
OF_PROBABILITIES = {"find_label_issues": issues, "cleanlab find_label_issues": issues_by_cleanlab}
METHODS = (*OF_FEATURES, *OF_PROBABILITIES)


def usage():
    """Processor seconds, seconds, and peak GiB of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, time.perf_counter(), harness.peak_memory() / 1024


def measure_row(row):
    """Processor seconds, seconds, GiB beside the data, and the accuracy or the recall, of one answer."""
    data = drawn(row["examples"], row["features"], row["classes"])
    x, labels, truth, new, true = data
    arguments = (x, labels, truth, new, row["classes"])
    if row["method"] in OF_PROBABILITIES:
        arguments = probabilities(x, truth, row["classes"]), labels
        del data, x, new
    before = usage()
    found = {**OF_FEATURES, **OF_PROBABILITIES}[row["method"]](*arguments)
    after = usage()
    if isinstance(found, dict):
        after, found = found["used"], found["recall"]
    elif found is not None:
        found = float(np.mean(found == true))
    processor, seconds, memory = (second - first for first, second in zip(before, after, strict=True))
    return {"processor": processor, "seconds": seconds, "memory": memory, "right": found}


def table(rows, limit):
    """Rows of text."""
    heads = ["method", "examples", "features", "classes", "processor seconds", "seconds", "GiB", "right"]
    return [heads, *(_line(row, limit) for row in rows)]


def _line(row, limit):
    sizes = [row["method"], *(f"{row[name]:,}" for name in ("examples", "features", "classes"))]
    if row["processor"] is None:
        return [*sizes, f"over {limit:g} s, or out of memory", "", "", ""]
    right = "" if row["right"] is None else f"{row['right']:.3f}"
    return [*sizes, f"{row['processor']:.1f}", f"{row['seconds']:.1f}", f"{row['memory']:.2f}", right]


def measured(case, limit):
    """What a process measures, or nothing of one that takes longer than the limit."""
    command = [sys.executable, "-m", __spec__.name, "--row", json.dumps(case)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True)
        return json.loads(done.stdout.splitlines()[-1])
    except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
        print(getattr(error, "stderr", "") or error, file=sys.stderr)
        return {"processor": None}


def main():
    parser = harness.command_line(__doc__, repeats=1)
    parser.add_argument("--examples", nargs="+", type=int, default=EXAMPLES)
    parser.add_argument("--features", nargs="+", type=int, default=FEATURES)
    parser.add_argument("--classes", nargs="+", type=int, default=CLASSES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seconds", type=float, default=600)
    arguments = parser.parse_args()
    if arguments.row:
        print(json.dumps(measure_row(arguments.row)))
        return
    rows = []
    for method in arguments.methods:
        for classes in arguments.classes:
            for features in arguments.features:
                for examples in (500,) if arguments.quick else sorted(arguments.examples):
                    case = {"method": method, "examples": examples, "features": features, "classes": classes}
                    rows.append({**case, **measured(case, arguments.seconds)})
                    print(harness.markdown(table(rows[-1:], arguments.seconds)).splitlines()[-1], flush=True)
                    if rows[-1]["processor"] is None:
                        break
    import keras

    name = f"answer_{keras.config.backend()}"
    packages = [keras.config.backend(), "numpy", "scikit-learn"]
    publish(arguments.output, name, {"": table(rows, arguments.seconds)}, [0], packages, harness.processor())


if __name__ == "__main__":
    main()
