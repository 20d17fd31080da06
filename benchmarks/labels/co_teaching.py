"""The share of right labels among those that two networks keep at the end, and the accuracy that it gives.

python -m benchmarks.labels.co_teaching [--seeds 5] [--epochs 60] [--rate 0.45] [--methods NAME ...]

Digits with 45% of their labels flipped to any other class; the true ones are known here, and only measured. All train
alike, with the same backbone, and know the rate of wrong labels. "Kept" is by batches of training data, as in training;
of Dense it is what would be kept, the smallest losses, and of the mentor its weights. The mentor is told which labels
of 100 training examples are right; nobody else is, and what is kept is counted without these examples, for all.
Accuracy is of clean test data, after the last epoch, and after the epoch with the best accuracy of noisy validation
data. Two networks are one ensemble: compare them with "two, all kept", which trains both on everything.
"""

import keras
import numpy as np
from keras import ops

from benchmarks import baselines
from benchmarks.lib import harness, tasks
from benchmarks.lib.results import publish

# Examples; epochs until the share is reached; labels that are known to be right or wrong.
BATCH, GRADUAL, TRUSTED = 64, 10, 100
# The loss, whether it is that of two networks, and whether the share that is kept falls.
METHODS = {
    "Dense": (baselines.SelfPacedCrossentropy, False, False),
    "two, all kept": (baselines.CoTeaching, True, False),
    "CoTeaching": (baselines.CoTeaching, True, True),
    "JoCoR": (baselines.JoCoR, True, True),
    "SelfPaced": (baselines.SelfPacedCrossentropy, False, True),
    "SelfPaced, mentor": (baselines.MentoredCrossentropy, False, True),
}


class TestAccuracy(keras.callbacks.Callback):
    """The accuracy of test data after every epoch."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y, self.values = ops.convert_to_tensor(x), y, []

    def on_epoch_end(self, epoch, logs=None):
        """Predicts, and keeps the accuracy."""
        self.values.append(float(np.mean(self.model.predict_on_batch(self.x).argmax(axis=1) == self.y)))


def network(task, index):
    layers = task.backbone(task.train.x.shape[1:], lambda: None)
    return keras.Sequential([*layers, keras.layers.Dense(task.units, "log_softmax")], name=f"network_{index}")


def mentor_of(task, true_labels, rate, seed, epochs):
    """A mentor that saw how a model learns the first training examples."""
    examples = baselines.MentorExamples(task.train.x[:TRUSTED], task.train.y[:TRUSTED], true_labels[:TRUSTED])
    trained("SelfPaced, mentor", task, rate, seed, epochs, [examples])  # at its schedule, and without a mentor yet
    mentor = baselines.mentor_net(task.units)
    mentor.fit(examples.inputs, examples.is_right, epochs=20, verbose=0)
    return mentor


def trained(method, task, rate, seed, epochs, others=(), **arguments_of_loss):
    """A model, its history and its accuracy of test data by epoch."""
    kind, is_pair, selects = METHODS[method]
    keras.utils.set_random_seed(seed)
    model = baselines.PeerNetworks([network(task, index) for index in range(2)]) if is_pair else network(task, 0)
    loss = kind(1.0 - rate if selects else 1.0, from_logits=True, **arguments_of_loss)
    model.compile(keras.optimizers.Adam(1e-3), loss.attach(model), metrics=["accuracy"])
    test = TestAccuracy(*task.test)
    schedule = {"num_epochs": 0, "burn_in": GRADUAL} if "mentor" in method else {"num_epochs": GRADUAL}
    selecting = [baselines.KeptShare(**schedule)] if selects else []
    arguments = {"validation_data": tuple(task.validation), "batch_size": BATCH, "epochs": epochs, "verbose": 0}
    history = model.fit(*task.train, callbacks=[*selecting, test, *others], **arguments).history
    return model, history, test.values


def kept(model, task, rate):
    """A mask of the training examples that are kept, `(N, M)`, by batches; the weights of a mentor."""
    loss, parts = model.loss, []
    loss.kept_share.assign(1.0 - rate)
    for start in range(0, len(task.train.y), BATCH):
        x, labels = (part[start : start + BATCH] for part in task.train)
        outputs = model.predict_members(x) if hasattr(model, "members") else model.predict_on_batch(x)
        outputs = ops.convert_to_tensor(np.moveaxis(outputs, 0, 1) if outputs.ndim == 3 else outputs)
        counts = ops.ones((len(x), *loss.loss_shape(tuple(outputs.shape))), "bool")
        targets = ops.one_hot(labels, task.units)
        weights = loss.selected(targets, outputs, counts)[1]
        if getattr(loss, "mentor", None) is not None:
            weights = loss.mentor_weights(-ops.sum(targets * outputs, axis=-1), loss.threshold * 1.0, targets)
        parts.append(ops.convert_to_numpy(weights).reshape(len(x), -1))
    return np.concatenate(parts)


def figures(method, rate, seed, epochs):
    """Shares of right labels, among all and among the kept ones, and accuracies."""
    task, clean = (tasks.digits(share, seed, symmetric=True) for share in (rate, 0.0))
    np.testing.assert_array_equal(task.train.x, clean.train.x)  # the same examples, so their labels are the true ones
    is_right = (task.train.y == clean.train.y)[TRUSTED:]
    own = {"mentor": mentor_of(task, clean.train.y, rate, seed, epochs)} if "mentor" in method else {}
    model, history, accuracy = trained(method, task, rate, seed, epochs, **own)
    chosen = kept(model, task, rate)[TRUSTED:]
    share = float(np.sum(chosen * is_right[:, None]) / np.sum(chosen))
    return [is_right.mean(), chosen.mean(), share, accuracy[-1], accuracy[int(np.argmax(history["val_accuracy"]))]]


def cell(values):
    return (
        f"{100 * np.mean(values):.1f} ± "
        f"{100 * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0:.1f}"
    )


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--rate", type=float, default=0.45)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    lines = [["%", "right labels", "kept", "right among kept", "accuracy, last epoch", "best noisy validation"]]
    for method in arguments.methods:
        rows = [figures(method, arguments.rate, seed, arguments.epochs) for seed in range(arguments.seeds)]
        lines.append([method, *map(cell, zip(*rows, strict=True))])
        print(" | ".join(lines[-1]), flush=True)
    title = f"means and standard errors of {arguments.seeds} seeds, {arguments.epochs} epochs"
    publish(arguments.output, "co_teaching", {title: lines}, range(arguments.seeds))


if __name__ == "__main__":
    main()
