"""Segmentation by one Gaussian over all pixels, beside heads for each pixel.

python -m benchmarks.labels.segmentation [--seeds 5] [--epochs 10] [--output FOLDER] [--quick] [--render]

Training sees every image once, with the label map of one annotator. All possible label maps are known and equally
likely, so all scores compare with the whole distribution.

* segments: signals of 24 values with a segment of each of two kinds, as in the toy of Monteiro et al. 2020. A segment
  is wholly on or wholly off, so a signal has four maps;
* discs: images of 24 x 24 pixels with one or two bright discs in fainter rings. An annotator draws discs alone or with
  their rings, and draws them in place (half of the annotators), or two pixels to the left or right. So there are eight
  maps, two of them twice.

All models are two convolutions of 12 channels and a head. Nothing was tuned: Adam with a step of .01, batches of 8, the
same epochs. Heads for each pixel sample the class of each pixel by itself.

* GED: the square of the generalised energy distance, with S samples. Even the planted distribution has a GED above 0:
  E d(y, y') / S. Diversity and matched IoU use 100 samples;
* borders: pairs of neighbours of different classes in a sample;
* whole: the fraction of samples that are one of the maps of the signal, and how many of the four are among 100 samples;
* NLL: of the label map of an annotator, in nats; the planted distribution has the lowest possible NLL.
"""

import numpy as np

from benchmarks.lib import experiments, lines

SIZE, TRAIN, TEST = 24, 320, 40
SAMPLES = (16, 50, 100)
FACTORS, NODES, TEST_NODES = 4, 20, 512
COLUMNS = (*(f"GED, {count} samples" for count in SAMPLES), "diversity", "matched IoU", "borders")
WHOLE = ("whole", "of 4 maps")  # of segments


