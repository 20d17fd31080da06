"""Fuzz: `FUZZ_EXAMPLES` cases of each kind, 3 by default, and a planted fault for each of its checks."""

import os
import pickle

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import configs, damage, files, heads
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
@given(configs.cases())
def test_configs(case):
    configs.check(case)


@pytest.mark.thorough
@many
@given(files.cases())
def test_files(case):
    files.check(case)


@pytest.mark.parametrize(("harm", "text"), [
    (lambda folder: pickle.loads(pickle.dumps(damage.Evil())), "os.system|pickle.find_class"),
    (lambda folder: (folder / "new.txt").write_text(""), "open"),
    (lambda folder: (folder / "old.txt").unlink(), "os.remove"),
    (lambda folder: np.ones(8 << 20), "MiB"),
    (lambda folder: sum(range(20_000_000)), "the code took .* s"),
], ids=["pickle", "new file", "lost file", "memory", "time"])  # fmt: skip
def test_the_guard_finds_what_an_untrusted_file_may_do(harm, text, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "old.txt").write_text("kept")
    with guarded(scratch, megabytes=30, seconds=0.1):
        (scratch / "a.txt").write_text((tmp_path / "old.txt").read_text())
    with pytest.raises(AssertionError, match=text), guarded(scratch, megabytes=30, seconds=0.1):
        harm(tmp_path)


@pytest.mark.parametrize("kind", files.KINDS)
def test_whole_files_are_read_and_an_empty_file_is_refused(kind):
    assert files.check(files.Case(kind, None, ())) == "whole"
    assert files.check(files.Case(kind, None, (damage.Change("bytes", 0.0, (1 << 40, b"")),))) == "refused"
