"""Seconds and memory from `x, y` to an answer, beside cleanlab and scikit-learn.

python -m benchmarks.cost.answer [--examples N ...] [--features D ...] [--classes K ...] [--methods NAME ...]
                                 [--seconds 600] [--quick] [--render] [--output FOLDER]

Each call runs once, in a new process. Measured are processor seconds of both cores and of child processes, seconds, GiB
beside the data and the imported packages, and the fraction of new examples whose true class is predicted. Imports,
reading the data and that prediction do not count. Compiling counts. A process that exceeds the time limit or the memory
is stopped, and its method is not tried with more examples. Results are lines in a file: the same command resumes, and
`--render` only makes the tables. Each class needs at least ten examples, or else no folds can be made.

The features lie in a memory map in the temporary folder. Their classes overlap in 32 dimensions and are Gaussian with
equal covariances. A linear discriminant assumes exactly that, which favours `choose` and `clean`. So the fractions show
only that an answer is no worse. A fifth of the labels is wrong: half of them are flipped to the nearest other class,
the others to any class.

`find_issues` of the package and of cleanlab get the probabilities of the true classes. `LogisticRegressionCV` tries ten
strengths in five folds, and `CleanLearning` wraps a `LogisticRegression`. Both get scaled features. The floor is one
product of the features with K columns for each epoch.
"""

import argparse
import importlib.metadata
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

import numpy as np

from benchmarks.lib import harness, lines
from benchmarks.lib.results import publish

EXAMPLES, FEATURES, CLASSES = (1_000, 10_000, 100_000, 1_000_000), (384, 1280), (10, 100, 1000)
QUICK = {"examples": (500,), "features": (32,), "classes": (10,)}
EPOCHS, NEW, LATENT, WRONG, BLOCK = 20, 4000, 32, 0.2, 8192
SPREAD = 0.35  # of the centres, times sqrt(log K): knowing them gives nearly nine of ten correct, for every K
ITERATIONS = 1000  # at most, of a logistic regression


class Data(NamedTuple):
    """Features, noisy labels and class probabilities of training examples; features and true classes of new ones."""

    x: np.ndarray
    labels: np.ndarray
    p: np.ndarray
    new: np.ndarray
    true: np.ndarray


def draw(folder, examples, features, classes, seed=0):
    """Writes the arrays of `Data`, block by block, as float32 and int64."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(classes, LATENT)) * SPREAD * np.sqrt(np.log(classes))
    basis = rng.normal(size=(LATENT, features)) / np.sqrt(LATENT)
    truth = rng.permutation(np.arange(examples) % classes)
    true = rng.integers(classes, size=NEW)
    x, p = (_array(folder / name, (examples, width)) for name, width in (("x", features), ("p", classes)))
    labels = np.empty(examples, int)
    for start in range(0, examples, BLOCK):
        rows = slice(start, start + BLOCK)
        x[rows], p[rows], labels[rows] = _block(rng, centers, basis, truth[rows])
    new, *_ = _block(rng, centers, basis, true)
    for name, array in {"labels": labels, "new": new, "true": true}.items():
        np.save(folder / f"{name}.npy", array)


def _array(path, shape):
    return np.lib.format.open_memmap(path.with_suffix(".npy"), "w+", np.float32, shape)


def _block(rng, centers, basis, truth):
    """Returns features, class probabilities and noisy labels of examples of these classes."""
    latent = centers[truth] + rng.normal(size=(len(truth), LATENT))
    x = (latent @ basis + 0.5 * rng.normal(size=(len(truth), basis.shape[1]))).astype("float32")
    logits = latent @ centers.T - 0.5 * np.square(centers).sum(axis=1)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    logits[np.arange(len(truth)), truth] = -np.inf
    any_other = (truth + rng.integers(1, len(centers), size=len(truth))) % len(centers)
    other = np.where(rng.random(len(truth)) < 0.5, logits.argmax(axis=1), any_other)
    return x, p / p.sum(axis=1, keepdims=True), np.where(rng.random(len(truth)) < WRONG, other, truth)


def read(folder, method):
    """Returns the arrays as memory maps, and reads the method's input once so that its pages count for no method."""
    data = Data(*(np.load(folder / f"{name}.npy", mmap_mode="r") for name in Data._fields))
    array = data.p if method in OF_PROBABILITIES else data.x
    for start in range(0, len(array), BLOCK):
        array[start : start + BLOCK].sum()
    return data


