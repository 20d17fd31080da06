"""`keras_het.parity`: contents of a recording, results of a comparison, and an unchanged user's model."""

import contextlib
import dataclasses
import random
import sys

import keras
import ml_dtypes
import numpy as np
import pytest
import scipy.special
from keras import layers, ops

import keras_het
from keras_het.base.internals import float64
from keras_het.parity import Recording, compare, processes, record
from keras_het.parity.arrays import Slices, Store, measure
from keras_het.parity.batch import make_inputs
from keras_het.parity.judge import parts_for_float64
from keras_het.parity.probe import to_numpy
from tests.gradients import layer_gradients
from tests.parity_check.faults import PlantedSampling

pytestmark = pytest.mark.once

CLASSES = 3


def make_model(fault=lambda x: x, head=True):
    """Returns a compiled model with random layers of Keras, statistics, a head, and a layer with a planted fault."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,), name="x")
    x = layers.Dense(8, "relu", name="first")(inputs)
    x = layers.BatchNormalization(name="normal")(x)
    x = Planted(fault, name="planted")(layers.Dropout(0.5, name="drop")(x))
    last = keras_het.layers.HeteroscedasticDense(CLASSES, 2, seed=0, name="head") if head else layers.Dense(CLASSES)
    model = keras.Model(inputs, last(x))
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


class Planted(layers.Layer):
    def __init__(self, function, **options):
        super().__init__(**options)
        self.function = function

    def call(self, x):
        return self.function(x)


class Unsteady(layers.Layer):
    calls = 0

    def call(self, x):
        type(self).calls += 1
        return x + 1e-3 * type(self).calls


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(1)
    return rng.standard_normal((6, 4)).astype("float32"), rng.integers(CLASSES, size=6)


@pytest.fixture(scope="module")
def recording(batch):
    return record(make_model(), *batch)


def other(recording, fault=lambda x: x):
    """Returns a recording of the same model with a fault, as if by another backend."""
    return record(make_model(fault), start=recording, label="other", roundings=1)


def make_recording(backend, precision="float32", spread=1e-7, exact=None, **arrays):
    """Returns a recording of these arrays, each the only one of its part, and of one array `exact` in float64."""
    named = {part.replace("_", " "): {"array": np.asarray(array)} for part, array in arrays.items()}
    spreads = {part: {"array": rounding(spread)} for part in named}
    judge = None if exact is None else make_recording(backend, "float64", **dict.fromkeys(arrays, exact))
    return Recording(backend, precision, arrays=named, rounding=spreads, float64=judge)


def make_two(part, first, second, **options):
    """Returns recordings of JAX and PyTorch with one array."""
    return [make_recording(name, **{part: array}, **options) for name, array in (("jax", first), ("torch", second))]


def rounding(size):
    """Returns a rounding of this size for all entries, or of these changes."""
    return Slices.of(size) if np.ndim(size) else Slices(*[np.asarray(size)] * 2, np.full(1, size))


@pytest.mark.on_jax
@pytest.mark.on_tensorflow
@pytest.mark.smoke
def test_attention_in_float64_is_not_rounded_to_float32():
    """JAX has its softmax in float32, and TensorFlow its scale. Two heads share a key."""
    rng = np.random.default_rng(0)
    query, key, value = (rng.standard_normal((2, 6, heads, 5)) for heads in (4, 2, 2))
    is_seen = (np.arange(6) < np.array([4, 6])[:, None])[:, None, None] & np.tri(6, dtype=bool)
    logits = np.einsum("btnh,bsnh->bnts", query, np.repeat(key, 2, axis=2)) / np.sqrt(5)
    weights = scipy.special.softmax(np.where(is_seen, logits, -np.inf), axis=-1)
    is_jax = keras.config.backend() == "jax"
    jax = sys.modules.get("jax")
    owner = jax if hasattr(jax, "enable_x64") else getattr(jax, "experimental", None)  # of JAX 0.6
    with owner.enable_x64(True) if is_jax else contextlib.nullcontext(), float64():
        outputs = to_numpy(ops.dot_product_attention(query, key, value, mask=is_seen[:, :, -1:], is_causal=True))
    np.testing.assert_allclose(outputs, np.einsum("bnts,bsnh->btnh", weights, np.repeat(value, 2, axis=2)), rtol=1e-12)


# The measure and the limit.


@pytest.mark.parametrize(("first", "second", "expected"), [
    ([1.0, 4.0], [1.0, 3.0], 0.25),
    ([0.0, 0.0], [0.0, 0.0], 0.0),
    ([1e-30, 0.0], [0.0, 0.0], 1.0),
    ([np.inf, 1.0], [np.inf, 1.0], 0.0),
    ([np.inf, 1.0], [-np.inf, 1.0], np.inf),
    ([np.nan, 1.0], [1.0, 1.0], np.inf),
    ([1.0], [1.0, 1.0], np.inf),
    ([3, -1], [3, 1], 2 / 2),  # of the median
    ([True], [False], 1.0),
])  # fmt: skip
def test_a_difference_is_relative_to_the_numbers_beside_the_entry(first, second, expected):
    assert measure(np.array(first), np.array(second)).difference == pytest.approx(expected)


@pytest.mark.parametrize(("distance", "size", "is_equal"), [
    (0.9e-5, 0.0, True), (1.3e-5, 0.0, False), (0.9e-4, 1e-5, True), (1.3e-4, 1e-5, False),
])  # fmt: skip
def test_the_limit_of_an_entry_is_the_tolerance_and_ten_times_the_rounding(distance, size, is_equal):
    result = compare(*make_two("layers", [1.0, 1.0], [1.0, 1.0 + distance], spread=size))
    assert bool(result.different) != is_equal


def test_small_numbers_have_limits_of_their_own():
    """In another column, in another row, and in a vector."""
    rng = np.random.default_rng(0)
    wide = rng.standard_normal((8, 16))
    for scale in (np.where(np.arange(16) < 8, 1e6, 1.0), np.where(np.arange(8) < 4, 1e6, 1.0)[:, None]):
        small = scale * wide * np.where(np.broadcast_to(scale, wide.shape) == 1.0, 1.001, 1.0)
        noise = Slices.of(1e-7 * scale * wide)
        found = measure(scale * wide, small, [noise], tolerance=1e-5, roundoff=2.0**-24)
        assert (found.ratio > 50, found.fraction) == (True, 0.5)
        assert measure(scale * wide, scale * wide * (1 + 1e-7), [noise], tolerance=1e-5, roundoff=2.0**-24).ratio < 0.1
    vector = np.concatenate([np.full(3, 1e6), np.ones(5)])
    small = vector * np.where(vector > 1, 1.0, 1.001)
    assert measure(vector, small, [Slices.of(1e-7 * vector)], tolerance=1e-5).ratio > 50
    change = 1e-3 * ((np.arange(8) == 2)[:, None] ^ (np.arange(16) == 3))[..., None]  # but not at (2, 3), by chance
    assert measure(np.ones((8, 16, 1)), 1 + 2e-3 * np.ones((8, 16, 1)), [Slices.of(change)]).fraction == 0


def test_the_worst_entry_is_found_in_a_large_array():
    a = np.random.default_rng(0).standard_normal((3000, 1000)).astype("float32")
    b = a.copy()
    b[2500, 17] += 0.5
    stored = Store({"a": a, "b": b, "small": np.arange(3)})
    found = measure(stored["a"], stored["b"], tolerance=1e-5)
    assert (found.at, found.values) == ((2500, 17), (a[2500, 17], b[2500, 17]))
    assert found.fraction == pytest.approx(1 / a.size)


def test_weights_must_be_equal_bit_for_bit():
    result = compare(*make_two("weights", np.float32(1.0), np.float32(1.0 + 2**-23)))
    assert [row.part for row in result.different] == ["weights"]
    assert "record(model, start=other)" in str(result)


@pytest.mark.parametrize(("first", "second"), [
    (np.float32(1.0), np.float64(1.0)), (np.int8(1), np.int64(1)), (np.int32(200_000), np.int32(200_001)),
    (np.complex64(1 + 1j), np.complex64(1 + 9j)),
    (np.float32([1.0, 2.0]), np.float32([1.0, np.nan])),
])  # fmt: skip
def test_other_dtypes_imaginary_parts_and_nan_differ(first, second):
    assert compare(*make_two("layers", first, second, spread=np.inf)).different


def test_integers_of_another_width_are_equal_if_their_values_are():
    narrow, wide = make_recording("jax", weights=np.int32(3)), make_recording("tensorflow", weights=np.int64(3))
    assert compare(narrow, wide).is_equal
    assert not compare(narrow, make_recording("tensorflow", weights=np.int64(4))).is_equal


def test_numbers_that_rounding_hides_are_not_called_equal():
    result = compare(*make_two("gradients", [1e-9], [-1e-9], spread=1.5e-9))
    assert result.status() == 3
    assert result.answer() == "jax and torch agree, but 1 of 1 arrays cannot be judged: gradients of `array`."


def test_the_answer_names_the_precision_that_cannot_judge():
    outputs = np.float16(1.0), np.float16(1.01)
    recordings = make_two("layers", *outputs, precision="float16", spread=0.05, exact=1.0)
    text = "jax and torch agree in float64, but 1 of 1 arrays cannot be judged in float16: layers of `array`."
    assert compare(*recordings).answer() == text


def test_the_backend_that_differs_from_the_others_is_named_and_the_worst_row_comes_first():
    recordings = [
        make_recording(b, layers=[1.0, v], loss=w) for b, v, w in (("a", 0.5, 2.0), ("b", 0.6, 3.0), ("c", 0.5, 2.0))
    ]
    result = compare(*recordings)
    figures = "difference 1.2e-01, limit 9.9e-06, at [1]: 0.5 and 0.6; 50% of the entries differ"
    assert result.answer() == f"b differs from a and c, first in layers, `array`: {figures}."
    assert (result.worst.part, result.worst.difference) == ("loss", pytest.approx(1 / 3))
    assert str(result).splitlines()[3].split()[:2] == ["loss", "array"]
    assert result.text(all_rows=True).splitlines()[3].split()[:2] == ["layers", "array"]


def test_the_backend_farthest_from_the_others_is_named_if_all_differ():
    recordings = [make_recording(b, loss=w) for b, w in (("a", 1.0), ("b", 1.001), ("c", 2.0))]
    assert compare(*recordings).answer().startswith("c differs from a and b, first in loss")


@pytest.mark.parametrize(("in_float64", "spread", "status"), [
    ((1.0, 1.0), 1e-3, 0),  # both backends compute the same, and rounding is as large as the difference
    ((1.0, 1.0), 1e-7, 1),  # a fault in float32 alone
    ((1.0, 1.001), 1e-3, 1),  # the fault stays in float64
    ((1.0, 1.000015), 1e-3, 0),  # float64 rounds by 1e-7 here, as after steps that amplify its rounding
    ((1.0, 1.0), 0.1, 3),  # rounding would hide a fault
    ((1.0,), 1e-4, 1),
    ((), 1e-4, 1),
])  # fmt: skip
def test_float64_judges_both_ways(in_float64, spread, status):
    backends = make_two("gradients", 1.0, 1.002, spread=spread)
    for each, number in zip(backends, in_float64, strict=False):
        each.float64 = make_recording(each.backend, "float64", gradients=number)
    result = compare(*backends)
    assert result.status() == status
    if status == 1 and len(in_float64) == 2:
        who = "torch differs from jax and its own float64" if in_float64[1] == 1.0 else "jax and torch differ"
        assert result.answer().startswith(who)


@pytest.mark.parametrize(("size", "rows", "status"), [(1.0, 1, 3), (1.0, 3, 1), (0.0, 1, 1)])
def test_a_row_that_no_run_changed_is_excused_in_an_array_that_cannot_be_judged(size, rows, status):
    """Eighteen runs do not reach every kink of a deep network. Zero in theory can be judged."""
    changes, exact = np.full((200, 8), 0.5), np.full((200, 8), size)
    changes[:rows] = 1e-12
    two = exact + 1e-7, np.where(changes < 1e-7, exact - 1.0, exact + 1e-7)
    assert compare(*make_two("training", *two, spread=changes, exact=exact)).status() == status


def test_numbers_that_agree_in_float32_are_equal_if_float64_computes_another_function():
    """The largest of ties, or a number rounded to int8, can be another one in float64."""
    assert compare(*make_two("layers", 1.0, 1.0, exact=1.5)).is_equal


def test_the_error_of_an_operation_that_has_no_float64_spreads_like_rounding():
    """As of images that TensorFlow resizes in float32: the next layers can multiply its error."""
    recordings = make_two("layers", [1.0, 1e-3], [1.0, 1e-3], spread=1e-6)
    for each, error in zip(recordings, (0.0, 1e-7), strict=True):
        resized, deep = np.array([1.0, 1.0 + error]), np.array([1.0, 1e-3 + 10 * error])
        each.float64 = make_recording(each.backend, "float64", 1e-15, layers=deep)
        for own, dtype in ((each, "float32"), (each.float64, "float64")):
            own.arrays["layers"] = {"resized": resized.astype(dtype), **own.arrays["layers"]}
            own.rounding["layers"]["resized"] = rounding(1e-7 if own is each else 1e-16)
    assert compare(*recordings).status() == 0


def test_a_jump_in_some_of_the_runs_is_not_called_reduced_precision():
    """As of a number that is rounded to int8: one backend can jump where the others do not."""
    smooth, jumps = make_two("layers", 1.0, 1.002, spread=1e-8, exact=1.0)
    jumps.rounding["layers"]["array"] = rounding(5e-4).join(rounding(1e-8))
    for each in (smooth, jumps):
        each.float64.rounding["layers"]["array"] = rounding(1e-17)
    assert compare(smooth, jumps).status() == 0


def test_recordings_of_one_backend_are_judged_by_their_own_float64(tmp_path):
    """The second one is off by as much as its rounding, which its float64 excuses. Their labels are equal."""
    paths = [tmp_path / "old.npz", tmp_path / "new.npz"]
    for path, number, spread in zip(paths, (1.0, 1.002), (1e-8, 1e-3), strict=True):
        each = make_recording("torch", gradients=number, spread=spread, exact=1.0)
        each.float64.rounding["gradients"]["array"] = rounding(spread)
        each.save(path)
    result = compare(*map(Recording.load, paths))
    assert result.has_float64
    assert result.status() == 0, str(result)
    with pytest.raises(ValueError, match=r"in one precision.* recording\.float64 = other\. Received: some in float64"):
        compare(each, each.float64)


def test_a_part_that_failed_in_float64_is_noted():
    first, second = make_two("gradients", 1.0, 1.0)
    first.float64, second.float64 = Recording("jax", "float64"), Recording("torch", "float64")
    second.float64.failures["gradients"] = "ValueError: no"
    note = "gradients failed in float64 on torch, so float32 has no judge there: ValueError: no"
    assert compare(first, second).notes == [note]


def test_a_layer_that_loses_its_name_is_asked_about():
    first, second = make_two("loss", 1.0, 1.0)
    first.arrays["layers"], second.arrays["layers"] = ({f"own{n} (Own)": np.ones(2)} for n in ("", "_1"))
    text = "`own (Own)` exists on jax only, `own_1 (Own)` on torch only. If it is one layer, does its `get_config`"
    assert text in compare(first, second).answer()
    first.arrays["weights"], second.arrays["weights"] = ({f"own{n}/kernel": np.ones(2)} for n in ("", "_1"))
    with pytest.raises(ValueError, match="`own/kernel` exists on jax only, `own_1/kernel` on torch only"):
        compare(first, second)


def test_saved_predictions_are_judged_with_more_roundings_than_those_before_the_training(tmp_path, monkeypatch):
    def run(folder, label, job):
        for kind in ("numbers", "saved", "loaded"):
            is_file = kind != "numbers"
            part, number = "saved " * is_file + "predictions", 1.002 if is_file and label == "torch" else 1.0
            made = make_recording(f"{label}, {kind}" if is_file else label, spread=0.1, **{part: number})
            made.save(folder / f"{label}, {kind}.npz")
        return "no float64" if job.get("records") == "float64" else None

    monkeypatch.setattr(processes, "run_child", run)
    (tmp_path / "model.keras").write_bytes(b"")
    result = processes.compare_file(str(tmp_path / "model.keras"), ["jax", "torch"])
    assert result.unjudged == ["saved predictions of `array`"]
    assert [compare(*make_two("saved_predictions", 1.0, x, spread=1e-6)).is_equal for x in (1.00005, 1.0005)] == [1, 0]


def test_a_part_that_one_of_three_lacks_is_compared_on_the_others():
    result = compare(*make_two("gradients", 1.0, 1.5), make_recording("tensorflow"))
    assert result.answer().startswith("jax and torch differ, first in gradients: `array`")
    assert result.failures == ["gradients on tensorflow: not in the recording"]


@pytest.mark.parametrize("array", [np.array(["a", "b"]), np.zeros((3, 0), "float32")])
def test_texts_and_arrays_without_entries_are_compared(array):
    assert compare(*make_two("layers", array, array, spread=0.0)).is_equal


def test_nan_in_bfloat16_is_not_another_output():
    array = np.array([1.0, np.nan]).astype(ml_dtypes.bfloat16)
    assert measure(array, array.copy()).difference == 0
    assert measure(array, np.array([1.0, 1.0]).astype(ml_dtypes.bfloat16)).difference == np.inf


def test_a_backend_that_computes_in_few_bits_is_named():
    result = compare(*make_two("layers", 1.0, 1.0 + 2.0**-11, exact=1.0))
    assert result.answer().startswith("torch differs from jax and its own float64, first in layers, `array`")
    assert any("torch seems to compute `array` with 11 bits, as TensorFloat-32" in note for note in result.notes)


@pytest.mark.parametrize(("spoiled", "words"), [
    (np.float32([1.0, np.nan]), "finite on jax and tensorflow, NaN in 1 of 2 entries on torch"),
    (np.float32([1.0, np.inf]), "finite on jax and tensorflow, infinity in 1 of 2 entries on torch"),
    (np.float32([1.0]), r"shape (2,) and (1,)"),
    (np.float64([1.0, 1.0]), "float32 and float64"),
    (None, "missing"),
])  # fmt: skip
def test_arrays_that_cannot_be_compared_are_told_apart(spoiled, words):
    recordings = [make_recording(name, layers=np.ones(2, "float32")) for name in ("jax", "tensorflow")]
    recordings.append(make_recording("torch", layers=spoiled))
    if spoiled is None:
        recordings[2].arrays["layers"] = {}
    answer = compare(*recordings).answer()
    assert answer == f"torch differs from jax and tensorflow, first in layers, `array`: {words}."


@pytest.mark.parametrize(("after", "gradient", "answer"), [
    (1.0, 1.0, "jax, tensorflow and torch agree: 10 differences are within their limits."),
    (1.1, 1.0, "tensorflow differs from jax and torch, first in layers, `softmax`: missing."),
    (1.0, 1.1, "tensorflow differs from jax and torch, first in gradients: `array` is the last weight that differs: "),
])  # fmt: skip
def test_a_layer_that_a_backend_does_not_call_is_a_difference_if_the_next_one_differs(after, gradient, answer):
    """Some backends fuse attention, so that its softmax is not called."""
    recordings = []
    for name, is_fused in (("jax", False), ("tensorflow", True), ("torch", False)):
        fault, error = (after, gradient) if is_fused else (1.0, 1.0)
        recordings.append(make_recording(name, gradients=np.float32(error)))
        outputs = {"query": 1.0, "softmax": 0.5, "outputs": fault}
        outputs = {key: np.float32(value) for key, value in outputs.items() if not (is_fused and key == "softmax")}
        recordings[-1].arrays = {"layers": outputs, **recordings[-1].arrays}
    result = compare(*recordings)
    assert result.answer().startswith(answer)
    note = "not called on tensorflow, while the next numbers agree: softmax"
    assert (note in result.notes) == (after == 1.0)
    backwards = compare(*(recordings[number] for number in (1, 0, 2)))
    assert [row.name for row in backwards.different] == [row.name for row in result.different]


def test_nan_on_every_backend_is_not_called_equal():
    result = compare(*(make_recording(name, layers=[1.0, np.nan], loss=np.nan) for name in ("jax", "torch")))
    assert result.status() == 3
    text = "2 arrays with NaN on every backend cannot be compared: first layers of `array`"
    assert result.answer() == f"jax and torch agree, but {text}."


def test_recordings_of_one_backend_have_labels_that_differ():
    names = [("cpu", "2.12"), ("cuda", "2.12"), ("cpu", "2.13"), ("cpu", "2.13")]
    for indices, labels in (
        ((0, 1), ["torch (cpu)", "torch (cuda)"]),
        ((0, 2), ["torch (torch 2.12)", "torch (torch 2.13)"]),
        ((2, 3), ["torch, recording 1", "torch, recording 2"]),
    ):
        recordings = [make_recording("torch", loss=1.0) for _ in indices]
        for each, index in zip(recordings, indices, strict=True):
            each.versions = dict(zip(("device", "torch"), names[index], strict=True))
        assert compare(*recordings).labels == labels


def test_rounding_anywhere_in_an_array_asks_for_float64():
    wide = np.ones((8, 16))
    changes = np.where(np.arange(8) == 3, 9e-3, 1e-8)[:, None] * wide
    other = wide + 5e-6 * (np.arange(16) == 2)
    assert parts_for_float64(compare(*make_two("gradients", wide, other, spread=changes)))[1:] == ["gradients"]


def test_an_array_that_stays_in_float32_on_one_backend_is_judged_by_its_numbers():
    recordings = make_two("layers", np.float32([1.0, 2.0]), np.float32([1.0, 2.0]), spread=9e-3)
    for each, dtype in zip(recordings, ("float32", "float64"), strict=True):
        each.float64 = make_recording(each.backend, "float64", 1e-12, layers=np.array([1.0, 2.0], dtype))
    assert not compare(*recordings).different


def test_larger_changes_pass_a_kink_and_leave_other_roundings(batch):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1, "relu", use_bias=False)])
    model.set_weights([np.array([[1.0], [-1.0]])])
    x = np.array([[0.9, 0.9 - 3e-7]], "float32")  # the ReLU is five units from zero
    near, far = (record(model, x, roundings=6, units=units).rounding["gradients"] for units in (1.0, 10.0))
    assert max(near["sequential/dense/kernel"].rows) < 1e-5
    assert max(far["sequential/dense/kernel"].rows) == pytest.approx(0.9 / 10, rel=1e-4)
    near, far = (record(small("sgd"), *batch, roundings=6, units=units).rounding["gradients"] for units in (1.0, 10.0))
    assert max(far["model/last/kernel"].rows) < 2 * max(near["model/last/kernel"].rows)


def test_a_model_that_draws_at_inference_and_is_not_compiled_is_deterministic():
    inputs = keras.Input((3,))
    outputs = layers.Dense(2)(PlantedSampling(fault="")([inputs, inputs]))
    own = record(keras.Model(inputs, outputs), np.ones((4, 3)))
    assert not own.failures
    assert max(own.rounding["loss"][""].rows) < 1e-6


def test_parts_are_recorded_alone(recording):
    own = record(make_model(), start=recording, parts=["loss"], label="own")
    assert list(own.arrays) == ["weights", "loss", "gradients"]
    result = compare(recording, own)
    assert not result.different
    assert "predictions on own: not in the recording" in result.failures


@pytest.mark.parametrize(("first", "second", "spread", "status"), [
    ([np.inf, 1.0], [np.inf, 1.05], 0.05, 1), ([np.int32(3)], [np.int32(900)], 0.0, 1), ([True], [False], 0.0, 1),
    ([1e-5], [3e-5], 1e-5, 0),
])  # fmt: skip
def test_infinity_and_integers_are_not_zero_in_theory(first, second, spread, status):
    """The last number is zero in float64, and noise in float32."""
    recordings = make_two("layers", first, second, spread=spread)
    for each, numbers in zip(recordings, (first, second), strict=True):
        exact = np.multiply(numbers, 0.0 if status == 0 else 1).astype(np.array(numbers).dtype)
        each.float64 = make_recording(each.backend, "float64", 1e-17, layers=exact)
    assert compare(*recordings).status() == status


@pytest.mark.parametrize(("size", "exact", "status"), [(2e-9, 4e-18, 0), (2e-3, 4e-12, 1), (2e-9, 2e-9, 1)])
def test_only_a_gradient_that_is_tiny_and_vanishes_in_float64_is_rounding_alone(size, exact, status):
    """As of a softmax of one key: zero on one backend, and on another always the same rounding."""
    recordings = make_two("gradients", np.full(8, size, "float32"), np.zeros(8, "float32"), spread=0.0)
    for each, own in zip(recordings, (exact, 0.0), strict=True):
        each.float64 = make_recording(each.backend, "float64", 0.0, gradients=np.full(8, own))
        for precise in (each, each.float64):
            precise.arrays["gradients"]["other"] = np.ones(8, "float32")
            precise.rounding["gradients"]["other"] = rounding(1e-7)
    assert compare(*recordings).status() == status


@pytest.mark.parametrize(("change", "words"), [
    (lambda r: r.batch.update(x=np.ones(2)), "be of one batch"),
    (lambda r: r.arrays.update(weights={"array": np.ones(3)}), "be of one model"),
    (lambda r: setattr(r, "batch_size", 2), "have equal steps and batch sizes"),
])  # fmt: skip
def test_recordings_of_other_models_or_batches_are_refused(change, words):
    first, second = make_two("weights", [1.0], [1.0])
    first.batch, second.batch = {"x": np.zeros(2)}, {"x": np.zeros(2)}
    change(second)
    with pytest.raises(ValueError, match=words):
        compare(first, second)


@pytest.mark.parametrize(("recordings", "words"), [
    ([make_recording("jax")], "at least two"),
    (["jax.npz", "torch.npz"], r"results of `record`, or of `Recording.load\(path\)`. Received: a str"),
])  # fmt: skip
def test_recordings_that_cannot_be_compared_are_refused(recordings, words):
    with pytest.raises(ValueError, match=f"`recordings` must be {words}"):
        compare(*recordings)


# The recording.


def test_gradients_loss_and_outputs_are_those_of_the_model(batch, recording):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((4,))
    model = keras.Model(inputs, layers.Dense(CLASSES, "tanh", name="last")(inputs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss)
    own = record(model, *batch, steps=1)
    value, gradients = layer_gradients(model, lambda outputs: loss(ops.convert_to_tensor(batch[1]), outputs), batch[0])
    assert own.arrays["loss"][""] == pytest.approx(float(value), rel=1e-6)
    for name, gradient in zip(own.arrays["gradients"], gradients.values(), strict=True):
        np.testing.assert_allclose(own.arrays["gradients"][name], gradient, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(own.arrays["training"][name], -0.01 * gradient, rtol=1e-3, atol=1e-7)
    outputs = model.predict(batch[0], verbose=0)
    np.testing.assert_allclose(own.arrays["predictions"][""], outputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(own.arrays["layers"]["last (Dense)"], outputs, rtol=1e-5, atol=1e-6)


def test_layers_stand_in_the_order_of_calls_and_the_notes_name_random_ones(recording):
    names = [name for name in recording.arrays["layers"] if not name.startswith("head/")]
    inner = {"head/loc (AffineMap)", "head/scale_diag (AffineMap)", "head/factor (AffineMap)"}
    assert inner <= set(recording.arrays["layers"])  # also on PyTorch, where a map skips the preparation of a call
    kinds = ["first (Dense)", "normal (BatchNormalization)", "drop (Dropout)", "planted (Planted)"]
    assert names == [*kinds, "head (HeteroscedasticDense)"]
    assert any("random layers draw numbers that are equal on every backend" in note for note in recording.notes)
    in_training = [name for name in recording.arrays["layers in training"] if not name.startswith("head/")]
    assert in_training == names[1:]  # BatchNormalization, Dropout and what follows
    assert not recording.failures


def test_the_steps_are_steps_of_training(recording):
    """The mean of BatchNormalization moves three times by a hundredth of its distance to the batch's mean."""
    outputs = recording.arrays["layers"]["first (Dense)"]
    changes = recording.arrays["training"]
    np.testing.assert_allclose(changes["normal/moving_mean"], (1 - 0.99**3) * outputs.mean(0), rtol=0.05, atol=1e-3)
    (step,) = (change for name, change in changes.items() if name.startswith("head/") and change.dtype.kind == "i")
    assert step == 3


