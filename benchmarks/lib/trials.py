"""Plain classifier of the label benchmarks, and early stopping by noisy validation labels."""

import keras
import numpy as np

BATCH, LEARNING_RATE, WEIGHT_DECAY = 128, 4e-3, 1.0


def make_model(task, seed=None):
    """Returns a compiled model of a task that returns logits. The seed sets weights and order of the batches."""
    if seed is not None:
        keras.utils.set_random_seed(seed)
    layers = task.backbone(task.train.x.shape[1:])
    model = keras.Sequential([*layers, keras.layers.Dense(task.units)])
    optimizer = keras.optimizers.AdamW(LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def early_stopping(task, seed, starts=1):
    """Returns clean accuracy at the start and epoch with the best accuracy on noisy validation labels."""
    record = Record(task)
    for start in range(starts):
        model = make_model(task, 1000 * start + seed)
        model.fit(*task.train, batch_size=BATCH, epochs=task.epochs, verbose=0, callbacks=[record])
        keras.utils.clear_session(free_memory=False)
    return max(record.epochs, key=lambda accuracies: accuracies[0])[1]


class Record(keras.callbacks.Callback):
    """Accuracy after every epoch: on noisy validation labels, and on clean test labels."""

    def __init__(self, task):
        super().__init__()
        self.parts, self.epochs = (task.validation, task.test), []

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(tuple(accuracy(self.model.predict_on_batch(part.x), part.y) for part in self.parts))


def accuracy(outputs, labels):
    """Returns the fraction of labels that equal the most probable class."""
    return float(np.mean(keras.ops.convert_to_numpy(outputs).argmax(-1) == labels))
