"""Inputs and outputs of the members of an ensemble, and checks of members."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_het.base.graph import has_graph, model_inputs
from keras_het.base.internals import layers_of
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.serializable import resolve
from keras_het.base.validation import check_boolean
from keras_het.layers.heteroscedastic_dense import Clock
from keras_het.links import Link
from keras_het.ops.transition import MIN_PROBABILITY
from keras_het.reading.check import leaves
from keras_het.reading.ending import Ending, endings
from keras_het.reading.matching import find_activation


def member_seed(seed: int, index: int) -> int:
    """Returns the seed of a member. On PyTorch, neighbouring seeds would draw the same numbers one step later."""
    return int(random_generator([seed, index]).integers(1 << 31))


def symbolic_inputs(model: keras.Model) -> Any:
    """Returns new symbolic inputs like the inputs of a model.

    Raises:
        ValueError: for a model that is not built.
    """
    if has_graph(model):
        inputs = model_inputs(model)
        return keras.tree.map_structure(lambda x: keras.Input(batch_shape=x.shape, dtype=x.dtype, name=x.name), inputs)
    if hasattr(model, "members"):
        return symbolic_inputs(model.members[0])
    shapes = (model.get_build_config() or {}).get("input_shape") if model.built else None
    if shapes is None:
        raise refusal("model", "be built: give it a keras.Input, or call it once", f"{model.name!r}, not built")
    return keras.tree.map_shape_structure(lambda shape: keras.Input(batch_shape=shape), shapes)


def single_ending(model: keras.Model, name: str = "model") -> Ending:
    """Returns the `Ending` of a model with one output; the numbers of a Dense layer count as logits.

    Raises:
        ValueError: for a log_sigmoid or a `DistributionModel`, whose call returns neither logits nor probabilities. The
            error calls the argument `name`.
    """
    outputs = endings(model)
    if len(outputs) != 1 or outputs[0].returns == "distributions":
        return Ending("the model", "", "anything", 0, is_head=False)
    (ending,) = outputs
    rule = "return logits or probabilities when called"
    refuse_if(ending.is_distribution, name, rule, f"{model.name!r}, which returns a distribution")
    if ending.returns == "anything" and ending.link:
        raise refusal(name, rule, f"{model.name!r}, with activation 'log_sigmoid'")
    return ending._replace(returns="logits") if ending.returns == "numbers" else ending


def check_members(members: Any) -> list[keras.Model]:
    """Checks that members are different models without shared weights, and returns a list of them."""
    members = list(members) if isinstance(members, Sequence) else members
    if not isinstance(members, list) or not members or not all(isinstance(member, keras.Model) for member in members):
        kinds = [type(member).__name__ for member in members] if isinstance(members, list) else type(members).__name__
        raise refusal("members", "be a list of models, at least one", kinds)
    owners: dict[int, int] = {}
    for index, member in enumerate(members):
        if (first := members.index(member)) != index:
            raise refusal("members", "be different models", f"{member.name!r} as members {first} and {index}")
        for variable in member.variables:
            if (owner := owners.setdefault(id(variable), index)) != index:
                rule = "share no layer: make each member from new layers"
                raise refusal("members", rule, f"the variable {variable.path!r} in members {owner} and {index}")
    return members


def find_units(members: list[keras.Model]) -> int:
    """Returns K; raises a ValueError unless every member returns one tensor of the same shape, `(..., K)`."""
    shapes = []
    for member in members:
        outputs = keras.tree.flatten(member.compute_output_spec(symbolic_inputs(member)))
        refuse_if(len(outputs) != 1, "members", "have one output", f"{len(outputs)} outputs of {member.name!r}")
        shapes.append(tuple(outputs[0].shape))
    units = _common_value("members", "return outputs of one shape", shapes)[-1:]
    if None in units or len(shapes[0]) < 2:
        raise refusal("members", "return outputs of shape (..., K), with K known", shapes[0])
    return units[0]


def find_link(members: list[keras.Model], endings: list[Ending], link: Any, units: int) -> Link:
    """Returns the link of the members' outputs: `link`, or the link of their heads or losses."""
    activations = [ending.link or _activation_of_loss(model) for model, ending in zip(members, endings, strict=True)]
    activation = _common_value("members", "have heads of one activation", activations)
    if link is None and activation is None:
        rule = (
            '"softmax" or "sigmoid", because the members do not end in a head or activation and are not compiled with '
            "a crossentropy"
        )
        raise refusal("link", f"be {rule}", "None")
    result = resolve(Link, activation if link is None else link)
    if activation not in (None, result.activation):
        raise refusal("link", f"be a {activation}, the link of the members", value=result)
    if units < result.min_units:
        raise refusal("members", f"return at least {result.min_units} classes for {result!r}", units)
    return result