def small(optimizer):
    """Returns a compiled model of one layer, with the same weights at every call."""
    layer = layers.Dense(CLASSES, name="last", kernel_initializer=keras.initializers.GlorotUniform(0))
    model = keras.Sequential([keras.Input((4,)), layer], name="model")
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def test_steps_go_through_the_batches_in_order(batch):
    changes = record(small("sgd"), *batch, batch_size=4, steps=range(1, 4)).arrays["training"]
    model = small("sgd")
    (kernel, _), (x, y) = model.get_weights(), batch
    for step, rows in enumerate((slice(0, 4), slice(4, 6), slice(0, 4)), 1):
        model.train_on_batch(x[rows], y[rows])
        expected = model.get_weights()[0] - kernel
        np.testing.assert_allclose(changes[f"model/last/kernel, step {step}"], expected, atol=1e-6)
    assert len(changes) == 6


@pytest.mark.parametrize("is_by_name", [True, False])
def test_weights_without_decay_are_recorded_without_decay(is_by_name):
    """The gradients are zero, so nothing else changes a weight."""
    layer = layers.Dense(2, name="last", kernel_initializer="ones", bias_initializer="ones")
    model = keras.Sequential([keras.Input((3,)), layer], name="model")
    optimizer = keras.optimizers.AdamW(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(**{"var_names": ["bias"]} if is_by_name else {"var_list": [layer.bias]})
    model.compile(optimizer, lambda y, outputs: 0.0 * outputs)
    changes = record(model, np.ones((4, 3)), np.ones((4, 2)), steps=1).arrays["training"]
    np.testing.assert_array_equal(changes["model/last/bias"], 0.0)
    np.testing.assert_allclose(changes["model/last/kernel"], -0.05, rtol=1e-5)


def test_an_optimizer_that_cannot_be_copied_is_a_failure_of_the_training_alone(batch):
    """A copy from its config would train with another factor."""

    class Own(keras.optimizers.SGD):
        def __init__(self, learning_rate=0.1, factor=1.0, **arguments):
            super().__init__(learning_rate, **arguments)
            self.factor = factor

    failures = record(small(Own(0.1, factor=2.0)), *batch).failures
    assert list(failures) == ["training"]
    assert "Own cannot be rebuilt from its config: its `get_config` lacks ['factor']" in failures["training"]


def test_the_first_step_that_differs_is_named(batch):
    """The third step of one backend has another learning rate."""
    rates = 0.1, keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.1, 0.1001])
    models = [small(keras.optimizers.SGD(rate)) for rate in rates]
    first = record(models[0], *batch, batch_size=2, steps=range(1, 6))
    second = record(models[1], start=first)
    assert compare(first, second).different[0].name == "model/last/kernel, step 3"


