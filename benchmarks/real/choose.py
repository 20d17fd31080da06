"""Accuracy of `labels.choose` for a network, beside its plain training.

python -m benchmarks.real.choose [--sets NAME ...] [--seeds 3] [--size 4000] [--data FOLDER] [--cache FOLDER]
                                 [--output FOLDER] [--quick] [--render]

The network has one hidden layer of 128 units on features of a pretrained network, by Adam at the rate of four that
predicts most held-out noisy labels. Each row sees the same noisy labels. Clean labels choose nothing.
"""

import functools
import time

import keras
import numpy as np

from benchmarks.lib import experiments, lines
from benchmarks.real import clean, data, features
from keras_het.labels import choose

EPOCHS, FOLDS, RATES = 40, 3, (1e-4, 3e-4, 1e-3, 3e-3)
SETS = ("LabelMe", "TREC")
ROWS = {"early stopping": [], "choose": None}


def network(rate, width, units):
    """Returns a compiled network of one hidden layer on features."""
    layers = [keras.layers.Dense(128, "relu"), keras.layers.Dropout(0.5), keras.layers.Dense(units)]
    model = keras.Sequential([keras.Input((width,)), *layers])
    model.compile(keras.optimizers.Adam(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def measured(options, name, seed, row):
    """Returns the line of a set, seed and row: the result of the best of four rates."""
    x, y, _, queries, truth = clean.task(options, name, seed)
    classes, y = np.unique(y, return_inverse=True)
    arguments = {"epochs": options.epochs, "folds": FOLDS, "seed": seed, "verbose": 0}
    arguments |= {} if ROWS[row] is None else {"methods": ROWS[row]}
    start, best = time.process_time(), None
    for rate in RATES:
        result = choose(functools.partial(network, rate, x.shape[1], len(classes)), x, y, **arguments)
        score = float(np.mean(result.chosen.score))
        if best is None or score > best[0]:
            best = score, rate, result
    score, rate, result = best
    predicted = classes[result.model.predict(queries, verbose=0).argmax(axis=1)]
    line = {"accuracy": float(np.mean(predicted == truth)), "noisy": score, "rate": rate, "chosen": result.name}
    keras.utils.clear_session(free_memory=False)
    yield line | {"processor": time.process_time() - start}


def table(records):
    """Returns the accuracy on clean and on noisy labels, and what was chosen, for each set and row."""
    head = [["set", "row", "accuracy", "points over early stopping", "noisy accuracy", "chosen", "processor seconds"]]
    for name in lines.distinct(records, "set"):
        plain = lines.select(records, set=name, row="early stopping")
        for row in ROWS:
            own = lines.select(records, set=name, row=row)
            gaps = 100 * lines.paired(own, plain, "accuracy")
            chosen = "; ".join(f"{line['chosen']}, {line['rate']:g}" for line in own)
            accuracy, noisy = lines.means(own, ("accuracy", "noisy"))
            gain = lines.gain(gaps, 1) if row != "early stopping" and len(gaps) else ""
            seconds = f"{np.median([line['processor'] for line in own]):.0f}"
            head.append([name, row, accuracy, gain, noisy, chosen, seconds])
    return head


def tables(records):
    """Returns the only table."""
    return {"networks": table(records)}


def main():
    options = {"sets": tuple(data.SETS), "seeds": 3, "size": 4000} | features.FOLDERS
    quick, fixed = {"size": 500, "seeds": 1, "epochs": 5}, {"epochs": EPOCHS, "rows": ROWS, "sets": SETS}
    experiments.run(__doc__, "real_choose", measured, tables, options, quick, fixed, settings=("size",))


if __name__ == "__main__":
    main()
