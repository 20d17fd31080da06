"""Regression with a learned covariance, beside a network of constant variance.

python -m benchmarks.labels.regression [--seeds 5] [--output FOLDER] [--quick] [--render]      (on KERAS_BACKEND)

Data: scikit-learn's diabetes (442 x 10, one target) and linnerud (20 x 3, three targets), in random splits, and a
synthetic task of five targets with a planted covariance: y = m(x) + d(x) e + V(x) e', with two factors. All are
standardised by the training examples. The network is Dense(32) and the head, trained by Adam with a step of .01. Each
model stops by its own loss on validation examples, with a patience of 20 epochs, and keeps its best epoch. Linnerud is
so small that each example is a test example in turn, in four folds.

* without inputs: the mean and the variance of the training targets;
* constant variance: trained by the squared error; the variance of each target comes from the validation residuals;
* constant covariance: the same, with the covariances of these residuals (not for the few examples of linnerud);
* NLL, beta-NLL, faithful: the forms of `MultivariateNormalNLL`, from the start;
* stopped by NLL: by the likelihood of the validation examples instead of the model's own loss;
* natural: mu = f1 / softplus(f2), variance 1 / softplus(f2) (Immer et al. 2023), without correlations;
* from a trained mean: `heteroscedastic_regression` of the network of constant variance, trained further; "mean fixed"
  with train_mean=False.

NLL is per example, of all targets together. Its difference to constant variance is paired by split. The other columns
are means over the targets. For the planted covariance there are Spearman's rank correlation with the covariances of all
pairs of targets of all test examples, and the relative error in Frobenius' norm, as a mean over examples.
"""

import numpy as np

from benchmarks.lib import experiments, lines

HIDDEN, STEP, PATIENCE, EPOCHS = 32, 0.01, 20, 300
TASKS = {"diabetes": (0, 32), "linnerud": (1, 16), "planted covariance": (2, 128)}  # factors, and batch size
LEVELS = (0.5, 0.9, 0.95)
FIGURES = (
    *("NLL", "RMSE", "CRPS", "inside 50%", "inside 90%", "inside 95%"),
    *("rank correlation", "Frobenius error"),  # of a planted covariance
)
BESIDE = "NLL beside constant variance"
COLUMNS = ("NLL", BESIDE, *FIGURES[1:])


def splits(name, seed, fold=0):
    """Returns pairs of x and y for training, validation and test, and the planted covariances of the test or None."""
    rng = np.random.default_rng(seed)
    if name == "planted covariance":
        x, y, covariance, sizes = planted(rng)
    else:
        from sklearn import datasets

        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        y, covariance, order = y.reshape(len(x), -1), None, np.roll(rng.permutation(len(x)), 5 * fold)
        x, y, sizes = x[order], y[order], {"diabetes": (260, 90), "linnerud": (11, 4)}[name]
    ends = np.cumsum(sizes)
    scale = y[: ends[0]].std(0)
    x, y = ((part - part[: ends[0]].mean(0)) / part[: ends[0]].std(0) for part in (x, y))
    parts = list(zip(*(np.split(part.astype("float32"), ends) for part in (x, y)), strict=True))
    return parts, None if covariance is None else covariance[ends[1] :] / np.outer(scale, scale)


def planted(rng, count=4500, features=4, units=5, factors=2):
    """Returns examples with a nonlinear mean, and a covariance that depends on the input."""
    x = rng.normal(size=(count, features))
    mean = np.sin(x @ rng.normal(size=(features, units))) + x @ rng.normal(size=(features, units)) * 0.5
    scale = 0.3 * np.exp(0.5 * x @ rng.normal(size=(features, units)) / np.sqrt(features))
    constant, slopes = rng.normal(size=(units, factors)), rng.normal(size=(features, units, factors))
    factor = 0.7 * (constant + 0.5 * np.tensordot(x, slopes, 1))
    noise = scale * rng.normal(size=mean.shape) + np.einsum("nkr,nr->nk", factor, rng.normal(size=(count, factors)))
    covariance = factor @ factor.swapaxes(1, 2) + scale[:, :, None] ** 2 * np.eye(units)
    return x, mean + noise, covariance, (2000, 500)


