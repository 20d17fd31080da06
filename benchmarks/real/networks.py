"""Networks trained on labels by people on an accelerator, with `Dense`, tempered `Dense`, and the head.

python -m benchmarks.real.networks [--pretrained] [--sets NAME ...] [--rows NAME ...] [--rates RATE ...] [--seeds 3]
                                   [--size 45000] [--epochs NUMBER] [--data FOLDER] [--cache FOLDER] [--output FOLDER]
                                   [--quick] [--render]

A residual network of 13 convolutions is trained from scratch for 20 epochs; with `--pretrained`, all layers of
EfficientNet-Lite0, pretrained on ImageNet, for 3 epochs on images enlarged to 129 x 129. The networks compute in
bfloat16, the last layer in float32. Images are flipped and moved at random. AdamW trains them, with a rate that rises
for a tenth of the steps and falls as a cosine. A tenth of the noisy labels is held out, and their accuracy chooses the
epoch; in the first table also the rate, and in the second the rate and the temperature. The seconds contain
compilation, unless the programs are cached. For an accelerator: an epoch takes minutes on a CPU.
"""

import time
from typing import NamedTuple

import keras
import numpy as np

from benchmarks.lib import lines
from benchmarks.real import finetune
from benchmarks.real.heads import Record

SETS = ("CIFAR-10N worst", "CIFAR-100N")
LAYERS = {"Dense": "Dense", finetune.FIFTH: "Dense", "full head": "full head"}
ROWS = tuple(LAYERS)
WIDTHS, SHIFT, DECAY, PREDICTION_BATCH = (64, 128, 256, 512), 4, 0.05, 500


class Training(NamedTuple):
    """Settings of a training.

    Attributes:
        result: name of the result file.
        batch: examples of a step.
        epochs: number of epochs.
        rates: largest learning rates of the schedule.
    """

    result: str
    batch: int
    epochs: int
    rates: tuple[float, ...]


SCRATCH = Training("real_scratch", 500, 20, (2e-3,))
PRETRAINED = Training("real_pretrained", 100, 3, (3e-4, 1e-3))


class Moved(keras.utils.PyDataset):
    """Batches of images, `(batch, 32, 32, 3)`, in a random order, each moved by up to `SHIFT` pixels.

    Each epoch leaves out the images that do not fill a batch, because each size of a batch is compiled on its own.
    `keras.layers.RandomTranslation` would do it in the network, but then Keras does not compile the steps.
    """

    def __init__(self, x, y, batch, seed):
        super().__init__()
        self.batch = batch
        self.x, self.y = np.pad(x, [(0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)]), y
        self.rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return max(1, len(self.y) // self.batch)

    def __getitem__(self, index):
        rows = self.order[index * self.batch : (index + 1) * self.batch]
        places = self.rng.integers(2 * SHIFT + 1, size=(len(rows), 2))
        moved = [self.x[row, a : a + 32, b : b + 32] for row, (a, b) in zip(rows, places, strict=True)]
        return np.stack(moved), self.y[rows]

    def on_epoch_end(self):
        self.order = self.rng.permutation(len(self.y))


def convolution(x, width, strides=1):
    """Returns a convolution with batch normalisation and ReLU."""
    x = keras.layers.Conv2D(width, 3, strides, padding="same", use_bias=False)(x)
    return keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.9)(x))


def body(images):
    """Returns the features of the residual network, `(B, 512)`, of images `(B, 32, 32, 3)` from 0 to 255."""
    x = convolution(keras.layers.Rescaling(1 / 64, -2.0)(images), WIDTHS[0])
    for width in WIDTHS:
        x = convolution(x, width, strides=1 if width == WIDTHS[0] else 2)
        x = keras.layers.Add()([x, convolution(convolution(x, width), width)])
    return keras.layers.GlobalAveragePooling2D()(x)


def network(row, rate, units, steps, seed, cache=None):
    """Returns the compiled network from images `(B, 32, 32, 3)` to logits `(B, units)` with the head of a row.

    It is pretrained if `cache`, a folder of weights, is not None.
    """
    keras.utils.set_random_seed(1000 + seed)
    keras.config.set_dtype_policy("mixed_bfloat16")
    inputs = keras.Input((32, 32, 3))
    flipped = keras.layers.RandomFlip("horizontal")(inputs)
    outputs = finetune.picture_features(flipped, cache) if cache else body(flipped)
    keras.config.set_dtype_policy("float32")
    for layer in finetune.head_of(row, units, seed):
        outputs = layer(outputs)
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(finetune.falling(rate, steps), weight_decay=DECAY), loss)
    return model


