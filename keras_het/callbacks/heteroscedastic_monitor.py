"""A callback that logs the noise of a head during training."""

from typing import Any

import keras

from keras_het.base.batches import examples_and_labels, labelled_batches
from keras_het.base.validation import check_integer
from keras_het.metrics import ExpectedCalibrationError
from keras_het.reading.check import judge
from keras_het.reading.head_noise import HeadReader
from keras_het.reading.probabilities import predict_probabilities


class HeteroscedasticMonitor(keras.callbacks.Callback):
    """Logs the noise of a head over held-out examples after every epoch, for History, CSVLogger and TensorBoard.

    Sigma is the mean covariance of the logits over the examples, in temperatures, as far as the link sees it (for
    softmax C Sigma C). The logs are:

    * `<head>_noise_sd`, sqrt(mean of Sigma_kk): below about .1 the noise changes no prediction, and the head is a Dense
      layer.
    * `<head>_diagonal_fraction`, the fraction of the variance that is noise of single classes, by d: 1 without factors.
    * `<head>_off_diagonal_fraction`, the sum of Sigma_ij^2 off the diagonal over the sum of all Sigma_ij^2. Without
      factors it is 0, or 1 / K for softmax, which sees only differences. Near that value no two classes are confused.
    * `<head>_effective_rank`, (sum of Sigma_kk)^2 / (sum of all Sigma_ij^2), in [1, K]: in how many directions the
      noise is.
    * `val_ece`, how far the confidence in the predicted class is from the fraction of labels that agree, over 15 bins.
      It is logged if each example has one label of exclusive classes. Behind a `NoiseTransition` predictions are of the
      true classes, and labels are noisy: it then says how far the two are apart.

    Put it before the callbacks that use its logs, such as `CSVLogger` or `EarlyStopping`: Keras calls them in the order
    of the list. It takes the time of two predictions of the examples, and O(K^2 (D + R)) operations for a
    parameter-efficient head, O(K^2 D R) for a full one.

    Args:
        validation_data: `(x, y)`, or a data set of batches (x, y) that can be read again; labels may be noisy.
        layer: name of the head, if there are several.
        batch_size: size of the batches of the predictions from arrays.
    Raises:
        ValueError: for other data. When `fit` starts, for a model without a graph, without such a head, or compiled
            with a wrong loss.
    Source: the rank is r of Bartlett, Long, Lugosi and Tsigler 2020, "Benign overfitting in linear regression",
        Definition 3 (R_0).

    Example:
        >>> from keras_het.layers import HeteroscedasticDense
        >>> model = keras.Sequential([keras.Input((2,)), HeteroscedasticDense(3, num_factors=1, name="head")])
        >>> model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        >>> x, y = keras.ops.ones((9, 2)), keras.ops.arange(9) % 3
        >>> history = model.fit(x, y, verbose=0, callbacks=[HeteroscedasticMonitor((x, y))])
        >>> sorted(history.history)[:3]
        ['head_diagonal_fraction', 'head_effective_rank', 'head_noise_sd']
    """

    def __init__(self, validation_data: Any, *, layer: str | None = None, batch_size: int = 128):
        super().__init__()
        self.validation_data = examples_and_labels("validation_data", validation_data)
        self.layer, self.batch_size = layer, check_integer("batch_size", batch_size, 1)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if self.model.compiled:
            judge(self.model)
        self.reader = HeadReader(self.model, self.layer)  # one for all epochs: a new one would compile its model again

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        logs = {} if logs is None else logs
        summary = self.reader.noise(self.validation_data[0], self.batch_size).summary()
        logs.update({f"{self.reader.head.name}_{name}": value for name, value in summary._asdict().items()})
        if self.reader.head.link.activation == "softmax" and len(self.model.outputs[0].shape) == 2:
            logs["val_ece"] = self._calibration_error()

    def _calibration_error(self) -> float:
        metric = ExpectedCalibrationError()
        for inputs, labels in labelled_batches(*self.validation_data, self.batch_size, "validation_data"):
            metric.update_state(labels, predict_probabilities(self.model, inputs, len(labels)))
        return float(metric.result())
