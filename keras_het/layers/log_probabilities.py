"""Checks that the inputs of a layer are log-probabilities, by the graph before the layer and by their sum."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.graph import activation_of, has_graph, is_activation, walk
from keras_het.base.internals import is_symbolic
from keras_het.base.refusal import refusal
from keras_het.base.tensor import Tensor
from keras_het.layers.heteroscedastic_dense import HeteroscedasticDense

# Of the log of the sum of probabilities. bfloat16 rounds log(1e-5) by 0.03; probabilities that are mistaken for
# log-probabilities give more than 1.
TOLERANCE = 0.1


def nan_unless_log_probabilities(inputs: Tensor, outputs: Tensor) -> Any:
    """Returns `outputs`, with rows of nan where the probabilities of `inputs`, `(..., K)`, do not sum to one."""
    log_sum = ops.logsumexp(inputs, axis=-1, keepdims=True)
    for _ in outputs.shape[len(inputs.shape) :]:
        log_sum = ops.expand_dims(log_sum, -2)
    return ops.where(ops.abs(log_sum) < TOLERANCE, outputs, np.nan)


def check_log_probabilities(tensor: Any, layer: keras.layers.Layer) -> None:
    """Raises ValueError if the tensor comes from a Keras layer that does not return log-probabilities."""
    steps = walk([tensor], past_merges=False) if is_symbolic(tensor) else ()
    source = next((step for step, *_ in steps if not has_graph(step) and not _is_linear(step)), None)
    other = _describe_other_output(source)
    if source is not None and other:
        rule = "be log-probabilities, for example from Dense(K, 'log_softmax') or HeteroscedasticDense(K)"
        raise refusal(f"The input of {type(layer).__name__}", rule, f"the output of {source.name!r}, a {other}")


def _is_linear(layer: Any) -> bool:
    if type(layer).__name__ in ("Cast", "Identity"):
        return True
    try:
        return is_activation(layer) and activation_of(layer) is None
    except ValueError:  # an activation over another axis, or not one of Keras
        return False


def _describe_other_output(source: Any) -> str | None:
    """Returns a description of the layer if its outputs cannot be log-probabilities; None if they can."""
    kind = type(source).__name__
    is_head = isinstance(source, HeteroscedasticDense)
    if is_head and source.link.returns != "log-probabilities":
        return f"{kind} with link={source.link!r}"
    if not is_head and not type(source).__module__.startswith("keras."):
        return None  # the outputs of a user's layer are unknown
    if kind in ("Softmax", "Sigmoid", "Relu"):  # layers, and operations of `keras.ops`
        return kind
    if not hasattr(source, "activation"):
        return None
    try:
        name = activation_of(source)
    except ValueError:  # not an activation of Keras
        return None
    return None if name == (None if is_head else "log_softmax") else f"{kind} with activation={name!r}"
