"""Facts that stand in two files agree: versions, the oldest of pyproject.toml, and the files of the source archive."""

import pathlib
import re
import tomllib

import pytest

from keras_het.base.version import __version__

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
PINS = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def test_pins_are_those_of_the_hooks_and_no_older_than_the_bounds():
    pinned = re.findall(r"ruff==([\d.]+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert pinned
    assert set(pinned) == {PINS["ruff"]}
    requirements = sum(PROJECT["optional-dependencies"].values(), PROJECT["dependencies"])
    bounds = dict(match.groups() for match in map(re.compile(r"([\w-]+)>=([\d.]+)").match, requirements) if match)
    assert {"keras", "numpy", "scipy", "jax", "torch"} <= set(bounds)
    number = {name: [int(part) for part in version.split(".")] for name, version in PINS.items() if name in bounds}
    assert [name for name in number if number[name] < [int(part) for part in bounds[name].split(".")]] == []


def test_the_bounds_that_documents_name_are_true():
    keras = re.search(r"keras>=([\d.]+)", " ".join(PROJECT["dependencies"]))[1]
    pythons = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert f"**Keras** {keras} or newer" in (ROOT / "SUPPORT.md").read_text()
    assert f"keras >= {keras}" in (ROOT / "SECURITY.md").read_text()
    assert f"**Python** {', '.join(pythons[:-1])} and {pythons[-1]}." in (ROOT / "SUPPORT.md").read_text()
    for page in ("CONTRIBUTING.md", "docs/index.md"):
        assert f"Python {', '.join(pythons[:-1])} or {pythons[-1]}" in (ROOT / page).read_text()


def test_the_changelog_and_the_citation_agree_with_the_version():
    changelog, citation = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    index = (ROOT / "docs" / "index.md").read_text()
    heads = re.findall(r"^## (.+)$", changelog, re.MULTILINE)
    entries = re.findall(r"^([\d.]+), (unreleased|\d{4}-\d\d-\d\d)$", "\n".join(heads), re.MULTILINE)
    assert len(entries) == len(heads) > 0
    assert "unreleased" not in [date for _, date in entries[1:]]
    order = [[int(part) for part in number.split(".")] for number, _ in entries]
    assert order == sorted(order, reverse=True)
    cited = re.findall(r"^version: (\S+)$", citation, re.MULTILINE) + re.findall(r"version = \{(.+?)\}", index)
    assert [entries[0][0], *cited] == [__version__] * 3


def test_the_source_archive_has_the_files_that_its_tests_read():
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    read = {name for source in sources for name in re.findall(r'ROOT / "([\w.-]+)"', source)}
    assert ".pre-commit-config.yaml" in read
    archived = {*PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"], "pyproject.toml"}
    assert read - archived == set()
