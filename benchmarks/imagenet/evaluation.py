"""Metrics of a model over batches that need not fit in memory together."""

import numpy as np
from scipy.special import expit, log_softmax

from benchmarks.imagenet.batches import prefetched

BINS = 1 << 20  # probability bins of the gAP


def evaluate(model, batches, config, workers=1):
    """Returns the NLL, and top-1 and top-5 accuracy, or gAP if an image can have several classes."""
    totals, count, curve = np.zeros(3), 0, Curve()
    for x, y in prefetched(batches, workers):
        outputs = np.asarray(model.predict_on_batch(x), "float64")
        totals += figures(outputs, y)
        count += len(y)
        if config.multilabel:
            curve.add(expit(outputs), y)
    nll, first, fifth = (float(total) / count for total in totals)
    return {"nll": nll, **({"gap": curve.area()} if config.multilabel else {"top1": first, "top5": fifth})}


def figures(outputs, y):
    """Returns sums over a batch: NLL, and correct predictions by the first class and by the first five."""
    if y.ndim == 1:
        nll = -log_softmax(outputs, axis=-1)[np.arange(len(y)), y]
        y = np.eye(outputs.shape[-1])[y]
    else:
        nll = (np.logaddexp(0.0, outputs) - y * outputs).sum(-1)
    order = np.argsort(-outputs, axis=-1, kind="stable")[:, :5]
    right = np.take_along_axis(y, order, axis=-1) > 0
    return np.array([nll.sum(), right[:, 0].sum(), right.any(-1).sum()])


class Curve:
    """Global average precision from counts of probabilities in a million bins.

    The metric of the package holds all pairs of an example and a class, which are billions here.
    """

    def __init__(self):
        self.right, self.all = np.zeros(BINS), np.zeros(BINS)

    def add(self, p, y):
        """Counts the pairs of a batch."""
        places = np.minimum((p * BINS).astype("int64"), BINS - 1).ravel()
        self.all += np.bincount(places, minlength=BINS)
        self.right += np.bincount(places, weights=y.ravel(), minlength=BINS)

    def area(self):
        """Returns the precision, averaged over the correct pairs, with one threshold for each bin."""
        right, every = (np.cumsum(counts[::-1]) for counts in (self.right, self.all))
        precision = np.divide(right, every, out=np.zeros(BINS), where=every > 0)
        return float((self.right[::-1] * precision).sum() / right[-1])
