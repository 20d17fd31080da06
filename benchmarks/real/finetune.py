"""Whole pretrained networks fine-tuned with heads and with `Dense`, from Keras' start and from zeros.

python -m benchmarks.real.finetune [--sets NAME ...] [--rows NAME ...] [--seeds 3] [--size 10000] [--epochs 3]
                                   [--data FOLDER] [--cache FOLDER] [--output FOLDER] [--quick] [--render]

EfficientNet-Lite0 trains on images of CIFAR-10N worst at 129 x 129, MiniLM on the questions of TREC with the majority
of its rules. All layers are trained, by Adam, whose rate rises for a tenth of the steps and falls as a cosine. The
epoch with the best accuracy on a tenth of the noisy labels counts. On two cores, use TensorFlow for the images.
"""

import functools
import time

import keras
import numpy as np

from benchmarks.lib import lines
from benchmarks.lib.results import publish
from benchmarks.real import data, features, heads, plain, weights

SETS = {"CIFAR-10N worst": 3e-4, "TREC": 5e-5}  # and the largest rate
BATCH, LENGTH, TESTED = 32, 32, 2000  # tokens of a question; test examples at most
HEADS = {
    "full head": {},
    "parameter-efficient head": {"parameter_efficient": True},
    "diagonal head": {"num_factors": 0},
}
FIFTH, ZEROS = "Dense, logits / 5", ", from zeros"
ROWS = ("Dense", f"Dense{ZEROS}", FIFTH, "full head", *(f"{head}{ZEROS}" for head in HEADS))


class Parts(heads.Parts):
    """Inputs, noisy labels and truths of one training."""

    def __init__(self, dataset, size, seed, prepared, tested=TESTED):
        chosen = np.random.default_rng([seed, 2]).permutation(len(dataset.labels))[:size]
        tested = np.random.default_rng(0).permutation(len(dataset.truth_test))[:tested]
        train, held = (chosen[part] for part in plain.split(chosen, seed))
        self.units, self.truth = dataset.units, dataset.truth_test[tested].astype(int)
        self.votes = None if dataset.test_votes is None else dataset.test_votes[tested]
        self.x, self.x_held, self.x_test = map(prepared, (dataset.x[train], dataset.x[held], dataset.x_test[tested]))
        self.y, self.y_held = dataset.labels[train].astype("int32"), dataset.labels[held].astype("int32")


def picture_features(small, cache):
    """Returns features of EfficientNet-Lite0, `(B, 1280)`, of images `(B, 32, 32, 3)` from 0 to 255."""
    import keras_hub

    backbone = keras_hub.models.EfficientNetBackbone.from_preset(str(weights.efficientnet_lite0(cache)))
    large = keras.layers.Resizing(features.SIDE, features.SIDE, interpolation="bicubic", dtype="float32")(small)
    scaled = keras.layers.Rescaling(1 / 128, -127 / 128, dtype="float32")(large)
    return keras.layers.GlobalAveragePooling2D()(backbone(scaled))


def picture_model(cache):
    """Returns inputs and features of EfficientNet-Lite0, and a function that prepares images of bytes."""
    small = keras.Input((32, 32, 3))
    return small, picture_features(small, cache), lambda x: x.astype("float32")


def text_model(cache):
    """Returns inputs and features of MiniLM, the mean over the tokens, and a function that prepares texts."""
    import keras_hub

    task = keras_hub.models.BertTextClassifier.from_preset(str(weights.minilm(cache)), num_classes=2)
    task.preprocessor.sequence_length = LENGTH
    mask = keras.ops.cast(task.backbone.input["padding_mask"], "float32")[..., None]
    mean = keras.ops.sum(task.backbone.output["sequence_output"] * mask, axis=1) / keras.ops.sum(mask, axis=1)

    def prepared(x):
        return {key: np.asarray(value) for key, value in task.preprocessor(list(map(str, x))).items()}

    return task.backbone.input, mean, prepared


def head_of(row, units, seed):
    """Returns the layers of a row."""
    from keras_het import HeteroscedasticDense

    name, start = row.removesuffix(ZEROS), {"kernel_initializer": "zeros"} if row.endswith(ZEROS) else {}
    if name in HEADS:
        return [HeteroscedasticDense(units, **HEADS[name], **start, seed=seed)]
    return [keras.layers.Dense(units, **start), keras.layers.Rescaling(0.2 if row == FIFTH else 1.0)]


def falling(rate, steps):
    """Returns a schedule that rises from 0 to a rate for a tenth of the steps, and falls to 0 as a cosine."""
    warmup = steps // 10
    return keras.optimizers.schedules.CosineDecay(0.0, steps - warmup, warmup_target=rate, warmup_steps=warmup)