@pytest.mark.parametrize(("argument", "value", "words"), [
    ("steps", 0, "integer at least 1"), ("steps", [], "name at least one step"), ("steps", [2, 0], "at least 1"),
    ("batch_size", 0, "integer at least 1"), ("units", 0.0, "greater than 0"),
    ("parts", "gradients", "names among"), ("parts", ["gradient"], "names among"),
    ("x", np.ones((0, 4)), r"have at least one example\. Received: none"),
])  # fmt: skip
def test_wrong_arguments_are_refused(argument, value, words):
    with pytest.raises(ValueError, match=f"`{argument}` must .*{words}"):
        record(small("sgd"), **{"x": np.ones((2, 4)), argument: value})


def test_nothing_of_the_user_changes(batch):
    model = make_model()
    model.train_on_batch(*batch)
    expected = make_model()
    expected.train_on_batch(*batch)
    optimizer, calls = model.optimizer, [vars(layer).get("call") for layer in model.layers]
    states = random.getstate(), np.random.get_state()[1].tolist()
    record(model, *batch)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == states
    assert model.optimizer is optimizer
    assert [vars(layer).get("call") for layer in model.layers] == calls
    for changed, right in zip(model.variables, expected.variables, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(changed), ops.convert_to_numpy(right))
    draws = [keras.random.uniform((3,)) for _ in range(2)]
    assert not np.array_equal(*map(ops.convert_to_numpy, draws))