def train(name, dataset, row, rate, seed, options):
    """Returns the measures of every epoch of one training, and its seconds."""
    start = time.perf_counter()
    parts = finetune.Parts(dataset, options.size, seed, lambda x: x, options.tested)
    batches = Moved(parts.x, parts.y, options.training.batch, seed)
    cache = options.cache if options.pretrained else None
    model = network(row, rate, dataset.units, options.epochs * len(batches), seed, cache)
    record = Record(parts, PREDICTION_BATCH)
    model.fit(batches, epochs=options.epochs, verbose=0, callbacks=[record])
    keras.utils.clear_session(free_memory=False)
    return {"epochs": record.epochs, "elapsed": time.perf_counter() - start}


def tables(records):
    """Returns all rows, `Dense` and the head with the temperature by noisy accuracy, and accuracies by epoch and rate.

    Noisy accuracy chooses the rate in the first three.
    """
    rows = tuned(records, {row: row for row in ROWS})
    return {
        "each temperature": finetune.table(rows, "elapsed"),
        "temperature by noisy accuracy": finetune.table(tuned(records, LAYERS), "elapsed"),
        "clean accuracy by epoch": by_epoch(rows),
        "each rate": each_rate(records),
    }


def tuned(records, groups):
    """Returns the line of the best noisy accuracy for each set, size, group and seed.

    Of equal ones, the best noisy NLL counts. A seed counts for a group if it has a line for each row of the group and
    each rate of the records.

    Args:
        records: lines.
        groups: the group of each row.
    """
    rates, tried = lines.distinct(records, "rate"), {}
    for line in records:
        tried.setdefault((line["set"], line["size"], groups[line["row"]], line["seed"]), []).append(line)
    rows = list(groups.values())
    return [
        max(own, key=_noisy_figures) | {"row": group}
        for (*_, group, _), own in tried.items()
        if len(own) == rows.count(group) * len(rates)
    ]


def _noisy_figures(line):
    epoch = finetune.best_epoch(line)
    return epoch["noisy accuracy"], -epoch["noisy nll"]


def by_epoch(records):
    """Returns the mean clean accuracy over the seeds after some epochs, by set and row."""
    count = len(records[0]["epochs"]) if records else 0
    places = sorted({round(part * count / 5) for part in range(1, 6)} - {0})
    table = [["set", "labels", "head", *map(str, places)]]
    for name, size, row in dict.fromkeys((line["set"], line["size"], line["row"]) for line in records):
        runs = lines.select(records, set=name, size=size, row=row)
        means = (np.mean([line["epochs"][place - 1]["accuracy"] for line in runs]) for place in places)
        table.append([name, str(size), row, *(f"{mean:.3f}" for mean in means)])
    return table


def each_rate(records):
    """Returns noisy and clean accuracy at the epoch of the best noisy accuracy, by set, row and rate."""
    table = [["set", "labels", "head", "rate", "noisy accuracy", "accuracy", "seeds"]]
    keys = ("set", "size", "row", "rate")
    for task in dict.fromkeys(tuple(line[key] for key in keys) for line in records):
        runs = lines.select(records, **dict(zip(keys, task, strict=True)))
        best = list(map(finetune.best_epoch, runs))
        cells = (lines.with_error([epoch[name] for epoch in best]) for name in ("noisy accuracy", "accuracy"))
        table.append([*map(str, task), *cells, str(len(best))])
    return table


def main():
    """Runs the missing trainings, and makes the tables."""
    parser = finetune.parser_of(__doc__, SETS, ROWS, size=45_000, epochs=None)
    parser.add_argument(
        "--pretrained", action="store_true", help="EfficientNet-Lite0 instead of a network from scratch"
    )
    parser.add_argument("--rates", nargs="+", type=float, metavar="RATE")
    options = parser.parse_args()
    options.training = PRETRAINED if options.pretrained else SCRATCH
    options.epochs, options.rates = options.epochs or options.training.epochs, options.rates or options.training.rates
    options.tested = None  # all
    if options.quick:
        options.seeds, options.size, options.epochs, options.rows = 1, 500, 1, ["Dense", "full head"]
        options.tested, options.rates = 200, options.rates[:1]
    choices = [{"row": row, "rate": rate} for row in options.rows for rate in options.rates]
    finetune.finish(options, options.training.result, train, tables, choices)


if __name__ == "__main__":
    main()