def _activation_of_loss(member: keras.Model) -> str | None:
    """Returns the activation that the only loss of a member needs, "softmax" or "sigmoid", or None."""
    losses = list(leaves(member.loss)) if member.compiled else []
    return find_activation(losses[0]) if len(losses) == 1 else None


def find_from_logits(endings: list[Ending], from_logits: Any) -> bool:
    """Returns whether the members return logits or log-probabilities instead of probabilities."""
    kinds = {"anything": None, "probabilities": "probabilities"}
    values = [kinds.get(ending.returns, "logits or log-probabilities") for ending in endings]
    kind = _common_value("members", "all return probabilities, or all return logits or log-probabilities", values)
    if kind is None:
        rule = "be True (logits or log-probabilities) or False (probabilities), because the last layer is unknown"
        refuse_if(from_logits is None, "from_logits", rule, "None")
        return check_boolean("from_logits", from_logits)
    result = kind != "probabilities"
    if from_logits is not None and check_boolean("from_logits", from_logits) is not result:
        raise refusal("from_logits", f"be {result} for these members", f"from_logits={from_logits}")
    return result


def _common_value(name: str, rule: str, values: list) -> Any:
    """Returns the value that all members have, or None if unknown; raises a ValueError if values differ."""
    known = [(index, value) for index, value in enumerate(values) if value is not None] or [(0, None)]
    first, common = known[0]
    for index, value in known:
        if value != common:
            raise refusal(name, rule, f"{common} of member {first}, {value} of member {index}")
    return common


def convert_probabilities(p: Any, activation: str) -> Any:
    """Converts probabilities, `(..., K)`, to log-probabilities (softmax) or logits (sigmoid).

    The largest logit is the smallest logit whose sigmoid rounds to one, so that logits stay finite.
    """
    log_p = ops.log(ops.maximum(p, MIN_PROBABILITY))
    rounding = 2.0**-54 if "float64" in str(p.dtype) else 2.0**-25
    return log_p if activation == "softmax" else log_p - ops.log(ops.maximum(1.0 - p, rounding))


def check_different_start(members: list[keras.Model]) -> None:
    """Raises a ValueError if two members start with equal weights."""
    if (pair := find_equal_members(members)) is not None:
        rule = "set no seed, so that every model starts with different weights"
        raise refusal("make_model", rule, f"equal weights of members {pair[0]} and {pair[1]}")


def find_equal_members(members: list[keras.Model]) -> tuple[int, int] | None:
    """Returns the first two members with equal weights, or None."""
    for index, member in enumerate(members):
        for other in range(index):
            pairs = list(zip(member.trainable_variables, members[other].trainable_variables, strict=False))
            if pairs and all(np.array_equal(*map(keras.ops.convert_to_numpy, pair)) for pair in pairs):
                return other, index
    return None


def check_different_noise(members: list[keras.Model]) -> None:
    """Raises a ValueError if heads of two members train with the same noise."""
    owners: dict[int, int] = {}
    for index, member in enumerate(members):
        for clock in layers_of(member, Clock):
            if (owner := owners.setdefault(clock.seed, index)) != index:
                rule = "have heads with different seeds, or they train with the same noise: do not pass `seed`"
                raise refusal("members", rule, f"seed={clock.seed} in members {owner} and {index}")
