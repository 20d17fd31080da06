"""Joint losses for label vectors with planted correlations or missing positives.

python -m benchmarks.labels.joint [--seeds 5] [--epochs 20] [--output FOLDER] [--quick] [--render]  (on KERAS_BACKEND)

Eight labels of five features: u = W x + V e + .5 e', with two factors, and p(label 1) = sigmoid(u). All models are one
layer, trained alike: Adam with a step of .02, batches of 128, the same epochs. Test vectors are clean.

* rank correlation: Spearman's, between learned and planted covariances of pairs of labels; none for a Dense layer;
* NLL: of a whole label vector; the planted model has the lowest possible NLL;
* exact match: the fraction of test vectors that are predicted entirely, by the most probable of all 256 vectors;
* missing positives: of the training labels 1, a fraction .3 is 0. The table has accuracy and average precision of
  single labels by the predicted probabilities, and the mean probability beside the mean of the clean labels.
"""

import itertools

import numpy as np

from benchmarks.lib import experiments, lines

LABELS, FACTORS, FEATURES, OWN, MISSING = 8, 2, 5, 0.5, 0.3
TRAIN, TEST = 4000, 2000
BOUNDS = {"correlations": "the planted model", "missing": "the clean labels"}
COLUMNS = {
    "correlations": ("rank correlation", "NLL of a vector", "exact match"),
    "missing": ("accuracy", "average precision", "mean probability"),
}
TITLES = {"correlations": "planted correlations", "missing": "30% of the positives missing"}
ROWS = {
    "correlations": ("Dense, binary crossentropy", "head, binary crossentropy", "joint"),
    "missing": (
        "Dense, binary crossentropy",
        "Dense, focal loss",
        "Dense, asymmetric loss",
        "joint",
        "joint, rate known",
    ),
}
VECTORS = np.array(list(itertools.product((0, 1), repeat=LABELS)))


