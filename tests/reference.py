"""Oracles: the same quantities in NumPy float64, written plainly and without code of the package."""

import numpy as np
from scipy.special import log_expit, log_softmax, logsumexp


def noise_covariance(scale_diag, factor=None, row_scale=None):
    """Returns diag(d^2) + W W' for one example: d of shape (K,), V of shape (K, R), v of shape (K,)."""
    covariance = np.diag(np.float64(scale_diag) ** 2)
    if factor is not None:
        scaled = np.float64(factor) if row_scale is None else np.float64(row_scale)[:, None] * factor
        covariance = covariance + scaled @ scaled.T
    return covariance


def logits_at(loc, scale_diag, eps_diag, factor=None, eps_factor=None, row_scale=None):
    """Returns logits of a batch at nodes: (S, B, K)."""
    loc, scale_diag, eps_diag = (np.asarray(x, "float64") for x in (loc, scale_diag, eps_diag))
    logits = loc + scale_diag * eps_diag[:, None, :]
    if factor is not None:
        factor = np.broadcast_to(np.asarray(factor, "float64"), (*loc.shape, np.shape(factor)[-1]))
        noise = np.einsum("bkr,sr->sbk", factor, np.asarray(eps_factor, "float64"))
        logits = logits + (noise if row_scale is None else np.asarray(row_scale, "float64") * noise)
    return logits


def log_mean_softmax(logits, temperature):
    """Returns the log of the mean over the first axis of softmax(logits / temperature)."""
    return logsumexp(log_softmax(logits / temperature, axis=-1), axis=0) - np.log(len(logits))


def logit_mean_sigmoid(logits, temperature):
    """Returns the logit of the mean over the first axis of sigmoid(logits / temperature)."""
    return logsumexp(log_expit(logits / temperature), axis=0) - logsumexp(log_expit(-logits / temperature), axis=0)


def expected_sigmoid(mean, scale, step=0.004):
    """Returns E[sigmoid(mean + scale z)] in logs, z standard normal, by the trapezoidal rule.

    The integrand is analytic in a strip of half-width pi / scale, so the rule's relative error is
    exp(-2 pi^2 / (scale * step)): below 1e-60 for scale <= 30.

    Returns log E, d log E / d mean, d log E / d scale.
    """
    z = np.arange(-13.0, scale + 13.0, step)  # the tilted density exp(scale z - z^2 / 2) has its mode at z = scale
    x = mean + scale * z
    log_integrand = log_expit(x) - z**2 / 2
    log_value = logsumexp(log_integrand) + np.log(step / np.sqrt(2 * np.pi))
    weights = np.exp(log_integrand - logsumexp(log_integrand))
    slope = np.exp(log_expit(-x))  # d log sigmoid(x) / dx
    return log_value, np.sum(weights * slope), np.sum(weights * slope * z)
