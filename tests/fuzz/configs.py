"""Hostile configurations: those of every registered object, with values that do not belong there."""

import contextlib
import copy
import json
import pathlib
import re
import tempfile
import traceback
from typing import Any, NamedTuple
from unittest import mock

import keras
from hypothesis import strategies as st
from keras import ops

import keras_het
from keras_het import layers
from keras_het.models.temperature_scaler import TemperatureScaler
from tests.fuzz.guard import guarded
from tests.fuzz.subjects import KNOWN

# The bounds of the package are for machines as users have them. Here they are lowered, so that what keeps within them
# is far below what the guard allows.
BOUNDS = {
    "keras_het.layers.noisy_dense.MAX_WEIGHT_BYTES": 32 << 20,
    "keras_het.integrators.MAX_TABLE_BYTES": 4 << 20,
    "keras_het.layers.noise_transition.MAX_TRANSITION_BYTES": 4 << 20,
    "keras_het.models.early_learning.MAX_MEMORY_BYTES": 4 << 20,
}
MEGABYTES = 512


def nested(depth):
    return [nested(depth - 1)] if depth else []


def payload(module, name):
    return {"module": module, "class_name": "function", "config": name, "registered_name": name}


CODE = {"class_name": "__lambda__", "config": {"code": "4wEAAAA=", "defaults": None, "closure": None}}
PAYLOADS = [
    payload("os", "system"),
    payload("builtins", "eval"),
    {"module": "subprocess", "class_name": "Popen", "config": {"args": ["true"]}, "registered_name": None},
    {"module": "keras_het.nothing", "class_name": "Nothing", "config": {}, "registered_name": "keras_het>Nothing"},
    {"module": "keras_het.layers", "class_name": "Clock", "config": {"seed": 0}, "registered_name": "keras_het>Clock"},
    {"module": "keras.layers", "class_name": "Dense", "config": {"units": 3}, "registered_name": None},
    {"class_name": "__tensor__", "config": {"value": [[1.0]], "dtype": "float32"}},
    {"class_name": "__numpy__", "config": {"value": [1], "dtype": "object"}},
    {"module": "keras.layers", "class_name": "Lambda", "config": {"function": CODE}, "registered_name": None},
]
NUMBERS = [
    -1, 0, 1, 2, 3, 5, 97, 1 << 20, (1 << 24) + 1, 1 << 31, 1 << 62, 10**400, -(10**400), 0.0, 0.5, -0.1, 1e-60, 1e308,
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from([float("nan"), float("inf"), float("-inf"), None, True, False]),
    st.text(max_size=8),
    st.sampled_from(["x" * 100_000, "softmax", "sigmoid", "float16", "int8", "auto", "../../x", "\x00", "{}", "%n"]),
    st.sampled_from([[], {}, [[]], [1, 2], [[0.5, 0.5], [0.5, 0.5]], [0] * 10_000, {"a": 1}, nested(200), [None]]),
    st.sampled_from(PAYLOADS),
)


class Case(NamedTuple):
    name: str
    changes: tuple[tuple[tuple, Any], ...]


REMOVED = "(removed)"


def places(config, path=()):
    parts = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    return [found for key, part in parts for found in ((*path, key), *places(part, (*path, key)))]


def changed(config, changes):
    """A copy of a config with the changes; those whose place an earlier one has taken away are left out."""
    config = copy.deepcopy(config)
    for path, value in changes:
        with contextlib.suppress(KeyError, IndexError, TypeError):
            parent = config
            for key in path[:-1]:
                parent = parent[key]
            if value == REMOVED:
                del parent[path[-1]]
            else:
                parent[path[-1]] = copy.deepcopy(value)
    return config


@st.composite
def cases(draw):
    """Cases of one to three changes; an added argument is a change, too."""
    name = draw(st.sampled_from(list(KNOWN)))
    found = places(KNOWN[name].config)
    added = [("config", "further"), ("config", "activation"), ("registered_name",)]
    change = st.tuples(st.sampled_from(found + added), VALUES | st.just(REMOVED))
    return Case(name, tuple(draw(st.lists(change, min_size=1, max_size=3))))


def check(case):
    subject = KNOWN[case.name]
    config = changed(subject.config, case.changes)
    with contextlib.ExitStack() as stack:
        for name, bound in BOUNDS.items():
            stack.enter_context(mock.patch(name, bound))
        # Keras leaves its own frames in tracebacks, which tell whose error it is.
        if keras.config.is_traceback_filtering_enabled():
            keras.config.disable_traceback_filtering()
            stack.callback(keras.config.enable_traceback_filtering)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(guarded(folder, MEGABYTES))
        check_object(config, subject.x)


def check_object(config, x):
    """Makes an object of a config, and uses it; raises an AssertionError if that is no clear refusal."""
    try:
        made = keras.saving.deserialize_keras_object(config)
        if isinstance(made, keras.layers.Layer) and x is not None:
            takes_training = not isinstance(made, layers.HeteroscedasticNormal | TemperatureScaler)
            ops.convert_to_numpy(made(x, training=True) if takes_training else made(x))
    except Exception as error:
        check_refusal(error)
    else:
        if hasattr(made, "get_config"):
            json.dumps(made.get_config())


CALL = re.compile(r"takes no arguments|unexpected keyword argument|missing \d+ required|multiple values for")
PACKAGE = str(pathlib.Path(keras_het.__file__).parent)


def check_refusal(error):
    first = first_raised(error)
    if not traceback.extract_tb(first.__traceback__)[-1].filename.startswith(PACKAGE):
        return
    text, code = str(first), "".join(traceback.format_exception(first, limit=-3))
    assert isinstance(error, ValueError | TypeError), f"no clear refusal: {text[:500]}\n{code}"
    assert ("must" in text and "Received" in text) or CALL.search(text), f"no clear refusal: {text[:500]}\n{code}"


def first_raised(error):
    while error.__context__ is not None and not error.__suppress_context__:
        error = error.__context__
    return error
