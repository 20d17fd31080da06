"""Fuzz: `FUZZ_EXAMPLES` cases of each kind, 3 by default, and a planted fault for each of its checks."""

import os
import pickle
import tempfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import configs, damage, files, heads, subjects
from tests.fuzz.guard import guarded

pytestmark = pytest.mark.once


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


@pytest.mark.parametrize("kind", files.KINDS)
def test_whole_files_are_read_and_an_empty_file_is_refused(kind):
    assert files.check(files.Case(kind, None, ()), files.CONTENTS) == "whole"
    end = "refused" if files.KINDS[kind].own else "refused by Keras"
    assert files.check(files.Case(kind, None, (damage.Change("cut", 0.0, None),)), files.CONTENTS) == end
