"""The base class of links: the maps from the Gaussian of the logits to the outputs of a head."""

from typing import Any

import keras
from keras import ops

from keras_het.base.choices import Choice
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.tensor import Tensor
from keras_het.ops.log_space import log_mean_exp
from keras_het.ops.normal import finite


class Link(Choice):
    """Base class of links.

    An integrator names the attribute that it needs of a link; the attribute is None for a link that lacks it.

    A subclass defines one or more of these:

    * `closed_form(normal)`: the outputs of a head, `(..., K)`, without nodes.
    * `second_order(normal)`: these outputs to second order in the noise.
    * `mean`: the function that is averaged over nodes, a `Mean` of `ops/mean.py`; `from_mean` turns the average into
      the outputs of a head.

    `normal` is the distribution of the logits in temperatures, centred by `center`.

    Attributes:
        activation: "softmax" or "sigmoid", the Keras activation that turns the outputs into probabilities. The outputs
            are log-probabilities of exclusive classes, or one logit for each label.
        min_units: the smallest number of classes.
        activations: the Keras activations of the plain heads that a head with this link can take over, with
            mu = temperature * (kernel, bias).
        ignores_shift: boolean, whether a number that is added to all logits changes nothing.
    """

    activation = "softmax"
    activations: tuple[str, ...] = ()
    min_units = 2
    ignores_shift = False
    closed_form: Any = None
    second_order: Any = None
    mean: Any = None

    def from_mean(self, value: Tensor) -> Any:
        """The outputs of a head for the average over the nodes, both `(..., K)`.

        Args:
            value: the average over the nodes, `(..., K)`.
        """
        return value

    def center(self, loc: Tensor) -> Any:
        """Finite mean logits `(..., K)`, without the part that the link ignores.

        Args:
            loc: finite mean logits, `(..., K)`.
        """
        return finite(loc)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.activation not in ("softmax", "sigmoid"):
            rule = "be 'softmax' or 'sigmoid'"
            raise refusal("`activation` of a link", rule, f"{cls.activation!r} of {cls.__name__}")

    @property
    def default_integrator(self) -> str:
        """The name of the default integrator: "ClosedForm" if the link has a closed form, else "QuasiMonteCarlo"."""
        return "QuasiMonteCarlo" if self.closed_form is None else "ClosedForm"

    @property
    def returns(self) -> str:
        """The kind of a head's outputs, in words."""
        return "log-probabilities" if self.activation == "softmax" else "logits"

    def probabilities(self, outputs: Tensor) -> Any:
        """The probabilities of outputs, `(..., K)`."""
        return ops.exp(outputs) if self.activation == "softmax" else ops.sigmoid(outputs)

    def average(self, outputs: Tensor, axis: int = 0) -> Any:
        """Outputs with the mean probabilities of several outputs, such as the outputs of the members of an ensemble.

        The mean is over probabilities, computed in log space: a mean over log-probabilities or logits would give other
        probabilities. Compile a model that ends in this average with `loss()` and `metrics()`: `keras_het.check` does
        not look behind the average.

        Args:
            outputs: outputs of heads, not probabilities: a list of M tensors `(..., K)`, or one tensor `(M, ..., K)`.
            axis: the axis of the M outputs; M must be known. It is not the last axis, which has the classes.
        Returns:
            shape `(..., K)`.
        Raises:
            ValueError: for no outputs, outputs of different shapes, or without an axis beside the classes'.

        Example:
            >>> from keras_het.links import Softmax
            >>> log_p = ops.log(ops.array([[0.9, 0.1], [0.5, 0.5]]))
            >>> [round(float(p), 4) for p in ops.exp(Softmax().average(log_p))]
            [0.7, 0.3]
        """
        if isinstance(outputs, list | tuple):
            shapes = {tuple(x.shape) for x in outputs}
            refuse_if(len(shapes) != 1, "outputs", "be of one shape", f"shapes {sorted(map(str, shapes))}")
            outputs = ops.stack(outputs, axis)
        outputs = ops.convert_to_tensor(outputs)
        if axis % max(1, len(outputs.shape)) >= len(outputs.shape) - 1:
            rule = "be one before the last, which has the classes"
            raise refusal("axis", rule, f"axis={axis} of shape {tuple(outputs.shape)}")
        if self.activation == "softmax":
            return log_mean_exp(outputs, axis)
        return log_mean_exp(ops.log_sigmoid(outputs), axis) - log_mean_exp(ops.log_sigmoid(-outputs), axis)

    def loss(self) -> keras.losses.Loss:
        """The Keras loss for the outputs.

        Labels are integers `(...)`, or, for a sigmoid, vectors `(..., K)` of zeros and ones.
        """
        kind = (
            keras.losses.SparseCategoricalCrossentropy
            if self.activation == "softmax"
            else keras.losses.BinaryCrossentropy
        )
        return kind(from_logits=True)

    def metrics(self) -> list[keras.metrics.Metric]:
        """New metrics of Keras for the outputs and the labels of `loss`: the accuracy."""
        if self.activation == "softmax":
            return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
        return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]  # outputs are logits: 0 is p = 1/2
