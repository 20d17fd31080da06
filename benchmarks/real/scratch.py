"""A residual network trained from scratch on labels by people, with `Dense`, tempered `Dense`, and the head.

python -m benchmarks.real.scratch [--sets NAME ...] [--rows NAME ...] [--seeds 3] [--size 45000] [--epochs 20]
                                  [--data FOLDER] [--output FOLDER] [--quick] [--render]

The network has 13 convolutions and computes in bfloat16, the last layer in float32. Images are flipped and moved
at random. AdamW, whose rate rises for a tenth of the steps and falls as a cosine. A tenth of the noisy labels is held
out, and their accuracy chooses the epoch and, in the second table, the temperature. The seconds contain compilation,
unless the programs are cached. For an accelerator: an epoch takes minutes on a CPU.
"""

import itertools
import time

import keras
import numpy as np

from benchmarks.lib import lines
from benchmarks.real import finetune
from benchmarks.real.heads import Record

SETS = ("CIFAR-10N worst", "CIFAR-100N")
TUNED = {"Dense": ("Dense", finetune.FIFTH), "full head": ("full head", "full head, temperature 1")}
ROWS = tuple(itertools.chain(*TUNED.values()))
WIDTHS, BATCH, SHIFT, RATE, DECAY = (64, 128, 256, 512), 500, 4, 2e-3, 0.05


class Moved(keras.utils.PyDataset):
    """Batches of images, `(500, 32, 32, 3)`, in a random order, each moved by up to `SHIFT` pixels.

    Each epoch leaves out the images that do not fill a batch, because each size of a batch is compiled on its own.
    `keras.layers.RandomTranslation` would do it in the network, but then Keras does not compile the steps.
    """

    def __init__(self, x, y, seed):
        super().__init__()
        self.x, self.y = np.pad(x, [(0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT), (0, 0)]), y
        self.rng = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return max(1, len(self.y) // BATCH)

    def __getitem__(self, index):
        rows = self.order[index * BATCH : (index + 1) * BATCH]
        places = self.rng.integers(2 * SHIFT + 1, size=(len(rows), 2))
        moved = [self.x[row, a : a + 32, b : b + 32] for row, (a, b) in zip(rows, places, strict=True)]
        return np.stack(moved), self.y[rows]

    def on_epoch_end(self):
        self.order = self.rng.permutation(len(self.y))


def convolution(x, width, strides=1):
    """Returns a convolution with batch normalisation and ReLU."""
    x = keras.layers.Conv2D(width, 3, strides, padding="same", use_bias=False)(x)
    return keras.layers.ReLU()(keras.layers.BatchNormalization(momentum=0.9)(x))


def body():
    """Returns inputs, images of bytes `(B, 32, 32, 3)`, and the features of the network, `(B, 512)`."""
    inputs = keras.Input((32, 32, 3))
    x = keras.layers.RandomFlip("horizontal")(keras.layers.Rescaling(1 / 64, -2.0)(inputs))
    x = convolution(x, WIDTHS[0])
    for width in WIDTHS:
        x = convolution(x, width, strides=1 if width == WIDTHS[0] else 2)
        x = keras.layers.Add()([x, convolution(convolution(x, width), width)])
    return inputs, keras.layers.GlobalAveragePooling2D()(x)


def network(row, units, steps, seed):
    """Returns the compiled network with the head of a row."""
    keras.utils.set_random_seed(1000 + seed)
    keras.config.set_dtype_policy("mixed_bfloat16")
    inputs, outputs = body()
    keras.config.set_dtype_policy("float32")
    for layer in finetune.head_of(row, units, seed):
        outputs = layer(outputs)
    model = keras.Model(inputs, outputs)
    warmup = steps // 10
    rate = keras.optimizers.schedules.CosineDecay(0.0, steps - warmup, warmup_target=RATE, warmup_steps=warmup)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(rate, weight_decay=DECAY), loss)
    return model


def train(name, dataset, row, seed, options):
    """Returns the measures of every epoch of one training, and its seconds."""
    start = time.perf_counter()
    parts = finetune.Parts(dataset, options.size, seed, lambda x: x, options.tested)
    batches = Moved(parts.x, parts.y, seed)
    model = network(row, dataset.units, options.epochs * len(batches), seed)
    record = Record(parts, BATCH)
    model.fit(batches, epochs=options.epochs, verbose=0, callbacks=[record])
    keras.utils.clear_session(free_memory=False)
    return {"epochs": record.epochs, "elapsed": time.perf_counter() - start}


def tables(records):
    """Returns all rows, `Dense` and the head with the temperature by noisy accuracy, and the accuracies by epoch."""
    return {
        "from scratch": finetune.table(records, "elapsed"),
        "temperature by noisy accuracy": finetune.table(tuned(records), "elapsed"),
        "clean accuracy by epoch": by_epoch(records),
    }


def tuned(records):
    """Returns the line of the best noisy accuracy for each set, seed and layer; of equal ones, the best noisy NLL."""
    result = []
    for head, rows in TUNED.items():
        own = [line for line in records if line["row"] in rows]
        for task in dict.fromkeys((line["set"], line["size"], line["seed"]) for line in own):
            tried = lines.select(own, **dict(zip(("set", "size", "seed"), task, strict=True)))
            if len(tried) == len(rows):
                result.append(max(tried, key=_noisy_figures) | {"row": head})
    return result


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


def main():
    """Runs the missing trainings, and makes the tables."""
    options = finetune.parser_of(__doc__, SETS, ROWS, size=45_000, epochs=20).parse_args()
    options.tested = None  # all
    if options.quick:
        options.seeds, options.size, options.epochs, options.rows = 1, 500, 1, ["Dense", "full head"]
        options.tested = 200
    finetune.finish(options, "real_scratch", train, tables)


if __name__ == "__main__":
    main()
