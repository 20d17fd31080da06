"""A model that trains on the likelihood of a distribution and predicts its mean."""

from typing import Any

import keras
import numpy as np

from keras_het.base.internals import mask_of, producer
from keras_het.base.masks import with_mask
from keras_het.base.refusal import refusal, refuse_if
from keras_het.criteria.criterion import find_criteria
from keras_het.models.output_layers import unused_name
from keras_het.ops.packed import unpack
from keras_het.reading.check import check_distribution_loss
from keras_het.reading.data import check_label_shape
from keras_het.reading.ending import Ending


class _Predictions(keras.layers.Layer):
    """Layer that computes a head's predictions from its outputs."""

    def __init__(self, head: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.head, self.supports_masking = head, True

    def call(self, outputs: Any) -> Any:
        return self.head.predictions(outputs)


@keras.saving.register_keras_serializable("keras_het")
class DistributionModel(keras.Model):
    """A functional model whose last layer returns a distribution, packed in one tensor.

    `fit` and `evaluate` pass this tensor to the loss, which is a joint likelihood. `predict`, `export` and the metrics
    use the head's predictions: marginal probabilities of the labels, or the mean of a regression. So metrics of Keras
    need no `from_logits`. Calling the model returns the tensor.

    Args:
        inputs: argument of `keras.Model`.
        outputs: outputs of a `JointHeteroscedasticDense`, `StochasticSegmentation` or `HeteroscedasticNormal`.
        name: argument of `keras.Model`.
        kwargs: arguments of `keras.Model`.
    Raises:
        ValueError: for another last layer.

    Example:
        >>> from keras_het.layers import JointHeteroscedasticDense
        >>> inputs = keras.Input((8,))
        >>> model = DistributionModel(inputs, JointHeteroscedasticDense(3, num_factors=2)(inputs))
        >>> model.predict(np.zeros((5, 8)), verbose=0).shape, tuple(model(np.zeros((5, 8))).shape)
        ((5, 3), (5, 13))
    """

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None, **kwargs: Any) -> None:
        head = producer(outputs)[0] if keras.utils.is_keras_tensor(outputs) else outputs
        rule = "come from a layer that returns a distribution, such as layers.JointHeteroscedasticDense"
        refuse_if(not hasattr(head, "predictions"), "outputs", rule, f"outputs of a {type(head).__name__}")
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        predictor = keras.Model(inputs, _Predictions(head, name=unused_name("predictions", self))(outputs))
        self._predictor = lambda: predictor  # Keras would track a model as a part of this model

    @property
    def head(self) -> Any:
        """Last layer of the model."""
        return producer(self.output)[0]

    @property
    def head_output(self) -> Ending:
        """Kind of the predictions, for `keras_het.check`."""
        link = getattr(self.head, "link", None)
        activation, returns = ("", "numbers") if link is None else (link.activation, "probabilities")
        units, source = self.head.units, f"the model {self.name!r}"
        shape = (*self.output.shape[:-1], units)
        return Ending(source, activation, returns, units, is_head=link is not None, shape=shape, is_distribution=True)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Returns the head's predictions, `(N, K)`, like `keras.Model.predict`."""
        return self._predictor().predict(x, *args, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """Returns the head's predictions, like `keras.Model.predict_on_batch`."""
        return self._predictor().predict_on_batch(x)

    def predict_distribution(self, x: Any, **kwargs: Any) -> np.ndarray:
        """Returns the packed distributions of the head, `(N, ..., K (2 + R) + 1)`, with arguments of `predict`."""
        return super().predict(x, **kwargs)

    def predict_interval(self, x: Any, level: float = 0.9, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
        """Returns the lower and upper ends of the central interval of each target, `(N, K)` each, for a regression.

        `level` is the probability of the interval, in (0, 1); the other arguments are as for `predict`.

        Raises:
            ValueError: for another level, or a head of labels.
        """
        self._check_regression("intervals")
        low, high = self.head.interval(self.predict_distribution(x, **kwargs), level)
        return keras.ops.convert_to_numpy(low), keras.ops.convert_to_numpy(high)

    def predict_covariance(self, x: Any, **kwargs: Any) -> np.ndarray:
        """Returns the covariances of the targets, `(N, K, K)`, for a regression; the arguments are as for `predict`.

        Raises:
            ValueError: for a head of labels.
        """
        self._check_regression("covariances of targets")
        outputs = keras.ops.convert_to_tensor(self.predict_distribution(x, **kwargs))
        return keras.ops.convert_to_numpy(unpack(outputs, self.head.units).normal.covariance())

    def _check_regression(self, results: str) -> None:
        if not hasattr(self.head, "interval"):
            rule = f"end in a HeteroscedasticNormal to predict {results}"
            raise refusal("The model", rule, f"a model that ends in a {type(self.head).__name__}")

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """Exports a model that returns the head's predictions, like `keras.Model.export`."""
        predictor = self._predictor()
        predictor(self.input)  # Keras exports only a model that was called
        return predictor.export(*args, **kwargs)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Computes the loss of the distribution, for labels and a loss that fit the head. Keras calls it."""
        self._check_loss(y)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def _check_loss(self, y: Any) -> None:
        for loss in find_criteria(self.loss):
            check_distribution_loss(loss, self.head_output)
            if y is not None:
                check_label_shape(y, loss, self.head_output)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Computes the metrics of the head's predictions. Keras calls it."""
        if all(metric.name == "loss" for metric in self.metrics):
            return self.get_metrics_result()
        self._check_loss(y)  # before the loss does, because Keras builds the metrics first
        predictions = self.head.predictions(keras.ops.stop_gradient(y_pred))
        return super().compute_metrics(x, y, with_mask(predictions, mask_of(y_pred)), sample_weight)