def test_a_second_recording_of_the_same_model_is_equal(recording):
    """Also Dropout's state, the noise of the head and the counter of its steps begin again."""
    result = compare(recording, other(recording))
    assert result.status() in (0, 3)
    assert all(row.difference < 1e-6 for row in result.rows if row.part != "training"), str(result)


def test_a_comparison_prints_the_versions_of_keras_and_of_each_backend(recording):
    keras_version, backend = f"keras {keras.__version__}", keras.config.backend()
    assert set(recording.versions) == {"keras", backend, "device"}
    text = str(compare(recording, dataclasses.replace(recording, versions={"other": "9.8"})))
    known = [f"{name} {recording.versions[name]}" for name in (backend, "device")]
    versions = sorted([keras_version, *known, "other 9.8"])
    assert text.splitlines()[-1] == f"Versions: {', '.join(versions)}"


class Nameless(layers.Layer):
    """Layer whose weight has no name, so that Keras counts it in each process."""

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[1:], initializer="ones")

    def call(self, x):
        return self.scale * x


def test_weights_without_a_name_are_matched_in_models_made_one_after_the_other(batch):
    models = [keras.Sequential([keras.Input((4,)), Nameless(name="nameless")], name="model") for _ in range(2)]
    assert models[0].weights[0].path != models[1].weights[0].path
    first, second = (record(model, batch[0], label=label) for model, label in zip(models, "ab", strict=True))
    assert compare(first, second).is_equal


