"""Pretrained networks, all of whose layers train on noisy labels: `Dense` from two starts and the head, by epoch.

python -m benchmarks.real.finetune [--tasks NAME ...] [--rows NAME ...] [--seeds 3] [--data FOLDER] [--cache FOLDER]
                                   [--output FOLDER] [--quick] [--render]

*words*: MiniLM learns five classes of sentiment from 1,000 words of VADER, each rated by one person; the mean of nine
other people is the truth, and their ratings are the votes. *TREC*: MiniLM on 4,000 questions, labelled by rules.
*CIFAR-10N worst*: EfficientNet-Lite0 on 4,000 photographs at 129 x 129; use TensorFlow.

Adam trains ten epochs in batches of 32, with each of four constant rates. The token embeddings stay as they are. A
fifth of the noisy labels is held out, and chooses the rate, and the epoch in the first table. Rows, tables and measures
are as in `real.heads`. Logistic regression has the features before the training.
"""

import contextlib
import importlib.util
import json
import pathlib
import time

import keras
import numpy as np

from benchmarks.lib import experiments
from benchmarks.real import data, features, heads, weights

BATCH, EPOCHS, TESTED = 32, 10, 1000
MEASURED = (1, 2, 3, 5, 10)
RATES = (3e-5, 1e-4, 3e-4, 1e-3)
SIZES = {"words": 1000, "TREC": 4000, "CIFAR-10N worst": 4000}
TOKENS = {"words": 6, "TREC": 32}
ROWS = ("Dense", "Dense from zeros", "full from zeros", heads.LOGISTIC)
EDGES = (-2.5, -0.5, 0.5, 2.5)  # of the five classes, in ratings from -4 to 4


def words(seed):
    """Returns words, the class by one person, and votes and class by nine other people."""
    folder = pathlib.Path(importlib.util.find_spec("vaderSentiment").origin).parent
    rows = [line.split("\t") for line in (folder / "vader_lexicon.txt").read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row[0].isalpha()]
    x, ratings = np.array([row[0] for row in rows]), np.array([json.loads(row[3]) for row in rows])
    person = np.random.default_rng([seed, 5]).integers(10, size=len(x))[:, None]
    mine, others = np.take_along_axis(ratings, person, 1)[:, 0], ratings[np.arange(10) != person].reshape(len(x), 9)
    votes = (np.digitize(others, EDGES)[..., None] == np.arange(5)).sum(axis=1)
    return x, np.digitize(mine, EDGES), votes, np.digitize(others.mean(axis=1), EDGES)


class Parts(heads.Parts):
    """Inputs, noisy labels and truths of one training."""

    def __init__(self, task, seed, options):
        order = np.random.default_rng([seed, 2])
        if task == "words":
            x, y, votes, truth = words(seed)
            chosen = order.permutation(len(y))
            train, tested, self.units = chosen[: SIZES[task]], chosen[-TESTED:], 5
            self.x_test, self.truth, self.votes = x[tested], truth[tested], votes[tested]
        else:
            dataset = data.read(task, options.data)
            x, y, self.units = dataset.x, dataset.labels, dataset.units
            train = order.permutation(len(y))[: SIZES[task]]
            tested = np.random.default_rng(0).permutation(len(dataset.truth_test))[:TESTED]
            self.x_test, self.truth = dataset.x_test[tested], dataset.truth_test[tested].astype(int)
            self.votes = None if dataset.test_votes is None else dataset.test_votes[tested]
        held, train = np.split(train, [SIZES[task] // 5])
        self.x, self.x_held = x[train], x[held]
        self.y, self.y_held = y[train].astype("int32"), y[held].astype("int32")

    def apply(self, function):
        """Replaces the inputs by a function of them."""
        self.x, self.x_held, self.x_test = map(function, (self.x, self.x_held, self.x_test))


def image_network(cache):
    """Returns inputs and features of EfficientNet-Lite0, and a function that prepares images of bytes."""
    import keras_hub

    backbone = keras_hub.models.EfficientNetBackbone.from_preset(str(weights.efficientnet_lite0(cache)))
    small = keras.Input((32, 32, 3))
    large = keras.layers.Resizing(features.SIDE, features.SIDE, interpolation="bicubic", dtype="float32")(small)
    scaled = keras.layers.Rescaling(1 / 128, -127 / 128, dtype="float32")(large)
    return small, keras.layers.GlobalAveragePooling2D()(backbone(scaled)), lambda x: x.astype("float32")


def text_network(cache, tokens):
    """Returns inputs and features of MiniLM, the mean over the tokens, and a function that prepares texts."""
    import keras_hub

    task = keras_hub.models.BertTextClassifier.from_preset(str(weights.minilm(cache)), num_classes=2)
    task.preprocessor.sequence_length = tokens
    task.backbone.token_embedding.trainable = False
    mask = keras.ops.cast(task.backbone.input["padding_mask"], "float32")[..., None]
    mean = keras.ops.sum(task.backbone.output["sequence_output"] * mask, axis=1) / keras.ops.sum(mask, axis=1)

    def prepared(x):
        return {key: np.asarray(value) for key, value in task.preprocessor(list(map(str, x))).items()}

    return task.backbone.input, mean, prepared


def train(options, task, seed, row, rate):
    """Yields the measures of one training by epoch, its noise, and its processor seconds."""
    start = time.process_time()
    keras.utils.set_random_seed(1000 + seed)
    network = text_network(options.cache, TOKENS[task]) if task in TOKENS else image_network(options.cache)
    inputs, hidden, prepared = network
    parts = Parts(task, seed, options)
    parts.apply(prepared)
    extract = keras.Model(inputs, hidden)
    if row == heads.LOGISTIC:
        parts.apply(lambda x: extract.predict(x, verbose=0))
        measures = parts.measures(*heads.logistic_regression(parts, seed, rate))
        yield {"epochs": [measures], "noise": 0.0, "processor": time.process_time() - start}
        return
    outputs = hidden
    for layer in heads.last_layers(row, parts.units, seed):
        outputs = layer(outputs)
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    record = heads.Record(parts, after=MEASURED)
    with contextlib.suppress(FloatingPointError):  # the training diverged: its epochs end here
        model.fit(parts.x, parts.y, batch_size=BATCH, epochs=options.epochs, verbose=0, callbacks=[record])
    noise = 0.0 if row.startswith("Dense") else heads.deviation(model.layers[-1], extract, parts.x_test)
    keras.utils.clear_session(free_memory=False)
    yield {"epochs": record.epochs, "noise": noise, "processor": time.process_time() - start}


def keys(options):
    """Returns a dict for each training."""
    return [
        {"task": task, "seed": seed, "row": row, "rate": rate}
        for task in options.tasks
        for seed in range(options.seeds)
        for row in options.rows
        for rate in heads.choices(row, RATES)
    ]


def main():
    """Runs the missing trainings, and makes the tables."""
    choices = [row for row in heads.ROWS if row not in (heads.CLEAN, heads.PENALISED)]
    rows = {"choices": choices, "nargs": "+", "default": list(ROWS), "metavar": "NAME"}
    options = {"tasks": tuple(SIZES), "rows": rows, "seeds": 3} | features.FOLDERS
    quick, fixed = {"tasks": ["words"], "seeds": 1, "rows": ["Dense"], "epochs": 1}, {"epochs": EPOCHS}
    experiments.run(__doc__, "real_finetune", train, heads.tables, options, quick, fixed, keys)


if __name__ == "__main__":
    main()
