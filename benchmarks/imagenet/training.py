"""Training that you can kill at any step and resume with the same result.

Everything that a step depends on is a function of the seed and the number of the step (order and crops of the images,
see `batches.py`), or is in one file of weights: the network, the optimizer with its number of steps, and the counter of
the head's noise. The file is replaced as a whole. `keras.callbacks.BackupAndRestore` would repeat the epoch instead,
with weights that have seen a part of it.
"""

import dataclasses
import json
import os
import pathlib
import time

import keras

from benchmarks.imagenet.batches import InOrder, Training, steps_of
from benchmarks.imagenet.evaluation import evaluate
from benchmarks.imagenet.model import make_model

WEIGHTS, LINES, CONFIG = "latest.weights.h5", "metrics.jsonl", "config.json"


def train(config, training, validation, folder, seed=0, save_every=500, workers=1, callbacks=()):
    """Trains to the last epoch, or resumes from the folder, and returns the model and the lines of its epochs.

    training, validation: sources, see `images.py`.
    folder: path for the weights, the configuration, and a line of metrics for each epoch.
    save_every: steps between two saved states.
    workers: threads that read images.
    callbacks: additional callbacks of Keras.
    """
    folder, steps = pathlib.Path(folder), steps_of(training, config)
    if steps == 0:
        raise ValueError(f"`training` must fill a batch of {config.batch}. Received: {len(training)} examples")
    check_same(folder, config, training, seed)
    model = make_model(config, training.classes, steps, seed)
    saver = Saver(folder, save_every, restore(model, folder))
    for epoch in range(config.epochs):
        first, start = max(saver.step - epoch * steps, 0), time.perf_counter()
        if first >= steps and has_line(folder, epoch):
            continue
        loss = None
        if first < steps:
            batches = Training(training, config, seed, epoch, first, workers)
            history = model.fit(batches, shuffle=False, verbose=0, callbacks=[saver, *callbacks])
            loss = history.history["loss"][-1]
            save(model, folder)
        if not has_line(folder, epoch):
            metrics = evaluate(model, InOrder(validation, config), config, workers)
            line = {"epoch": epoch + 1, **metrics, "loss": loss, "loss_over_steps": steps - min(first, steps)}
            append(folder, {**line, "seconds": round(time.perf_counter() - start, 1)})
    return model, read_lines(folder)


class Saver(keras.callbacks.Callback):
    """Counter of steps from `step` on, which saves the model at every multiple of `every`."""

    def __init__(self, folder, every, step):
        super().__init__()
        self.folder, self.every, self.step = folder, every, step

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        if self.step % self.every == 0:
            save(self.model, self.folder)


def save(model, folder):
    """Replaces the saved state. A killed process leaves the old one or the new one."""
    unfinished = folder / f"unfinished.{WEIGHTS}"
    model.save_weights(unfinished, overwrite=True)
    os.replace(unfinished, folder / WEIGHTS)


def restore(model, folder):
    """Loads the saved state, if there is one, and returns its number of steps."""
    if not (folder / WEIGHTS).exists():
        return 0
    model.optimizer.build(model.trainable_variables)
    model.load_weights(folder / WEIGHTS)
    return int(keras.ops.convert_to_numpy(model.optimizer.iterations))


def check_same(folder, config, training, seed):
    """Writes the configuration to the folder. Raises ValueError if the folder has another run."""
    own = {**dataclasses.asdict(config), "seed": seed, "examples": len(training), "classes": training.classes}
    own, path = json.loads(json.dumps(own)), folder / CONFIG
    if path.exists():
        other = json.loads(path.read_text())
        if different := sorted(name for name in own if own[name] != other.get(name)):
            pairs = ", ".join(f"{name}={own[name]!r} beside {other.get(name)!r}" for name in different)
            raise ValueError(f"`folder` must be new or have a run of the same configuration. Received: {pairs}")
        return
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f"unfinished.{CONFIG}"
    unfinished.write_text(json.dumps(own, indent=1) + "\n")
    os.replace(unfinished, path)


def append(folder, line, name=LINES):
    """Adds a line to the metrics, on a new line if a killed process left an unfinished one."""
    path = folder / name
    torn = path.exists() and not path.read_bytes().endswith(b"\n")
    with path.open("a") as file:
        file.write("\n" * torn + json.dumps(line) + "\n")


def read_lines(folder, name=LINES):
    """Returns the lines of the metrics, without unfinished ones."""
    path, lines = folder / name, []
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def has_line(folder, epoch):
    """Returns whether the metrics of an epoch, counted from 0, exist."""
    return any(line["epoch"] == epoch + 1 for line in read_lines(folder))
