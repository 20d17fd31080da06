"""The demo: a plain head beside the heteroscedastic ones, on digits with label noise that depends on the instance.

Labels flip between classes that look alike. Every method trains at the same temperatures. Each method chooses its own
temperature, and the epoch to stop at, by the likelihood of noisy validation labels. Clean test labels serve only to
report. `python -m keras_het demo` runs it.
"""

import pathlib
import warnings
from typing import Any, NamedTuple

import keras
import numpy as np
from scipy.special import log_softmax

from keras_het import covariances
from keras_het.analysis import calibration, covariance
from keras_het.base.validation import check_integer, check_number
from keras_het.commands.demo_report import describe, import_extra, save
from keras_het.integrators import QuasiMonteCarlo
from keras_het.label_noise import corrupt_labels, look_alike_transitions
from keras_het.layers import HeteroscedasticDense
from keras_het.selection import select

METHODS = {  # name: arguments of the head, None for the plain one
    "Dense": None,
    "diagonal": {"num_factors": 0},
    "full": {"num_factors": 5},
    "latent": {"covariance": covariances.Latent},
    "normalized sigmoid": {"num_factors": 0, "link": "normalized_sigmoid"},
    "normal cdf": {"num_factors": 0, "link": "normal_cdf"},
}
TRAIN, VALIDATION, BATCH = 1024, 256, 128  # of the 1797 digits; the other 517 are the test set
ROUND = 5  # epochs between two looks at the validation labels


class Settings(NamedTuple):
    """The settings of a run of the demo.

    Attributes:
        seeds: seeds 0 to seeds - 1 are run.
        noise: rate of flipped labels.
        epochs: at most, a multiple of `ROUND`.
        temperatures: of every method.
        extend: whether `select` goes on beyond the ends of `temperatures`.
    """

    seeds: int = 3
    noise: float = 0.4
    epochs: int = 60
    temperatures: tuple[float, ...] = (1.5, 5.0, 15.0)
    extend: bool = True


QUICK = Settings(seeds=1, epochs=20, temperatures=(1.5, 5.0), extend=False)


class Split(NamedTuple):
    """Features `(N, D)` and labels `(N,)`."""

    features: np.ndarray
    labels: np.ndarray


class Data(NamedTuple):
    """Data with noisy labels, except `test`, whose labels are clean.

    `confusions[i, j]` counts the flips from class i to j in the other two.
    """

    train: Split
    validation: Split
    test: Split
    confusions: np.ndarray


class Run(NamedTuple):
    """The choices of a method for one seed, and their scores.

    Attributes:
        method: its name, a key of `METHODS`.
        seed: of the data and the weights.
        temperature, epochs: the choice.
        scores: NLL on noisy validation data at its best epoch, by temperature.
        accuracy, nll, ece: on clean test data.
        seconds: of one temperature, the median.
        covariance: `(K, K)`, of the full head, in temperatures.
    """

    method: str
    seed: int
    temperature: float
    epochs: int
    scores: dict[float, float]
    accuracy: float
    nll: float
    ece: float
    seconds: float
    covariance: np.ndarray | None = None


class Row(NamedTuple):
    """A line of the table: the runs of a method; arrays are `(seeds,)`."""

    method: str
    temperatures: tuple[float, ...]
    epochs: tuple[int, ...]
    accuracy: np.ndarray
    nll: np.ndarray
    ece: np.ndarray
    seconds: float


class Result(NamedTuple):
    """All that a demo found.

    `covariance`, `(K, K)`, is the mean of the full heads, and `confusions`, `(K, K)`, the planted noise.
    """

    settings: Settings
    runs: list[Run]
    rows: list[Row]
    covariance: np.ndarray
    confusions: np.ndarray


def check_settings(settings):
    """Returns `settings` if they are valid.

    Raises:
        ValueError: if not; it names the argument, the rule and the value received.
    """
    check_integer("seeds", settings.seeds, 1)
    if check_integer("epochs", settings.epochs, ROUND) % ROUND:
        raise ValueError(f"`epochs` must be a multiple of {ROUND}. Received: epochs={settings.epochs}")
    for temperature in settings.temperatures:
        check_number("temperatures", temperature, above=0.0)
    if not isinstance(settings.noise, int | float) or not 0.0 <= settings.noise < 1.0:
        raise ValueError(f"`noise` must be a number in [0, 1). Received: noise={settings.noise!r}")
    return settings


def load_data(noise, seed):
    """The digits of scikit-learn, split, with flipped labels; they depend on the arguments, not on the backend."""
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


