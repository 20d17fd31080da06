"""Steps that a trainer compiles: whether this is one, and whether it keeps what is assigned to a variable."""

import sys

import keras


def in_compiled_step() -> bool:
    """Whether this is called in a step of a trainer on JAX, or in a graph on TensorFlow; False on PyTorch."""
    with keras.StatelessScope() as inner:
        outer = inner.original_scope
    graph = keras.config.backend() == "tensorflow" and not sys.modules["tensorflow"].executing_eagerly()
    return outer is not None or graph


def forgets(variable: keras.Variable) -> bool:
    """Whether the step in whose scope this is called drops what is assigned to the variable.

    On JAX a trainer hands the variables of its model to a step, and takes them back: it drops all others. Keras builds
    models in a scope without variables, which counts as no step.
    """
    with keras.StatelessScope() as inner:
        outer = inner.original_scope
    return outer is not None and bool(outer.state_mapping) and outer.get_current_value(variable) is None
