"""Hashes of settings: equal for what is equal, others for others, and none for what is not known."""

import collections
import dataclasses
import enum
import functools
import logging
import os
import pathlib
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest

from keras_het import losses
from keras_het.base.fingerprint import fingerprint

pytestmark = pytest.mark.once


@dataclasses.dataclass
class Task:
    x: object


class Slots:
    __slots__ = ("x",)

    def __init__(self, x):
        self.x = x


class Callback(keras.callbacks.Callback):
    def __init__(self, x):
        super().__init__()
        self.x = x


class Silent(keras.losses.Loss):
    """Its config has no `x`."""

    def __init__(self, x):
        super().__init__()
        self.x = x


class Telling(Silent):
    def get_config(self):
        return {"x": self.x}


class Color(enum.Enum):
    RED, BLUE = 1, 2


def around(x):
    """An object that holds itself."""
    found = Task(x)
    found.itself = [found]
    return found


def closing_over(x):
    return lambda model: x


def by_default(x):
    return functools.partial(lambda model, y: y, y=x)


def layer(units, **arguments):
    made = keras.layers.Dense(units, kernel_initializer="ones", **arguments)
    made.build((None, 2))
    return made


def decaying(rate):
    return keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(rate, 10))


MAKERS = {  # of one value and another, both 1 and 2
    "list": lambda x: [x],
    "dict": lambda x: {"a": x},
    "key": lambda x: {x: "a"},
    "set": lambda x: {x, 3},
    "array": lambda x: np.full(3, x),
    "array of objects": lambda x: np.array([x, "a"], object),
    "tensor": lambda x: keras.ops.full((3,), x),
    "variable": lambda x: keras.Variable([float(x)]),
    "named tuple": collections.namedtuple("Named", "x"),
    "dataclass": Task,
    "dataclass in a dataclass": lambda x: Task(Task(x)),
    "slots": Slots,
    "itself": around,
    "Enum": Color,
    "path": lambda x: pathlib.Path(str(x)),
    "Counter": lambda x: collections.Counter({"a": x}),
    "generator of NumPy": np.random.default_rng,
    "method": lambda x: Task(x).__eq__,
    "partial": by_default,
    "closure": closing_over,
    "callback": Callback,
    "callback of a function": lambda x: keras.callbacks.LearningRateScheduler(closing_over(x)),
    "callback of Keras": lambda x: keras.callbacks.EarlyStopping(patience=x),
    "optimizer": lambda x: keras.optimizers.Adam(x / 3),
    "schedule": decaying,
    "loss": lambda x: losses.GeneralizedCrossentropy(x / 3, from_logits=True),
    "loss of a user": Telling,
    "regularizer": keras.regularizers.L2,
    "layer": layer,
}
VALUES = [
    None, True, 1, 1.0, "1", b"1", [1], [[1]], {"a": 1}, {"b": 1}, {"a": [1]}, {1, 2}, {1, 3}, range(3), range(4),
    np.arange(3), np.arange(3.0), np.array(["a"]), np.array(["b"], object), Task, Slots, len, np.exp, np.sin, np.square,
    keras.ops.relu, keras.ops.exp, logging.getLogger("a"), logging.getLogger("b"), lambda a: a, lambda a: a + 1,
]  # fmt: skip
UNKNOWN = {
    "silent": (Silent(1), "a Silent (its class has an `__init__`, and no `get_config`"),
    "activation": (layer(3, activation=lambda x: x), "a Dense ("),
    "symbol": (keras.Input((3,)), "a KerasTensor ("),
    "lock": (threading.Lock(), "a lock ("),
    "generator": ((i for i in range(3)), "a generator ("),
}


def test_different_values_have_different_hashes():
    assert len({fingerprint(value) for value in VALUES}) == len(VALUES)


@pytest.mark.parametrize("kind", MAKERS)
def test_objects_count_by_what_they_hold(kind):
    make = MAKERS[kind]
    assert fingerprint(make(1)) == fingerprint(make(1))
    assert fingerprint(make(1)) != fingerprint(make(2))


@pytest.mark.parametrize(
    ("one", "other"), [({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1, 2}, {2, 1}), ((1, 2), [1, 2]), (np.int64(1), 1)]
)
def test_equal_values_have_equal_hashes(one, other):
    assert fingerprint(one) == fingerprint(other)


def test_a_callback_counts_by_nothing_that_fit_writes_into_it():
    used = Callback(1)
    used.set_model(keras.Sequential())
    used.set_params({"epochs": 3})
    assert fingerprint(used) == fingerprint(Callback(1))


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_is_not_known_is_refused_by_its_place(kind):
    value, text = UNKNOWN[kind]
    with pytest.raises(
        ValueError, match=r"`resume_path` must go with arguments .*; leave that out, or call without"
    ) as error:
        fingerprint({"callbacks": [Task({"bar": value})]})
    assert f"Received: callbacks[0].x['bar'], {text}" in str(error.value)


@pytest.mark.thorough  # seconds for the start of a process
def test_another_process_has_the_same_hashes():
    """There sets, and the addresses of objects, have another order."""
    program = "from tests.base.test_fingerprint import *; print(*(fingerprint(make(1)) for make in MAKERS.values()))"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split()[-len(MAKERS) :] == [fingerprint(make(1)) for make in MAKERS.values()]