def test_a_model_made_again_in_one_process_takes_the_weights_by_order(batch):
    """Keras gives its layers other names."""
    models = [keras.Sequential([keras.Input((4,)), layers.Dense(2)]) for _ in range(2)]
    first = record(models[0], batch[0])
    np.testing.assert_array_equal(
        record(models[1], start=first).arrays["predictions"][""], first.arrays["predictions"][""]
    )


def test_a_file_holds_all_of_it(recording, tmp_path):
    recording.save(tmp_path / "model.recording")
    loaded = Recording.load(tmp_path / "model.recording")
    for part, arrays in recording.arrays.items():
        for name, array in arrays.items():
            np.testing.assert_array_equal(loaded.arrays[part][name], array)
            assert loaded.arrays[part][name].dtype == array.dtype
    for part, named in recording.rounding.items():
        for name, slices in named.items():
            assert all(map(np.array_equal, slices, loaded.rounding[part][name]))
    for field in ("notes", "label", "versions", "steps", "batch_size"):
        assert getattr(loaded, field) == getattr(recording, field)


def test_another_file_is_refused(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"no zip")
    with pytest.raises(ValueError, match=r"be a file that `Recording\.save` wrote"):
        Recording.load(tmp_path / "x.npz")


def test_a_layer_that_is_not_deterministic_is_named(recording):
    result = compare(recording, other(recording, fault=Unsteady()))
    text = "a second call of `planted/unsteady (Unsteady)` returns different outputs, so the model is not deterministic"
    assert result.answer() == f"layers on other: {text}."


