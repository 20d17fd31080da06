"""The base class of losses that remember something from step to step, as a part of a model's training."""

import warnings
import weakref
from typing import Any, NoReturn, Self

import keras
from keras import ops

from keras_het.base.internals import unlocked
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.replicas import check_one_process
from keras_het.losses.crossentropy import Crossentropy


class LossState(keras.metrics.Metric):
    """The memory of a loss, in weights that a model's training updates like the weights of metrics.

    On JAX a trainer keeps the variables that belong to the model, and drops all others that a step assigns. Only a
    metric can be added to a built model of any kind. This one shows no value, is never reset, and is saved.
    """

    is_in_use = False  # whether something was remembered
    owner: Any = None  # a weak reference to the model that it is attached to; None before that

    def remember(self, name: str, shape: tuple[int, ...], initializer: Any, dtype: str = "float32") -> keras.Variable:
        """A new variable, which holds the same on every replica of a model: the mean of what they assign.

        Keras' `add_variable` is for sums of counts: it would divide an assigned number among the replicas.

        Args:
            name: name of the variable.
            shape: shape of the variable.
            initializer: initializer of its numbers.
            dtype: dtype of the variable.
        """
        made = keras.Variable(initializer, shape, dtype, trainable=False, aggregation="mean", name=name)
        setattr(self, name, made)  # Keras tracks the variables among the attributes
        return made

    def reset_state(self) -> None:
        """Does nothing: the memory must stay when Keras starts an epoch."""

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        """The loss updates it."""

    def result(self) -> dict[str, Any]:
        """Empty, so that logs show nothing."""
        return {}

    def save_own_variables(self, store: Any) -> None:
        """Saves the memory with a model's weights; Keras would leave out a metric without this method."""
        for index, variable in enumerate(self.variables):
            store[str(index)] = ops.convert_to_numpy(variable)

    def load_own_variables(self, store: Any) -> None:
        """Loads the memory with a model's weights.

        Raises:
            ValueError: for the state of another loss, or of another number of examples.
        Warns: if there is nothing to load.
        """
        found = [tuple(store[str(index)].shape) for index in range(len(store.keys()))]
        expected = [tuple(variable.shape) for variable in self.variables]
        if expected and not found:
            warnings.warn(f"The file has nothing that {self.name!r} remembers: that stays as it is", stacklevel=2)
        elif found != expected:
            raise refusal("The file", f"have a state of shapes {expected} for {self.name!r}", f"shapes {found}")
        for index in range(len(found)):
            self.variables[index].assign(store[str(index)])
        self.is_in_use = self.is_in_use or bool(found)


def _replace(model: keras.Model, previous: LossState | None, state: LossState) -> None:
    """Makes `state` a part of the model, in place of `previous`, whose weights would otherwise stay in the model."""
    with unlocked(model) as tracker:
        if previous is not None:
            previous.owner = None
            tracker.untrack(previous)
        model.loss_state = state
    state.owner = weakref.ref(model)


class PlainCrossentropy(Crossentropy):
    """-log p(y), which scores held-out labels for losses whose own value depends on what they remember."""

    def crossentropy(self, targets: Any, log_probs: Any) -> Any:
        """See `Crossentropy`."""
        return -ops.sum(targets * log_probs, axis=-1)


class StatefulCrossentropy(Crossentropy):
    """Base class of losses with weights of their own, made by `self.state.remember` in the constructor.

    Attach such a loss to the model that it trains before `fit`; `compile` may come before or after. A loaded or cloned
    model has a new loss: attach that, too. A model holds one such loss, and attaching another replaces it.

    The state is saved and loaded with the weights of a compiled model: by a `.keras` file, by `BackupAndRestore`, and
    by `load_weights` of a model that is compiled with the loss and attached.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.state = LossState(name=f"{self.name}_state")

    def plain(self) -> PlainCrossentropy:
        """The plain crossentropy of the same predictions and labels, which remembers nothing and leaves nothing out."""
        return PlainCrossentropy(self.from_logits, self.ignore_class, dtype=self.dtype)

    def attach(self, model: keras.Model) -> Self:
        """Makes the weights of the loss a part of a model's training.

        Args:
            model: the model to be trained, of any kind; it gets the attribute `loss_state`, and the same outputs.
        Returns:
            the loss.
        Raises:
            ValueError: if it is no model.

        Example:
            >>> from keras_het.losses import EarlyLearningRegularizedCrossentropy
            >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
            >>> loss = EarlyLearningRegularizedCrossentropy(num_examples=8, num_classes=3, from_logits=True)
            >>> model.compile("adam", loss.attach(model))
        """
        refuse_if(not isinstance(model, keras.Model), "model", "be a keras.Model", kind=model)
        previous = getattr(model, "loss_state", None)
        if previous is not self.state:
            _replace(model, previous, self.state)
        return self

    def call(self, y_true: Any, y_pred: Any) -> Any:
        """See `Crossentropy`."""
        self.check_attached()
        return super().call(y_true, y_pred)

    def check_attached(self) -> None:
        """Raises a ValueError if no training carries the state: on JAX it would be forgotten silently."""
        if self.state.owner is None:
            self._refuse("the model that it trains", "that is not")
        if any(forgets(variable) for variable in self.state.variables):
            lost = ". Make or load the model anew: Keras on JAX drops the weights of a model whose step fails"
            self._refuse("the whole model that it trains, each model with a loss of its own", self._owner() + lost)
        check_one_process(f"The loss {self.name!r}", "each would remember its own share of the examples")

    def check_owner(self, model: keras.Model) -> None:
        """Raises a ValueError if the loss is not attached to the model that it is to train."""
        self.check_attached()
        if self.state.owner() is not model:
            self._refuse(f"the model that it trains, {model.name!r}, each model with a loss of its own", self._owner())

    def _owner(self):
        owner = self.state.owner()
        return "whose model is gone" if owner is None else f"that is attached to another model, {owner.name!r}"

    def _refuse(self, owner: str, found: str) -> NoReturn:
        raise ValueError(
            f"The loss {self.name!r} must be attached to {owner}: `model.compile(..., loss.attach(model))`, or, after "
            f"a model was loaded or cloned, `model.loss.attach(model)`. Received: a loss {found}"
        )


def forgets(variable: keras.Variable) -> bool:
    """Whether the step in whose scope this is called drops what is assigned to the variable.

    On JAX a trainer hands the variables of its model to a step, and takes them back: it drops all others. Keras builds
    models in a scope without variables, which counts as no step.
    """
    with keras.StatelessScope() as inner:
        outer = inner.original_scope
    return outer is not None and bool(outer.state_mapping) and outer.get_current_value(variable) is None
