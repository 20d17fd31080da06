"""When to stop: Label Wave, by the changes of predictions, beside early stopping by noisy validation labels.

python -m benchmarks.labels.dynamics_stopping [--seeds 5] [--output FOLDER] [--quick] [--render]

1024 digits with seven kinds of wrong labels, Dense, 50 epochs; 256 noisy validation labels, and clean test labels that
are only measured. Each training runs to its end once, and the rules are applied to what it was:

* early stopping: the best accuracy on noisy validation labels so far, given up after 5 epochs without a better one;
* the best of all epochs by these labels, for which all epochs must be trained;
* Label Wave, with its defaults, which needs no validation labels; so also in a training that has the validation
  examples, too; and with other widths and patiences. The defaults were not chosen by this table;
* the last epoch; and, as a bound that nobody knows, the best by clean labels.

Results are JSON lines, one for each noise and seed, to which a later run adds what is missing.
"""

import inspect

import keras
import numpy as np

from benchmarks.arena.trial import BATCH, Trial
from benchmarks.labels.dynamics import run_missing
from benchmarks.lib import harness, lines, noises
from benchmarks.lib.results import publish

PATIENCE = 5
OTHERS = {f"width {width}, patience {patience}": (width, patience) for width in (1, 2, 3, 5) for patience in (3, 5, 10)}
BASE, WAVE, BOUND = "early stopping, noisy labels", "Label Wave", "best epoch by clean labels (bound)"
ALL_DATA = "Label Wave, validation examples too"


class Accuracies(keras.callbacks.Callback):
    """Accuracy on some labels after every epoch."""

    def __init__(self, **splits):
        super().__init__()
        self.splits, self.found = splits, {name: [] for name in splits}

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        for name, split in self.splits.items():
            self.found[name].append(float(np.mean(self.model.predict_on_batch(split.x).argmax(-1) == split.y)))


def traces(noise, seed, epochs=None):
    """Lists of accuracies and changes by epoch: of a training, and of one that has the validation examples, too."""
    from keras_het.callbacks import TrainingDynamics

    task = noises.make("digits", noise, seed)
    both = type(task.train)(*(np.concatenate(parts) for parts in zip(task.train, task.validation, strict=True)))
    for name, split in (("training", task.train), ("all", both)):
        dynamics = TrainingDynamics(*split, history=False, batch_size=2048)
        accuracies = Accuracies(noisy=task.validation, clean=task.test)
        model = Trial(task._replace(train=split), "Dense", None, seed).compiled()
        arguments = {"epochs": epochs or task.epochs, "batch_size": BATCH, "verbose": 0}
        model.fit(*split, callbacks=[dynamics, accuracies], **arguments)
        yield {"data": name, "changes": dynamics.changes.tolist(), **accuracies.found}


def early_stopping(accuracies, patience):
    """The first epoch of the best accuracy so far, and the last that is trained."""
    best = 0
    for epoch, value in enumerate(accuracies):
        if value > accuracies[best]:
            best = epoch
        elif epoch - best >= patience:
            return best, epoch
    return best, len(accuracies) - 1


def label_wave(changes, width=None, patience=None):
    """The epoch of Label Wave, and the last that is trained."""
    from benchmarks.baselines import LabelWave

    defaults = inspect.signature(LabelWave).parameters
    best, stop = LabelWave.best_epoch(
        changes, width or defaults["width"].default, patience or defaults["patience"].default
    )
    return best, len(changes) if stop is None else stop


def choices(line):
    """{rule: (epoch that is kept, last epoch that is trained)} for a training."""
    last = len(line["clean"]) - 1
    if line["data"] == "all":
        return {ALL_DATA: label_wave(line["changes"])}
    return {
        BASE: early_stopping(line["noisy"], PATIENCE),
        "best of all epochs, noisy labels": (int(np.argmax(line["noisy"])), last),
        WAVE: label_wave(line["changes"]),
        **{f"{WAVE}, {name}": label_wave(line["changes"], *of) for name, of in OTHERS.items()},
        "last epoch": (last, last),
        BOUND: (int(np.argmax(line["clean"])), last),
    }


def outcomes(rows):
    """A dict for each training and rule: clean accuracy and epochs."""
    for line in rows:
        for rule, (kept, last) in choices(line).items():
            named = {"noise": line["noise"], "seed": line["seed"], "rule": rule}
            yield named | {"accuracy": line["clean"][kept], "kept": kept + 1, "trained": last + 1}


def tables(rows):
    """Of each noise: clean accuracy, beside early stopping seed by seed, and epochs; and of other settings the mean."""
    found = list(outcomes(rows))
    settings = [f"{WAVE}, {name}" for name in OTHERS]
    table = [["noise", "rule", "clean accuracy", "epoch kept", "epochs trained"]]
    for noise in lines.distinct(found, "noise"):
        of_noise = lines.select(found, noise=noise)
        for rule in (BASE, WAVE, ALL_DATA, "best of all epochs, noisy labels", "last epoch", BOUND):
            table.append([noise if rule == BASE else "", rule, *cells(of_noise, rule)])
    other = [["rule, mean of all noises", "clean accuracy", "epoch kept", "epochs trained"]]
    other += [[rule, *cells(found, rule)] for rule in (BASE, *settings)]
    return {"when to stop": table, "other settings of Label Wave": other}


def cells(found, rule):
    """Accuracy, as a difference to early stopping seed by seed but for that itself, and mean epochs."""
    own, base = lines.select(found, rule=rule), lines.select(found, rule=BASE)
    values = np.array([line["accuracy"] for line in own])
    epochs = [f"{np.mean([line[name] for line in own]):.1f}" for name in ("kept", "trained")]
    if rule == BASE:
        return [lines.with_error(values), *epochs]
    differences = values - np.array([line["accuracy"] for line in base])
    text = f"{differences.mean():+.3f}"
    if len(values) > 1:
        error = differences.std(ddof=1) / np.sqrt(len(values))
        text = f"**{text} +- {error:.3f}**" if abs(differences.mean()) > 2 * error else f"{text} +- {error:.3f}"
    return [text, *epochs]


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one noise, one seed, 8 epochs, to see that it runs")
    parser.add_argument("--render", action="store_true", help="only show what the file has")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    kinds, seeds, epochs = (["symmetric"], 1, 8) if options.quick else (list(noises.NOISES), options.seeds, None)
    cells = [] if options.render else [(noise, seed) for seed in range(seeds) for noise in kinds]
    file = options.output / "dynamics_stopping.jsonl"
    rows = run_missing(file, cells, lambda *found: traces(*found, epochs), ("noise", "seed"))
    publish(options.output, "dynamics_stopping", tables(rows), sorted({row["seed"] for row in rows}))


if __name__ == "__main__":
    main()
