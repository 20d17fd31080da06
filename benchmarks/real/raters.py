"""MovieReviews: ratings of films by 135 people who read a review, ways to combine them, and models trained on them.

1,500 reviews as bags of words, each with the ratings of about five people, and 3,506 test reviews with the rating of
their author. A tenth of the training reviews is held out. Their ratings, or the targets made from them, choose the
penalty of ridge regression on TF-IDF and the epoch of networks on its 200 principal components, and give the constant
variance. The head is `models.heteroscedastic_regression` of the network, trained further. True values choose nothing.
"""

import time

import keras
import numpy as np

from benchmarks.real import data, plain

HIDDEN, DECAY, RATE, BATCH, EPOCHS, PARTS = 64, 1e-2, 1e-3, 64, 40, 200
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # L2 of ridge regression
TARGETS = ("mean of the ratings", "without each rater's bias", "and weighted by spread", "each rating", "true ratings")
HEADS = ("ridge", "network, constant variance", "head")
ROWS = {f"{target}, {head}": (target, head) for target in TARGETS for head in HEADS}
COLUMNS = ("error of the target", "RMSE", "NLL", "inside 50%", "inside 90%")


def consensus(ratings, equal_spread, smoothing=5.0, steps=200):
    """Returns the mean rating without each rater's bias, weighted by each rater's spread, by EM.

    Source: Raykar, Yu, Zhao et al. 2010, "Learning from crowds", JMLR 11, the part on regression, with a bias.
    """
    is_rated = ~np.isnan(ratings)
    count, values = is_rated.sum(axis=0), np.where(is_rated, ratings, 0.0)
    bias, spread = np.zeros(len(count)), np.full(len(count), ratings[is_rated].std())
    for _ in range(steps):
        weights = is_rated / np.square(spread)
        target = (weights * (values - bias)).sum(axis=1) / weights.sum(axis=1)
        residuals = np.where(is_rated, values - target[:, None], 0.0)
        bias = residuals.sum(axis=0) / (count + smoothing)
        bias -= bias @ count / count.sum()
        errors = 1.0 / weights.sum(axis=1, keepdims=True)
        squares = (is_rated * (np.square(residuals - bias) + errors)).sum(axis=0)
        mean = squares.sum() / count.sum()
        variance = np.full(len(count), mean) if equal_spread else (squares + smoothing * mean) / (count + smoothing)
        spread = np.sqrt(variance)
    return target


def targets_of(name, dataset):
    """Returns the indices of the training examples, and a target for each."""
    everyone = np.arange(len(dataset.truth))
    if name == "each rating":
        rows, raters = np.nonzero(~np.isnan(dataset.ratings))
        return rows, dataset.ratings[rows, raters]
    if name == "true ratings":
        return everyone, dataset.truth
    if name == "mean of the ratings":
        return everyone, np.nanmean(dataset.ratings, axis=1)
    return everyone, consensus(dataset.ratings, equal_spread=name == "without each rater's bias")


def texts_as(kind, dataset):
    """Returns TF-IDF of training and test reviews: sparse for ridge regression, or their principal components."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfTransformer

    weigh = TfidfTransformer(sublinear_tf=True).fit(dataset.x)
    parts = [weigh.transform(part) for part in (dataset.x, dataset.x_test)]
    if kind == "ridge":
        return parts
    reduce = TruncatedSVD(PARTS, random_state=0).fit(parts[0])
    return [PARTS**0.5 * reduce.transform(part).astype("float32") for part in parts]  # a mean square near 1


def measured(options, seed, row):
    """Returns the line of MovieReviews of a seed and row: scores of the true ratings of the test."""
    from keras_het.explain import regression_scores

    target, head = ROWS[row]
    dataset, start = data.movie_reviews(options.data), time.process_time()
    x, x_test = texts_as(head, dataset)
    rows, y = targets_of(target, dataset)
    train, held = (np.isin(rows, part) for part in plain.split(dataset.truth, seed))
    mean, scale = y[train].mean(), y[train].std()
    parts = [(x[rows[part]], ((y[part] - mean) / scale).astype("float32")[:, None]) for part in (train, held)]
    outputs = np.asarray((ridge if head == "ridge" else network_rows)(head, parts, x_test, seed, options.epochs))
    outputs = np.stack([outputs[:, 0] * scale + mean, outputs[:, 1] * scale, outputs[:, 2]], axis=1)
    scores = regression_scores(outputs, dataset.truth_test, (0.5, 0.9))
    yield {
        "error of the target": float(np.sqrt(np.mean((y - dataset.truth[rows]) ** 2))),
        "RMSE": float(scores.rmse[0]),
        "NLL": float(scores.nll),
        "inside 50%": float(scores.coverage[0, 0]),
        "inside 90%": float(scores.coverage[1, 0]),
        "processor": time.process_time() - start,
    }


def ridge(head, parts, x_test, seed, epochs):
    """Returns ridge regression. The held-out error chooses the penalty and gives the variance."""
    from sklearn.linear_model import Ridge

    (x, y), (x_held, y_held) = parts
    models = [Ridge(penalty).fit(x, y[:, 0]) for penalty in PENALTIES]
    errors = [np.mean((model.predict(x_held) - y_held[:, 0]) ** 2) for model in models]
    best = int(np.argmin(errors))
    loc = models[best].predict(x_test)
    return np.stack([loc, np.full_like(loc, errors[best] ** 0.5), np.full_like(loc, -1.0)], axis=1)


def network_rows(head, parts, x_test, seed, epochs):
    """Returns distributions of a network with the held-out variance, or of its heteroscedastic head."""
    from keras_het.models import heteroscedastic_regression

    keras.utils.set_random_seed(seed)
    decay = keras.regularizers.L2(DECAY)
    layers = [keras.layers.Dense(HIDDEN, "relu", kernel_regularizer=decay), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input(x_test.shape[1:]), *layers])
    model.compile(keras.optimizers.Adam(RATE), "mse")

    def fit(model):
        best = keras.callbacks.EarlyStopping("val_loss", patience=10, restore_best_weights=True)
        model.fit(*parts[0], validation_data=parts[1], batch_size=BATCH, epochs=epochs, callbacks=[best], verbose=0)

    fit(model)
    model = heteroscedastic_regression(model, *parts[1], seed=seed)
    if head == "head":
        fit(model)
    return model.predict_distribution(x_test, batch_size=1024, verbose=0)
