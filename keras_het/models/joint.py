"""The base class of models of several members: the mean of their probabilities."""

from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_het.base.batches import batches
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_integer
from keras_het.inspection.outputs import Output
from keras_het.links import Link
from keras_het.models.members import check_members, find_from_logits, find_link, find_units, symbolic_inputs
from keras_het.ops.transition import SMALLEST


class JointModel(keras.Model):
    """Base class of models that average the probabilities of their members and return the mean in the form of a head.

    Args:
        members: see `DeepEnsemble`.
        link: see `DeepEnsemble`.
        from_logits: see `DeepEnsemble`.
        kwargs: see `DeepEnsemble`.
    """

    kind = "joint model"  # the name in errors

    def __init__(
        self, members: Sequence[keras.Model], link: Any = None, from_logits: bool | None = None, **kwargs: Any
    ):
        super().__init__(**{"dtype": "float32", "autocast": False, **kwargs})
        self.members = check_members(members)
        self._units = find_units(self.members)
        self._link = find_link(self.members, link, self._units)
        self.from_logits = find_from_logits(self.members, from_logits)
        self.build(keras.tree.map_structure(lambda x: tuple(x.shape), symbolic_inputs(self)))

    @property
    def link(self) -> Link:
        """The link of its outputs."""
        return self._link

    @property
    def head_output(self) -> Output:
        """The kind of its output, for `keras_het.check`."""
        return Output(f"the {self.kind} {self.name!r}", self.link.activation, self.link.returns, self._units)

    def build(self, input_shape: Any) -> None:
        """Does nothing: the members are built."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        """The mean of the members, `(..., K)`."""
        return self.link.average([self._as_head(member(inputs)) for member in self.members])

    def predict_members(self, x: Any, batch_size: int = 128) -> np.ndarray:
        """The predictions of each member.

        Args:
            x: as for `predict`.
            batch_size: for arrays.
        Returns:
            log-probabilities, or logits for a sigmoid, `(M, N, ..., K)`.
        Raises:
            ValueError: for no example.
        """
        parts = []
        for inputs, _ in batches(x, check_integer("batch_size", batch_size, 1)):
            outputs = [self._as_head(ops.convert_to_tensor(member.predict_on_batch(inputs))) for member in self.members]
            parts.append(np.stack([ops.convert_to_numpy(part) for part in outputs]))
        refuse_if(not parts, "x", "have at least one example", "none")
        return np.concatenate(parts, axis=1)

    def _as_head(self, outputs: Any) -> Any:
        """A member's outputs in the form of a head: log-probabilities or logits, at least in float32."""
        outputs = outputs if "float64" in str(outputs.dtype) else ops.cast(outputs, "float32")
        exclusive = self.link.activation == "softmax"
        if not self.from_logits:
            outputs = _log(outputs) if exclusive else _log(outputs) - _log(1.0 - outputs)
        return ops.log_softmax(outputs, axis=-1) if exclusive else outputs

    def get_config(self) -> dict[str, Any]:
        members = [keras.saving.serialize_keras_object(member) for member in self.members]
        link = keras.saving.serialize_keras_object(self.link)
        return {"name": self.name, "members": members, "link": link, "from_logits": self.from_logits}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        found = config.get("members")
        if not isinstance(found, list):
            raise refusal("members", "be a list of serialised models", kind=found)
        members = [keras.saving.deserialize_keras_object(member, custom_objects) for member in found]
        return cls(**{**config, "members": members})


def _log(p: Any) -> Any:
    return ops.log(ops.maximum(p, SMALLEST))
