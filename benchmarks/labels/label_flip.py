"""Label flips and outliers on digits: a learned T beside the true one, other losses and the heteroscedastic head.

python -m benchmarks.labels.label_flip [--quick] [--parts noise sizes regularizers decays outliers] [--output FOLDER]
(on the backend of KERAS_BACKEND)

The paper's Figures 2 and 4 and Table 1 in small (Sukhbaatar et al. 2014): scikit-learn's 1797 digits of 8 x 8 pixels, a
network of 128-128 units with L2, Adam, 80 epochs, the same for all methods. Training and validation labels are noisy;
the test labels are clean and only measured. What has to be chosen, the strength of T's penalty and a temperature, is
chosen for every seed by the likelihood of the noisy validation labels.
"""

import concurrent.futures
import multiprocessing
import os
from typing import NamedTuple

import keras
import numpy as np
from scipy.special import log_softmax
from scipy.stats import mannwhitneyu

from benchmarks.baselines import BootstrappedCrossentropy, Trace, estimate_by_anchors
from benchmarks.labels import label_flip_report
from benchmarks.lib import harness
from benchmarks.lib.corruption import random_flip
from benchmarks.lib.results import publish
from keras_het.callbacks import ReleaseTransition
from keras_het.integrators import QuasiMonteCarlo
from keras_het.labels import corrupt, pair_flip, symmetric
from keras_het.layers import HeteroscedasticDense, NoiseTransition
from keras_het.losses import ForwardCorrectedCrossentropy
from keras_het.ops.transition import outlier_class, total_variation
from keras_het.training import noisy_nll, tune

CLASSES, TRAIN, VALIDATION, BATCH, EPOCHS, RELEASE = 10, 1024, 256, 128, 80, 10
LEARNING_RATE, WEIGHT_DECAY, DECAYS = 4e-3, 2e-3, (0.0, 1e-3, 2e-3, 5e-3)
STRENGTHS, TEMPERATURES = (0.01, 0.03, 0.05, 0.07, 0.1, 0.14, 0.2), (1.5, 3.0, 5.0, 10.0)
CROSSENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
LEVELS = {"random": (0.0, 0.2, 0.35, 0.5, 0.65, 0.7), "symmetric": (0.2, 0.5, 0.7), "pair": (0.2, 0.35, 0.45)}
SIZES, SHARES = (128, 256, 512, TRAIN), (0.0, 0.1, 0.3, 0.5)
# Digits 0 to 5 are the classes; the last is the share of outliers that is labelled as such.
INLIERS, NUM_INLIERS, LABELLED = 6, 448, 0.2
PENALTIES = {
    "none": lambda strength: None,
    "L2": keras.regularizers.L2,
    "Trace": Trace,
}


class Task(NamedTuple):
    """One seed of one condition, small enough for a process of its own."""

    part: str
    noise: str
    level: float
    size: int
    seed: int
    epochs: int = EPOCHS


class Data(NamedTuple):
    """(features, labels): noisy ones to train and validate, clean ones to test; and the true T."""

    train: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    transition: np.ndarray


