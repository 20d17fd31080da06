"""The demo: digits under label noise that depends on the instance, a plain head beside the heteroscedastic ones.

Labels flip between look-alike classes; every method trains at the same temperatures, each chooses its own by the likelihood of noisy
validation labels, and clean test labels serve only to report. `python -m keras_het demo` runs it.
"""

import pathlib
import time
from typing import NamedTuple

import keras
import numpy as np
from scipy.special import log_softmax

from keras_het.analysis import corrupt_labels, look_alike_transitions
from keras_het.demo_report import describe, import_extra, save
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense
from keras_het.validation import check_integer, check_number

METHODS = {"Dense": None, "diagonal": 0, "full": 5}  # name: num_factors, None for the plain head
TRAIN, VALIDATION, BATCH = 1024, 256, 128  # of the 1797 digits; the other 517 are the test set


class Settings(NamedTuple):
    """What one demo runs: seeds 0 to seeds - 1, the rate of flipped labels, and each method at each temperature."""

    seeds: int = 3
    noise: float = 0.4
    epochs: int = 60
    temperatures: tuple[float, ...] = (1.5, 3.0, 5.0, 10.0)


QUICK = Settings(seeds=1, epochs=15, temperatures=(1.5, 10.0))


class Split(NamedTuple):
    """Features `(N, D)` and labels `(N,)`."""

    features: np.ndarray
    labels: np.ndarray


class Data(NamedTuple):
    """Train and validation with noisy labels, test with clean ones; confusions[i, j]: flips from class i to j in the first two."""

    train: Split
    validation: Split
    test: Split
    confusions: np.ndarray


class Run(NamedTuple):
    """One trained model: NLL on noisy validation data, accuracy and NLL on clean test data, covariance of a head with factors."""

    method: str
    temperature: float
    seed: int
    validation_nll: float
    accuracy: float
    nll: float
    seconds: float
    covariance: np.ndarray | None = None


class Row(NamedTuple):
    """A line of the table: the chosen runs of a method, one entry per seed."""

    method: str
    temperatures: tuple[float, ...]
    accuracy: np.ndarray
    nll: np.ndarray
    seconds: float


class Result(NamedTuple):
    """All that a demo found; `covariance` and `confusions` are `(K, K)`, of the chosen full heads and of the planted noise."""

    settings: Settings
    runs: list[Run]
    rows: list[Row]
    covariance: np.ndarray
    confusions: np.ndarray


def check_settings(settings):
    """`settings`, if they can be run.

    Raises: ValueError naming the argument, the rule and the value received.
    """
    check_integer("seeds", settings.seeds, 1)
    check_integer("epochs", settings.epochs, 1)
    for temperature in settings.temperatures:
        check_number("temperatures", temperature, above=0.0)
    if not isinstance(settings.noise, int | float) or not 0.0 <= settings.noise < 1.0:
        raise ValueError(f"`noise` must be a number in [0, 1). Received: noise={settings.noise!r}")
    return settings


def load_data(noise, seed):
    """The digits of scikit-learn, split and flipped: a function of its arguments, whatever the backend."""
    digits = import_extra("sklearn.datasets").load_digits()
    order = np.random.default_rng([seed, 1]).permutation(len(digits.target))
    features, labels = (digits.data[order] / 16.0).astype("float32"), digits.target[order]
    known = TRAIN + VALIDATION
    noisy = corrupt_labels(labels[:known], look_alike_transitions(features[:known], labels[:known], noise), seed)
    confusions = np.zeros((labels.max() + 1,) * 2, int)
    np.add.at(confusions, (labels[:known], noisy), 1)
    np.fill_diagonal(confusions, 0)
    train, validation = (Split(features[part], noisy[part]) for part in (slice(TRAIN), slice(TRAIN, known)))
    return Data(train, validation, Split(features[known:], labels[known:]), confusions)


