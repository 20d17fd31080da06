"""Careful baselines of scikit-learn, and the scores of classifiers.

Logistic regression with C by noisy validation labels, linear discriminant analysis with its shrinkage chosen in the
same way, and a vote of ten neighbours.
"""

import numpy as np
from scipy.special import log_softmax

from keras_het.explain import calibration

STRENGTHS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # C of logistic regression, inverse L2
SHRINKAGES = (0.9, 0.7, 0.5, 0.3, 0.1)
NEIGHBOURS = 10


def standardized(train, *others):
    """Returns features with mean 0 and standard deviation 1 over the training examples, float32."""
    mean, deviation = train.mean(axis=0), train.std(axis=0) + 1e-6
    return [((x - mean) / deviation).astype("float32") for x in (train, *others)]


def split(labels, seed, rate=0.1):
    """Returns indices of training and of validation examples: nine tenths and one tenth at random."""
    order = np.random.default_rng([seed, 1]).permutation(len(labels))
    count = round(rate * len(labels))
    return np.sort(order[count:]), np.sort(order[:count])


def measures(log_p, truth, votes=None):
    """Returns accuracy, NLL and calibration error of log-probabilities `(N, K)`, and distances to people's votes."""
    if np.isnan(log_p).any():
        raise FloatingPointError("the model predicts NaN: its training diverged, so try a lower learning rate")
    log_p = log_softmax(np.asarray(log_p, "float64"), axis=1)
    p, right = np.exp(log_p), log_p.argmax(axis=1) == truth
    result = {
        "accuracy": float(right.mean()),
        "nll": float(-np.take_along_axis(log_p, truth[:, None].astype(int), 1).mean()),
        "ece": calibration(p, truth).error,
    }
    return result | (to_people(log_p, p, votes) if votes is not None else {})


def to_people(log_p, p, votes):
    """Returns cross-entropy and KL to people's distributions in nats, and the rank correlation of the entropies."""
    from scipy.stats import spearmanr

    q = votes / votes.sum(axis=1, keepdims=True)
    entropy = -(q * np.log(np.maximum(q, 1e-12))).sum(axis=1)
    cross = -(q * log_p).sum(axis=1).mean()
    return {
        "people": float(cross),
        "kl": float(cross - entropy.mean()),
        "entropies": float(spearmanr(entropy, -(p * log_p).sum(axis=1)).statistic),
    }


def logistic_regression(x, y, x_validation, y_validation, *others):
    """Returns log-probabilities of other examples, by the C with the best noisy accuracy, and this C."""
    from sklearn.linear_model import LogisticRegression

    models = [LogisticRegression(C=c, max_iter=300).fit(x, y) for c in STRENGTHS]
    best = max(models, key=lambda model: model.score(x_validation, y_validation))
    return [best.predict_log_proba(part) for part in others], best.C


def linear_discriminant(x, y, x_validation, y_validation, *others):
    """Returns classes of other examples by scikit-learn's discriminant with equal priors."""
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    priors = np.full(len(np.unique(y)), 1.0 / len(np.unique(y)))
    models = [LinearDiscriminantAnalysis(solver="lsqr", shrinkage=a, priors=priors).fit(x, y) for a in SHRINKAGES]
    best = max(models, key=lambda model: model.score(x_validation, y_validation))
    return [best.predict(part) for part in others], best.shrinkage


def neighbour_votes(x, y, units):
    """Returns the fractions of labels among the ten nearest other examples, by cosine, `(N, K)`."""
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=NEIGHBOURS, metric="cosine").fit(x).kneighbors(return_distance=False)
    return (y[nearest][:, :, None] == np.arange(units)).mean(axis=1)
