"""The paper's tables in small: the same rows on tasks of minutes, with a Dense control at every temperature.

python -m benchmarks.imagenet.paper_tables [--tasks NAME ...] [--seeds 5] [--output FOLDER] [--quick] [--render]
(on the backend of KERAS_BACKEND)

Every row trains at each of `TEMPERATURES`; a Dense layer has one, too: its logits are divided by it. A row is measured
after a third of the epochs and after all of them, as the paper has 90 and 270. The paper measures on labels like those
of training, which are the noisy validation labels here. They choose a temperature; clean labels choose nothing.

Results are JSON lines, one for each task, seed, row and temperature, to which a later run adds what is missing.
"""

import time
from typing import NamedTuple

import keras
import numpy as np
from keras import ops
from scipy.special import log_expit, log_softmax

from benchmarks.imagenet import paper_report
from benchmarks.lib import harness, tasks
from benchmarks.lib.lines import completed, distinct, read, select
from benchmarks.lib.results import publish
from keras_het import covariances
from keras_het.integrators import MonteCarlo, QuasiMonteCarlo, Taylor
from keras_het.layers import HeteroscedasticDense

KEY = ("task", "row", "temperature", "seed")
TASKS = ("digits, 40%", "groups, 100 classes, 100 each")
TEMPERATURES = (0.15, 1.0, 5.0, 15.0)
MIDDLE = 5.0  # of the rows that vary the samples
BATCH, LEARNING_RATE, FACTORS, NODES = 128, 2e-3, 15, 64
COVARIANCES = {
    "diagonal": covariances.Diagonal,
    "full": covariances.LowRank,
    "parameter-efficient": covariances.ParameterEfficient,
}


class Row(NamedTuple):
    """A row of a table.

    head: "Dense", or a key of `COVARIANCES`.
    samples: of plain Monte Carlo, as in the paper; 0 is the package's default with `NODES`, or the closed form.
    wide: whether a Dense head has one more hidden layer, for as many parameters as the full head.
    """

    head: str
    link: str = "softmax"
    samples: int = 0
    taylor: bool = False
    wide: bool = False


ROWS = {
    "Dense": Row("Dense"),
    "diagonal": Row("diagonal"),
    "full": Row("full"),
    "diagonal, Taylor": Row("diagonal", taylor=True),
    "Dense, equal parameters": Row("Dense", wide=True),
    "Dense, sigmoid": Row("Dense", "sigmoid"),
    "diagonal, sigmoid": Row("diagonal", "sigmoid"),
    "parameter-efficient, sigmoid": Row("parameter-efficient", "sigmoid"),
    "full, sigmoid": Row("full", "sigmoid"),
    **{f"full, {s} sample{'s' * (s > 1)}": Row("full", samples=s) for s in (1, 10, 100, 1000)},
}


def equal_width(features, units, num_factors):
    """The width of one more hidden layer that gives a Dense head as many weights as a full head has."""
    full = (features + 1) * units * (num_factors + 1)
    return round((full + features * units) / (features + 1 + units))


def make_model(task, row, temperature, seed):
    """The backbone of the task and the head of the row, compiled."""
    keras.utils.set_random_seed(seed)
    layers = task.backbone(task.train.x.shape[1:], lambda: None)
    if row.wide:
        width = equal_width(layers[-1].units, task.units, min(FACTORS, task.units))
        layers.append(keras.layers.Dense(width, "relu"))
    if row.head == "Dense":
        layers += [keras.layers.Dense(task.units), keras.layers.Rescaling(1 / temperature)]
    else:
        layers.append(_head(task.units, row, temperature))
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.Adam(LEARNING_RATE), loss_of(row.link))
    return model


