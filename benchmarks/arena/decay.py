"""The weight decay of the arena: chosen once, for crossentropy that stops early, on the Dense head, by noisy labels.

python -m benchmarks.arena.decay              (on the backend that KERAS_BACKEND names)

A row for each decay: the mean of the largest accuracy on noisy validation labels over three noises, two seeds and three
starts. It gave 0.597, 0.598, 0.600, 0.602 and 0.598 for decays of 0.03, 0.1, 0.3, 1 and 3 on JAX: all are near, and 1
is what all rows have.
"""

import pathlib

import keras
import numpy as np

from benchmarks.arena import trial
from benchmarks.arena.methods import BASE, METHODS
from benchmarks.arena.training import run
from benchmarks.lib.results import publish

DECAYS, NOISES, SEEDS = (0.03, 0.1, 0.3, 1.0, 3.0), ("symmetric", "pair", "look-alike"), 2


def accuracies(decay):
    """Of every noise, seed and start, the largest of all epochs."""
    trial.WEIGHT_DECAY = decay
    method, found = next(method for method in METHODS if method.name == BASE), []
    for noise in NOISES:
        for seed in range(SEEDS):
            for start in method.strengths:
                key = {
                    "data": "digits",
                    "noise": noise,
                    "seed": seed,
                    "head": "Dense",
                    "method": BASE,
                    "strength": start,
                }
                found.append(max(run(method, key)["noisy accuracy"]))
                keras.utils.clear_session(free_memory=False)
    return np.reshape(found, (len(NOISES), -1))


def main():
    lines = [["weight decay", *NOISES, "mean"]]
    for decay in DECAYS:
        found = accuracies(decay)
        lines.append([str(decay), *(f"{value:.3f}" for value in found.mean(axis=1)), f"{found.mean():.4f}"])
        print(" | ".join(lines[-1]), flush=True)
    publish(
        pathlib.Path("benchmark_results"), "arena_decay", {"accuracy on noisy validation labels": lines}, range(SEEDS)
    )


if __name__ == "__main__":
    main()
