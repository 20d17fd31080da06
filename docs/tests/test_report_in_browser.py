"""The report in Chromium: it can be read on every screen, and loads and runs nothing."""

import os
import pathlib

import numpy as np
import pytest
from chromium import SIZES, context

from keras_het.labels import find_issues, report
from tests.labels.test_page import COUNT, HOSTILE, WRONG, P, Y


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    images = np.random.default_rng(0).integers(0, 256, size=(COUNT, 8, 8)).astype("uint8")
    texts = [name * 99 for name in HOSTILE] * (COUNT // 4)
    folder = tmp_path_factory.mktemp("report")
    return report(find_issues(P, Y), folder, class_names=HOSTILE, images=images, examples=texts)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_fits_and_is_seen_and_asks_for_nothing(size, scheme, browser, path, tmp_path):
    window, seen = context(browser, size, scheme), []
    page = window.new_page()
    page.on("request", lambda request: seen.append(request.url) if not request.url.startswith("data:") else None)
    page.on("console", lambda message: seen.append(message.text))
    page.on("dialog", lambda dialog: seen.append(dialog.message) or dialog.dismiss())
    page.goto(path.as_uri())
    assert "10 of 120 labels" in page.inner_text("#summary")
    assert HOSTILE[1] in page.inner_text("#pairs")
    assert page.locator("#labels tr").count() == 1 + WRONG
    loaded = page.evaluate("[...document.images].map((image) => image.complete && image.naturalWidth > 0)")
    assert loaded == [True] * WRONG
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    color = page.evaluate("getComputedStyle(document.body).color")
    assert (sum(map(float, color.strip("rgb()").split(","))) / 3 > 128) == (scheme == "dark")
    folder = pathlib.Path(os.environ.get("SCREENSHOTS") or tmp_path)
    page.screenshot(path=folder / f"{size}-{scheme}.png", full_page=True)
    window.close()
    assert seen == [path.as_uri()]