# A method imports its packages and returns the measured call. The call returns a function of new examples and their
# true classes: the fraction that is correct.


def choose(data):
    """Returns a call that trains the model that `choose` picks."""
    import keras_het

    return lambda: score_model(keras_het.labels.choose(None, data.x, data.labels, epochs=EPOCHS, verbose=0).model)


def clean(data):
    """Returns a call that trains a model without the label errors that `clean` flags."""
    import keras_het

    return lambda: score_model(keras_het.labels.clean(None, data.x, data.labels, verbose=0).model)


def score_model(model):
    """Returns a function of new examples: the fraction that a Keras model predicts correctly."""
    return score_classes(lambda new: model.predict(new, verbose=0).argmax(axis=1))


def score_classes(predict):
    """Returns a function of new examples: the fraction that `predict` gets right."""
    return lambda new, true: float(np.mean(predict(new) == true))


def nothing(new, true):
    """Returns None, because the call predicts no new examples."""


def regression(data):
    """Returns a call that trains logistic regression, its strength by cross-validation."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=10, cv=5, max_iter=ITERATIONS))
    return lambda: score_classes(model.fit(data.x, data.labels).predict)


def clean_learning(data):
    """Returns a call that trains logistic regression without the label errors that cleanlab flags."""
    from cleanlab.classification import CleanLearning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler, model = StandardScaler(), CleanLearning(LogisticRegression(max_iter=ITERATIONS))

    def answer():
        model.fit(scaler.fit_transform(data.x), data.labels)
        return score_classes(lambda new: model.predict(scaler.transform(new)))

    return answer


def floor(data):
    """Returns a call that multiplies the features with K columns once for each epoch, by blocks."""
    columns = np.zeros((data.x.shape[1], data.p.shape[1]), "float32")

    def answer():
        for _ in range(EPOCHS):
            for start in range(0, len(data.x), BLOCK):
                data.x[start : start + BLOCK] @ columns
        return nothing

    return answer


def issues(data):
    """Returns a call of `find_issues`."""
    from keras_het.labels import find_issues

    def answer():
        find_issues(data.p, data.labels)
        return nothing

    return answer


def cleanlab_issues(data):
    """Returns a call of cleanlab's `find_label_issues`."""
    from cleanlab.filter import find_label_issues

    def answer():
        find_label_issues(data.labels, data.p)
        return nothing

    return answer


OF_FEATURES = {
    "choose": choose,
    "clean": clean,
    "CleanLearning": clean_learning,
    "LogisticRegressionCV": regression,
    "floor": floor,
}
OF_PROBABILITIES = {"find_issues": issues, "cleanlab find_label_issues": cleanlab_issues}
METHODS = OF_FEATURES | OF_PROBABILITIES
NEEDED = {
    "LogisticRegressionCV": "scikit-learn",
    "CleanLearning": "cleanlab",
    "cleanlab find_label_issues": "cleanlab",
}
MEASURES = {
    "processor": ("processor seconds", ".3f"),
    "seconds": ("seconds", ".3f"),
    "memory": ("GiB beside the data", ".2f"),
    "right": ("new examples predicted right", ".3f"),
}


