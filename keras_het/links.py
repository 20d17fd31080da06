"""Links: maps from the Gaussian of the logits to the outputs of a head, as small serialisable objects."""

from typing import Any

import keras
from keras import ops

from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.serializable import Component
from keras_het.base.tensor import Tensor
from keras_het.ops.log_space import log_mean_exp
from keras_het.ops.normal import finite
from keras_het.ops.sigmoid import SigmoidMean, expected_sigmoid_logit
from keras_het.ops.softmax import SoftmaxMean, remove_shift, second_order_log_softmax

__all__ = ["Link", "Sigmoid", "Softmax"]


class Link(Component):
    """Base class of links.

    A subclass defines one or more of these. An integrator needs one of them, and refuses a link where it is None.

    * `closed_form(normal)`: outputs of a head, `(..., K)`, without nodes.
    * `second_order(normal)`: outputs to second order in the noise.
    * `mean`: function to average over nodes, a `Mean` of `ops/mean.py`; `from_mean` turns the average into outputs.

    `normal` is the Gaussian of the logits in temperatures, centred by `center`.

    Attributes:
        activation: "softmax" or "sigmoid", the Keras activation that turns the outputs into probabilities. The outputs
            are log-probabilities of exclusive classes, or one logit for each label.
        min_units: smallest number of classes.
        activations: Keras activations of the plain heads that a head with this link can replace, with
            mu = temperature * (kernel, bias).
        ignores_shift: boolean, whether a constant added to all logits changes nothing.
    """

    activation = "softmax"
    activations: tuple[str, ...] = ()
    min_units = 2
    ignores_shift = False
    closed_form: Any = None
    second_order: Any = None
    mean: Any = None

    def from_mean(self, value: Tensor) -> Any:
        """Returns the outputs of a head, `(..., K)`, for the average over the nodes, `value`."""
        return value

    def center(self, loc: Tensor) -> Any:
        """Returns finite mean logits `(..., K)` for `loc`, without a shift that the link ignores."""
        return finite(loc)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.activation not in ("softmax", "sigmoid"):
            rule = "be 'softmax' or 'sigmoid'"
            raise refusal("`activation` of a link", rule, f"{cls.activation!r} of {cls.__name__}")

    @property
    def default_integrator(self) -> str:
        """Name of the default integrator: "ClosedForm" if the link has a closed form, else "QuasiMonteCarlo"."""
        return "QuasiMonteCarlo" if self.closed_form is None else "ClosedForm"

    @property
    def returns(self) -> str:
        """Kind of a head's outputs, "log-probabilities" or "logits"."""
        return "log-probabilities" if self.activation == "softmax" else "logits"

    def probabilities(self, outputs: Tensor) -> Any:
        """Returns the probabilities of `outputs`, `(..., K)`."""
        return ops.exp(outputs) if self.activation == "softmax" else ops.sigmoid(outputs)

    def average(self, outputs: Tensor, axis: int = 0) -> Any:
        """Averages the probabilities of several outputs, for example of the heads of an ensemble.

        The mean of probabilities is computed in log space. A mean of log-probabilities or logits would give different
        probabilities. Compile a model that ends in this average with `loss()`, because `keras_het.check` does not know
        the average.

        Args:
            outputs: outputs of heads, not probabilities: a list of M tensors `(..., K)`, or one tensor `(M, ..., K)`.
            axis: axis of the M outputs, not the last one, which has the classes. M must be known.
        Returns:
            outputs with the mean probabilities, shape `(..., K)`.
        Raises:
            ValueError: for no outputs, outputs of different shapes, or a wrong axis.

        Example:
            >>> from keras_het.links import Softmax
            >>> log_p = ops.log(ops.array([[0.9, 0.1], [0.5, 0.5]]))
            >>> [round(float(p), 4) for p in ops.exp(Softmax().average(log_p))]
            [0.7, 0.3]
        """
        if isinstance(outputs, list | tuple):
            shapes = {tuple(x.shape) for x in outputs}
            refuse_if(len(shapes) != 1, "outputs", "have one shape", f"shapes {sorted(map(str, shapes))}")
            outputs = ops.stack(outputs, axis)
        outputs = ops.convert_to_tensor(outputs)
        if axis % max(1, len(outputs.shape)) >= len(outputs.shape) - 1:
            rule = "be before the last axis, which has the classes"
            raise refusal("axis", rule, f"axis={axis} of shape {tuple(outputs.shape)}")
        if self.activation == "softmax":
            return log_mean_exp(outputs, axis)
        return log_mean_exp(ops.log_sigmoid(outputs), axis) - log_mean_exp(ops.log_sigmoid(-outputs), axis)

    def loss(self) -> keras.losses.Loss:
        """Returns the Keras loss for integer labels `(...)`; for a sigmoid, for vectors `(..., K)` of 0 and 1."""
        if self.activation == "softmax":
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return keras.losses.BinaryCrossentropy(from_logits=True)


@keras.saving.register_keras_serializable("keras_het")
class Softmax(Link):
    """Softmax link, log E[softmax(u / temperature)], for one label per example; the head returns log-probabilities.

    Source: Collier et al. 2021, Eq. 3; `keras_het.ops.softmax.SoftmaxMean`.

    Example:
        >>> Softmax().returns
        'log-probabilities'
    """

    activations = ("softmax", "log_softmax")
    ignores_shift = True
    mean = SoftmaxMean()

    def second_order(self, normal: Any) -> Any:
        """Returns log-probabilities to second order in the noise of `normal`, `(..., K)`."""
        return second_order_log_softmax(normal)

    def center(self, loc: Tensor) -> Any:
        return remove_shift(loc)


@keras.saving.register_keras_serializable("keras_het")
class Sigmoid(Link):
    """Sigmoid link, logit E[sigmoid(u / temperature)], for labels that are not exclusive; the head returns logits.

    Source: Collier et al. 2021, Eq. 5; `keras_het.ops.sigmoid.log_expected_sigmoid`.

    Example:
        >>> Sigmoid().returns
        'logits'
    """

    activation = "sigmoid"
    activations = ("sigmoid", "log_sigmoid")
    min_units = 1
    mean = SigmoidMean()

    def closed_form(self, normal: Any) -> Any:
        """Returns logits of the mean probabilities, `(..., K)`; the error of log p is below 1e-4."""
        return expected_sigmoid_logit(normal.loc, normal.variance())


Link.named_classes = (Softmax, Sigmoid)
