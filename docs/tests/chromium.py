"""Chromium for the tests of pages: the program in the variable `CHROMIUM`, or the one of playwright."""

import os

import pytest

SIZES = {"desktop": (1400, 900), "laptop": (1100, 800), "phone": (390, 844)}
QUIET = ("--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@pytest.fixture(scope="session")
def browser():
    """Starts the browser once."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=os.environ.get("CHROMIUM") or None, args=list(QUIET))
        yield chromium
        chromium.close()


def context(browser, size, scheme, **options):
    """Returns a window of a size and colour scheme."""
    width, height = SIZES[size]
    return browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
