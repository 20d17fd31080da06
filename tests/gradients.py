"""Gradients on the active backend, which is the only one imported: NumPy in, NumPy out."""

import functools

import keras
import numpy as np


def value_and_gradients(function, tensors):
    """Returns the value of a scalar function of a list of backend tensors, and its gradient for each of them.

    Args:
        function: maps a list of tensors to a scalar tensor.
        tensors: list of float arrays; each keeps its dtype.

    Returns: `(value, gradients)`, NumPy. A tensor that the function does not use has gradient None on TensorFlow and
        PyTorch, zeros on JAX.
    """
    tensors = [keras.ops.convert_to_tensor(np.asarray(tensor)) for tensor in tensors]
    value, gradients = _BACKENDS[keras.config.backend()](function, tensors)
    to_numpy = keras.ops.convert_to_numpy
    return to_numpy(value), [None if gradient is None else to_numpy(gradient) for gradient in gradients]


def layer_gradients(layer, loss, x, training=True):
    """Returns `value_and_gradients` of `loss(layer(x, training=training))` for the trainable weights of a built layer.

    The layer stays unchanged.

    Returns: `(value, gradients)` with gradients a dict from the weight's path, without the layer's own name.
    """
    state = [variable.numpy() for variable in layer.non_trainable_variables]

    def function(weights):
        outputs, _ = layer.stateless_call(weights, state, keras.ops.convert_to_tensor(x), training=training)
        return loss(outputs)

    weights = layer.trainable_variables
    value, gradients = value_and_gradients(function, [weight.numpy() for weight in weights])
    return value, dict(zip([weight.path.split("/", 1)[-1] for weight in weights], gradients, strict=True))


def _jax(function, tensors):
    import jax

    # What the function closes over becomes an argument: calls that differ in it alone are then one program, compiled
    # once for all tests.
    program = jax.make_jaxpr(jax.value_and_grad(function))(tensors)
    value, *gradients = jax.jit(functools.partial(jax.core.eval_jaxpr, program.jaxpr))(program.consts, *tensors)
    return value, gradients


def _tensorflow(function, tensors):
    import tensorflow as tf

    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(tensors)
        value = function(tensors)
    return value, tape.gradient(value, tensors)


def _torch(function, tensors):
    import torch

    tensors = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    value = function(tensors)
    return value, torch.autograd.grad(value, tensors, allow_unused=True)


_BACKENDS = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}


def second_derivative(function, point):
    """Returns f''(point) of a scalar function of a scalar tensor."""
    point, backend = keras.ops.convert_to_tensor(np.float32(point)), keras.config.backend()
    if backend == "jax":
        import jax

        return float(jax.jit(jax.grad(jax.grad(function)))(point))
    if backend == "torch":
        import torch

        point = point.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(function(point), point, create_graph=True)
        return float(torch.autograd.grad(slope, point)[0])
    import tensorflow as tf

    with tf.GradientTape() as outer:
        outer.watch(point)
        with tf.GradientTape() as inner:
            inner.watch(point)
            value = function(point)
        slope = inner.gradient(value, point)
    return float(outer.gradient(slope, point))
