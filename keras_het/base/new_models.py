"""Whether the models of a run are new: none may share with an earlier one what that has trained."""

import weakref
from typing import Any

import keras

from keras_het.base.refusal import refusal

RULE = (
    "make new layers and a new optimizer at every call, for a model would begin with what an earlier one has learned; "
    "frozen layers alone may be shared (`trainable = False`; `clone=True` in `keras_het.heteroscedastic`)"
)


class NewModels:
    """Knows the variables that the models of a run have trained, and refuses a model that has one of them.

    Between folds a shared layer leaks: it was trained on the labels that it helps to predict.

    Args:
        argument: name of the argument that makes the models, for the errors.
    """

    def __init__(self, argument: str):
        self._argument = argument
        self._trained: dict[int, Any] = {}  # weak references to variables, by their id

    def check(self, model: keras.Model) -> None:
        """Takes a model before its training.

        Raises:
            ValueError: if an earlier one has trained a variable of it or of its optimizer; it says which.
        """
        for variable in [*model.variables, *_of_optimizer(model)]:
            if id(variable) in self._trained and self._trained[id(variable)]() is variable:
                raise refusal(self._argument, RULE, f"the variable {variable.path!r} twice")
        self.add(model)

    def add(self, model: keras.Model) -> None:
        """Takes a model after its training, too: some are built, or have layers released, in `fit`."""
        trained = [*model.trainable_variables, *_of_optimizer(model)]
        self._trained.update({id(variable): weakref.ref(variable) for variable in trained})


_OF_MAKERS: Any = weakref.WeakKeyDictionary()  # what each function of a user has made, in all calls


def models_of(make_model: Any) -> NewModels:
    """The models that a function has made so far: folds of another call, such as scikit-learn's, must not leak either.

    Args:
        make_model: the function; anything else, such as None, has made none.
    """
    try:
        return _OF_MAKERS.setdefault(make_model, NewModels("make_model"))
    except TypeError:  # None, or what cannot be a key
        return NewModels("make_model")


def _of_optimizer(model: keras.Model) -> list[Any]:
    """The variables of the optimizer of a model, if it has one."""
    return list(model.optimizer.variables) if model.compiled and model.optimizer else []