class Task:
    """Images `x`, and the equally likely maps that annotators can draw of them, `(M, N, ...)`."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        examples = [self.example(rng) for _ in range(TRAIN + TEST)]
        self.x = np.stack([x for x, _ in examples]).astype("float32")
        self.maps = np.stack([maps for _, maps in examples], axis=1)
        self.annotators = rng.integers(len(self.maps), size=len(self.x))

    @property
    def y(self):
        """Label map of each image."""
        return self.maps[self.annotators, np.arange(len(self.x))]

    def planted(self, count, rng):
        """Returns label maps of test images by the planted distribution."""
        return self.maps[rng.integers(len(self.maps), size=(count, TEST)), TRAIN + np.arange(TEST)]


class Segments(Task):
    """Signals with a segment of each of two kinds, each wholly on or off."""

    title, convolution, entropy = "segments that are wholly on or off", "Conv1D", np.log(4)

    @staticmethod
    def example(rng):
        """Returns a signal and its four maps."""
        half, places = SIZE // 2, np.arange(SIZE)
        lengths = rng.integers(5, 11, 2)
        starts = np.array([0, half]) + [rng.integers(0, half - length + 1) for length in lengths]
        inside = [(places >= start) & (places < start + n) for start, n in zip(starts, lengths, strict=True)]
        inside = np.array(inside)[rng.permutation(2)]
        maps = [on * inside[0] + other * inside[1] for on in (0, 1) for other in (0, 1)]
        return inside.T + 0.1 * rng.normal(size=(SIZE, 2)), np.array(maps)


class Discs(Task):
    """Images of discs in rings, which annotators draw with or without rings, and some of them shifted."""

    title, convolution, entropy = "discs with two borders", "Conv2D", 2.5 * np.log(2)  # two of eight maps are double

    @staticmethod
    def example(rng):
        """Returns an image and its eight maps."""
        places = np.arange(SIZE)
        small, large = (np.zeros((SIZE, SIZE), bool) for _ in range(2))
        for _ in range(rng.integers(1, 3)):
            row, column, radius = rng.uniform(7, SIZE - 7), rng.uniform(9, SIZE - 9), rng.uniform(2, 4)
            distance = np.hypot(places[:, None] - row, places - column)
            small, large = small | (distance < radius), large | (distance < radius + 3)
        shifts = [(np.roll(small, by, 1), np.roll(large, by, 1)) for by in (-2, 0, 0, 2)]
        maps = np.array([kind for both in shifts for kind in both], int)
        return (0.5 * small + 0.5 * large)[..., None] + 0.1 * rng.normal(size=(SIZE, SIZE, 1)), maps


KINDS = {kind.title: kind for kind in (Segments, Discs)}


def models(task):
    """Returns functions of a seed that make a model for a task."""
    import keras

    from keras_het.integrators import QuasiMonteCarlo
    from keras_het.layers import HeteroscedasticDense, StochasticSegmentation
    from keras_het.losses import JointSegmentationCrossentropy
    from keras_het.models import DistributionModel

    def of(head, loss, kind=keras.Model):
        inputs = features = keras.Input(task.x.shape[1:])
        for _ in range(2):
            features = getattr(keras.layers, task.convolution)(12, 5, padding="same", activation="relu")(features)
        model = kind(inputs, head(features))
        model.compile(keras.optimizers.Adam(0.01), loss)
        return model

    def marginal(seed):
        return HeteroscedasticDense(2, 1, temperature=1.0, integrator=QuasiMonteCarlo(NODES), seed=seed)

    def joint(seed):
        head = StochasticSegmentation(2, FACTORS, seed=seed)
        return of(head, JointSegmentationCrossentropy(2, NODES), DistributionModel)

    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return {
        "Dense of each pixel": lambda seed: of(keras.layers.Dense(2), crossentropy),
        "HeteroscedasticDense of each pixel": lambda seed: of(marginal(seed), crossentropy),
        "joint": joint,
    }


def fitted(task, name, seed, epochs):
    import keras

    keras.utils.set_random_seed(seed)
    model = models(task)[name](seed)
    model.fit(task.x[:TRAIN], task.y[:TRAIN], batch_size=8, epochs=epochs, verbose=0)
    return model


def sampled(model, x, count, seed=0):
    """Returns samples of label maps from a model, `(S, N, ...)`."""
    from keras_het.explain import sample_segmentations

    if hasattr(model, "head"):
        return sample_segmentations(model, x, count, seed)
    return sample_pixels(probability(model, x), count, np.random.default_rng(seed))


def probability(model, x):
    """Returns the probability of class 1 for each pixel, from a head for each pixel."""
    outputs = model.predict(x, verbose=0).astype("float64")
    return 1.0 / (1.0 + np.exp(outputs[..., 0] - outputs[..., 1]))


def sample_pixels(p, count, rng):
    """Returns label maps whose pixels are sampled independently."""
    return (rng.random((count, *p.shape)) < p).astype(int)


def nll(task, model):
    """Returns the mean of -log p of label maps of test images."""
    from keras_het.losses import JointSegmentationCrossentropy

    x, y = task.x[TRAIN:], task.y[TRAIN:]
    if hasattr(model, "head"):
        return float(JointSegmentationCrossentropy(2, TEST_NODES)(y, model.predict_distribution(x, verbose=0)))
    return nll_by_pixel(probability(model, x), y)


def nll_by_pixel(p, y):
    """Returns the mean of -log p of label maps with independent pixels."""
    safe = np.clip(np.where(y == 1, p, 1.0 - p), 1e-12, 1.0)
    return -np.log(safe).reshape(len(y), -1).sum(1).mean()


def borders(maps):
    """Returns the number of neighbouring pairs of different classes, the mean over maps `(S, N, ...)`."""
    return sum((np.diff(maps, axis=axis) != 0).sum() for axis in range(2, maps.ndim)) / np.prod(maps.shape[:2])


def whole(samples, maps):
    """Returns the fraction of samples that are one of the maps, and the mean number of maps among the samples."""
    same = (samples[:, None] == maps).reshape(len(samples), len(maps), samples.shape[1], -1).all(-1)
    return same.any(1).mean(), same.any(0).sum(0).mean()


def scores(task, samples, loss):
    """Returns all scores of sampled label maps of the test images, `(100, TEST, ...)`, and the NLL."""
    from keras_het.explain import segmentation_scores

    maps = task.maps[:, TRAIN:]
    values = [segmentation_scores(samples[:count], maps) for count in SAMPLES]
    whole_values = whole(samples, maps) if isinstance(task, Segments) else ()
    energies = [each.energy_distance for each in values]
    return *energies, values[-1].diversity, values[-1].matched_iou, borders(samples), *whole_values, loss


def exact(task):
    """Returns the scores of the planted distribution that have a formula."""
    from keras_het.explain import segmentation_scores

    maps, most = task.maps[:, TRAIN:], SAMPLES[-1]
    apart = segmentation_scores(maps, maps).diversity
    energies, diversity = [apart / count for count in SAMPLES], apart * (1.0 - 1.0 / most)
    whole_values = (1.0, 4.0 * (1.0 - 0.75**most)) if isinstance(task, Segments) else ()
    return *energies, diversity, np.nan, borders(maps), *whole_values, task.entropy


def rows(task, seed, epochs):
    """Returns names of models and their scores, with the planted distribution first."""
    x, rng, most = task.x[TRAIN:], np.random.default_rng(seed), SAMPLES[-1]
    yield "the planted distribution, exact", exact(task)
    yield "the planted distribution, sampled", scores(task, task.planted(most, rng), exact(task)[-1])
    p = task.maps[:, TRAIN:].mean(0)
    yield "each pixel by itself, planted", scores(task, sample_pixels(p, most, rng), nll_by_pixel(p, task.y[TRAIN:]))
    for name in models(task):
        model = fitted(task, name, seed, epochs)
        yield name, scores(task, sampled(model, x, most, seed), nll(task, model))


def measured(options, kind, seed):
    """Yields a line for each model of a task."""
    columns = (*COLUMNS, *(WHOLE if KINDS[kind] is Segments else ()), "NLL")
    for name, figures in rows(KINDS[kind](seed), seed, options.epochs):
        yield {"model": name, **dict(zip(columns, map(float, figures), strict=True))}


def tables(records):
    """Returns a table for each kind of task."""
    return {kind: lines.table(lines.select(records, kind=kind), "model", (*COLUMNS, *WHOLE, "NLL")) for kind in KINDS}


def main():
    options, quick, fixed = {"seeds": 5, "epochs": 10}, {"seeds": 1, "epochs": 1}, {"kinds": KINDS}
    keys = {"keys": ("kind", "seed"), "settings": ("epochs",)}
    experiments.run(__doc__, "segmentation", measured, tables, options, quick, fixed, **keys)


if __name__ == "__main__":
    main()
