"""A callback that remembers what the model says of each training example after every epoch."""

import os
from typing import Any

import keras
import numpy as np

from keras_het.base.batches import check_same_index, count_examples, is_data_set, select_rows
from keras_het.base.classes import encode
from keras_het.base.npz import checksum
from keras_het.base.refusal import refuse_if
from keras_het.base.validation import check_boolean, check_integer, check_labels
from keras_het.reading.check import judge
from keras_het.reading.clean_and_noisy import CleanPredictor
from keras_het.reading.training_record import RecordFile, TrainingRecord


class TrainingDynamics(keras.callbacks.Callback):
    """Predicts all training examples after every epoch, and keeps what this says of their labels.

    An example with a wrong label is learned late: its margin is small or negative for long, and its mean over the
    epochs ranks the labels. So one training, the one that you do anyway, finds wrong labels, with no held-out data and
    no folds: give the callback to `labels.find_issues` when `fit` is done, and to `report`.

        margin = z_y - max_{j != y} z_j                                             (Pleiss et al. 2020, Eq. 1)
        mean margin = sum_t w_t margin_t / sum_t w_t,    w_t = L_t + 1e-6

    L_t is the mean loss of the training examples after epoch t. So epochs after the model knows all labels by heart,
    wrong ones too, count little; with equal weights, as Pleiss et al. have it, they would outvote the others.

    z are the logits or the log-probabilities: the differences are the same. Behind a `NoiseTransition` they are those
    of the true classes, in any of its modes. Margins and losses beyond 65504, the range of float16, count as that.

    Each epoch takes the time of one prediction of all examples, about a third of the arithmetic of the epoch. Memory
    is 4 K + 24 bytes for each example, and 4 bytes more for each epoch with the histories; while it predicts, 12 K
    bytes more.

    A `fit` that goes on where the last one ended (`initial_epoch`) adds to the record. With `path`, so does a new
    process: it has the same record to the bit if the model has the same weights, as by `BackupAndRestore`, which must
    stand behind this callback in the list. Every other `fit` starts a new record, and replaces the file.

    Args:
        x: the training examples, as for `fit`: arrays of N examples, in a list or dict if there are several inputs.
        y: their labels, integers in [0, K), `(N,)`, or label vectors; they may be wrong. No names, for
            only the caller knows their order in the model. Also for a model that is trained by batches of a data set.
        history: boolean, whether to keep the margins and the losses of every epoch, float16. Without, only sums are
            kept.
        path: a .npz file to go on from; it is written after every epoch, and refused for other x or y. None for none.
        batch_size: size of the batches of the predictions.
    Raises:
        ValueError: for a data set, other labels or sizes. When `fit` starts, for a model that is not of exclusive
            classes, labels out of range, or a file of other data or without the epochs before this one.
    Source: Pleiss et al. 2020, "Identifying mislabeled data using the area under the margin ranking"; forgotten
        examples: Toneva et al. 2019, "An empirical study of example forgetting during deep neural network learning".

    Example:
        >>> x, y = np.eye(6, 3, dtype="float32"), np.array([0, 1, 2, 0, 0, 0])
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax", kernel_initializer="zeros")])
        >>> model.compile(keras.optimizers.SGD(1.0), "sparse_categorical_crossentropy")
        >>> dynamics = TrainingDynamics(x, y)
        >>> history = model.fit(x, y, epochs=4, verbose=0, callbacks=[dynamics])
        >>> dynamics.epochs, dynamics.mean_margin.shape, dynamics.margins.shape
        (4, (6,), (4, 6))
    """

    def __init__(
        self, x: Any, y: Any, *, history: bool = True, path: str | os.PathLike | None = None, batch_size: int = 128
    ):
        super().__init__()
        refuse_if(is_data_set(x), "x", "be arrays, so that examples have a number", kind=x)
        check_same_index(x=x, y=y)
        count = count_examples(x)
        refuse_if(not count, "x", "have at least one example", "none")
        self.x, self.labels = x, _integers(y, count)
        self.history, self.batch_size = check_boolean("history", history), check_integer("batch_size", batch_size, 1)
        self.path = path
        self.record: TrainingRecord | None = None
        self._has_begun = True

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self.model.compiled:
            judge(self.model)
        self._predict = CleanPredictor(self.model)
        units = self._predict(
            select_rows(self.x, np.arange(min(self.batch_size, len(self.labels)))), self.batch_size
        ).shape[1]
        refuse_if(units < 2, "The model", "have at least two classes", units)
        check_labels(self.labels, units, name="y")
        self._blank = TrainingRecord(self.labels, units, keeps_history=self.history)
        path = self.path
        self._file = None if path is None else RecordFile(path, checksum(self.x, self.labels, np.array(units)))
        if self._file is not None:
            self._file.check()
        self._has_begun = False

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self._has_begun:  # here, because BackupAndRestore may have changed the first epoch
            self.record, self._has_begun = self._record_before(epoch), True

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        record = self._seen(0)
        record.update(self._predict(self.x, self.batch_size))
        if self._file is not None:
            self._file.write(record)
        if logs is not None:
            logs["changed_predictions"] = record.changes[-1] / len(self.labels) if record.changes else np.nan

    def _record_before(self, epoch: int) -> TrainingRecord:
        """The record to which an epoch is added: that of the epochs before it, or a new one."""
        if epoch and self.record is not None and self.record.first + self.record.epochs == epoch:
            return self.record
        if epoch and self._file is not None:
            return self._file.read(self._blank, epoch)
        self._blank.first = epoch
        return self._blank

    def _seen(self, least: int = 1) -> TrainingRecord:
        """The record, if it has an epoch."""
        if self.record is None or self.record.epochs < least:
            raise ValueError("TrainingDynamics must have seen an epoch: give it to `fit` first. Received: no epoch")
        return self.record

    @property
    def epochs(self) -> int:
        """The number of epochs that were seen, 0 before the first."""
        return 0 if self.record is None else self.record.epochs

    @property
    def mean_margin(self) -> np.ndarray:
        """The mean margin, `(N,)`, float64: the smaller, the more likely the label is wrong."""
        return self._seen().mean_margin

    @property
    def mean_loss(self) -> np.ndarray:
        """The mean of -log p(y | x) over the epochs, `(N,)`, float64, with the weights of `mean_margin`."""
        return self._seen().mean_loss

    @property
    def mean_probabilities(self) -> np.ndarray:
        """The mean of p(j | x) over the epochs, `(N, K)`, float32, with the weights of `mean_margin`."""
        return self._seen().mean_probabilities

    @property
    def changes(self) -> np.ndarray:
        """Of how many examples the prediction changed since the epoch before, a number for each epoch but the first."""
        return np.array(self._seen().changes, int)

    @property
    def forgotten(self) -> np.ndarray:
        """How often each example was right at one epoch and wrong at the next, `(N,)`."""
        return self._seen().forgotten

    @property
    def margins(self) -> np.ndarray:
        """The margins after each epoch, `(epochs, N)`, float16; a ValueError without `history`."""
        return np.array(self._with_history().margins)

    @property
    def losses(self) -> np.ndarray:
        """The losses after each epoch, `(epochs, N)`, float16; a ValueError without `history`."""
        return np.array(self._with_history().losses)

    def _with_history(self) -> TrainingRecord:
        refuse_if(not self.history, "history", "be True for the values of every epoch", "history=False")
        return self._seen()


def _integers(y: Any, count: int) -> np.ndarray:
    """Labels of any form but names as integers."""
    classes, labels = encode(y, count)
    return check_labels(classes[labels], np.inf, name="y")
