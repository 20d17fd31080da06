"""Several models as one: the mean of their probabilities."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_het.base.batches import check_again
from keras_het.base.refusal import refusal
from keras_het.base.validation import check_integer
from keras_het.inspection.check import judge
from keras_het.models.copying import unchanged_seed
from keras_het.models.joint import JointModel
from keras_het.models.members import check_different_noise, check_different_start, member_seed


@keras.saving.register_keras_serializable("keras_het")
class DeepEnsemble(JointModel):
    """A model that averages the probabilities of its members and returns the mean in the form of a head.

        softmax: log mean_m p_m            sigmoid: logit mean_m p_m        (Lakshminarayanan et al. 2017, section 2.4)

    The mean is taken of probabilities, in log space. `keras.layers.Average` of log-probabilities would not give
    log-probabilities: the exponentials sum to less than one, and no error says so.

    It is a `keras.Model` with the usual `predict`, `evaluate` and `save`. Only `fit` differs: it trains one member
    after the other by the member's own `fit`, with the settings of the member's own `compile`. Members that are trained
    together, on the loss of their mean, would learn to compensate for each other. The ensemble itself is compiled with
    the loss and the accuracy of its link, for `evaluate`. A batch goes through one member after the other.

    Args:
        members: built models with one output of one shape, `(..., K)`, that share no layer. They may have different
            heads and links, as long as all return log-probabilities of exclusive classes, or all return logits of
            labels that are not exclusive.
        link: the link of members that do not end in a head of this package or in an activation, and were not compiled
            with a crossentropy, which tells it: "softmax", "sigmoid", or any other link.
        from_logits: for members whose last layer is unknown: True if they return logits or log-probabilities, False for
            probabilities.
        kwargs: arguments of `keras.Model`, such as `name`.
    Input shape: as of the members.
    Output shape: `(..., K)`: log-probabilities, or logits for a sigmoid, whatever the members return.
    Raises:
        ValueError: for no member, the same member twice, shared layers, different shapes or links, or members with an
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

    kind = "ensemble"

    def __init__(
        self, members: Sequence[keras.Model], link: Any = None, from_logits: bool | None = None, **kwargs: Any
    ):
        super().__init__(members, link, from_logits, **kwargs)
        # SGD, which has no variables for each weight of the members.
        self.compile("sgd", loss=self.link.loss(), metrics=self.link.metrics())

    @classmethod
    def make(
        cls, make_model: Callable[[], keras.Model], num_members: int, seed: int | None = None, **arguments: Any
    ) -> "DeepEnsemble":
        """Returns an ensemble of new models, each with its own seeds.

        The seeds are for the first weights, for layers like Dropout, and for a head's noise. No other random numbers
        change.

        Args:
            make_model: a function that returns a new compiled model and sets no seed.
            num_members: the number of members.
            seed: determines all these seeds; None draws one from Python's `random`.
            arguments: other arguments of `DeepEnsemble`.
        Returns:
            the ensemble, whose members are not trained.
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
            with unchanged_seed(member_seed(seed, index)):
                members.append(make_model())
        ensemble = cls(members, **arguments)
        check_different_start(members)
        return ensemble

    def fit(
        self, x: Any, y: Any = None, *, seed: int | None = None, callbacks: Any = None, **arguments: Any
    ) -> list[Any]:  # type: ignore[override]
        """Trains every member by its own `fit`, with the optimizer, loss and metrics that it was compiled with.

        Args:
            x: as for `fit` of a member; a data set must be readable more than once.
            y: labels, or None.
            seed: the seed of the order of the examples, another one for each member. `keras.utils.set_random_seed` sets
                it, for all of Keras and NumPy. None draws one from Python's `random`.
            callbacks: a list for all members, or a function of a member's index that returns a list. Use a function for
                callbacks that write files or have a state.
            arguments: all other arguments of `fit`.
        Returns:
            the `keras.callbacks.History` of each member.
        Raises:
            ValueError: for a member that is not compiled or has a wrong loss, data that `keras_het.check` refuses, or
                that can be read only once, or heads with equal seeds.
        """
        for index, member in enumerate(self.members):
            if not member.compiled:
                raise refusal("members", "be compiled, each of them, to be trained", f"member {index}, which is not")
            judge(member, x, y)
        check_different_noise(self.members)
        check_again("x", x)
        check_again("validation_data", arguments.get("validation_data"))
        seed = random.randrange(1 << 31) if seed is None else check_integer("seed", seed, 0)
        histories = []
        for index, member in enumerate(self.members):
            with unchanged_seed():  # else TensorFlow may shuffle alike for each member
                keras.utils.set_random_seed(member_seed(seed, index))
                own = callbacks(index) if callable(callbacks) else callbacks
                histories.append(member.fit(x, y, callbacks=own, **arguments))
        return histories
