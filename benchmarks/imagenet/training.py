"""Training that you can kill at any time and resume with the same result.

Everything that an epoch depends on is a function of the seed and the number of the epoch (order and crops of the
images, see `images.py`), or is in the backup of the last epoch: the network, the optimizer, and the counter of the
head's noise.
"""

import csv

import keras

from benchmarks.imagenet.images import Batches
from benchmarks.imagenet.model import make_model


def train(config, training, validation, folder, seed=0, workers=1, callbacks=()):
    """Trains to the last epoch, or resumes from the folder, and returns the model and the metrics of the last epoch.

    training, validation: `Images`.
    folder: path for the backup, and for the metrics of each epoch.
    workers: threads that read images.
    callbacks: additional callbacks of Keras.
    """
    folder.mkdir(parents=True, exist_ok=True)
    steps = len(Batches(training, config, (seed, 0)))
    if steps == 0:
        raise ValueError(f"`training` must fill a batch of {config.batch}. Received: {len(training.paths)} examples")
    model = make_model(config, len(training.names), steps, seed)
    callbacks = [
        *callbacks,
        keras.callbacks.CSVLogger(str(folder / "metrics.csv"), append=True),
        keras.callbacks.BackupAndRestore(str(folder / "backup"), double_checkpoint=True, delete_checkpoint=False),
    ]
    tested = Batches(validation, config, workers=workers)
    for epoch in range(config.epochs):  # an epoch before the backup ends at once
        batches, end = Batches(training, config, (seed, epoch), workers), {"initial_epoch": epoch, "epochs": epoch + 1}
        model.fit(batches, validation_data=tested, shuffle=False, verbose=2, callbacks=callbacks, **end)
    with (folder / "metrics.csv").open(newline="") as file:
        *_, last = csv.DictReader(file)
    return model, {name: float(value) for name, value in last.items()}