def train(name, dataset, row, seed, options):
    """Returns the measures of every epoch of one training, and its processor seconds."""
    keras.utils.set_random_seed(1000 + seed)
    inputs, outputs, prepared = (picture_model if dataset.x.ndim == 4 else text_model)(options.cache)
    parts = Parts(dataset, options.size, seed, prepared)
    for layer in head_of(row, dataset.units, seed):
        outputs = layer(outputs)
    model = keras.Model(inputs, outputs)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    rate = falling(SETS[name], options.epochs * -(-len(parts.y) // BATCH))
    model.compile(keras.optimizers.Adam(rate), loss)
    record, start = heads.Record(parts, 4 * BATCH), time.process_time()
    model.fit(parts.x, parts.y, epochs=options.epochs, batch_size=BATCH, verbose=0, callbacks=[record])
    keras.utils.clear_session(free_memory=False)
    return {"epochs": record.epochs, "processor": time.process_time() - start}


def best_epoch(line):
    """Returns the measures at the epoch of the best noisy accuracy."""
    return max(line["epochs"], key=lambda epoch: epoch["noisy accuracy"])


def table(records, clock="processor"):
    """Returns measures at the epoch of the best noisy accuracy, and differences to both Dense, by set and head.

    `clock` names the seconds in the records.
    """
    names = ("accuracy", "nll", "ece", "people")
    others = {"Dense": "Dense's", FIFTH: "logits / 5"}
    rows = [["set", "labels", "head", *names, *(f"{key} - {word}" for word in others.values() for key in names[:2])]]
    rows[0] += [f"{clock} seconds", "seeds"]
    for name, size in dict.fromkeys((line["set"], line["size"]) for line in records):
        own_set = lines.select(records, set=name, size=size)
        best = {
            row: {line["seed"]: best_epoch(line) for line in lines.select(own_set, row=row)}
            for row in lines.distinct(own_set, "row")
        }
        for row, epochs in best.items():
            own = lines.select(own_set, row=row)
            values = [[epoch.get(key, np.nan) for epoch in epochs.values()] for key in names]
            for other in others:
                pairs = [(epochs[seed], best[other][seed]) for seed in epochs if seed in best.get(other, {})]
                different = pairs if row != other else []
                values += [[a[key] - b[key] for a, b in different] for key in names[:2]]
            cells = (lines.with_error(each) if each else "" for each in values)
            seconds = f"{np.median([line[clock] for line in own]):.0f}"
            rows.append([name, str(size), row, *cells, seconds, str(len(epochs))])
    return rows


def parser_of(description, sets, rows, **options):
    """Returns the parser of an experiment that also selects rows."""
    parser = features.experiment(description, tuple(sets), seeds=3, **options)
    parser.add_argument("--rows", nargs="+", choices=rows, default=list(rows), metavar="NAME")
    return parser


def finish(options, name, trained, tables, choices):
    """Runs the missing trainings, and publishes `tables` of all lines. Diverged trainings are left out, and named.

    Args:
        options: what the parser returned.
        name: name of the result.
        trained: function of a set's name, the set, the values of a choice, the seed, and `options`.
        tables: function from the lines to tables by title.
        choices: dicts of what else distinguishes trainings, each with "row".
    """
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / f"{name}.jsonl"
    old = lines.read(options.output, file.name)
    if other := {len(line["epochs"]) for line in old} - {options.epochs}:
        counts = ", ".join(map(str, sorted(other)))
        raise SystemExit(f"{file} has trainings of {counts} epochs: give --epochs this number, or another --output")
    if missing := {key for choice in choices for key in choice if any(key not in line for line in old)}:
        raise SystemExit(f"{file} has trainings without {', '.join(sorted(missing))}: give another --output")
    failed = []

    def attempt(dataset, name, _, seed, *choice):
        try:
            yield trained(name, dataset, *choice, seed, options)
        except FloatingPointError as error:
            failed.append(f"{name}, {', '.join(map(str, choice))}, seed {seed}: {error}")

    for each in () if options.render else options.sets:
        dataset = data.read(each, options.data)
        keys = [
            {"set": each, "size": min(options.size, len(dataset.labels)), "seed": seed, **choice}
            for seed in range(options.seeds)
            for choice in choices
        ]
        lines.completed(file, keys, functools.partial(attempt, dataset))
    records = lines.read(options.output, file.name)
    publish(options.output, name, tables(records), sorted(lines.distinct(records, "seed")))
    if failed:
        raise SystemExit("\n".join(failed))


def main():
    """Runs the missing trainings, and makes the table."""
    options = parser_of(__doc__, SETS, ROWS, size=10_000, epochs=3).parse_args()
    if options.quick:
        options.seeds, options.size, options.epochs, options.rows = 1, 200, 1, ["Dense", "full head"]
    choices = [{"row": row} for row in options.rows]
    finish(options, "real_finetune", train, lambda records: {"fine-tuned": table(records)}, choices)


if __name__ == "__main__":
    main()