def natural_head(units):
    """Returns a head of the natural parameters, which packs mean and standard deviations as our heads do."""
    import keras
    from keras import ops

    from keras_het.ops.normal import DiagonalNormal
    from keras_het.ops.packed import pack

    class Natural(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.units, self.maps = units, keras.layers.Dense(2 * units)

        def call(self, x):
            first, second = ops.split(self.maps(x), 2, axis=-1)
            precision = ops.softplus(second) + 1e-6
            return pack(DiagonalNormal(first / precision, 1.0 / ops.sqrt(precision)))

        def compute_output_shape(self, shape):
            return (*shape[:-1], 2 * units + 1)

        def predictions(self, outputs):
            return outputs[..., :units]

    return Natural()


def features_of(inputs):
    """Returns the output of a new hidden layer."""
    import keras

    return keras.layers.Dense(HIDDEN, "relu")(inputs)


def trained(model, parts, batch_size, epochs, by="val_loss"):
    """Returns the model at its best epoch, by its loss or by "val_nll"."""
    import keras

    callbacks = [keras.callbacks.EarlyStopping(by, patience=PATIENCE, mode="min", restore_best_weights=True)]
    if by == "val_nll":
        callbacks.insert(0, keras.callbacks.LambdaCallback(on_epoch_end=likelihood(model, *parts[1])))
    model.fit(*parts[0], validation_data=parts[1], batch_size=batch_size, epochs=epochs, callbacks=callbacks, verbose=0)
    return model


def likelihood(model, x, y):
    """Returns a function of an epoch and its logs that adds the likelihood of the validation examples."""
    from keras_het.explain import regression_scores

    def add(epoch, logs):
        logs["val_nll"] = regression_scores(model.predict_distribution(x, batch_size=512, verbose=0), y).nll

    return add


def models(parts, factors, batch_size, epochs, seed):
    """Yields names and functions of x that predict packed distributions."""
    import keras

    from keras_het.layers import HeteroscedasticNormal
    from keras_het.losses import MultivariateNormalNLL
    from keras_het.models import DistributionModel, heteroscedastic_regression

    features, units = (part.shape[1] for part in parts[0])

    def fresh(head, loss, kind=DistributionModel, by="val_loss"):
        keras.utils.set_random_seed(seed)
        inputs = keras.Input((features,))
        model = kind(inputs, head()(features_of(inputs)))
        model.compile(keras.optimizers.Adam(STEP), loss)
        return trained(model, parts, batch_size, epochs, by)

    def predicting(model):
        return lambda x: model.predict_distribution(x, batch_size=512, verbose=0)

    yield "without inputs", lambda x: np.tile([0.0] * units + [1.0] * units + [-1.0], (len(x), 1))
    mean = fresh(lambda: keras.layers.Dense(units), "mse", keras.Model)
    yield "constant variance", predicting(heteroscedastic_regression(mean, *parts[1]))
    if len(parts[1][0]) > 10 * units > 10:
        yield "constant covariance", constant_covariance(mean, *parts[1])
    for form, name, by in (
        ("nll", "NLL", "val_loss"),
        ("beta", "beta-NLL", "val_loss"),
        ("beta", "beta-NLL, stopped by NLL", "val_nll"),
        ("faithful", "faithful", "val_loss"),
    ):
        head = lambda form=form: HeteroscedasticNormal(units, factors, stop_features=form == "faithful", seed=seed)  # noqa: E731
        yield name, predicting(fresh(head, MultivariateNormalNLL(form), by=by))
    yield "natural", predicting(fresh(lambda: natural_head(units), MultivariateNormalNLL()))
    for name, train_mean in (("from a trained mean", True), ("the same, mean fixed", False)):
        keras.utils.set_random_seed(seed)
        model = heteroscedastic_regression(
            mean, *parts[1], num_factors=factors, train_mean=train_mean, clone=True, seed=seed
        )
        yield name, predicting(trained(model, parts, batch_size, epochs))


def constant_covariance(mean, x, y):
    """Returns distributions with the covariance of the residuals for all inputs."""
    residuals = y - mean.predict(x, verbose=0)
    factor = np.linalg.cholesky(residuals.T @ residuals / len(x) - 1e-4 * np.eye(y.shape[1]))

    def predict(x):
        loc = mean.predict(x, verbose=0)
        rest = np.concatenate([np.full(y.shape[1], 1e-2), factor.ravel(), [-1.0]])
        return np.concatenate([loc, np.broadcast_to(rest, (len(x), len(rest)))], axis=1)

    return predict


def figures(outputs, y, covariance):
    """Returns the `FIGURES`, the last two only for a planted covariance."""
    from keras_het.explain import regression_scores

    scores = regression_scores(outputs, y, LEVELS)
    columns = [scores.nll, scores.rmse.mean(), scores.crps.mean(), *scores.coverage.mean(1)]
    return columns if covariance is None else [*columns, *recovered(outputs, covariance)]


def beside(records):
    """Returns the lines of a task with the differences to the NLL of constant variance."""
    base = {line["seed"]: line["NLL"] for line in lines.select(records, model="constant variance")}
    gaps = (np.nan if line["model"] == "constant variance" else line["NLL"] - base[line["seed"]] for line in records)
    return [line | {BESIDE: gap} for line, gap in zip(records, gaps, strict=True)]


def recovered(outputs, covariance):
    """Returns the rank correlation of predicted covariances of pairs of targets, and their relative error."""
    from scipy.stats import spearmanr

    units = covariance.shape[1]
    below = np.tril_indices(units, -1)
    scale, factor = outputs[:, units : 2 * units], outputs[:, 2 * units : -1].reshape(len(outputs), units, -1)
    predicted = factor @ factor.swapaxes(1, 2) + scale[:, :, None] ** 2 * np.eye(units)
    pairs = [matrices[:, below[0], below[1]].ravel() for matrices in (predicted, covariance)]
    rank = spearmanr(*pairs)[0] if factor.shape[2] else np.nan
    error, norm = (np.linalg.norm(matrices, axis=(1, 2)) for matrices in (predicted - covariance, covariance))
    return rank, np.mean(error / norm)


def measured(options, task, seed):
    """Yields a line for each model, with the means over the folds."""
    folds = {}
    for fold in range(4 if task == "linnerud" else 1):
        parts, covariance = splits(task, seed, fold)
        for name, predict in models(parts, *TASKS[task], options.epochs, seed):
            folds.setdefault(name, []).append(figures(predict(parts[2][0]), parts[2][1], covariance))
    for name, rows in folds.items():
        yield {"model": name, **dict(zip(FIGURES, np.mean(rows, axis=0).tolist(), strict=False))}


def tables(records):
    """Returns a table for each task."""
    parts = {task: lines.select(records, task=task) for task in TASKS}
    return {task: lines.table(beside(own), "model", COLUMNS) for task, own in parts.items()}


def main():
    fixed, keys = {"tasks": TASKS, "epochs": EPOCHS}, ("task", "seed")
    quick = {"seeds": 1, "epochs": 2}
    experiments.run(__doc__, "regression", measured, tables, {"seeds": 5}, quick, fixed, keys=keys)


if __name__ == "__main__":
    main()