# Other models.


def test_a_recurrent_model_without_a_loss_and_a_batch_by_name():
    inputs = {"a": keras.Input((5, 2), name="a"), "b": keras.Input((2,), name="b")}
    both = layers.Concatenate(name="both")([layers.LSTM(3, name="lstm")(inputs["a"]), inputs["b"]])
    model = keras.Model(inputs, layers.Dense(2, name="last")(both))
    own = record(model, {"a": np.ones((3, 5, 2), "float32"), "b": np.ones((3, 2), "float32")}, steps=1)
    assert list(own.arrays["layers"]) == ["lstm (LSTM)", "both (Concatenate)", "last (Dense)"]
    assert set(own.batch) == {"x.a", "x.b"}
    factors = np.cos(np.arange(2))
    assert own.arrays["loss"][""] == pytest.approx(np.mean(own.arrays["predictions"][""] * factors), rel=1e-5)
    np.testing.assert_allclose(own.arrays["gradients"]["last/bias"], factors / 2, rtol=1e-5)
    assert any("is not compiled" in note for note in own.notes)


def test_a_subclass_is_built_by_the_first_call():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = layers.Dense(2, name="inner")

        def call(self, x):
            return self.inner(self.inner(x))

    own = record(Own(), np.ones((3, 2), "float32"))
    assert list(own.arrays["layers"]) == ["inner (Dense)", "inner (Dense), call 2"]


