"""Networks trained on labels by people on an accelerator, with `Dense`, tempered `Dense`, and the head.

python -m benchmarks.real.networks [--pretrained] [--sets NAME ...] [--rows NAME ...] [--rates RATE ...] [--seeds 3]
                                   [--size 45000] [--epochs NUMBER] [--data FOLDER] [--cache FOLDER] [--output FOLDER]
                                   [--quick] [--render]

A residual network of 13 convolutions is trained from scratch for 20 epochs; with `--pretrained`, all layers of
EfficientNet-Lite0, pretrained on ImageNet, for 3 epochs on images enlarged to 129 x 129. The networks compute in
bfloat16, the last layer in float32. Images are flipped and moved at random. AdamW, whose rate rises for a tenth of the
steps and falls as a cosine. A tenth of the noisy labels is held out, and their accuracy chooses the epoch, the rate if
there are several, and, in the second table, the temperature. The seconds contain compilation, unless the programs are
cached. For an accelerator: an epoch takes minutes on a CPU.
"""

import itertools
import time
from typing import NamedTuple

import keras
import numpy as np

from benchmarks.lib import lines
from benchmarks.real import finetune
from benchmarks.real.heads import Record

SETS = ("CIFAR-10N worst", "CIFAR-100N")
TUNED = {"Dense": ("Dense", finetune.FIFTH), "full head": ("full head", "full head, temperature 1")}
ROWS = tuple(itertools.chain(*TUNED.values()))
WIDTHS, SHIFT, DECAY = (64, 128, 256, 512), 4, 0.05
GROUP = {row: layer for layer, rows in TUNED.items() for row in rows}


class Training(NamedTuple):
    """How a network is trained."""

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
    """Returns the compiled network with the head of a row, pretrained if there is a folder of weights."""
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
    record = Record(parts, 500)
    model.fit(batches, epochs=options.epochs, verbose=0, callbacks=[record])
    keras.utils.clear_session(free_memory=False)
    return {"epochs": record.epochs, "elapsed": time.perf_counter() - start}


def tables(records):
    """Returns the tables of all lines, by title."""
    by_rate = tuned(records, {row: row for row in ROWS})
    result = {
        "each temperature": finetune.table(by_rate, "elapsed"),
        "temperature by noisy accuracy": finetune.table(tuned(records, GROUP), "elapsed"),
        "clean accuracy by epoch": by_epoch(by_rate),
    }
    several = len(lines.distinct(records, "rate")) > 1
    return result | ({"each rate": each_rate(records)} if several else {})


def tuned(records, groups):
    """Returns the line of the best noisy accuracy for each set, seed and group; of equal ones, the best noisy NLL.

    Args:
        records: lines.
        groups: the group of each row. A seed that lacks trainings of a group that others have is left out.
    """
    tried = {}
    for line in records:
        tried.setdefault((line["set"], line["size"], groups[line["row"]], line["seed"]), []).append(line)
    most = {key[:3]: max(len(own) for other, own in tried.items() if other[:3] == key[:3]) for key in tried}
    return [max(own, key=_noisy_figures) | {"row": key[2]} for key, own in tried.items() if len(own) == most[key[:3]]]


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
    """Returns noisy and clean accuracy at the best epoch, by set, row and rate."""
    table = [["set", "labels", "head", "rate", "noisy accuracy", "accuracy", "seeds"]]
    for name, size, row, rate in dict.fromkeys(tuple(line[key] for key in KEYS) for line in records):
        best = list(map(finetune.best_epoch, lines.select(records, set=name, size=size, row=row, rate=rate)))
        cells = (lines.with_error([epoch[key] for epoch in best]) for key in table[0][4:6])
        table.append([name, str(size), row, f"{rate:g}", *cells, str(len(best))])
    return table


KEYS = ("set", "size", "row", "rate")


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
        options.tested = 200
    choices = [{"row": row, "rate": rate} for row in options.rows for rate in options.rates]
    finetune.finish(options, options.training.result, train, tables, choices)


if __name__ == "__main__":
    main()