def shuffled_digits(seed):
    """Features and labels in an order of the seed."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng([seed, 1]).permutation(len(digits.target))
    return (digits.data[order] / 16.0).astype("float32"), digits.target[order]


def flipped_digits(noise, level, size, seed):
    """`Data` with label flips; the smaller training sets are parts of the larger ones."""
    x, y = shuffled_digits(seed)
    make = {
        "random": lambda: random_flip(CLASSES, level, [seed, 4]),
        "symmetric": lambda: symmetric(CLASSES, level),
    }
    matrix = make.get(noise, lambda: pair_flip(CLASSES, level))()
    noisy, known = corrupt(y, matrix, [seed, 5]), TRAIN + VALIDATION
    return Data((x[:size], noisy[:size]), (x[TRAIN:known], noisy[TRAIN:known]), (x[known:], y[known:]), matrix)


def make_model(seed, tail=(), units=CLASSES, loss=CROSSENTROPY, head=None, decay=WEIGHT_DECAY):
    """The network, a head that is a Dense layer with log-probabilities unless given, and what follows, compiled.

    Kernels are drawn by NumPy, the same on every backend.
    """
    l2 = keras.regularizers.L2(decay)
    hidden = [keras.layers.Dense(128, "relu", kernel_regularizer=l2) for _ in range(2)]
    head = head or keras.layers.Dense(units, "log_softmax", kernel_regularizer=l2)
    model = keras.Sequential([keras.Input((64,)), *hidden, head, *tail])
    rng = np.random.default_rng([seed, 2])
    for layer in hidden:
        limit = np.sqrt(6.0 / sum(layer.kernel.shape))
        layer.kernel.assign(rng.uniform(-limit, limit, layer.kernel.shape))
    mean = head.kernel if isinstance(head, keras.layers.Dense) else head.loc_layer.kernel
    limit = np.sqrt(6.0 / sum(mean.shape))
    mean.assign(rng.uniform(-limit, limit, mean.shape))
    model.compile(keras.optimizers.Adam(LEARNING_RATE), loss)
    return model


def fit_arguments(task, *callbacks):
    """Arguments of `fit` for every method."""
    keras.utils.set_random_seed(task.seed)  # of the shuffling
    return {"batch_size": BATCH, "epochs": task.epochs, "verbose": 0, "callbacks": list(callbacks)}


def error(model, test):
    """The share of wrong classes."""
    return float(np.mean(model.predict(test[0], batch_size=1024, verbose=0)[:, :CLASSES].argmax(-1) != test[1]))


def plain(task, data, loss=CROSSENTROPY, tail=()):
    """A model fitted without any choice."""
    model = make_model(task.seed, tail, loss=loss)
    model.fit(*data.train, **fit_arguments(task))
    return model


def stopped_early(task, data):
    """Crossentropy, with the weights of the epoch that explains the noisy validation labels best."""
    model = make_model(task.seed)
    stop = keras.callbacks.EarlyStopping(patience=task.epochs, restore_best_weights=True, start_from_epoch=1)
    model.fit(*data.train, validation_data=data.validation, **fit_arguments(task, stop))
    return model


def learned(task, data, penalty="L2", units=CLASSES, epoch="last", decay=WEIGHT_DECAY):
    """The `Result` of `tune` for a learned T."""

    def make(strength):
        flips = NoiseTransition(units, regularizer=PENALTIES[penalty](strength))
        return make_model(task.seed, [flips], decay=decay)

    strengths = STRENGTHS if penalty != "none" else (0.0,)
    arguments = {"epoch": epoch, "extend": False, **fit_arguments(task, ReleaseTransition(RELEASE))}
    return tune(make, strengths, *data.train, validation_data=data.validation, **arguments)


def estimated(stopped, data):
    """T from the anchors of a model of the noisy labels, by the 97% quantile of the paper that proposed it."""
    x = np.concatenate([data.train[0], data.validation[0]])
    return estimate_by_anchors(np.exp(stopped.predict(x, batch_size=2048, verbose=0)).clip(0, 1), quantile=0.97)


def heteroscedastic(task, data):
    """The heteroscedastic head at the temperature of the best noisy validation likelihood."""
    best = None
    for temperature in TEMPERATURES:
        l2, nodes = keras.regularizers.L2(WEIGHT_DECAY), QuasiMonteCarlo(64)
        head = HeteroscedasticDense(
            CLASSES, 5, temperature=temperature, integrator=nodes, kernel_regularizer=l2, seed=task.seed
        )
        head.build((None, 128))
        model = make_model(task.seed, head=head)
        model.fit(*data.train, **fit_arguments(task))
        log_p = log_softmax(model.predict(data.validation[0], batch_size=1024, verbose=0).astype("float64"), axis=-1)
        nll = -np.mean(log_p[np.arange(len(log_p)), data.validation[1]])
        if best is None or nll < best[0]:
            best = nll, model
    return best[1]


def of_transition(selection, data):
    """The figures of a learned T."""
    matrix = keras.ops.convert_to_numpy(selection.model.layers[-1].transition).tolist()
    return {
        "strength": selection.value,
        "distance": total_variation(matrix, data.transition),
        "transition": matrix,
    }


def compare_methods(task):
    """A row for each method on flipped labels; only what depends on T for the smaller training sets."""
    data = flipped_digits(task.noise, task.level, task.size, task.seed)
    true = NoiseTransition(CLASSES, transition=data.transition, trainable=False)
    found = learned(task, data)
    results = {"none": plain(task, data), "learned T": found.model, "true T": plain(task, data, tail=[true])}
    details = {"learned T": of_transition(found, data), "true T": {"transition": data.transition.tolist()}}
    if task.part == "noise":
        results["none, stopped early"] = stopped = stopped_early(task, data)
        guess = estimated(stopped, data)
        details["forward, estimated T"] = {"distance": total_variation(guess, data.transition)}
        results["forward, estimated T"] = plain(task, data, ForwardCorrectedCrossentropy(guess, from_logits=True))
        results["bootstrapping, hard"] = plain(task, data, BootstrappedCrossentropy(hard=True, from_logits=True))
        results["HeteroscedasticDense"] = heteroscedastic(task, data)
    return [
        {**task._asdict(), "method": name, "error": error(model, data.test), **details.get(name, {})}
        for name, model in results.items()
    ]


def compare_penalties(task):
    """A row for each regulariser."""
    data = flipped_digits(task.noise, task.level, task.size, task.seed)
    rows = []
    for penalty in PENALTIES:
        found = learned(task, data, penalty)
        row = {"method": penalty, "error": error(found.model, data.test), **of_transition(found, data)}
        rows.append({**task._asdict(), **row})
    return rows


def compare_decays(task):
    """A row for each L2 of the kernels and each epoch: the last, or the best by likelihood of noisy validation."""
    data = flipped_digits(task.noise, task.level, task.size, task.seed)
    rows = []
    for decay in DECAYS:
        for epoch in ("last", "best"):
            found = learned(task, data, epoch=epoch, decay=decay)
            row = {
                "method": f"{decay:g}",
                "epoch": epoch,
                "error": error(found.model, data.test),
                **of_transition(found, data),
            }
            by_heart = found.best.score - noisy_nll(found.model, *data.train)
            rows.append({**task._asdict(), **row, "by heart": by_heart, "chosen epoch": found.best.epoch})
    return rows


def outlier_digits(share, seed):
    """`Data` whose training images are classes and outliers.

    Outliers got labels of all classes alike, or the label of outliers. The test labels are those of the digits: from
    INLIERS on they are outliers.
    """
    x, y = shuffled_digits(seed)
    known = TRAIN + VALIDATION
    inside, outside = (np.flatnonzero(kind)[:NUM_INLIERS] for kind in (y[:known] < INLIERS, y[:known] >= INLIERS))
    outside = outside[: round(NUM_INLIERS * share / (1.0 - share))]
    order = np.random.default_rng([seed, 6]).permutation(np.concatenate([inside, outside]))
    matrix = outlier_class(INLIERS, LABELLED)
    noisy = corrupt(np.minimum(y, INLIERS), matrix, [seed, 5])
    test = x[known:], y[known:]
    return Data((x[order], noisy[order]), test, test, matrix)


def compare_outliers(task):
    """A row for each way to treat outliers: error on clean images of classes, and how well outliers are told apart."""
    data = outlier_digits(task.level, task.seed)
    x, y = data.train
    inside = y < INLIERS  # without a class of their own the labelled outliers are of no use
    results = {"none": make_model(task.seed, units=INLIERS)}
    results["none"].fit(x[inside], y[inside], **fit_arguments(task))
    for name, flips in {
        "learned share": NoiseTransition(INLIERS, outlier_class=True),
        "true share": NoiseTransition(INLIERS, outlier_class=True, transition=data.transition, trainable=False),
    }.items():
        results[name] = make_model(task.seed, [flips], INLIERS + 1)
        results[name].fit(x, y, **fit_arguments(task, ReleaseTransition(RELEASE)))
    return [{**task._asdict(), "method": name, **outlier_scores(model, data.test)} for name, model in results.items()]


def outlier_scores(model, test):
    """Error among the classes, area under the ROC curve of outliers, and the share.

    The curve is that of p(outlier), or, without that class, of the lack of confidence.
    """
    log_p = model.predict(test[0], batch_size=1024, verbose=0)
    inside, classes = test[1] < INLIERS, log_p[:, :INLIERS]
    score = log_p[:, INLIERS] if log_p.shape[1] > INLIERS else -classes.max(-1)
    auc = mannwhitneyu(score[~inside], score[inside]).statistic / (np.sum(inside) * np.sum(~inside))
    flips = model.layers[-1]
    share = (
        {"share": float(keras.ops.convert_to_numpy(flips.transition)[-1, -1])}
        if isinstance(flips, NoiseTransition)
        else {}
    )
    return {"error": float(np.mean(classes[inside].argmax(-1) != test[1][inside])), "auc": float(auc), **share}


PARTS = {
    "noise": compare_methods,
    "sizes": compare_methods,
    "regularizers": compare_penalties,
    "decays": compare_decays,
    "outliers": compare_outliers,
}


def run(task):
    """The rows of a task."""
    return PARTS[task.part](task)


def tasks(parts, quick):
    """All tasks of the parts; the quick ones see that it runs."""
    conditions = {
        "noise": [(noise, level, TRAIN) for noise, levels in LEVELS.items() for level in levels],
        "sizes": [("random", 0.5, size) for size in SIZES],
        "regularizers": [("random", 0.5, TRAIN), ("pair", 0.45, TRAIN)],
        "decays": [("random", 0.5, TRAIN), ("pair", 0.45, TRAIN)],
        "outliers": [("outliers", share, NUM_INLIERS) for share in SHARES],
    }
    seeds, epochs = (1, RELEASE + 2) if quick else (5, EPOCHS)
    chosen = {part: conditions[part][-2:] if quick else conditions[part] for part in parts}
    return [
        Task(part, *condition, seed, epochs) for part in parts for condition in chosen[part] for seed in range(seeds)
    ]


def main():
    parser = harness.command_line(__doc__, repeats=1)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    rows, planned = [], tasks(options.parts, options.quick)
    bar = keras.utils.Progbar(len(planned), unit_name="task")
    # Small models leave cores idle: a process for each, which imports Keras once.
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(run, planned):
            rows += found
            bar.add(1)
    publish(options.output, "label_flip", label_flip_report.describe(rows), label_flip_report.distinct(rows, "seed"))
    label_flip_report.save(rows, options.output)


if __name__ == "__main__":
    main()
