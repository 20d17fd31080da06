"""The versions that are written at two places agree, and the oldest ones are those of pyproject.toml."""

import pathlib
import re
import tomllib

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parent.parent
PINS = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_hooks_have_the_ruff_of_the_session_lint():
    pinned = re.findall(r"ruff==([\d.]+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert pinned
    assert set(pinned) == {PINS["ruff"]}


def test_pins_are_no_older_than_the_bounds():
    requirements = [
        *PROJECT["dependencies"],
        *(r for extra in PROJECT["optional-dependencies"].values() for r in extra),
    ]
    bounds = dict(match.groups() for match in map(re.compile(r"([\w-]+)>=([\d.]+)").match, requirements) if match)
    assert {"keras", "numpy", "scipy", "jax", "torch"} <= set(bounds)
    number = {name: [int(part) for part in version.split(".")] for name, version in PINS.items() if name in bounds}
    assert [name for name in number if number[name] < [int(part) for part in bounds[name].split(".")]] == []


def test_the_bounds_that_documents_name_are_true():
    keras = re.search(r"keras>=([\d.]+)", " ".join(PROJECT["dependencies"]))[1]
    python = PROJECT["requires-python"].removeprefix(">=")
    assert f"from {keras}, the first release" in " ".join((ROOT / "SUPPORT.md").read_text().split())
    assert f"keras >= {keras}" in (ROOT / "SECURITY.md").read_text()
    assert f"Python {python} or newer" in (ROOT / "CONTRIBUTING.md").read_text()