def test_an_output_that_is_no_array_is_named():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = Planted(lambda x: (2 * x, object()), name="inner")

        def call(self, x):
            return {"first": self.inner(x)[0], "none": None}

    own = record(Own(), np.ones((3, 2), "float32"))
    predicted = own.arrays.get("predictions", ["output first"])  # Keras' `predict` raises for None on TensorFlow
    assert (list(predicted), list(own.arrays["layers"]), own.omitted) == (["output first"], ["inner (Planted)"], [])
    assert "an output of `inner (Planted)` is no array, but of the class object, and is not compared" in own.notes


@pytest.mark.smoke
def test_reduced_precision_is_named_and_has_its_own_limit(batch):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2, dtype="mixed_bfloat16", name="half")])
    own = record(model, batch[0])
    assert own.precision == "bfloat16"
    assert "these layers compute in bfloat16, so no limit is below its rounding: half" in own.notes
    assert min(row.limit for row in compare(own, own).rows if row.part == "layers") >= 2**-5


@pytest.mark.on_tensorflow
@pytest.mark.skipif(keras.config.backend() == "jax", reason="JAX must be told of float64 at its start")
@pytest.mark.smoke
def test_the_judge_has_the_powers_of_beta_and_scales_in_float64():
    """The first step of Adam is the learning rate; TensorFlow made it 6e-6 smaller, and rounded 1 / 255 and [0.1]."""
    with float64():
        both = [layers.Normalization(mean=[0.1], variance=[1.0]), layers.Normalization(mean=0.1, variance=1.0)]
        model = keras.Sequential([keras.Input((1,)), layers.Rescaling(1 / 255), *both, layers.Dense(1, use_bias=False)])
        model.compile(keras.optimizers.Adam(0.1, epsilon=1e-30), "mse")
        own = record(model, np.full((1, 1), 2.0), np.full((1, 1), 5.0), steps=1)
    (change,), (scaled, _, moved, _) = own.arrays["training"].values(), own.arrays["layers"].values()
    assert [abs(change.item()), scaled.item(), moved.item()] == pytest.approx([0.1, 2 / 255, 2 / 255 - 0.2], rel=1e-12)


