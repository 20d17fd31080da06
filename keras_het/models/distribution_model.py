"""A model that is trained by a likelihood of a whole distribution, and predicts its mean."""

from typing import Any

import keras
import numpy as np

from keras_het.base.internals import mask_of, producer
from keras_het.base.masks import with_mask
from keras_het.base.refusal import refusal, refuse_if
from keras_het.ops.packed import unpack
from keras_het.reading.check import check_distribution_loss, leaves
from keras_het.reading.data import check_label_shape
from keras_het.reading.ending import Ending


class _Predictions(keras.layers.Layer):
    """What a head predicts of its outputs."""

    def __init__(self, head: Any, **kwargs: Any) -> None:
        super().__init__(name="predictions", **kwargs)
        self.head, self.supports_masking = head, True

    def call(self, outputs: Any) -> Any:
        return self.head.predictions(outputs)


@keras.saving.register_keras_serializable("keras_het")
class DistributionModel(keras.Model):
    """A functional model whose last layer returns a distribution, in one tensor.

    `fit` and `evaluate` give that tensor to the loss, which is a joint likelihood. `predict`, `export` and the metrics
    have what the head makes of it: probabilities of each label by itself, or the mean of a regression. So a metric of
    Keras fits as usual, without `from_logits`. Calling the model returns the tensor.

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
        rule = "be those of a layer that returns a distribution, such as layers.JointHeteroscedasticDense"
        refuse_if(not hasattr(head, "predictions"), "outputs", rule, f"those of a {type(head).__name__}")
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        predicting = keras.Model(inputs, _Predictions(head)(outputs))
        self._predicting = lambda: predicting  # not an attribute: Keras would take it for a part of this model

    @property
    def head(self) -> Any:
        """The last layer."""
        return producer(self.output)[0]

    @property
    def head_output(self) -> Ending:
        """The kind of its predictions, for `keras_het.check`."""
        link = getattr(self.head, "link", None)
        activation, returns = ("", "numbers") if link is None else (link.activation, "probabilities")
        units, source = self.head.units, f"the model {self.name!r}"
        shape = (*self.output.shape[:-1], units)
        return Ending(source, activation, returns, units, is_head=link is not None, shape=shape, is_distribution=True)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """What the head predicts, as `keras.Model.predict`; `(N, K)`."""
        return self._predicting().predict(x, *args, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """What the head predicts, as `keras.Model.predict_on_batch`."""
        return self._predicting().predict_on_batch(x)

    def predict_distribution(self, x: Any, **kwargs: Any) -> np.ndarray:
        """The output of the head, as `predict` would return it of an ordinary model, `(N, ..., K (2 + R) + 1)`.

        Args:
            x: argument of `keras.Model.predict`.
            kwargs: other arguments of `keras.Model.predict`.
        """
        return super().predict(x, **kwargs)

    def predict_interval(self, x: Any, level: float = 0.9, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
        """The lower and the upper ends of the central interval of each target, `(N, K)` each, for a regression.

        Args:
            x: argument of `keras.Model.predict`.
            level: the probability of the interval, in (0, 1).
            kwargs: other arguments of `keras.Model.predict`.
        Raises:
            ValueError: for another level, or a head of labels.
        """
        self._check_regression("intervals")
        low, high = self.head.interval(self.predict_distribution(x, **kwargs), level)
        return keras.ops.convert_to_numpy(low), keras.ops.convert_to_numpy(high)

    def predict_covariance(self, x: Any, **kwargs: Any) -> np.ndarray:
        """The covariances of the targets, `(N, K, K)`, for a regression.

        Args:
            x: argument of `keras.Model.predict`.
            kwargs: other arguments of `keras.Model.predict`.
        Raises:
            ValueError: for a head of labels.
        """
        self._check_regression("covariances of targets")
        outputs = keras.ops.convert_to_tensor(self.predict_distribution(x, **kwargs))
        return keras.ops.convert_to_numpy(unpack(outputs, self.head.units).normal.covariance())

    def _check_regression(self, predicted: str) -> None:
        if not hasattr(self.head, "interval"):
            rule = f"be a regression, which ends in a HeteroscedasticNormal, to predict {predicted}"
            raise refusal("The model", rule, f"one that ends in a {type(self.head).__name__}")

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """Exports what the head predicts, as `keras.Model.export`."""
        predicting = self._predicting()
        predicting(self.input)  # Keras exports only a model that was called
        return predicting.export(*args, **kwargs)

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        """Keras calls it; the loss gets the distribution.

        Raises:
            ValueError: for a loss that takes no distribution, or that of another head, and for labels of another shape
                than the head's: the tensor would be read as another distribution.
        """
        for loss in leaves(self.loss):
            check_distribution_loss(loss, self.head_output)
            if y is not None:
                check_label_shape(y, loss, self.head_output)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Keras calls it; the metrics get what the head predicts, which costs nothing if there are none."""
        if all(metric.name == "loss" for metric in self.metrics):
            return self.get_metrics_result()
        predictions = self.head.predictions(keras.ops.stop_gradient(y_pred))
        return super().compute_metrics(x, y, with_mask(predictions, mask_of(y_pred)), sample_weight)
