"""Fixtures: the site that `python -m nox -s docs` has built, and a browser."""

import pytest
from chromium import browser
from site_files import ROOT

__all__ = ["browser"]  # a fixture


@pytest.fixture(scope="session")
def site():
    folder = ROOT / "build" / "site"
    assert (folder / "index.html").exists(), "The site is not built: python -m nox -s docs"
    return folder
