"""The site that `python -m nox -s docs` has built."""

import pathlib

import pytest

from tests.chromium import browser

__all__ = ["browser"]  # a fixture

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site():
    folder = ROOT / "build" / "site"
    assert (folder / "index.html").exists(), "The site is not built: python -m nox -s docs"
    return folder
