"""Result files: each says how to run it again, and a run is read back as it was published."""

import pathlib
import re

import pytest

import keras_het
from benchmarks.lib import results

pytestmark = pytest.mark.once

ROOT = pathlib.Path(keras_het.__file__).parent.parent


def test_every_result_file_says_what_is_needed_to_run_it_again():
    files = [*results.FOLDER.glob("*.json"), *(ROOT / "guides" / "outputs").glob("*.json")]
    assert len(files) >= 30
    for run in map(results.read, files):
        assert runs(run.command), run.command
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", run.date)
        assert set(run.versions) & {"jax", "tensorflow", "torch"}
        assert "keras" in run.versions
        assert run.machine
        assert run.seeds or "benchmarks.real.verified" in run.command  # nothing is drawn there
        assert re.fullmatch(r"[0-9a-f]{7,}", run.commit)  # without +: of code that others can have


def runs(command):
    """Whether `python -m` finds the module of a command."""
    module = command.removeprefix("python -m ").split()[0].replace(".", "/")
    found = [ROOT / f"{module}.py", ROOT / module / "__main__.py"]
    return command.startswith("python -m ") and (module == "nox" or any(path.exists() for path in found))


@pytest.mark.planted
def test_a_command_without_a_module_is_found():
    assert runs("python -m benchmarks.arena --quick")
    assert not runs("python -m benchmarks.planted --quick")
    assert not runs("python benchmarks/arena.py")


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
    assert "| 1.0 +- 0.5 |" in page
    with_note = run._replace(note=["One sentence.", "Another one."])
    results.write(tmp_path / "again.json", with_note)
    assert results.read(tmp_path / "again.json") == with_note
    assert "\n\nAnother one.\n\n## a title" in results.page("again", with_note)