def _head(units, row, temperature):
    """The noise has the same seed in all runs, so that a compiled program serves all seeds of data and trunk."""
    factors = {} if row.head == "diagonal" else {"num_factors": min(FACTORS, units)}
    nodes = MonteCarlo(row.samples) if row.samples else QuasiMonteCarlo(NODES)
    return HeteroscedasticDense(
        units,
        covariance=COVARIANCES[row.head](**factors),
        link=row.link,
        temperature=temperature,
        integrator=Taylor() if row.taylor else nodes if row.link == "softmax" else None,
        seed=0,
    )


def loss_of(link):
    """The loss of labels that are one of K; of a sigmoid summed over the classes, as a likelihood is."""
    if link == "softmax":
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return _summed_crossentropy


def _summed_crossentropy(labels, logits):
    targets = ops.one_hot(ops.cast(ops.reshape(labels, (-1,)), "int32"), logits.shape[-1])
    return ops.sum(ops.binary_crossentropy(targets, logits, from_logits=True), axis=-1)


def scores(outputs, y, link):
    """Accuracy and NLL of outputs of a model, and for sigmoids the gAP."""
    outputs, rows = np.asarray(outputs, "float64"), np.arange(len(y))
    found = {"accuracy": float((outputs.argmax(-1) == y).mean())}
    if link == "softmax":
        return {**found, "NLL": float(-log_softmax(outputs, axis=-1)[rows, y].mean())}
    from sklearn.metrics import average_precision_score

    other = log_expit(-outputs)
    nll = -(other.sum(-1) - other[rows, y] + log_expit(outputs[rows, y])).mean()
    gap = average_precision_score(np.eye(outputs.shape[-1])[y], outputs, average="micro")
    return {**found, "NLL": float(nll), "gAP": float(gap)}


def run(name, label, temperature, seed, epochs=None):
    """One line of the results: the scores after a third of the epochs and after all."""
    keras.utils.clear_session()
    start, task, row = time.perf_counter(), tasks.TASKS[name](seed), ROWS[label]
    model, last = make_model(task, row, temperature, seed), epochs or task.epochs
    line = {"task": name, "seed": seed, "row": label, "temperature": temperature, "epochs": last}
    for length, (first, end) in {"short": (0, last // 3), "long": (last // 3, last)}.items():
        model.fit(*task.train, batch_size=BATCH, initial_epoch=first, epochs=end, verbose=0)
        for kind, part in (("noisy", task.validation), ("clean", task.test)):
            found = scores(model.predict(part.x, batch_size=1000, verbose=0), part.y, row.link)
            line |= {f"{length} {kind} {figure}": value for figure, value in found.items()}
    return {**line, "seconds": time.perf_counter() - start}


def wanted(names, seeds):
    """All keys of runs: the tasks in turn, and in each a seed after the other."""
    of_rows = [
        (label, temperature)
        for label, row in ROWS.items()
        for temperature in ((MIDDLE,) if row.samples else TEMPERATURES)
    ]
    return [
        (name, label, temperature, seed) for name in names for seed in range(seeds) for label, temperature in of_rows
    ]


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(tasks.TASKS), default=list(TASKS), metavar="NAME")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one seed, three epochs, to see that it runs")
    parser.add_argument("--render", action="store_true", help="only show what the folder has")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    seeds, epochs, pattern = 1 if options.quick else options.seeds, 3 if options.quick else None, "paper_tables-*.jsonl"
    done = read(options.output, pattern)
    keys = [dict(zip(KEY, key, strict=True)) for key in wanted(options.tasks, 0 if options.render else seeds)]
    keys = [key for key in keys if key["row"] in options.rows and not select(done, **key)]
    file = options.output / pattern.replace("*", tasks_key(options.tasks))
    completed(file, keys, lambda *key: [run(*key, epochs)])
    lines = read(options.output, pattern)
    publish(options.output, "paper_tables", paper_report.describe(lines), sorted(distinct(lines, "seed")))


def tasks_key(names):
    """A word for the tasks of a run, so that two runs side by side write two files."""
    return "-".join(name.split(",")[0] for name in names)


if __name__ == "__main__":
    main()
