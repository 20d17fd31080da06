"""Steps that a trainer compiles: whether one keeps what is assigned to a variable."""

import keras


def forgets(variable: keras.Variable) -> bool:
    """Whether the step in whose scope this is called drops what is assigned to the variable.

    On JAX a trainer hands the variables of its model to a step, and takes them back: it drops all others. Keras builds
    models in a scope without variables, which counts as no step.
    """
    with keras.StatelessScope() as inner:
        outer = inner.original_scope
    return outer is not None and bool(outer.state_mapping) and outer.get_current_value(variable) is None