def test_indices_are_not_rounded():
    parts = [layers.Embedding(9, 2), layers.Flatten(), layers.Dense(2)]
    model = keras.Sequential([keras.Input((6,)), *parts])  # floats, by default
    assert max(s.rows.max() for s in record(model, np.arange(6.0)[None]).rounding["layers"].values()) < 1e-5
    made = make_inputs(model)
    assert np.array_equal(made, np.round(made))
    assert made.max() > 1
    assert make_inputs(keras.Sequential([keras.Input(batch_shape=(6, 3)), layers.Dense(2)])).shape == (6, 3)


def test_large_numbers_of_the_second_batch_are_not_all_that_a_normalization_sees():
    """Behind a ReLU all other rows would be equal, and a deep network of their signs jumps with every rounding."""
    begin = [layers.Conv2D(32, 3), layers.ReLU(), layers.MaxPooling2D(3), layers.BatchNormalization(), layers.ReLU()]
    model = keras.Sequential([keras.Input((16, 16, 3)), *begin])
    y = to_numpy(model(make_inputs(model, is_second=True), training=True)).reshape(4, -1)
    assert (np.abs(y[:3] - y[[1, 2, 0]]).max(1) > 0.5).all()


def test_noise_in_training_is_not_called_rounding(batch):
    def noise(x):
        return x + random.random()

    class Noisy(layers.Layer):
        def call(self, x, training=False):
            return noise(x) if training else x

    model = keras.Sequential([keras.Input((4,)), Noisy(), layers.Dense(2)])
    model.compile("sgd", "mse", run_eagerly=True)
    assert "gradients" in record(model, batch[0], np.ones((len(batch[0]), 2)), jit_compile=False).failures


def test_a_model_compiled_without_a_loss_has_that_of_its_outputs(batch):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    model.compile("sgd")
    own = record(model, *batch)
    assert own.arrays["loss"]
    assert "the model has no loss, so the loss is the mean of its outputs, each times a fixed number" in own.notes


def test_a_start_with_other_weights_or_data_is_refused(recording, batch):
    with pytest.raises(ValueError, match="`start` must stand alone, because it has the data"):
        record(make_model(), batch[0], start=recording)
    with pytest.raises(ValueError, match="`start` must have a weight"):
        record(keras.Sequential([keras.Input((4,)), layers.Dense(2)]), start=recording)


class Trains(layers.BatchNormalization):
    """Layer that trains if its call does not say otherwise."""

    def call(self, inputs, training=True, mask=None):
        return super().call(inputs, training=training, mask=mask)


def test_starting_weights_are_recorded_before_any_step(batch):
    model = keras.Sequential([keras.Input((4,)), Trains(), layers.Dense(CLASSES)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    weights = record(model, *batch).arrays["weights"]
    (name,) = [name for name in weights if "moving_mean" in name]
    np.testing.assert_array_equal(weights[name], np.zeros(4))