def make_model(num_factors, temperature, seed, inputs=64, units=10):
    """Backbone, head and, for the plain head, division by the temperature; weights drawn by NumPy, the same on every backend."""
    backbone = keras.Sequential([keras.layers.Dense(128, activation="relu"), keras.layers.Dense(128, activation="relu")])
    if num_factors is None:
        head = [keras.layers.Dense(units), keras.layers.Rescaling(1.0 / temperature)]
    else:
        integrator = QuasiMonteCarlo(num_samples=64)
        head = [HeteroscedasticDense(units, num_factors, temperature=temperature, integrator=integrator, seed=seed)]
    model = keras.Sequential([keras.Input((inputs,)), backbone, *head])
    rng = np.random.default_rng([seed, 2])
    for kernel in (weight for weight in model.trainable_weights if len(weight.shape) == 2):
        limit = np.sqrt(6.0 / sum(kernel.shape))
        kernel.assign(rng.uniform(-limit, limit, kernel.shape))
    return model


def score(model, split):
    """Accuracy and mean negative log-likelihood of the labels of `split`."""
    log_p = log_softmax(model.predict(split.features, batch_size=len(split.labels), verbose=0).astype("float64"), axis=-1)
    return float(np.mean(log_p.argmax(-1) == split.labels)), -float(np.mean(log_p[np.arange(len(log_p)), split.labels]))


def train(method, temperature, seed, data, epochs):
    """Trains one model and scores it. The epochs, each in its own order, are one long pass, which spares Keras' work between them."""
    rng, (features, labels) = np.random.default_rng([seed, 3]), data.train
    order = np.concatenate([rng.permutation(len(labels)) for _ in range(epochs)])
    start = time.perf_counter()
    model = make_model(METHODS[method], temperature, seed)
    model.compile(keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(features[order], labels[order], batch_size=BATCH, shuffle=False, verbose=0)
    seconds = time.perf_counter() - start
    validation_nll = score(model, data.validation)[1]
    accuracy, nll = score(model, data.test)
    covariance = mean_covariance(model, data.test.features) if METHODS[method] else None
    return Run(method, temperature, seed, validation_nll, accuracy, nll, seconds, covariance)


def mean_covariance(model, features):
    """Centred covariance of the logits, averaged over `features`, in units of u / temperature so that seeds can be averaged."""
    backbone, head = model.layers
    covariance = keras.ops.convert_to_numpy(head.covariance(backbone(features)))
    return covariance.mean(0) / head.temperature**2


def select(runs):
    """Of each method and seed, the run whose temperature has the lowest NLL on the noisy validation data."""
    best: dict[tuple[str, int], Run] = {}
    for run in runs:
        key = run.method, run.seed
        if key not in best or run.validation_nll < best[key].validation_nll:
            best[key] = run
    return list(best.values())


def summarise(runs):
    """A `Row` per method from the runs of `select`; the seconds are the median over all `runs`, which a pause does not move."""
    chosen = sorted(select(runs), key=lambda run: run.seed)
    rows = []
    for method in dict.fromkeys(run.method for run in runs):
        own = [run for run in chosen if run.method == method]
        seconds = float(np.median([run.seconds for run in runs if run.method == method]))
        accuracy, nll = np.array([run.accuracy for run in own]), np.array([run.nll for run in own])
        rows.append(Row(method, tuple(run.temperature for run in own), accuracy, nll, seconds))
    return rows


def run(settings=None, output="keras_het_demo", verbose=1):
    """Trains every method at every temperature and seed, prints the report, and writes `results.json` and two figures.

    Args: settings: `Settings`, None for the full demo.    output: folder, made if need be.    verbose: 0 for no progress bar.
    Returns: `Result`.
    Raises: ValueError for settings outside their ranges; ImportError naming the extra if matplotlib or scikit-learn is missing.
    """
    settings, output = check_settings(settings or Settings()), pathlib.Path(output)
    import_extra("matplotlib.figure")
    data = [load_data(settings.noise, seed) for seed in range(settings.seeds)]
    output.mkdir(parents=True, exist_ok=True)
    tasks = [(m, t, s) for s in range(settings.seeds) for t in settings.temperatures for m in METHODS]
    bar = keras.utils.Progbar(len(tasks), verbose=verbose, unit_name="model")
    runs = []
    for method, temperature, seed in tasks:
        runs.append(train(method, temperature, seed, data[seed], settings.epochs))
        bar.update(len(runs))
    covariance = np.mean([run.covariance for run in select(runs) if run.covariance is not None], axis=0)
    result = Result(settings, runs, summarise(runs), covariance, sum(part.confusions for part in data))
    print(describe(result))
    save(result, output)
    print(f"\nWritten to {output.resolve()}: results.json, results.png, covariance.png")
    return result