class Task:
    """Examples, and the model that made them."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.kernel = rng.normal(size=(FEATURES, LABELS))
        self.factor = 2.0 * rng.normal(size=(LABELS, FACTORS))
        self.x = rng.normal(size=(TRAIN + TEST, FEATURES)).astype("float32")
        noise = rng.normal(size=(len(self.x), FACTORS)) @ self.factor.T + OWN * rng.normal(size=(len(self.x), LABELS))
        u = self.x @ self.kernel + noise
        self.y = (rng.random(u.shape) * (1.0 + np.exp(-u)) < 1.0).astype("float32")
        self.with_missing = self.y * (rng.random(u.shape) >= MISSING)

    @property
    def test(self):
        """Clean examples for testing."""
        return self.x[TRAIN:], self.y[TRAIN:]

    def oracle(self):
        """Returns the joint distributions of the planted model."""
        from keras.ops import convert_to_numpy

        from keras_het.explain.distributions import JointLabels
        from keras_het.ops.low_rank import LowRankNormal
        from keras_het.ops.packed import pack

        loc = (self.test[0] @ self.kernel).astype("float32")
        factor = np.broadcast_to(self.factor, (len(loc), *self.factor.shape)).astype("float32")
        return JointLabels(loc, convert_to_numpy(pack(LowRankNormal(loc, np.full_like(loc, OWN), factor))), 256)


def asymmetric(y_true, y_pred):
    """Returns the asymmetric loss of Ridnik et al. 2021: exponents 1 and 4, negatives shifted by .05."""
    from keras import ops

    p, below = ops.sigmoid(y_pred), ops.maximum(ops.sigmoid(y_pred) - 0.05, 0.0)
    positive = y_true * (1.0 - p) * ops.log_sigmoid(y_pred)
    negative = (1.0 - y_true) * below**4 * ops.log(ops.maximum(1.0 - below, 1e-8))
    return -ops.mean(positive + negative, axis=-1)


def models():
    """Returns functions of a seed and the rate of missing positives that make a model."""
    import keras

    from keras_het.layers import HeteroscedasticDense, JointHeteroscedasticDense
    from keras_het.losses import JointMultiLabelCrossentropy
    from keras_het.models import DistributionModel

    def of(layer, loss):
        inputs = keras.Input((FEATURES,))
        kind = DistributionModel if isinstance(layer, JointHeteroscedasticDense) else keras.Model
        model = kind(inputs, layer(inputs))
        model.compile(keras.optimizers.Adam(0.02), loss)
        return model

    def joint(seed, **arguments):
        return JointHeteroscedasticDense(LABELS, FACTORS, seed=seed, **arguments)

    def marginal(seed):
        return HeteroscedasticDense(LABELS, FACTORS, link="sigmoid", temperature=1.0, seed=seed)

    crossentropy, focal = (
        keras.losses.BinaryCrossentropy(from_logits=True),
        keras.losses.BinaryFocalCrossentropy(from_logits=True),
    )
    return {
        "Dense, binary crossentropy": lambda seed: of(keras.layers.Dense(LABELS), crossentropy),
        "Dense, focal loss": lambda seed: of(keras.layers.Dense(LABELS), focal),
        "Dense, asymmetric loss": lambda seed: of(keras.layers.Dense(LABELS), asymmetric),
        "head, binary crossentropy": lambda seed: of(marginal(seed), crossentropy),
        "joint": lambda seed: of(joint(seed), JointMultiLabelCrossentropy(64)),
        "joint, rate known": lambda seed: of(joint(seed), JointMultiLabelCrossentropy(64, false_negative_rate=MISSING)),
    }


def fitted(make, seed, x, y, epochs):
    """Returns a trained model, and its probabilities of single labels."""
    import keras

    keras.utils.set_random_seed(seed)
    model = make(seed)
    model.fit(x[:TRAIN], y[:TRAIN], batch_size=128, epochs=epochs, verbose=0)
    outputs = model.predict(x[TRAIN:], verbose=0)
    return model, outputs if hasattr(model, "head") else 1.0 / (1.0 + np.exp(-outputs))


def correlations(task, model, p):
    """Returns rank correlation, NLL and exact match."""
    from scipy.stats import spearmanr

    from keras_het.explain import covariance, joint_labels

    x, y = task.test
    rank = np.nan
    if "heteroscedastic" in model.layers[-1].name:
        below = np.tril_indices(LABELS, -1)
        rank = spearmanr(covariance(model, x)[below], (task.factor @ task.factor.T)[below])[0]
    if hasattr(model, "head"):
        return rank, *joint_scores(joint_labels(model, x), y)
    nll = -np.log(np.where(y == 1, p, 1.0 - p)).sum(1).mean()
    return rank, nll, np.mean(((p > 0.5) == y).all(1))


def joint_scores(joint, y):
    return -joint.log_prob(y).mean(), np.mean((VECTORS[joint.most_likely(VECTORS)] == y).all(1))


def single_label_scores(p, y):
    """Returns accuracy, average precision and mean probability over all labels."""
    from sklearn.metrics import average_precision_score

    return np.mean((p > 0.5) == y), average_precision_score(y, p, average="macro"), p.mean()


def measured(options, labels, seed, model):
    """Yields the line of a model that is trained on one kind of labels."""
    task = Task(seed)
    truth = task.test[1]
    if model == "the planted model":
        figures = 1.0, *joint_scores(task.oracle(), truth)
    elif model == "the clean labels":
        figures = np.nan, np.nan, truth.mean()
    else:
        y = task.y if labels == "correlations" else task.with_missing
        trained, p = fitted(models()[model], seed, task.x, y, options.epochs)
        figures = correlations(task, trained, p) if labels == "correlations" else single_label_scores(p, truth)
    yield dict(zip(COLUMNS[labels], map(float, figures), strict=True))


def keys(options):
    """Yields the keys of all runs."""
    for labels, names in ROWS.items():
        for key in experiments.product(options, "seed"):
            yield from ({"labels": labels, **key, "model": name} for name in (BOUNDS[labels], *names))


def tables(records):
    """Returns a table for each kind of labels."""
    return {TITLES[kind]: lines.table(lines.select(records, labels=kind), "model", COLUMNS[kind]) for kind in ROWS}


def main():
    options, quick = {"seeds": 5, "epochs": 20}, {"seeds": 1, "epochs": 1}
    experiments.run(__doc__, "joint", measured, tables, options, quick, keys=keys, settings=("epochs",))


if __name__ == "__main__":
    main()
