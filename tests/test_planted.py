"""The bugs of `tests.planted` can be planted, and its list has the tests that have one."""

import ast
import pathlib

import pytest

from tests import planted
from tests.planted import BACKENDS, BUGS, ROOT, Bug

pytestmark = pytest.mark.once

FILES = sorted((ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug):
    source = (ROOT / bug.file).read_text(encoding="utf-8")
    wrong = planted.changed(source, bug)
    compile(wrong, bug.file, "exec")
    assert ast.dump(ast.parse(wrong)) != ast.dump(ast.parse(source))  # more than a comment
    assert bug.backends
    assert set(bug.backends) <= set(BACKENDS)
    assert all((ROOT / "tests" / name).exists() for name in bug.tests)


@pytest.mark.planted
@pytest.mark.parametrize("text", ["a = 2", "a = 1; a = 1"], ids=["gone", "twice"])
def test_a_text_that_is_gone_or_there_twice_is_refused(text):
    bug = Bug("a name", "a.py", "a = 1", "a = 2", ())
    assert planted.changed("a = 1", bug) == "a = 2"
    with pytest.raises(ValueError, match=r"`old` must be in a\.py once"):
        planted.changed(text, bug)


def project(folder, test):
    """A repository with one test of one function."""
    for name, text in {
        "a.py": "def f():\n    return 1\n",
        "tests/test_a.py": f"from a import f\n\n\ndef test_f():\n    {test}\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.planted
@pytest.mark.parametrize(
    ("test", "count", "words"),
    [
        ("assert f() == 1", 1, "found on torch by tests/test_a.py::test_f"),
        ("f()", 0, "NOT FOUND on torch"),
    ],
    ids=["found", "not found"],
)
def test_a_bug_is_found_by_a_test_that_fails_for_it_alone(test, count, words, tmp_path, capsys):
    bug = Bug("another number", "a.py", "return 1", "return 2", ("test_a.py",), ("torch",))
    assert planted.plant([bug], project(tmp_path, test)) == count
    assert f"a.py: another number: {words}, " in capsys.readouterr().out
    assert (tmp_path / "a.py").read_text() == "def f():\n    return 1\n"


@pytest.mark.planted
def test_a_test_that_fails_without_the_bug_finds_nothing(tmp_path):
    bug = Bug("another number", "a.py", "return 1", "return 2", ("test_a.py",), ("torch",))
    with pytest.raises(RuntimeError, match="test_f fails on torch without the bug"):
        planted.plant([bug], project(tmp_path, "assert False"))


@pytest.mark.parametrize(
    ("path", "marks", "place"),
    [
        ("ops/test_a.py", {"planted"}, "on all three backends"),
        ("ops/test_a.py", {"planted", "once"}, "once, on torch"),
        ("ops/test_a.py", {"once", "smoke"}, "on all three backends"),
        ("ops/test_a.py", {"once", "thorough"}, "only in the session thorough"),
        ("site/test_a.py", set(), "only in the session docs"),
        ("export/test_a.py", set(), "only in the session export"),
        ("test_pretended_accelerator.py", set(), "only on the pretended accelerator"),
    ],
)
def test_where_a_test_runs(path, marks, place):
    assert planted.place_of(pathlib.Path(path), marks) == place


def test_the_mark_is_read_from_a_file_that_is_not_collected():
    source = "@pytest.mark.planted\n@pytest.mark.once\ndef test_a(): ...\n\n\n@pytest.mark.once\ndef test_b(): ...\n"
    assert planted.marked(source) == ["test_a"]
    assert sum(map(len, planted.read(["site"]).values())) >= 5


def test_a_name_that_speaks_of_a_planted_bug_needs_the_mark():
    without = []
    for file in FILES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        said = {name for name in names if name.startswith("test_") and "planted" in name and "caught" in name}
        without += [f"{file.name}::{name}" for name in said - set(planted.marked(file.read_text(encoding="utf-8")))]
    assert len(FILES) > 50
    assert without == []
