"""Accuracy and likelihood of each head on digits with instance-dependent noise.

python -m benchmarks.labels.head [--repeats 3] [--quick] [--output FOLDER]      (on the backend of KERAS_BACKEND)

40% of the labels are flipped to the class that the image looks most like. Every method tries the same temperatures, and
picks one, with an epoch, by the likelihood of noisy validation labels. Clean test labels are only reported. Weights of
equal shapes start equal on every backend.
"""

import keras
import numpy as np
from scipy.special import log_softmax

from benchmarks.lib import harness, tasks
from benchmarks.lib.lines import distinct, select, with_error
from benchmarks.lib.results import publish
from benchmarks.lib.tuning import tune
from keras_het import covariances
from keras_het.explain import calibration
from keras_het.integrators import QuasiMonteCarlo
from keras_het.layers import HeteroscedasticDense

PLAIN = "Dense"
METHODS = {  # name: arguments of the head, None for the plain one
    PLAIN: None,
    "diagonal": {"num_factors": 0},
    "full": {"num_factors": 5},
    "latent": {"covariance": covariances.Latent},
    "normal cdf": {"num_factors": 0, "link": "normal_cdf"},
}
NOISE, BATCH, EPOCHS, TEMPERATURES = 0.4, 128, 60, (1.5, 5.0, 15.0)
ROUND = 5  # epochs between two looks at the validation labels
MEASURES = {"accuracy": 1.0, "NLL": -1.0, "ECE": -1.0}  # 1 if larger is better, else -1


def make_model(arguments, temperature, seed, inputs=64, units=10):
    """Returns a backbone and a head. The plain head's logits are divided by the temperature."""
    backbone = keras.Sequential([keras.layers.Dense(128, "relu"), keras.layers.Dense(128, "relu")])
    if arguments is None:
        head = [keras.layers.Dense(units), keras.layers.Rescaling(1.0 / temperature)]
    else:
        nodes = {} if "link" in arguments else {"integrator": QuasiMonteCarlo(num_samples=64)}
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
    """Returns accuracy, mean negative log-likelihood and calibration error of the labels of `split`, by name."""
    log_p = log_softmax(model.predict(split.x, batch_size=len(split.y), verbose=0).astype("float64"), axis=-1)
    accuracy, nll = np.mean(log_p.argmax(-1) == split.y), -np.mean(log_p[np.arange(len(log_p)), split.y])
    values = accuracy, nll, calibration(np.exp(log_p), split.y).error
    return dict(zip(MEASURES, map(float, values), strict=True))


def train(method, seed, temperatures=TEMPERATURES, epochs=EPOCHS):
    """Returns a line: temperature and epoch with the least NLL on noisy validation labels, and clean scores.

    `ROUND` epochs, each in its own order, are one long pass, to save Keras' work between epochs.
    """
    task, rng = tasks.digits(NOISE, seed), np.random.default_rng([seed, 3])
    order = np.concatenate([rng.permutation(len(task.train.y)) for _ in range(ROUND)])

    def compiled(temperature):
        model = make_model(METHODS[method], temperature, seed)
        model.compile(keras.optimizers.Adam(2e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    fit = {"epochs": epochs // ROUND, "batch_size": BATCH, "shuffle": False}
    best = tune(compiled, temperatures, task.train.x[order], task.train.y[order], task.validation, **fit)
    about = {"method": method, "seed": seed, "temperature": best.value, "epoch": ROUND * best.epoch}
    return {**about, **score(best.model, task.test), "seconds": float(np.median(best.seconds))}


def table(lines):
    """Returns a row for each method: mean +- standard error over the seeds, and the choices."""
    rows = [["method", *MEASURES, "temperatures", "epochs", "seconds of a training"]]
    for method in distinct(lines, "method"):
        own = select(lines, method=method)
        scores = (with_error([line[name] for line in own]) for name in MEASURES)
        temperatures = ", ".join(f"{line['temperature']:g}" for line in own)
        epochs = ", ".join(str(line["epoch"]) for line in own)
        rows.append([method, *scores, temperatures, epochs, f"{np.median([line['seconds'] for line in own]):.1f}"])
    return rows


def verdict(lines):
    """Returns a row for each measure: best method, best baseline, gain seed by seed, and whether it is significant.

    The baseline is the plain head, or the second best if the plain head is the best.
    """
    rows = [["by", "best", "beside", "gain", "beyond two standard errors"]]
    for name, sign in MEASURES.items():
        values = {
            method: sign * np.array([line[name] for line in select(lines, method=method)])
            for method in distinct(lines, "method")
        }
        best, second, *_ = sorted(values, key=lambda method: -values[method].mean())
        rival = second if best == PLAIN else PLAIN
        gains = values[best] - values[rival]
        error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else np.nan
        clear = "one seed" if np.isnan(error) else "yes" if gains.mean() > 2.0 * error else "no"
        rows.append([name, best, rival, with_error(gains), clear])
    return rows


def main():
    options = harness.command_line(__doc__, repeats=3).parse_args()
    quick = {"temperatures": (5.0,), "epochs": ROUND} if options.quick else {}
    seeds, lines = range(1 if options.quick else options.repeats), []
    for seed in seeds:
        for method in METHODS:
            lines.append(train(method, seed, **quick))
            print(lines[-1], flush=True)
    tables = {"the best, on clean test data": verdict(lines), "each method, on clean test data": table(lines)}
    publish(options.output, "head", tables, seeds)


if __name__ == "__main__":
    main()
