"""Result files have a command that runs them again; the list of benchmarks is complete."""

import argparse
import importlib
import re
import shlex
import sys
import tomllib

import pytest

from benchmarks import BENCHMARKS
from benchmarks.lib import results
from benchmarks.lib.results import ROOT
from benchmarks.lib.views import archive

pytestmark = pytest.mark.once


def test_every_result_file_says_what_is_needed_to_run_it_again():
    files = [*results.FOLDER.glob("*.json"), *(ROOT / "guides" / "outputs").glob("*.json")]
    assert len(files) >= 30
    for run in map(results.read, files):
        assert run.command.startswith("python -m ")
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", run.date)
        assert set(run.versions) & {"jax", "tensorflow", "torch"}
        assert "keras" in run.versions
        assert run.machine
        assert run.seeds or "benchmarks.real.verified" in run.command  # nothing is drawn there
        assert re.fullmatch(r"[0-9a-f]{7,}", run.commit)  # without +: of code that others can have


class ParsedError(Exception):
    """Signals that a parser accepted a command."""


@pytest.fixture(name="accepts")
def command_parser(monkeypatch):
    """Returns a function: whether the module of a command accepts its options today."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse_only(parser, *arguments):
        parse_args(parser, *arguments)
        raise ParsedError

    def accepts(run):
        monkeypatch.setattr(sys, "argv", shlex.split(run.command)[2:])
        try:
            importlib.import_module(run.module()).main()
        except ParsedError:
            return True
        except SystemExit:
            return False
        raise AssertionError(f"{run.module()} has no parser")

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    return accepts


def test_every_published_command_is_accepted(accepts):
    for name, run in archive.runs().items():
        assert accepts(run), name


@pytest.mark.planted
def test_a_command_with_a_removed_option_or_module_is_found(accepts):
    run = results.read(results.FOLDER / "choice.json")
    assert accepts(run)
    assert not accepts(run._replace(command=f"{run.command} --planted"))
    with pytest.raises(ModuleNotFoundError):
        accepts(run._replace(command="python -m benchmarks.planted --quick"))


def test_every_benchmark_with_a_time_is_there_and_every_module_with_a_command_has_a_time():
    """But for `cost.gpu` and `cost.speed`, which are sessions, and two that prepare data."""
    modules = [path for path in (ROOT / "benchmarks").rglob("*.py") if '__main__":' in path.read_text()]
    names = {".".join(path.relative_to(ROOT / "benchmarks").with_suffix("").parts) for path in modules}
    names = {name.removesuffix(".__main__") for name in names if not name.startswith(("lib.", "tests."))}
    assert names - set(BENCHMARKS) == {"cost.gpu", "cost.speed", "real.cifar", "real.weights"}
    assert set(BENCHMARKS) <= names
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for extras, groups, _ in BENCHMARKS.values():
        assert set(filter(None, extras.split(","))) <= set(project["project"]["optional-dependencies"])
        assert set(groups) <= set(project["dependency-groups"])


def test_a_run_that_is_published_is_read_back(tmp_path, capsys):
    tables = {"a title": [["head", "of two"], ['"quoted", ä', "1.0 +- 0.5"]], "a text": "Two words."}
    results.publish(tmp_path, "name", tables, seeds=range(2))
    run = results.read(tmp_path / "name.json")
    assert run.tables == tables
    assert run.seeds == [0, 1]
    assert "keras" in run.versions
    page = (tmp_path / "name.md").read_text()
    assert page == results.page("name", run)
    assert page in capsys.readouterr().out
    assert f"{results.about(run)}, commit {run.commit}." in page
    assert "| 1.0\u00a0±\u00a00.5 |" in page
    with_note = run._replace(note=["One sentence.", "Another one."])
    results.write(tmp_path / "again.json", with_note)
    assert results.read(tmp_path / "again.json") == with_note
    assert "\n\nAnother one.\n\n## a title" in results.page("again", with_note)
