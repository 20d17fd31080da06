"""Which epoch of a head is best, chosen without clean labels; a plain Dense has the same choices.

python -m benchmarks.labels.epochs [--tasks NAME ...] [--seeds 3] [--length 4] [--nodes 64] [--output FOLDER]
(on the backend of KERAS_BACKEND)

The tasks are those of the recipe and digits of swapped look-alikes, each with one temperature for both methods. A run
trains `--length` times the epochs of its task, and keeps after each epoch how every noisy validation label is
predicted, and the figures on clean test labels. Shorter trainings are the start of the same run, for the learning rate
is constant. A run whose file is there is not repeated.
"""

import time
from typing import NamedTuple

import keras
import numpy as np
from scipy.special import log_softmax

from benchmarks.labels import epochs_report, recipe
from benchmarks.lib import harness, tasks
from benchmarks.lib.lines import distinct
from benchmarks.lib.results import publish

TASKS = {**tasks.TASKS, "digits, swapped look-alikes": tasks.swapped_digits}
METHODS = ("Dense", "full")
HALVES = {  # by name, before any figure was seen: a rule is chosen on the first half and tried on the second
    "half to choose a rule": sorted(TASKS)[1::2],
    "half to try the rule": sorted(TASKS)[::2],
}


class Scores(keras.callbacks.Callback):
    """After each epoch: loss and right or wrong of each noisy validation label, accuracy and NLL of clean labels."""

    def __init__(self, task):
        super().__init__()
        self.task, self.found = task, {name: [] for name in epochs_report.FIGURES}

    def on_epoch_end(self, epoch, logs=None):
        """Keras calls it."""
        noisy, clean = (self._of(part) for part in (self.task.validation, self.task.test))
        for name, value in zip(self.found, (*noisy, *(figures.mean() for figures in clean)), strict=True):
            self.found[name].append(value)

    def _of(self, part):
        """-log p of each label, and whether it is the most probable one."""
        log_p = log_softmax(self.model.predict(part.x, batch_size=1000, verbose=0), axis=-1)
        return -log_p[np.arange(len(part.y)), part.y], log_p.argmax(-1) == part.y


class Key(NamedTuple):
    """Names a run."""

    task: str
    method: str
    seed: int

    def path(self, folder):
        """The file of the run."""
        return folder / f"epochs; {self.task}; {self.method}; {self.seed}.npz"


def run(key, length, nodes=64):
    """Trains, and returns the key, the choices, and `epochs_report.FIGURES` by epoch.

    The first two figures are `(epochs, N)`, the last two `(epochs,)`; "epochs" are those of length 1.
    """
    task = TASKS[key.task](key.seed)
    temperature = task.temperatures[(len(task.temperatures) - 1) // 2]
    setting = recipe.Setting(key.method, temperature, num_samples=nodes)
    model, scores = recipe.make_model(task, setting, key.seed), Scores(task)
    model.fit(*task.train, batch_size=recipe.BATCH, epochs=length * task.epochs, verbose=0, callbacks=[scores])
    return {
        **key._asdict(),
        "epochs": task.epochs,
        "temperature": temperature,
        "nodes": nodes,
        **{name: np.array(values) for name, values in scores.found.items()},
    }


def read(folder):
    """All runs of a folder, as `run` returned them."""
    runs = []
    for path in sorted(folder.glob("epochs; *.npz")):
        with np.load(path) as file:
            runs.append({name: value if value.ndim else value.item() for name, value in file.items()})
    return runs


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--length", type=int, choices=epochs_report.LENGTHS, default=4, help="times a task's epochs")
    parser.add_argument(
        "--nodes", type=int, default=64, help="of the noise; 1000 classes take a quarter of the time with 16"
    )
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for key in [
        Key(task, method, seed) for seed in range(options.seeds) for task in options.tasks for method in METHODS
    ]:
        if key.path(options.output).exists():
            continue
        start = time.perf_counter()
        np.savez_compressed(key.path(options.output), **run(key, options.length, options.nodes))
        print(f"{key}: {time.perf_counter() - start:.0f} s", flush=True)
        keras.utils.clear_session()
    runs = read(options.output)
    publish(options.output, "epochs", epochs_report.describe(runs, HALVES), sorted(distinct(runs, "seed")))


if __name__ == "__main__":
    main()
