"""The report in Chromium: it can be read and sorted, and runs only its own script."""

import os
import pathlib

import numpy as np
import pytest
from chromium import SIZES, context

from keras_het.labels.reports import report
from tests.labels.reports.models import EXAMPLES, HOSTILE, make_data, plain


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    images = np.random.default_rng(0).integers(0, 256, size=(EXAMPLES, 8, 8)).astype("uint8")
    shown = {"images": images, "texts": [name * 99 for name in HOSTILE] * (EXAMPLES // 4)}
    return report(plain(), *make_data(), HOSTILE, tmp_path_factory.mktemp("report"), **shown)


@pytest.fixture
def opened(browser, path):
    """Opens the page, and records its requests, messages and errors."""
    contexts, seen = [], []

    def make(size="desktop", scheme="light", **options):
        contexts.append(context(browser, size, scheme, **options))
        page = contexts[-1].new_page()
        page.on("request", lambda request: seen.append(request.url) if not request.url.startswith("data:") else None)
        page.on("console", lambda message: seen.append(message.text))
        page.on("pageerror", lambda error: seen.append(str(error)))
        page.on("dialog", lambda dialog: seen.append(dialog.message) or dialog.dismiss())
        page.goto(path.as_uri())
        assert seen == [path.as_uri()]
        return page

    yield make
    assert seen == [path.as_uri()]
    for made in contexts:
        made.close()


def column(page, number):
    return page.locator(f"#flagged tbody tr td:nth-child({number})").all_inner_texts()


def test_the_page_can_be_read(opened):
    page = opened()
    assert page.title() == "Labels and probabilities"
    assert "10 of 120 labels (8.3%)" in page.inner_text("#summary")
    assert HOSTILE[1] in page.inner_text("#flips")
    assert page.locator("script").count() == 1
    assert len(column(page, 2)) == 10
    loaded = page.evaluate("[...document.images].map((image) => image.complete && image.naturalWidth > 0)")
    assert loaded == [True] * (10 + 1)  # issues and the figure


@pytest.mark.parametrize(
    ("title", "number", "kind"), [("Example", 2, int), ("Score", 5, float), ("Label", 3, str.lower)]
)
def test_a_click_on_a_header_sorts_the_table(title, number, kind, opened):
    page = opened()
    before = column(page, number)
    head = page.locator("#flagged").get_by_role("button", name=title, exact=False)
    head.click()
    up = column(page, number)
    assert sorted(up) == sorted(before)
    assert page.locator("#flagged th[aria-sort=ascending]").inner_text().startswith(title)
    head.press("Enter")
    down = column(page, number)
    if kind is str.lower:
        assert up == sorted(before, key=page_order(page, before).index)
    else:
        assert [kind(text) for text in up] == sorted(map(kind, before))
        assert [kind(text) for text in down] == sorted(map(kind, before), reverse=True)


def page_order(page, texts):
    """Returns texts in the sort order of the browser."""
    return page.evaluate("(texts) => [...texts].sort((a, b) => a.localeCompare(b))", texts)


def test_the_page_can_be_read_without_scripts(opened):
    page = opened(java_script_enabled=False)
    assert len(column(page, 2)) == 10
    assert page.locator("#flagged th button").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_fits_and_is_seen(size, scheme, opened, tmp_path):
    page = opened(size, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    text, ground = (page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
    bright = [sum(map(float, color.strip("rgb()").split(","))) / 3 for color in (text, ground)]
    assert (bright[0] < 60 and bright[1] > 200) if scheme == "light" else (bright[0] > 200 and bright[1] < 60)
    shown = page.evaluate(
        "document.querySelector('picture img').currentSrc === document.querySelector('picture source').srcset"
    )
    assert shown == (scheme == "dark")
    folder = pathlib.Path(os.environ.get("SCREENSHOTS") or tmp_path)
    page.screenshot(path=folder / f"{size}-{scheme}.png", full_page=True)
    assert (folder / f"{size}-{scheme}.png").stat().st_size > 50_000
