"""A callback that records the margin of every training example after every epoch."""

from typing import Any

import keras
import numpy as np

from keras_het.base.batches import as_array, check_same_index, count_examples, is_data_set, select_rows
from keras_het.base.refusal import refuse_first, refuse_if
from keras_het.base.validation import check_boolean, check_integer, check_labels
from keras_het.callbacks.training_record import TrainingRecord
from keras_het.reading.check import collect_warnings
from keras_het.reading.probabilities import exclusive_log_probabilities


class TrainingDynamics(keras.callbacks.Callback):
    """Records the margin of every training example after every epoch.

    A mislabelled example is learned late: its margin stays small or negative for many epochs. The mean margin over the
    epochs ranks the labels. So your ordinary training run finds label errors without held-out data or folds. After
    `fit`, pass the callback to `labels.find_issues`.

        margin = z_y - max_{j != y} z_j                                             (Pleiss et al. 2020, Eq. 1)
        mean margin = sum_t w_t margin_t / sum_t w_t,    w_t = L_t + 1e-6

    L_t is the mean loss of the training examples after epoch t. Epochs in which the model has memorised the labels
    therefore count little. With equal weights, as in Pleiss et al., these epochs would dominate.

    z are logits or log-probabilities: their differences are equal. With a `NoiseTransition`, z belong to the true
    classes. Margins and losses are clipped at 65504, the range of float16.

    Each epoch costs one prediction of all examples, about a third of the arithmetic of the epoch. Memory is 4 K + 8
    bytes for each example, and 2 bytes more for each epoch with `history`. Predicting needs another 12 K bytes.

    A `fit` that continues where the last one ended (`initial_epoch`) extends the record. Any other `fit` starts a new
    record, also if `BackupAndRestore` continues the training of another process.

    Args:
        x: training examples, as for `fit`: arrays of N examples, in a list or dict for several inputs.
        y: observed labels, integers in [0, K), `(N,)`, or label vectors. Class names are refused, because their order
            in the model is unknown. Pass `x` and `y` also if you train on batches of a data set.
        history: boolean, whether to keep the margins of every epoch, in float16, beside the sums.
        batch_size: batch size of the predictions.
    Raises:
        ValueError: for a data set, other labels or sizes. When `fit` starts, for a model without exclusive classes, or
            labels out of range.
    Source: Pleiss et al. 2020, "Identifying mislabeled data using the area under the margin ranking".

    Example:
        >>> x, y = np.eye(6, 3, dtype="float32"), np.array([0, 1, 2, 0, 0, 0])
        >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax", kernel_initializer="zeros")])
        >>> model.compile(keras.optimizers.SGD(1.0), "sparse_categorical_crossentropy")
        >>> dynamics = TrainingDynamics(x, y)
        >>> history = model.fit(x, y, epochs=4, verbose=0, callbacks=[dynamics])
        >>> dynamics.epochs, dynamics.mean_margin.shape, dynamics.margins.shape
        (4, (6,), (4, 6))
    """

    def __init__(self, x: Any, y: Any, *, history: bool = True, batch_size: int = 128):
        super().__init__()
        refuse_if(is_data_set(x), "x", "be arrays, so that every example has an index", kind=x)
        check_same_index(x=x, y=y)
        count = count_examples(x)
        refuse_if(not count, "x", "have at least one example", "none")
        self.x, self.labels = x, _integers(y, count)
        self.history, self.batch_size = check_boolean("history", history), check_integer("batch_size", batch_size, 1)
        self.record: TrainingRecord | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self.model.compiled:
            collect_warnings(self.model)
        batch = select_rows(self.x, np.arange(min(self.batch_size, len(self.labels))))
        units = exclusive_log_probabilities(self.model, batch, self.batch_size).shape[1]
        refuse_if(units < 2, "The model", "have at least two classes", units)
        check_labels(self.labels, units, name="y")
        self._units = units

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        record = self.record
        end = None if record is None else (record.first + record.epochs, record.units)
        if not epoch or end != (epoch, self._units):
            self.record = TrainingRecord(self.labels, self._units, first=epoch, keeps_history=self.history)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._record_with(0).update(exclusive_log_probabilities(self.model, self.x, self.batch_size))

    def _record_with(self, min_epochs: int = 1) -> TrainingRecord:
        """Returns the record, if it has this number of epochs."""
        if self.record is None or self.record.epochs < min_epochs:
            raise ValueError("TrainingDynamics must record an epoch first: pass it to `fit`. Received: no epoch")
        return self.record

    @property
    def epochs(self) -> int:
        """Number of recorded epochs; 0 before the first."""
        return 0 if self.record is None else self.record.epochs

    @property
    def mean_margin(self) -> np.ndarray:
        """Mean margin, `(N,)`, float64: the smaller it is, the more likely the label is an error."""
        return self._record_with().mean_margin

    @property
    def mean_probabilities(self) -> np.ndarray:
        """Mean of p(j | x) over the epochs, `(N, K)`, float32, with the weights of `mean_margin`."""
        return self._record_with().mean_probabilities

    @property
    def margins(self) -> np.ndarray:
        """Margins after each epoch, `(epochs, N)`, float16; a ValueError without `history`."""
        refuse_if(not self.history, "history", "be True for the values of every epoch", "history=False")
        return np.array(self._record_with().margins)


def _integers(y: Any, count: int) -> np.ndarray:
    """Converts integers in any dtype, `(N,)` or `(N, 1)`, and one-hot vectors to integers, `(N,)`."""
    labels = as_array("y", y)
    is_number = labels.dtype.kind in "biuf"
    if is_number and labels.ndim == 2 and labels.shape[1] > 1:
        is_one_hot = np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(axis=1) == 1)
        refuse_if(not is_one_hot, "y", "name one class for each example", "vectors that are not one-hot")
        labels = labels.argmax(axis=1)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind == "f":
        refuse_first(~np.isfinite(labels) | (labels != np.floor(labels)), "y", "be integers", labels, "g")
    labels = labels.astype("int64") if is_number else labels
    return check_labels(labels, np.inf, count, "y")