def make_model(arguments, temperature, seed, inputs=64, units=10):
    """Makes a backbone and a head; the plain head's logits are divided by the temperature.

    NumPy draws the weights, the same on every backend.
    """
    backbone = keras.Sequential(
        [keras.layers.Dense(128, activation="relu"), keras.layers.Dense(128, activation="relu")]
    )
    if arguments is None:
        head = [keras.layers.Dense(units), keras.layers.Rescaling(1.0 / temperature)]
    else:
        nodes: dict[str, Any] = {} if "link" in arguments else {"integrator": QuasiMonteCarlo(num_samples=64)}
        kind = arguments.get("covariance")  # new for every head
        new = {} if kind is None else {"covariance": kind()}
        head = [HeteroscedasticDense(units, **{**arguments, **new}, **nodes, temperature=temperature, seed=seed)]
    model = keras.Sequential([keras.Input((inputs,)), backbone, *head])
    rng = np.random.default_rng([seed, 2])
    for kernel in (weight for weight in model.trainable_weights if len(weight.shape) == 2):
        limit = np.sqrt(6.0 / sum(kernel.shape))
        kernel.assign(rng.uniform(-limit, limit, kernel.shape))
    return model


def score(model, split):
    """Accuracy, mean negative log-likelihood and calibration error of the labels of `split`."""
    log_p = log_softmax(
        model.predict(split.features, batch_size=len(split.labels), verbose=0).astype("float64"), axis=-1
    )
    nll = -float(np.mean(log_p[np.arange(len(log_p)), split.labels]))
    return (
        float(np.mean(log_p.argmax(-1) == split.labels)),
        nll,
        calibration(np.exp(log_p), split.labels).error,
    )


def train(method, seed, data, settings):
    """The `Run` of a method: the temperature and the epoch of the least NLL on noisy validation labels.

    `ROUND` epochs, each in its own order, are one long pass, to save Keras' work between epochs.
    """
    rng, (features, labels) = np.random.default_rng([seed, 3]), data.train
    order = np.concatenate([rng.permutation(len(labels)) for _ in range(ROUND)])

    def compiled(temperature):
        model = make_model(METHODS[method], temperature, seed)
        model.compile(keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    with warnings.catch_warnings():
        # The criterion is the same for every method, and what `select` counts as epochs are rounds here.
        warnings.filterwarnings("ignore", "Epoch .* the best by loss")
        found = select(
            compiled, settings.temperatures, features[order], labels[order], data.validation,
            criterion="loss", extend=settings.extend,
            epochs=settings.epochs // ROUND, batch_size=BATCH, shuffle=False, verbose=0,
        )  # fmt: skip
    seconds = float(np.median([trial.seconds for trial in found.trials]))
    sigma = covariance(found.model, data.test.features) if method == "full" else None
    accuracy, nll, ece = score(found.model, data.test)
    return Run(method, seed, found.value, ROUND * found.best.epoch, found.scores, accuracy, nll, ece, seconds, sigma)


def summarise(runs):
    """A `Row` per method, the seeds in order."""
    rows = []
    for method in dict.fromkeys(run.method for run in runs):
        own = sorted((run for run in runs if run.method == method), key=lambda run: run.seed)
        accuracy, nll, ece = (np.array([getattr(run, name) for run in own]) for name in ("accuracy", "nll", "ece"))
        seconds = float(np.median([run.seconds for run in own]))
        rows.append(
            Row(
                method,
                tuple(run.temperature for run in own),
                tuple(run.epochs for run in own),
                accuracy,
                nll,
                ece,
                seconds,
            )
        )
    return rows


def run(settings=None, output="keras_het_demo", verbose=1):
    """Trains every method at every temperature and seed, prints the report, and writes `results.json` and two figures.

    Args:
        settings: `Settings`, None for the full demo.
        output: folder; it is made if it does not exist.
        verbose: 0 for no progress bar.
    Returns:
        `Result`.
    Raises:
        ValueError: for settings outside their ranges.
        ImportError: if matplotlib or scikit-learn is missing; it names the extra.
    """
    settings, output = check_settings(settings or Settings()), pathlib.Path(output)
    import_extra("matplotlib.figure")
    data = [load_data(settings.noise, seed) for seed in range(settings.seeds)]
    output.mkdir(parents=True, exist_ok=True)
    tasks = [(method, seed) for seed in range(settings.seeds) for method in METHODS]
    bar = keras.utils.Progbar(len(tasks), verbose=verbose, unit_name="method")
    runs = []
    for method, seed in tasks:
        runs.append(train(method, seed, data[seed], settings))
        bar.update(len(runs))
    mean = np.mean([run.covariance for run in runs if run.covariance is not None], axis=0)
    result = Result(settings, runs, summarise(runs), mean, sum(part.confusions for part in data))
    print(describe(result))
    save(result, output)
    print(f"\nWritten to {output.resolve()}: results.json, results.png, covariance.png")
    return result
