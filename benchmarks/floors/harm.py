"""Which change of the full head does no harm where the noise has nothing to learn, and keeps its gain where it has?

python -m benchmarks.floors.harm [--noises NAME ...] [--sizes 10,20 10,100 ...] [--candidates NAME ...] [--seeds 5]
                                 [--tasks NAME ...] [--output FOLDER] [--render] (on the backend of KERAS_BACKEND)

The candidates of `candidates.py` beside Dense, on the atlas of floors, and, with `--tasks`, on tasks of the recipe that
had no say in the choice. The epoch is chosen by the likelihood of noisy validation labels. A training writes a line of
JSON and is not repeated if its line is there.
"""

import functools
import json
import time

import keras
import numpy as np

from benchmarks.floors import harm_report, tasks, training
from benchmarks.floors.candidates import CANDIDATES, HEADS
from benchmarks.labels import recipe
from benchmarks.lib import harness
from benchmarks.lib import tasks as of_recipe
from benchmarks.lib.lines import read


class BestEpoch(keras.callbacks.Callback):
    """The model and the weights of the epoch of the least noisy NLL, of equals the first; of several trainings, too."""

    def __init__(self, validation):
        super().__init__()
        self.validation, self.score, self.count = validation, np.inf, 0

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        self.count += 1
        score = nll(training.predict(self.model, self.validation.x), self.validation.y)
        if score < self.score:
            self.score, self.count_of_best = score, self.count
            self.best, self.weights = self.model, self.model.get_weights()

    def predict(self, x):
        """Log-probabilities of the best epoch, `(N, K)`."""
        self.best.set_weights(self.weights)
        return training.predict(self.best, x)


def nll(log_p, labels):
    """The mean negative log-likelihood of labels."""
    return -log_p[np.arange(len(labels)), labels].mean()


def trained(name, task, temperature, seed, batch):
    """The `BestEpoch` of a candidate that has trained on a task."""
    candidate, best = CANDIDATES[name], BestEpoch(task.validation)
    fit = functools.partial(fit_model, task=task, best=best, batch=batch)
    setting = candidate.setting(temperature)
    if not candidate.first:
        fit(*begun(name, task, setting, seed), epochs=task.epochs)
        return best
    half = task.epochs // 2
    fit(*begun(f"{name}, before", task, setting._replace(method="Dense"), seed), epochs=half)
    model, fresh = begun(name, task, setting, seed, frozen=candidate.first == "noise")
    fit(model, [*best.weights, *fresh[len(best.weights) :]], epochs=task.epochs - half)
    return best


def fit_model(model, weights, *, task, best, batch, epochs):
    """Trains from these weights on."""
    training.begin(model, weights)
    model.fit(*task.train, batch_size=batch, epochs=epochs, verbose=0, callbacks=[best])


MODELS = {}  # a model is compiled once for a size and a candidate


def begun(name, task, setting, seed, frozen=False):
    """A model, and the weights at the start of a training; `frozen` trains the noise alone."""
    fresh = recipe.make_model(task, setting, seed, HEADS)
    key = name, task.units, task.train.x.shape, setting.temperature
    model = MODELS.setdefault(key, fresh)
    if frozen and model is fresh:
        for layer in (*model.layers[:-1], model.layers[-1].loc_layer):
            layer.trainable = False
    return model, fresh.get_weights()


def on_atlas(noise, units, per_class, name, seed):
    """A line of the results: the key, and the figures of the best epoch with their standard errors."""
    start = time.perf_counter()
    task, test = tasks.make(tasks.NOISES[noise], units, per_class, seed)
    best = trained(name, task, training.TEMPERATURES[units], seed, training.BATCH)
    found = training.measured(best.predict(test.x), test, tasks.NOISES[noise])
    key = {"noise": noise, "units": units, "per_class": per_class, "candidate": name, "seed": seed}
    figures = {figure: float(values.mean()) for figure, values in found.items()}
    return key | ending(best, start) | {"figures": figures}


def on_recipe(name, candidate, seed):
    """A line of the results on a task of the recipe, at its middle temperature."""
    start, task = time.perf_counter(), of_recipe.TASKS[name](seed)
    best = trained(candidate, task, recipe.middle_of(task).temperature, seed, recipe.BATCH)
    parts = {"clean": task.test, "noisy": task.validation}
    found = {part: recipe.scores(best.predict(split.x), split.y) for part, split in parts.items()}
    figures = {f"{part} {figure}": value for part, scores in found.items() for figure, value in scores.items()}
    return {"task": name, "candidate": candidate, "seed": seed} | ending(best, start) | {"figures": figures}


def ending(best, start):
    """What a user knows at the end of a training, and the time of it."""
    return {"validation NLL": best.score, "epoch": best.count_of_best, "seconds": time.perf_counter() - start}


def wanted(options):
    """The keys of all trainings, seed by seed."""
    sizes = [tuple(map(int, size.split(","))) for size in options.sizes]
    atlas = [(noise, *size) for size in sizes for noise in options.noises]
    places = [(task,) for task in options.tasks] or atlas
    return [(*place, name, seed) for seed in range(options.seeds) for place in places for name in options.candidates]


def key_of(line):
    """The key of a training."""
    names = ("task",) if "task" in line else ("noise", "units", "per_class")
    return tuple(line[name] for name in (*names, "candidate", "seed"))


def train(options):
    """The trainings that are not there."""
    done = set(map(key_of, read(options.output, "harm-*.jsonl")))
    for key in [key for key in wanted(options) if key not in done]:
        line = on_recipe(*key) if len(key) == 3 else on_atlas(*key)
        with (options.output / f"harm-{keras.config.backend()}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{key}: {line['validation NLL']:.4f}, {line['seconds']:.1f} s", flush=True)


def options_of(arguments=None):
    """The command line."""
    parser = harness.parser_of(__doc__)
    parser.add_argument("--noises", nargs="+", choices=tasks.NOISES, default=list(tasks.NOISES), metavar="NAME")
    parser.add_argument("--sizes", nargs="+", default=["10,20", "10,100"], help="classes, examples of each")
    parser.add_argument("--tasks", nargs="*", choices=of_recipe.TASKS, default=[], metavar="NAME", help="of the recipe")
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--render", action="store_true", help="only make the tables of what is there")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    return options


def main():
    options = options_of()
    if not options.render:
        train(options)
    harm_report.render(options.output)


if __name__ == "__main__":
    main()
