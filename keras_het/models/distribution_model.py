"""A model that is trained by a likelihood of a whole distribution, and predicts its mean."""

from typing import Any

import keras
import numpy as np

from keras_het.base.internals import producer


class _Predictions(keras.layers.Layer):
    """What a head predicts of its outputs."""

    def __init__(self, head: Any, **kwargs: Any) -> None:
        super().__init__(name="predictions", **kwargs)
        self.head = head

    def call(self, outputs: Any) -> Any:
        return self.head.predictions(outputs)


@keras.saving.register_keras_serializable("keras_het")
class DistributionModel(keras.Model):
    """A functional model whose last layer returns a distribution, in one tensor.

    `fit` and `evaluate` give that tensor to the loss, which is a joint likelihood. `predict`, `export` and the metrics
    have what the head makes of it: probabilities of each label by itself, or the mean of a regression. So a metric of
    Keras fits as usual, without `from_logits`. Calling the model returns the tensor.

    Args:
        inputs: as for `keras.Model`.
        outputs: of a `JointHeteroscedasticDense`.
        name: as for `keras.Model`.
        kwargs: as for `keras.Model`.
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
        if not hasattr(head, "predictions"):
            rule = "be those of a layer that returns a distribution, such as layers.JointHeteroscedasticDense"
            raise ValueError(f"`outputs` must {rule}. Received: those of a {type(head).__name__}")
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        predicting = keras.Model(inputs, _Predictions(head)(outputs))
        self._predicting = lambda: predicting  # not an attribute: Keras would take it for a part of this model

    @property
    def head(self) -> Any:
        """The last layer."""
        return producer(self.output)[0]

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """What the head predicts, as `keras.Model.predict`; `(N, K)`."""
        return self._predicting().predict(x, *args, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """What the head predicts, as `keras.Model.predict_on_batch`."""
        return self._predicting().predict_on_batch(x)

    def predict_distribution(self, x: Any, **kwargs: Any) -> np.ndarray:
        """The output of the head, as `predict` would return it of an ordinary model, `(N, ..., K (2 + R) + 1)`.

        Args:
            x: as for `keras.Model.predict`.
            kwargs: other arguments of `keras.Model.predict`.
        """
        return super().predict(x, **kwargs)

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """Exports what the head predicts, as `keras.Model.export`."""
        return self._predicting().export(*args, **kwargs)

    def compute_metrics(self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        """Keras calls it; the metrics get what the head predicts."""
        return super().compute_metrics(x, y, self.head.predictions(y_pred), sample_weight)
