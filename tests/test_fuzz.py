"""Fuzz: `FUZZ_EXAMPLES` cases of each kind, 3 by default, and a planted fault for each of its checks."""

import os
import pathlib
import pickle
import tempfile

import keras
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from keras import ops

from keras_het.layers import HeteroscedasticDense
from tests.fuzz import configs, damage, files, heads, subjects
from tests.fuzz.guard import guarded

pytestmark = pytest.mark.once

X = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")


many = settings(
    max_examples=int(os.environ.get("FUZZ_EXAMPLES", 3)), deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.thorough
@many
@given(heads.cases())
def test_heads(case):
    heads.check(case)


@pytest.mark.thorough
@many
@given(configs.cases(subjects.KNOWN))
def test_configs(case):
    configs.check(case, subjects.KNOWN)


@pytest.mark.thorough
@many
@given(files.cases())
def test_files(case):
    files.check(case, files.CONTENTS)


class NotFinite(HeteroscedasticDense):
    def call(self, inputs, training=False):
        return super().call(inputs) / (0.0 if training else 1.0)


class OtherShape(HeteroscedasticDense):
    def call(self, inputs, training=False):
        return super().call(inputs, training)[..., :-1]


class NotNormalised(HeteroscedasticDense):
    def call(self, inputs, training=False):
        return super().call(inputs, training) + 0.001


class Drifts(HeteroscedasticDense):
    def call(self, inputs, training=False):
        return super().call(inputs, training) + 1e-3 * ops.cast(self.clock.step, "float32")


class NoGradient(HeteroscedasticDense):
    def call(self, inputs, training=False):
        return super().call(inputs, training) + 0.0 * ops.sqrt(0.0 * ops.sum(self.loc_layer.kernel))


class Forgets(HeteroscedasticDense):
    def get_config(self):
        return {**super().get_config(), "temperature": 5.0}


@keras.saving.register_keras_serializable("tests")
class NotSaved(HeteroscedasticDense):
    made = 0

    def build(self, input_shape):
        super().build(input_shape)
        NotSaved.made += 1
        self.bonus = float(NotSaved.made)

    def call(self, inputs, training=False):
        return super().call(inputs, training) * self.bonus


@pytest.mark.parametrize(("check", "kind", "text"), [
    (heads.check_outputs, NotFinite, "outputs are not finite, training=True"),
    (heads.check_outputs, OtherShape, "shape"),
    (heads.check_sums, NotNormalised, "the sum of probabilities is off by 0.001"),
    (heads.check_repeats, Drifts, "a prediction after a step"),
    (heads.check_gradients, NoGradient, "the gradient of loc/kernel is not finite"),
    (heads.check_config, Forgets, "outputs of the config"),
    (heads.check_file, NotSaved, "predictions"),
])  # fmt: skip
def test_a_planted_fault_of_a_head_is_found(check, kind, text):
    sound, faulty = (
        each(4, 2, integrator="monte_carlo", temperature=2.0, seed=0) for each in (HeteroscedasticDense, kind)
    )
    for head in (sound, faulty):
        head.build((None, 3))
        head.covariance.scale_diag_layer.bias.assign([3.0] * 4)
    check(sound, X)
    with pytest.raises(AssertionError, match=text):
        check(faulty, X)


@pytest.mark.parametrize(("harm", "text"), [
    (lambda folder: os.system("true"), "os.system"),
    (lambda folder: pickle.loads(pickle.dumps(damage.Evil())), "pickle.find_class"),
    (lambda folder: (folder / "new.txt").write_text(""), "open"),
    (lambda folder: (folder / "old.txt").unlink(), "os.remove"),
    (lambda folder: (folder / "old.txt").rename(folder / "new.txt"), "os.rename"),
    (lambda folder: np.ones(8 << 20), "MiB"),
    (lambda folder: sum(range(20_000_000)), "the code took .* s"),
], ids=["command", "pickle", "new file", "lost file", "moved file", "memory", "time"])  # fmt: skip
def test_the_guard_finds_what_a_hostile_file_may_do(harm, text, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "old.txt").write_text("kept")
    with guarded(scratch, megabytes=30, seconds=0.1):
        (scratch / "a.txt").write_text((tmp_path / "old.txt").read_text())
        with tempfile.TemporaryDirectory(dir=scratch):
            pass
    with pytest.raises(AssertionError, match=text), guarded(scratch, megabytes=30, seconds=0.1):
        harm(tmp_path)


@keras.saving.register_keras_serializable("tests")
class Careless(keras.layers.Layer):
    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        self.size = {1: "small"}[size] if isinstance(size, int) else float(size)


@pytest.mark.parametrize(
    ("size", "text"), [(2, "KeyError: 2"), ("x", "ValueError: could not convert string to float: 'x'")]
)
def test_a_planted_refusal_that_says_no_rule_is_found(size, text, monkeypatch):
    saved = keras.saving.serialize_keras_object(Careless(1.5))
    saved["config"]["size"] = size
    with configs.whole_tracebacks():
        assert configs.made_or_refused(saved, None) == "refused by Keras"
        monkeypatch.setattr(configs, "PACKAGE", str(pathlib.Path(__file__).parent))
        with pytest.raises(AssertionError, match=f"no clear refusal: {text}"):
            configs.made_or_refused(saved, None)


def test_clear_refusals_and_sound_objects_are_told_apart():
    saved = subjects.KNOWN["full head"].config
    for path, value, end in (
        (("config", "units"), 1 << 62, "refused"),
        (("config", "further"), 1, "refused by Keras"),
        (("config", "link"), configs.LAMBDA, "refused by Keras"),
        (("config", "units"), 5, "accepted"),
        (("config", "temperature"), configs.REMOVED, "accepted"),
    ):
        case = configs.Case("full head", ((path, value),))
        assert configs.check(case, {"full head": subjects.Subject(saved, subjects.X)}) == end, path


def unnamed(folder):
    raise ValueError("`x` must be right. Received: something else")


def other_kind(folder):
    raise KeyError(f"{folder} must be right. Received: something else")


@pytest.mark.parametrize(("read", "text"), [
    (lambda folder: np.load(folder / "data.npz", allow_pickle=True)["x"], "pickle.find_class"),
    (lambda folder: (folder / "data.npz").write_bytes(b""), "the code ran or changed something"),
    (unnamed, "no file and rule"),
    (other_kind, "KeyError instead of a ValueError"),
])  # fmt: skip
def test_a_planted_fault_of_a_reader_is_found(read, text, monkeypatch):
    case = files.Case("data", None, (damage.Change("replace member", 0.0, "pickle"),))
    assert files.check(case, files.CONTENTS) == "refused"
    monkeypatch.setitem(files.KINDS, "data", files.KINDS["data"]._replace(read=read))
    with pytest.raises(AssertionError, match=text):
        files.check(case, files.CONTENTS)


@pytest.mark.parametrize("kind", files.KINDS)
def test_whole_files_are_read_and_an_empty_file_is_refused(kind):
    assert files.check(files.Case(kind, None, ()), files.CONTENTS) == "whole"
    end = "refused" if files.KINDS[kind].own else "refused by Keras"
    assert files.check(files.Case(kind, None, (damage.Change("cut", 0.0, None),)), files.CONTENTS) == end
