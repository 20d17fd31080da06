"""The site that `python -m nox -s docs` has built, and the browser that opens it."""

import pytest
from chromium import browser
from site_files import ROOT

__all__ = ["browser"]  # a fixture


@pytest.fixture(scope="session")
def site():
    folder = ROOT / "build" / "site"
    assert (folder / "index.html").exists(), "The site is not built: python -m nox -s docs"
    return folder
