"""Deep ensemble: several models as one, by the mean of their probabilities."""

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches, check_rereadable
from keras_het.base.internals import mask_of
from keras_het.base.masks import with_mask
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_integer
from keras_het.links import Link
from keras_het.models.copying import preserve_seed
from keras_het.models.members import (
    check_different_noise,
    check_different_start,
    check_members,
    convert_probabilities,
    find_from_logits,
    find_link,
    find_units,
    member_seed,
    single_ending,
    symbolic_inputs,
)
from keras_het.reading.check import collect_warnings
from keras_het.reading.ending import Ending


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
        endings = [single_ending(member, "members") for member in self.members]
        self._link = find_link(self.members, endings, link, self._units)
        self.from_logits = find_from_logits(endings, from_logits)
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
    def link(self) -> Link:
        """Link of the outputs."""
        return self._link

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

    def predict_members(self, x: Any, batch_size: int = 128) -> np.ndarray:
        """Returns the predictions of each member.

        Args:
            x: argument of `predict`.
            batch_size: batch size for arrays.
        Returns:
            log-probabilities, or logits for a sigmoid, `(M, N, ..., K)`.
        Raises:
            ValueError: for no example.
        """
        parts = []
        for inputs, _ in batches(x, check_integer("batch_size", batch_size, 1)):
            tensors = [ops.convert_to_tensor(member.predict_on_batch(inputs)) for member in self.members]
            parts.append(np.stack([ops.convert_to_numpy(self._to_head_outputs(tensor)) for tensor in tensors]))
        refuse_if(not parts, "x", "have at least one example", "none")
        return np.concatenate(parts, axis=1)

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
