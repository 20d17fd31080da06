"""Deep ensemble: several models as one, by the mean of their probabilities."""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import check_rereadable
from keras_het.base.graph import symbolic_inputs
from keras_het.base.internals import layers_of, mask_of
from keras_het.base.masks import with_mask
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.serializable import resolve
from keras_het.base.validation import check_boolean, check_integer
from keras_het.layers.heteroscedastic_dense import Clock
from keras_het.links import Link
from keras_het.models.copying import preserve_seed
from keras_het.ops.transition import MIN_PROBABILITY
from keras_het.reading.check import collect_warnings, leaves
from keras_het.reading.ending import Ending, endings
from keras_het.reading.matching import find_activation


@keras.saving.register_keras_serializable("keras_het")
class DeepEnsemble(keras.Model):
    """A model that averages the probabilities of its members and returns the mean in the form of a head.

        softmax: log mean_m p_m            sigmoid: logit mean_m p_m        (Lakshminarayanan et al. 2017, section 2.4)

    Probabilities are averaged, in log space. A `keras.layers.Average` of log-probabilities would be silently wrong: its
    exponentials sum to less than one.

    The ensemble is a `keras.Model` with the usual `predict`, `evaluate` and `save`. Only `fit` differs: it calls the
    `fit` of one member after the other, with the settings of the member's `compile`. Members that train together on the
    loss of their mean would learn to compensate for each other. For `evaluate`, the ensemble is compiled with the loss
    and the accuracy of its link. A step of a sequence that any member masks as padding counts in no loss or metric.

    Args:
        members: built models with one output of the same shape, `(..., K)`, that share no layer. Heads and links can
            differ if all members return probabilities, or all return log-probabilities of exclusive classes, or all
            return logits of labels that are not exclusive.
        link: link of members that do not end in a head of this package or in an activation, and are not compiled with a
            crossentropy: "softmax", "sigmoid", or any other link.
        from_logits: boolean, for members with an unknown last layer: True if they return logits or log-probabilities,
            False if they return probabilities.
        kwargs: arguments of `keras.Model`, such as `name`.
    Input shape: like the members.
    Output shape: `(..., K)`: log-probabilities, or logits for a sigmoid, whatever the members return.
    Attributes:
        link: link of the outputs.
    Raises:
        ValueError: for no member, a repeated member, shared layers, different shapes or links, or members with an
            unknown kind of output.
    Source: Lakshminarayanan, Pritzel and Blundell, NeurIPS 2017; with heteroscedastic members Collier et al. 2021,
        Table 7.

    Example:
        >>> import numpy as np
        >>> from keras_het.layers import HeteroscedasticDense
        >>> members = [keras.Sequential([keras.Input((4,)), HeteroscedasticDense(3)]) for _ in range(2)]
        >>> ensemble = DeepEnsemble(members)
        >>> log_p = ensemble.predict(np.zeros((2, 4)), verbose=0)
        >>> log_p.shape, round(float(np.exp(log_p[0]).sum()), 4)
        ((2, 3), 1.0)
    """

    def __init__(
        self, members: Sequence[keras.Model], link: Any = None, from_logits: bool | None = None, **kwargs: Any
    ):
        super().__init__(**{"dtype": "float32", "autocast": False, **kwargs})
        self.members = check_members(members)
        self._units = find_units(self.members)
        member_endings = [single_ending(member, "members") for member in self.members]
        self.link = find_link(self.members, member_endings, link, self._units)
        self.from_logits = find_from_logits(member_endings, from_logits)
        self.build(keras.tree.map_structure(lambda x: tuple(x.shape), symbolic_inputs(self)))
        # SGD has no variables for the weights of the members.
        self.compile("sgd", loss=self.link.loss(), metrics=self.link.metrics())

    @classmethod
    def make(
        cls, make_model: Callable[[], keras.Model], num_members: int, seed: int | None = None, **arguments: Any
    ) -> "DeepEnsemble":
        """Makes an ensemble of new models with different seeds.

        The seeds determine the initial weights, layers like Dropout, and the noise of heads. The global random state
        does not change.

        Args:
            make_model: a function that returns a new compiled model and sets no seed.
            num_members: number of members.
            seed: seed of all these seeds; None draws one from Python's `random`.
            arguments: other arguments of `DeepEnsemble`.
        Returns:
            the untrained ensemble.
        Raises:
            ValueError: if two models start with equal weights.

        Example:
            >>> import numpy as np
            >>> def make_model():
            ...     model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "log_softmax")])
            ...     model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            ...     return model
            >>> ensemble = DeepEnsemble.make(make_model, 2, seed=0)
            >>> x, y = np.eye(4), np.arange(4) % 3
            >>> histories = ensemble.fit(x, y, epochs=2, verbose=0)
            >>> [len(history.history["loss"]) for history in histories]
            [2, 2]
        """
        count = check_integer("num_members", num_members, 1)
        seed = random.randrange(1 << 31) if seed is None else check_integer("seed", seed, 0)
        members = []
        for index in range(count):
            with preserve_seed(member_seed(seed, index)):
                members.append(make_model())
        ensemble = cls(members, **arguments)
        check_different_start(members)
        return ensemble

    def fit(
        self, x: Any, y: Any = None, *, seed: int | None = None, callbacks: Any = None, **arguments: Any
    ) -> list[Any]:  # type: ignore[override]
        """Trains every member by its `fit`, with the optimizer, loss and metrics of its `compile`.

        Args:
            x: argument of `fit` of a member; a data set must be readable more than once.
            y: labels, or None.
            seed: seed of the order of the examples, which differs between members. It is passed to
                `keras.utils.set_random_seed`, for all of Keras and NumPy. None draws one from Python's `random`.
            callbacks: a list for all members, or a function from a member's index to a list. Use a function for
                callbacks that write files or have a state.
            arguments: other arguments of `fit`.
        Returns:
            the `keras.callbacks.History` of each member.
        Raises:
            ValueError: for a member that is not compiled or has a wrong loss, data that `keras_het.check` refuses or
                that can be read only once, or heads with equal seeds.
        """
        for index, member in enumerate(self.members):
            refuse_if(not member.compiled, "members", "be compiled before `fit`", f"member {index}, not compiled")
            collect_warnings(member, x, y)
        check_different_noise(self.members)
        check_rereadable("x", x)
        check_rereadable("validation_data", arguments.get("validation_data"))
        seed = random.randrange(1 << 31) if seed is None else check_integer("seed", seed, 0)
        histories = []
        for index, member in enumerate(self.members):
            with preserve_seed():  # else TensorFlow can shuffle in the same order for each member
                keras.utils.set_random_seed(member_seed(seed, index))
                member_callbacks = callbacks(index) if callable(callbacks) else callbacks
                histories.append(member.fit(x, y, callbacks=member_callbacks, **arguments))
        return histories

    @property
    def head_output(self) -> Ending:
        """Kind of the output, for `keras_het.check`."""
        return Ending(f"the ensemble {self.name!r}", self.link.activation, self.link.returns, self._units)

    def build(self, input_shape: Any) -> None:
        """Does nothing, because the members are built."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Returns the mean of the members, `(..., K)`, with a mask of the steps that no member masks."""
        outputs = [member(inputs) for member in self.members]
        masks = [mask for part in outputs if (mask := mask_of(part)) is not None]
        mean = self.link.average([self._to_head_outputs(part) for part in outputs])
        return with_mask(mean, functools.reduce(ops.logical_and, masks) if masks else None)

    def _to_head_outputs(self, outputs: Any) -> Any:
        """Converts a member's outputs to log-probabilities or logits, at least in float32."""
        outputs = outputs if "float64" in str(outputs.dtype) else ops.cast(outputs, "float32")
        if not self.from_logits:
            outputs = convert_probabilities(outputs, self.link.activation)
        return ops.log_softmax(outputs, axis=-1) if self.link.activation == "softmax" else outputs

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        members = [keras.saving.serialize_keras_object(member) for member in self.members]
        link = keras.saving.serialize_keras_object(self.link)
        return {"name": self.name, "members": members, "link": link, "from_logits": self.from_logits}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Makes an ensemble from the result of `get_config`."""
        configs = config.get("members")
        if not isinstance(configs, list):
            raise refusal("members", "be a list of serialised models", kind=configs)
        members = [keras.saving.deserialize_keras_object(member, custom_objects) for member in configs]
        return cls(**{**config, "members": members})


def member_seed(seed: int, index: int) -> int:
    """Returns the seed of a member. On PyTorch, neighbouring seeds would draw the same numbers one step later."""
    return int(random_generator([seed, index]).integers(1 << 31))


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


def find_link(members: list[keras.Model], member_endings: list[Ending], link: Any, units: int) -> Link:
    """Returns the link of the members' outputs: `link`, or the link of their heads or losses."""
    pairs = zip(members, member_endings, strict=True)
    activations = [ending.link or _activation_of_loss(model) for model, ending in pairs]
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


def find_from_logits(member_endings: list[Ending], from_logits: Any) -> bool:
    """Returns whether the members return logits or log-probabilities instead of probabilities."""
    kinds = {"anything": None, "probabilities": "probabilities"}
    values = [kinds.get(ending.returns, "logits or log-probabilities") for ending in member_endings]
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
    for index, member in enumerate(members):
        for other in range(index):
            pairs = list(zip(member.trainable_variables, members[other].trainable_variables, strict=False))
            if pairs and all(np.array_equal(*map(ops.convert_to_numpy, pair)) for pair in pairs):
                rule = "set no seed, so that every model starts with different weights"
                raise refusal("make_model", rule, f"equal weights of members {other} and {index}")


def check_different_noise(members: list[keras.Model]) -> None:
    """Raises a ValueError if heads of two members train with the same noise."""
    owners: dict[int, int] = {}
    for index, member in enumerate(members):
        for clock in layers_of(member, Clock):
            if (owner := owners.setdefault(clock.seed, index)) != index:
                rule = "have heads with different seeds, or they train with the same noise: do not pass `seed`"
                raise refusal("members", rule, f"seed={clock.seed} in members {owner} and {index}")