def usage():
    """Returns processor seconds of this process and its children, seconds, and the peak GiB of this process."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(each.ru_utime + each.ru_stime for each in used)
    return {"processor": processor, "seconds": time.perf_counter(), "memory": harness.peak_memory() / 1024}


def measure(method, folder):
    """Returns the cost of a call, without the cost of its preparation, and the fraction that its answer gets right."""
    data = read(folder, method)
    call = METHODS[method](data)
    before = usage()
    score = call()
    after = usage()
    return {name: after[name] - before[name] for name in before} | {"right": score(data.new, data.true)}


def in_time(command, seconds):
    """Returns the JSON that a process prints last, or its limit if it was stopped, or its error.

    Its own children end with it: workers of a pool would wait for ever.
    """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, **pipes) as process:
        try:
            printed, errors = process.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                return {"limit": f"> {seconds:g} s"}
            raise
    return json.loads(printed.splitlines()[-1]) if process.returncode == 0 else failure(process.returncode, errors)


def failure(code, errors):
    """Returns "out of memory" as a limit, or the last line of the errors."""
    last = (errors.strip().splitlines() or [f"exit code {code}"])[-1]
    is_memory = code == -signal.SIGKILL or "MemoryError" in last
    return {"limit": "out of memory"} if is_memory else {"error": last}


def measured(root, file, seconds):
    """Returns a function that measures a method, unless the method reached a limit on smaller data."""

    def make(examples, features, classes, method):
        before = lines.read(file.parent, file.name)
        same = lines.select(before, features=features, classes=classes, method=method)
        if any("limit" in line for line in same if line["examples"] < examples):
            return []
        folder = data_of(root, examples, features, classes)
        return [in_time([sys.executable, "-m", __spec__.name, "--measure", method, str(folder)], seconds)]

    return make


def data_of(root, *sizes):
    """Returns the folder of the data of these sizes, and makes them in place of other sizes."""
    folder = root / "-".join(map(str, sizes))
    if not folder.exists():
        for other in root.iterdir():
            shutil.rmtree(other)
        folder.mkdir()
        draw(folder, *sizes)
    return folder


def keys(options):
    """Yields the measurements in order: all methods on the same data, small data first."""
    for classes in options.classes:
        for features in options.features:
            for examples in sorted(options.examples):
                for method in options.methods if examples >= 10 * classes else ():
                    yield {"examples": examples, "features": features, "classes": classes, "method": method}


def tables(records):
    """Returns a table for each measure, with a row for each data set and a column for each method; then the errors."""
    methods = [method for method in METHODS if lines.select(records, method=method)]
    result = {title: _table(records, methods, name, form) for name, (title, form) in MEASURES.items()}
    errors = [[line["method"], *_sizes(line), line["error"]] for line in records if "error" in line]
    return result | ({"errors": [["method", "N", "D", "K", "error"], *errors]} if errors else {})


def _table(records, methods, name, form):
    methods = [method for method in methods if _has(lines.select(records, method=method), name)]
    rows = []
    for sizes in dict.fromkeys(map(_sizes, records)):
        own = {line["method"]: line for line in records if _sizes(line) == sizes}
        rows.append([*sizes, *(_cell(own.get(method), name, form) for method in methods)])
    return [["N", "D", "K", *methods], *rows]


def _has(own, name):
    """Returns whether any line has the measure, or was stopped before it."""
    return any(line.get(name, 0) is not None for line in own)


def _sizes(line):
    return tuple(f"{line[name]:,}" for name in ("examples", "features", "classes"))


def _cell(line, name, form):
    if line is None:
        return "not tried"
    if "limit" in line or "error" in line:
        return line.get("limit", "error")
    return "" if line[name] is None else format(line[name], form)


def installed():
    """Returns the installed packages among those that methods need."""
    there = {each.name for each in importlib.metadata.distributions()}
    return sorted(there.intersection(NEEDED.values()))


def command_line():
    """Returns the parser. Methods without their package are left out, unless they are named."""
    methods = [method for method in METHODS if NEEDED.get(method) in {None, *installed()}]
    parser = harness.parser_of(__doc__)
    parser.add_argument("--examples", nargs="+", type=int, default=EXAMPLES)
    parser.add_argument("--features", nargs="+", type=int, default=FEATURES)
    parser.add_argument("--classes", nargs="+", type=int, default=CLASSES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=methods)
    parser.add_argument("--seconds", type=float, default=600, help="limit of a process")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--render", action="store_true", help="measure nothing, and make the tables of what is there")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    return parser


def main():
    parser = command_line()
    options = parser.parse_args()
    if options.measure:
        method, folder = options.measure
        print(json.dumps(measure(method, pathlib.Path(folder))))
        return
    if options.quick:
        parser.set_defaults(**QUICK)
        options = parser.parse_args()
    import keras

    backend = keras.config.backend()
    file = options.output / f"answer_{'quick_' if options.quick else ''}{backend}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    if not options.render:
        with tempfile.TemporaryDirectory() as root:
            lines.completed(file, keys(options), measured(pathlib.Path(root), file, options.seconds))
    result = tables(lines.read(file.parent, file.name))
    publish(file.parent, file.stem, result, [0], [backend, "numpy", *installed()], harness.processor())


if __name__ == "__main__":
    main()
